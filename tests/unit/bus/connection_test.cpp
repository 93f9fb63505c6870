// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <sys/un.h>

#include <catch2/catch.hpp>

#include "bus/codec.hpp"
#include "bus/connection.hpp"
#include "bus/names.hpp"
#include "private_bus.hpp"

using namespace virtguard;
using namespace virtguard::bus;

namespace {

constexpr const char* manager = "org.virtguard1.Manager";
constexpr const char* root = "/org/virtguard1";
const core::Resource cpu = core::Resource::cpu();
const core::Resource memory = core::Resource::memory();

Uuid uuid(unsigned char number) {
    return Uuid{.bytes = {0xab, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number}};
}

DomainPicture domain(const std::string& name, unsigned char number) {
    return {.guest = {.name = name,
                      .uuid = uuid(number),
                      .scheduler = "nova",
                      .state = core::GuestState::running,
                      .demand = {{cpu, 2}, {memory, 0}}},
            .pieces = {{cpu, 2, IdSet{1}, true}},
            .since = WallTime(std::chrono::microseconds(77))};
}

Picture picture() {
    Picture result;
    result.status.version = "0";
    result.status.state = "ready";
    result.status.admitted = 3;
    result.status.report.host.free = {{cpu, -1}, {memory, std::int64_t{5} << 40}};
    result.status.report.overcommit = {{cpu, Ratio::parse("1.15").value()}};
    result.nodes.emplace(node_path(1), core::NodeReport{.id = 1, .cpus = {0, 1, 7}});
    result.domains.emplace(domain_path(uuid(1)), domain("web", 1));
    return result;
}

/// The picture with so many domains more.
Picture picture_with(int domains) {
    Picture result = picture();
    for (int i = 2; i < domains + 2; ++i) {
        Uuid each = uuid(0);
        each.bytes[14] = static_cast<std::uint8_t>(i >> 8);
        each.bytes[15] = static_cast<std::uint8_t>(i & 0xff);
        result.domains.emplace(domain_path(each), domain("web", 0));
    }
    return result;
}

core::Outcome refusal() {
    return {.name = "big",
            .admitted = false,
            .demand = {{memory, 9}},
            .reasons = {{.code = core::Code::insufficient_node_capacity,
                         .resource = memory,
                         .nodes = {0, 1},
                         .requested = 9,
                         .free = -2,
                         .effective = 7,
                         .text = "no room"}}};
}

/// A bus, what is on it, and who looks at that.
struct Bench {
    explicit Bench(bool with_bus = true) {
        sd_event* event = nullptr;
        REQUIRE(sd_event_new(&event) >= 0);
        loop.reset(event);
        if (with_bus) {
            bus.begin();
            open();
            run_until(loop.get(), [&] { return joined; });
            client.emplace(loop.get(), bus.address());
        }
    }

    void open() { open(bus.address()); }
    void open(const std::string& address) {
        auto opened = Connection::open(
            loop.get(), 200, address,
            {.picture = [this] { return shown; },
             .joined = [this] { joined = true; },
             .lost = [this](const std::string& why) { lost = why; },
             .answers = {.begins = [this] { ++begun; }, .waits = [this] { answering(); }}},
            {.check =
                 [this](const std::string& xml, const std::string&, Actions::Checked done) {
                     checked = xml.size();
                     if (xml == "?")
                         return done(fail(Errc::syntax, "not XML"));
                     done(refusal());
                 },
             .explain =
                 [](const std::string& name, const std::string&, Actions::Checked done) {
                     done(fail(Errc::not_found, "no guest {}", name));
                 },
             .recent =
                 [](std::size_t most) {
                     return std::vector<core::DecidedStart>(
                         std::min<std::size_t>(most, 2),
                         {.time = WallTime(std::chrono::microseconds(5)),
                          .name = "web",
                          .scheduler = "nova",
                          .verdict = core::Verdict::would_refuse,
                          .reasons = refusal().reasons});
                 },
             .order =
                 [this](const core::Order& order, std::uint32_t user, Actions::Done done) {
                     ordered = fmt::format("{} by {}", core::order_text(order), user);
                     if (const auto* reserve = std::get_if<core::Reserve>(&order))
                         reserved = *reserve;
                     done(order_result);
                 },
             .reservations =
                 [] {
                     return std::vector<core::ReservationReport>(
                         6, {.id = {"cortex", "spot"},
                             .asked = {{"cpu", 2}, {"memory@1", 1024}},
                             .booked = {{"cpu", 1}},
                             .expiry = WallTime(std::chrono::microseconds(9))});
                 },
             .reload = [this](Actions::Done done) { done(reload_result); },
             .resync = [this] { ++resyncs; }});
        REQUIRE(opened.has_value());
        connection = *std::move(opened);
    }

    /// Shows another picture and waits until all of it was told.
    void show(Picture next) {
        shown = std::move(next);
        connection->show(shown);
        run_until(loop.get(), [&] { return connection->tell() == Told::all; });
        (void)client->manager("RecentDecisions", "u", 0U); // whose answer comes after the signals
    }

    /// As the daemon does: a part whenever nothing else waits.
    void answering() {
        sd_event_source* source = nullptr;
        const auto answer = [](sd_event_source* self, void* bench) {
            if (static_cast<Bench*>(bench)->connection->answer() != Told::more)
                REQUIRE(sd_event_source_set_enabled(self, SD_EVENT_OFF) >= 0);
            return 0;
        };
        REQUIRE(sd_event_add_defer(loop.get(), &source, answer, this) >= 0);
        REQUIRE(sd_event_source_set_priority(source, 300) >= 0);
        REQUIRE(sd_event_source_set_enabled(source, SD_EVENT_ON) >= 0);
        sources.emplace_back(source);
    }

    int begun = 0; ///< long answers
    PrivateBus bus;
    CPtr<sd_event, sd_event_unref> loop;
    std::vector<CPtr<sd_event_source, sd_event_source_disable_unref>> sources;
    Picture shown = picture();
    bool joined = false;
    std::string lost;
    std::size_t checked = 0;
    int resyncs = 0;
    Result<> reload_result;
    std::string ordered;
    core::Reserve reserved;
    Result<> order_result;
    std::unique_ptr<Connection> connection;
    std::optional<Client> client;
};

/// Here only root may change anything, and be somebody else.
bool may_change() {
    const bool is_root = ::geteuid() == 0;
    if (!is_root)
        WARN("not tested, as it takes root");
    return is_root;
}

} // namespace

TEST_CASE("properties are those of the picture, with their types") {
    Bench bench;
    CHECK(bench.client->text_property(root, manager, "State") == "ready");
    const MessagePtr free = bench.client->property(root, manager, "Free");
    const char* first = nullptr;
    const char* second = nullptr;
    std::int64_t cpus = 0;
    std::int64_t bytes = 0;
    REQUIRE(sd_bus_message_read(free.get(), "a{sx}", 2, &first, &cpus, &second, &bytes) > 0);
    CHECK(std::string(first) == "cpu");
    CHECK(cpus == -1);
    CHECK(std::string(second) == "memory");
    CHECK(bytes == std::int64_t{5} << 40);
    CHECK(bench.client->text_property("/org/virtguard1/node/1", "org.virtguard1.Node", "Cpus") ==
          "0-1,7");
    CHECK(bench.client->text_property("/org/virtguard1/domain/ab000000_0000_0000_0000_000000000001",
                                      "org.virtguard1.Domain", "Uuid") == uuid(1).text());
}

TEST_CASE("an object that is not there is an error") {
    Bench bench;
    const MessagePtr reply =
        bench.client->call("/org/virtguard1/node/2", "org.freedesktop.DBus.Properties", "GetAll",
                           "org.virtguard1", "s", "org.virtguard1.Node");
    CHECK(Client::error_of(reply) == SD_BUS_ERROR_UNKNOWN_OBJECT);
}

TEST_CASE("a change is signalled once, with what has changed and nothing else") {
    Bench bench;
    Picture next = picture();
    next.status.state = "degraded";
    next.status.admitted = 4;
    bench.show(next);
    CHECK(bench.client->signals ==
          std::vector<std::string>{"PropertiesChanged /org/virtguard1 State DecisionsAdmitted"});
    bench.show(next);
    CHECK(bench.client->signals.size() == 1);
}

TEST_CASE("domains and nodes that come, change and go are signalled") {
    Bench bench;
    const std::string web = domain_path(uuid(1));
    const std::string mail = domain_path(uuid(2));
    Picture next = picture();
    next.domains.emplace(mail, domain("mail", 2));
    next.nodes.clear();
    bench.show(next);
    CHECK(bench.client->signals ==
          std::vector<std::string>{"InterfacesRemoved /org/virtguard1/node/1",
                                   "InterfacesAdded " + mail});
    bench.client->signals.clear();
    next.domains.erase(web);
    next.domains.at(mail).guest.state = core::GuestState::returning;
    bench.show(next);
    CHECK(bench.client->signals ==
          std::vector<std::string>{"InterfacesRemoved " + web,
                                   "PropertiesChanged " + mail + " State"});
}

TEST_CASE("a thousand domains are told in parts, each once") {
    Bench bench;
    const Picture next = picture_with(1000);
    bench.shown = next;
    bench.connection->show(next);
    CHECK(bench.connection->tell() == Told::more);
    bench.show(next);
    CHECK(bench.client->signals.size() == 1000);
}

namespace {

constexpr const char* object_manager = "org.freedesktop.DBus.ObjectManager";

/// "PATH INTERFACE PROPERTY ..." of each object that an answer to GetManagedObjects has.
std::vector<std::string> objects_of(const MessagePtr& reply) {
    sd_bus_message* m = reply.get();
    std::vector<std::string> found;
    REQUIRE(sd_bus_message_enter_container(m, 'a', "{oa{sa{sv}}}") > 0);
    while (sd_bus_message_enter_container(m, 'e', "oa{sa{sv}}") > 0) {
        const char* text = nullptr;
        REQUIRE(sd_bus_message_read(m, "o", &text) > 0);
        found.emplace_back(text);
        REQUIRE(sd_bus_message_enter_container(m, 'a', "{sa{sv}}") > 0);
        REQUIRE(sd_bus_message_enter_container(m, 'e', "sa{sv}") > 0);
        REQUIRE(sd_bus_message_read(m, "s", &text) > 0);
        found.back() += fmt::format(" {}", text);
        REQUIRE(sd_bus_message_enter_container(m, 'a', "{sv}") > 0);
        while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
            REQUIRE(sd_bus_message_read(m, "s", &text) > 0);
            found.back() += fmt::format(" {}", text);
            REQUIRE(sd_bus_message_skip(m, "v") >= 0);
            REQUIRE(sd_bus_message_exit_container(m) >= 0);
        }
        for (int i = 0; i < 4; ++i)
            REQUIRE(sd_bus_message_exit_container(m) >= 0);
    }
    return found;
}

/// A call whose answer is kept when it comes.
struct Asked {
    Asked(Client& client, const char* interface, const char* member) {
        REQUIRE(sd_bus_call_method_async(
                    client.get(), nullptr, service_name, root, interface, member,
                    [](sd_bus_message* message, void* kept, sd_bus_error*) {
                        static_cast<MessagePtr*>(kept)->reset(sd_bus_message_ref(message));
                        return 1;
                    },
                    &answer, "") >= 0);
    }
    Asked(const Asked&) = delete;
    Asked& operator=(const Asked&) = delete;
    ~Asked() = default;

    MessagePtr answer;
};

} // namespace

TEST_CASE("all objects are told with all properties") {
    Bench bench;
    const MessagePtr reply = bench.client->call(root, object_manager, "GetManagedObjects");
    CHECK(objects_of(reply) ==
          std::vector<std::string>{
              domain_path(uuid(1)) +
                  " org.virtguard1.Domain Name Uuid Scheduler State Demand Pieces Since",
              "/org/virtguard1/node/1 org.virtguard1.Node Id Cpus Capacity Reserved Allocatable "
              "EffectiveCapacity Allocated Pending Booked Foreign Free"});
}

TEST_CASE(
    "a thousand objects are told in parts, of one picture, and others are answered meanwhile") {
    Bench bench;
    bench.show(picture_with(1000));
    const Asked asked(*bench.client, object_manager, "GetManagedObjects");
    run_until(bench.loop.get(), [&] { return !bench.connection->may_show(); });
    CHECK(bench.client->text_property(root, manager, "State") == "ready");
    CHECK(asked.answer == nullptr);
    run_until(bench.loop.get(), [&] { return asked.answer != nullptr; });
    CHECK(objects_of(asked.answer).size() == 1002);
    CHECK(bench.connection->may_show());
    CHECK(bench.connection->answer() == Told::all);
}

TEST_CASE("who asks for more than is answered is refused, and others are not") {
    Bench bench;
    bench.show(picture_with(300));
    Client other(bench.loop.get(), bench.bus.address());
    std::list<Asked> asked;
    for (int i = 0; i < 20; ++i)
        asked.emplace_back(*bench.client, i % 2 == 0 ? object_manager : manager,
                           i % 2 == 0 ? "GetManagedObjects" : "ListDomains");
    const Asked another(other, object_manager, "GetManagedObjects");
    run_until(bench.loop.get(), [&] {
        return another.answer != nullptr &&
               std::ranges::all_of(asked, [](const Asked& each) { return each.answer != nullptr; });
    });
    CHECK(objects_of(another.answer).size() == 302);
    std::map<std::string, int> answers;
    for (const Asked& each : asked)
        ++answers[Client::message_of(each.answer)];
    CHECK(answers[""] >= static_cast<int>(Callers::max_of_one));
    CHECK(answers["4 calls of yours wait for their answers"] > 0);
    CHECK(answers.size() == 2);
    CHECK(Client::error_of(bench.client->manager("ListDomains")) == "");
}

TEST_CASE("what is over capacity is signalled when it changes") {
    Bench bench;
    Picture next = picture();
    next.status.report.over_capacity = {memory};
    bench.show(next);
    CHECK(bench.client->signals ==
          std::vector<std::string>{"OverCapacityChanged /org/virtguard1",
                                   "PropertiesChanged /org/virtguard1 OverCapacity"});
}

TEST_CASE("a check is answered with verdict, reasons and demand") {
    Bench bench;
    const MessagePtr reply = bench.client->manager("Check", "s", "<domain/>");
    REQUIRE(Client::error_of(reply) == "");
    const char* verdict = nullptr;
    REQUIRE(sd_bus_message_read(reply.get(), "s", &verdict) > 0);
    CHECK(std::string(verdict) == "refuse");
    REQUIRE(sd_bus_message_enter_container(reply.get(), 'a', "(sssxxxss)") > 0);
    const char *code = nullptr, *resource = nullptr, *nodes = nullptr, *mode = nullptr,
               *text = nullptr;
    std::int64_t requested = 0, free = 0, effective = 0;
    REQUIRE(sd_bus_message_read(reply.get(), "(sssxxxss)", &code, &resource, &nodes, &requested,
                                &free, &effective, &mode, &text) > 0);
    CHECK(fmt::format("{} {} {} {} {} {} {} {}", code, resource, nodes, requested, free, effective,
                      mode,
                      text) == "insufficient-node-capacity memory 0-1 9 -2 7 enforce no room");
}

TEST_CASE("arguments have limits, and errors have names") {
    Bench bench;
    const auto check = [&](const std::string& xml) {
        return bench.client->manager("Check", "s", xml.c_str());
    };
    CHECK(Client::error_of(check(std::string(Methods::max_xml, 'x'))) == "");
    CHECK(bench.checked == Methods::max_xml);
    const MessagePtr longer = check(std::string(Methods::max_xml + 1, 'x'));
    CHECK(Client::error_of(longer) == "org.virtguard1.Error.TooLong");
    CHECK(Client::message_of(longer) == "xml: longer than 262144 bytes");
    CHECK(bench.checked == Methods::max_xml);
    CHECK(Client::error_of(check("?")) == "org.virtguard1.Error.InvalidXml");
    CHECK(Client::error_of(bench.client->manager("Explain", "s", "web")) ==
          "org.virtguard1.Error.NoSuchDomain");
    CHECK(Client::error_of(bench.client->manager("Explain", "s", std::string(256, 'x').c_str())) ==
          "org.virtguard1.Error.TooLong");
    CHECK(Client::error_of(bench.client->manager("Check", "u", 1U)) == SD_BUS_ERROR_INVALID_ARGS);
}

TEST_CASE("the last decisions are told, so many at most") {
    Bench bench;
    const MessagePtr reply = bench.client->manager("RecentDecisions", "u", 1U);
    REQUIRE(sd_bus_message_enter_container(reply.get(), 'a', "(tssssa(sssxxxss))") > 0);
    REQUIRE(sd_bus_message_enter_container(reply.get(), 'r', "tssssa(sssxxxss)") > 0);
    std::uint64_t time = 0;
    const char *name = nullptr, *id = nullptr, *scheduler = nullptr, *verdict = nullptr;
    REQUIRE(sd_bus_message_read(reply.get(), "tssss", &time, &name, &id, &scheduler, &verdict) > 0);
    CHECK(fmt::format("{} {} '{}' {} {}", time, name, id, scheduler, verdict) ==
          "5 web '' nova would-refuse");
    REQUIRE(sd_bus_message_skip(reply.get(), "a(sssxxxss)") >= 0);
    REQUIRE(sd_bus_message_exit_container(reply.get()) >= 0);
    CHECK(sd_bus_message_at_end(reply.get(), 0) > 0);
}

TEST_CASE("a start that was decided is signalled") {
    Bench bench;
    CHECK(bench.connection->announce({.name = "web", .verdict = core::Verdict::would_refuse}));
    CHECK(bench.connection->announce({.name = "big", .verdict = core::Verdict::refuse}));
    bench.show(picture());
    CHECK(bench.client->signals ==
          std::vector<std::string>{"Admitted /org/virtguard1", "Refused /org/virtguard1"});
}

TEST_CASE("root may have the policy loaded and libvirt asked, and hears what was wrong") {
    Bench bench;
    if (!may_change())
        return;
    CHECK(Client::error_of(bench.client->manager("Resync")) == "");
    CHECK(bench.resyncs == 1);
    CHECK(Client::error_of(bench.client->manager("Reload")) == "");
    bench.reload_result = fail(Errc::invalid, "virtguard.toml:1: memry: unknown");
    const MessagePtr reply = bench.client->manager("Reload");
    CHECK(Client::error_of(reply) == "org.virtguard1.Error.BadPolicy");
    CHECK(Client::message_of(reply) == "virtguard.toml:1: memry: unknown");
}

TEST_CASE("root sets ratios and the mode, and hears what was wrong") {
    Bench bench;
    if (!may_change())
        return;
    const auto error = [](const MessagePtr& reply) {
        return Client::error_of(reply) + ": " + Client::message_of(reply);
    };
    Client& client = *bench.client;
    CHECK(Client::error_of(client.manager("SetOvercommit", "ss", "cpu", "1.50")) == "");
    CHECK(bench.ordered == "overcommit.cpu = 1.5 by 0");
    CHECK(Client::error_of(client.manager("ResetOvercommit", "s", "")) == "");
    CHECK(bench.ordered == "overcommit as in the files by 0");
    CHECK(Client::error_of(client.manager("SetMode", "ss", "maintenance", "why")) == "");
    CHECK(bench.ordered == "mode = maintenance: why by 0");
    bench.ordered.clear();
    CHECK(error(client.manager("SetMode", "ss", "off", "why")) ==
          "org.freedesktop.DBus.Error.InvalidArgs: message: expected none but for maintenance");
    CHECK(error(client.manager("SetMode", "ss", "maintenance", std::string(501, 'x').c_str())) ==
          "org.virtguard1.Error.TooLong: message: longer than 500 bytes");
    CHECK(error(client.manager("SetOvercommit", "ss", "hugepages-2Mi", "2")) ==
          "org.freedesktop.DBus.Error.InvalidArgs: hugepages-2Mi: hugepages take no ratio");
    CHECK(error(client.manager("SetOvercommit", "ss", "cpu", std::string(325, '1').c_str())) ==
          "org.virtguard1.Error.TooLong: ratio: longer than 324 bytes");
    CHECK(error(client.manager("ResetOvercommit", "s", std::string(325, 'x').c_str())) ==
          "org.virtguard1.Error.TooLong: resource: longer than 324 bytes");
    CHECK(bench.ordered.empty());
    bench.order_result = fail(Errc::io, "set, but not kept: no space");
    CHECK(error(client.manager("SetOvercommit", "ss", "cpu", "2")) ==
          "org.virtguard1.Error.Unavailable: set, but not kept: no space");
}

TEST_CASE("root reserves, renews and cancels, and hears what was wrong") {
    Bench bench;
    if (!may_change())
        return;
    Client& client = *bench.client;
    const auto error = [](const MessagePtr& reply) {
        return Client::error_of(reply) + ": " + Client::message_of(reply);
    };
    const auto reserve_with = [&](const char* key, const char* type, auto value) {
        return error(client.manager("Reserve", "ssa{sx}a{sv}", "cortex", "spot", 1, "memory",
                                    std::int64_t{1024}, 1, key, type, value));
    };
    const std::string id = "00000000-0000-4000-8000-000000000001";
    CHECK(Client::error_of(client.manager(
              "Reserve", "ssa{sx}a{sv}", "cortex", "spot", 2, "memory@1", std::int64_t{1024}, "cpu",
              std::int64_t{2}, 4, "uuids", "as", 1, id.c_str(), "match", "s", "true()", "expiry",
              "t", std::uint64_t{1796042532000000}, "force", "b", 1)) == "");
    CHECK(bench.ordered == "reservation spot of cortex: cpu = 2, memory@1 = 1024 until 2026-11-30 "
                           "12:42:12 UTC, by force by 0");
    CHECK(bench.reserved.booking.uuids == std::set<Uuid>{Uuid::parse(id).value()});
    CHECK(bench.reserved.booking.match == "true()");
    CHECK(Client::error_of(client.manager("Reserve", "ssa{sx}a{sv}", "cortex", "spot", 0, 1, "xml",
                                          "s", "<domain/>")) == "");
    CHECK(bench.reserved.xml == "<domain/>");
    CHECK(bench.reserved.expiry == core::Expiry(core::default_lifetime));
    CHECK(Client::error_of(
              client.manager("RenewReservation", "sst", "cortex", "spot", std::uint64_t{0})) == "");
    CHECK(bench.ordered == "reservation spot of cortex for ever by 0");
    CHECK(Client::error_of(client.manager("CancelReservation", "ss", "cortex", "spot")) == "");
    CHECK(bench.ordered == "reservation spot of cortex cancelled by 0");

    bench.ordered.clear();
    const std::string invalid = "org.freedesktop.DBus.Error.InvalidArgs: ";
    CHECK(reserve_with("expires", "t", std::uint64_t{1}) ==
          invalid + "options: \"expires\" is none: expected uuids, match, xml, expiry or force");
    CHECK(reserve_with("match", "s", "") == invalid + "match: empty: expected an XPath expression");
    CHECK(reserve_with("xml", "s", "") == invalid + "xml: empty: expected the XML of a domain");
    CHECK(reserve_with("uuids", "as", 0) == invalid + "uuids: empty: expected 1 to 64 UUIDs");
    CHECK(error(client.manager("Reserve", "ssa{sx}a{sv}", "cortex", "spot", 1, "memory",
                               std::int64_t{1024}, 2, "match", "s", "false()", "match", "s",
                               "true()")) == invalid + "options: \"match\" is there twice");
    const std::string too_long = "org.virtguard1.Error.TooLong: ";
    const std::string long_word(325, 'x');
    CHECK(reserve_with(long_word.c_str(), "b", 1) == too_long + "options: longer than 324 bytes");
    CHECK(error(client.manager("Reserve", "ssa{sx}a{sv}", "cortex", long_word.c_str(), 0, 0)) ==
          too_long + "name: longer than 324 bytes");
    CHECK(error(client.manager("Reserve", "ssa{sx}a{sv}", "cortex", "spot", 1, long_word.c_str(),
                               std::int64_t{1}, 0)) ==
          too_long + "resources: longer than 324 bytes");
    CHECK(reserve_with("expiry", "s", "never") ==
          invalid + "options: expiry: expected a value of type t");
    CHECK(reserve_with("expiry", "t", UINT64_MAX) ==
          invalid + "expiry: expected microseconds since 1970, before the year 10000");
    CHECK(reserve_with("match", "s", std::string(257, ' ').c_str()) ==
          too_long + "match: longer than 256 bytes");
    CHECK(reserve_with("xml", "s", std::string(256 * 1024 + 1, ' ').c_str()) ==
          too_long + "xml: longer than 262144 bytes");
    CHECK(error(client.manager("CancelReservation", "ss", "cortex", "a b")) ==
          invalid + "name: \"a b\": expected 1 to 64 letters, digits and characters of "
                    "\"-_.:+\"");
    CHECK(bench.ordered.empty());
    const std::vector<std::pair<Errc, std::string>> names{
        {Errc::refused, "org.virtguard1.Error.Refused"},
        {Errc::not_found, "org.virtguard1.Error.NoSuchReservation"},
        {Errc::limit, "org.freedesktop.DBus.Error.LimitsExceeded"},
        {Errc::syntax, "org.virtguard1.Error.InvalidXml"},
        {Errc::invalid, "org.freedesktop.DBus.Error.InvalidArgs"}};
    for (const auto& [code, name] : names) {
        bench.order_result = fail(code, "why");
        CHECK(reserve_with("force", "b", 0) == name + ": why");
    }
}

TEST_CASE("reservations are listed with what was asked, what is left, and when they end") {
    Bench bench;
    const MessagePtr reply = bench.client->manager("ListReservations");
    REQUIRE(Client::error_of(reply) == "");
    REQUIRE(sd_bus_message_enter_container(reply.get(), 'a', "(ssa{sx}a{sx}t)") > 0);
    int count = 0;
    const char *owner = nullptr, *name = nullptr, *first = nullptr, *second = nullptr,
               *left = nullptr;
    std::int64_t cpus = 0, bytes = 0, rest = 0;
    std::uint64_t expiry = 0;
    while (sd_bus_message_read(reply.get(), "(ssa{sx}a{sx}t)", &owner, &name, 2, &first, &cpus,
                               &second, &bytes, 1, &left, &rest, &expiry) > 0)
        ++count;
    CHECK(count == 6);
    CHECK(fmt::format("{} {} {}={} {}={} {}={} {}", owner, name, first, cpus, second, bytes, left,
                      rest, expiry) == "cortex spot cpu=2 memory@1=1024 cpu=1 9");
}

/// polkit, as far as it is asked: says yes or no to the last question, or nothing yet.
class FakePolkit {
  public:
    FakePolkit(sd_event* loop, const std::string& address) {
        sd_bus* bus = nullptr;
        REQUIRE(sd_bus_new(&bus) >= 0);
        bus_.reset(bus);
        REQUIRE(sd_bus_set_address(bus, address.c_str()) >= 0);
        REQUIRE(sd_bus_set_bus_client(bus, 1) >= 0);
        REQUIRE(sd_bus_start(bus) >= 0);
        REQUIRE(sd_bus_attach_event(bus, loop, SD_EVENT_PRIORITY_NORMAL) >= 0);
        REQUIRE(sd_bus_add_filter(bus, nullptr, on_message, this) >= 0);
        bool there = false;
        REQUIRE(sd_bus_request_name_async(
                    bus, nullptr, "org.freedesktop.PolicyKit1", 0,
                    [](sd_bus_message*, void* is_there, sd_bus_error*) {
                        *static_cast<bool*>(is_there) = true;
                        return 1;
                    },
                    &there) >= 0);
        run_until(loop, [&] { return there; });
    }

    void answer(bool authorized) {
        REQUIRE(sd_bus_reply_method_return(question_.get(), "(bba{ss})", authorized ? 1 : 0, 0,
                                           0) >= 0);
        question_.reset();
    }
    [[nodiscard]] bool is_asked() const { return question_ != nullptr; }

    std::string asked;           ///< "org.virtguard1.manage :1.2 0": the action, who, flags
    std::set<std::string> named; ///< the questions that were not withdrawn

  private:
    static int on_message(sd_bus_message* message, void* self, sd_bus_error*) {
        auto* polkit = static_cast<FakePolkit*>(self);
        const char *kind = nullptr, *key = nullptr, *name = nullptr, *action = nullptr,
                   *id = nullptr;
        if (sd_bus_message_is_method_call(message, "org.freedesktop.PolicyKit1.Authority",
                                          "CancelCheckAuthorization") > 0) {
            REQUIRE(sd_bus_message_read(message, "s", &id) > 0);
            CHECK(polkit->named.erase(id) == 1);
            return 1;
        }
        if (sd_bus_message_is_method_call(message, "org.freedesktop.PolicyKit1.Authority",
                                          "CheckAuthorization") <= 0)
            return 0;
        std::uint32_t flags = 0;
        REQUIRE(sd_bus_message_read(message, "(sa{sv})s", &kind, 1, &key, "s", &name, &action) > 0);
        REQUIRE(sd_bus_message_skip(message, "a{ss}") >= 0);
        REQUIRE(sd_bus_message_read(message, "us", &flags, &id) > 0);
        CHECK(polkit->named.insert(id).second);
        polkit->asked = fmt::format("{} {} {}", action, name, flags);
        polkit->question_.reset(sd_bus_message_ref(message));
        return 1;
    }

    BusPtr bus_;
    MessagePtr question_;
};

/// Of one that is in each Debian's /etc/passwd: the bus takes no others.
std::unique_ptr<Client> client_of(const Bench& bench, uid_t user) {
    REQUIRE(::seteuid(user) == 0); // the bus takes a client for who it was when it came
    auto client = std::make_unique<Client>(bench.loop.get(), bench.bus.address());
    REQUIRE(::seteuid(0) == 0);
    return client;
}

TEST_CASE("polkit is asked about who is not root, and nobody else waits for its answer") {
    if (!may_change())
        return;
    Bench bench;
    const auto nobody = client_of(bench, 65534);
    CHECK(Client::error_of(nobody->manager("Resync")) == SD_BUS_ERROR_ACCESS_DENIED);

    FakePolkit polkit(bench.loop.get(), bench.bus.address());
    const char* own_name = nullptr;
    REQUIRE(sd_bus_get_unique_name(nobody->get(), &own_name) >= 0);
    for (const bool authorized : {true, false}) {
        bench.resyncs = 0;
        MessagePtr reply;
        REQUIRE(sd_bus_call_method_async(
                    nobody->get(), nullptr, service_name, root, manager, "Resync",
                    [](sd_bus_message* message, void* kept, sd_bus_error*) {
                        static_cast<MessagePtr*>(kept)->reset(sd_bus_message_ref(message));
                        return 1;
                    },
                    &reply, "") >= 0);
        run_until(bench.loop.get(), [&] { return polkit.is_asked(); });
        CHECK(polkit.asked == fmt::format("org.virtguard1.manage {} 0", own_name));
        CHECK(bench.client->text_property(root, manager, "State") == "ready");
        CHECK(reply == nullptr);
        polkit.answer(authorized);
        run_until(bench.loop.get(), [&] { return reply != nullptr; });
        CHECK(Client::error_of(reply) == (authorized ? "" : SD_BUS_ERROR_ACCESS_DENIED));
        CHECK(bench.resyncs == (authorized ? 1 : 0));
    }
}

/// What came of changes that were called and not waited for: errors' names, "" for an answer.
struct Changes {
    static int on_reply(sd_bus_message* reply, void* self, sd_bus_error*) {
        const sd_bus_error* error = sd_bus_message_get_error(reply);
        static_cast<Changes*>(self)->answers.emplace_back(error == nullptr ? "" : error->name);
        return 1;
    }
    void call(const Client& client, std::size_t times) {
        for (; times > 0; --times)
            REQUIRE(sd_bus_call_method_async(client.get(), nullptr, service_name, root, manager,
                                             "Resync", on_reply, this, "") >= 0);
    }

    std::vector<std::string> answers;
};

TEST_CASE("a user with all places of his taken keeps nobody from any, and leaves them all") {
    if (!may_change())
        return;
    Bench bench;
    FakePolkit polkit(bench.loop.get(), bench.bus.address());
    std::vector<std::unique_ptr<Client>> clients;
    Changes changes;
    for (int i = 0; i < 2; ++i) {
        clients.push_back(client_of(bench, 65534));
        changes.call(*clients.back(), Authority::max_of_one * 3 / 4);
    }
    const std::size_t refused = Authority::max_of_one / 2;
    run_until(bench.loop.get(), [&] {
        return changes.answers.size() == refused && polkit.named.size() == Authority::max_of_one;
    });
    CHECK(changes.answers == std::vector<std::string>(refused, SD_BUS_ERROR_LIMITS_EXCEEDED));

    const auto other = client_of(bench, 1);
    Changes others;
    others.call(*other, 1);
    run_until(bench.loop.get(), [&] { return polkit.named.size() > Authority::max_of_one; });
    polkit.answer(true);
    run_until(bench.loop.get(), [&] { return !others.answers.empty(); });
    CHECK(others.answers == std::vector<std::string>{""});

    clients.clear();
    run_until(bench.loop.get(), [&] { return polkit.named.size() == 1; }); // the other's
    clients.push_back(client_of(bench, 65534));
    others.call(*clients.back(), 1);
    run_until(bench.loop.get(), [&] { return polkit.is_asked(); });
    polkit.answer(true);
    run_until(bench.loop.get(), [&] { return others.answers.size() == 2; });
    CHECK(others.answers == std::vector<std::string>(2));
}

TEST_CASE("root is served while all places are taken") {
    if (!may_change())
        return;
    Bench bench;
    FakePolkit polkit(bench.loop.get(), bench.bus.address());
    std::vector<std::unique_ptr<Client>> clients;
    Changes changes;
    for (std::size_t i = 0; i < Authority::max_of_all / Authority::max_of_one; ++i) {
        clients.push_back(client_of(bench, static_cast<uid_t>(i + 1)));
        changes.call(*clients.back(), Authority::max_of_one);
    }
    run_until(bench.loop.get(), [&] { return polkit.named.size() == Authority::max_of_all; });
    CHECK(Client::error_of(client_of(bench, 65534)->manager("Resync")) ==
          SD_BUS_ERROR_LIMITS_EXCEEDED);
    CHECK(Client::error_of(bench.client->manager("Resync")) == "");
    constexpr std::size_t many = 100;
    static_assert(many > Authority::max_of_one);
    Changes of_root;
    of_root.call(*bench.client, many);
    run_until(bench.loop.get(), [&] { return of_root.answers.size() == many; });
    CHECK(of_root.answers == std::vector<std::string>(many));
    CHECK(changes.answers.empty());
}

TEST_CASE("a bus that comes later is joined then, and its end is told") {
    Bench bench(/*with_bus=*/false);
    bench.open();
    for (int i = 0; i < 5; ++i)
        REQUIRE(sd_event_run(bench.loop.get(), 1000) >= 0);
    CHECK_FALSE(bench.joined);
    CHECK(bench.lost.empty());
    bench.bus.begin();
    run_until(bench.loop.get(), [&] { return bench.joined; });
    bench.bus.end();
    run_until(bench.loop.get(), [&] { return !bench.lost.empty(); });
    CHECK(bench.lost == "bus: the connection has ended");
    CHECK_FALSE(bench.connection->has_joined());
    CHECK(bench.connection->tell() == Told::all);
}

TEST_CASE("a name that another has is not ours") {
    Bench bench;
    auto first = std::move(bench.connection);
    bench.open();
    run_until(bench.loop.get(), [&] { return !bench.lost.empty(); });
    CHECK(bench.lost == "bus: org.virtguard1: another has this name");
}

TEST_CASE("nothing is signalled to a bus that does not read, and all of it when it does") {
    Bench bench;
    Picture large = picture();
    large.status.problems.assign(1000, std::string(1000, 'x'));
    bench.bus.signal(SIGSTOP);
    // Fills the socket to the bus.
    for (int i = 0; i < 100 && bench.connection->tell() != Told::behind; ++i) {
        large.status.problems.front() = std::to_string(i);
        bench.connection->show(large);
    }
    REQUIRE(bench.connection->tell() == Told::behind);
    CHECK_FALSE(bench.connection->announce({.name = "web"}));
    bench.bus.signal(SIGCONT);
    large.status.state = "degraded";
    bench.show(large);
    CHECK(bench.client->signals.back().starts_with("PropertiesChanged /org/virtguard1 State"));
}

/// The other end of a connection: a bus as far as the connection needs one, which asks itself.
class FakeBus {
  public:
    FakeBus(sd_event* loop, const std::string& path) {
        sockaddr_un address{.sun_family = AF_UNIX};
        REQUIRE(path.copy(address.sun_path, sizeof address.sun_path - 1) == path.size());
        listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address),
                       sizeof address) == 0);
        REQUIRE(::listen(listener_.get(), 1) == 0);
        loop_ = loop;
    }

    void accept() {
        const int socket =
            ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        REQUIRE(socket >= 0);
        sd_bus* bus = nullptr;
        REQUIRE(sd_bus_new(&bus) >= 0);
        bus_.reset(bus);
        REQUIRE(sd_bus_set_fd(bus, socket, socket) >= 0);
        REQUIRE(sd_bus_set_server(bus, 1, sd_id128_t{.qwords = {1, 2}}) >= 0);
        REQUIRE(sd_bus_set_anonymous(bus, 1) >= 0);
        REQUIRE(sd_bus_start(bus) >= 0);
        REQUIRE(sd_bus_add_filter(bus, nullptr, on_message, this) >= 0);
        REQUIRE(sd_bus_attach_event(bus, loop_, SD_EVENT_PRIORITY_NORMAL) >= 0);
    }

    /// Sends so many calls and reads nothing; then reads all there is.
    void flood(int calls, const std::function<void()>& turn) {
        REQUIRE(sd_bus_detach_event(bus_.get()) >= 0);
        for (int i = 0; i < calls; ++i) {
            REQUIRE(sd_bus_call_method_async(bus_.get(), nullptr, ":1.1", root,
                                             "org.freedesktop.DBus.Properties", "GetAll", on_reply,
                                             this, "s", manager) >= 0);
            turn();
        }
        REQUIRE(sd_bus_attach_event(bus_.get(), loop_, SD_EVENT_PRIORITY_NORMAL) >= 0);
    }

    int answers = 0;
    int refusals = 0; ///< by LimitsExceeded

  private:
    static int on_reply(sd_bus_message* reply, void* self, sd_bus_error*) {
        auto* bus = static_cast<FakeBus*>(self);
        if (sd_bus_message_is_method_error(reply, nullptr) <= 0)
            ++bus->answers;
        else if (sd_bus_message_is_method_error(reply, SD_BUS_ERROR_LIMITS_EXCEEDED) > 0)
            ++bus->refusals;
        return 1;
    }
    static int on_message(sd_bus_message* message, void*, sd_bus_error*) {
        if (sd_bus_message_is_method_call(message, nullptr, "Hello") > 0)
            REQUIRE(sd_bus_reply_method_return(message, "s", ":1.1") >= 0);
        else if (sd_bus_message_is_method_call(message, nullptr, "RequestName") > 0)
            REQUIRE(sd_bus_reply_method_return(message, "u", 1U) >= 0);
        else
            return 0;
        return 1;
    }

    UniqueFd listener_;
    sd_event* loop_ = nullptr;
    BusPtr bus_;
};

TEST_CASE("answers that nobody reads are kept within a limit") {
    Bench bench(/*with_bus=*/false);
    const Folder folder;
    FakeBus bus(bench.loop.get(), folder.file("socket"));
    bench.shown.status.problems.assign(1000, std::string(1000, 'x')); // an answer of 1 MB
    bench.open("unix:path=" + folder.file("socket"));
    bus.accept();
    run_until(bench.loop.get(), [&] { return bench.joined; });
    constexpr int calls = 3000;
    bus.flood(calls, [&] { REQUIRE(sd_event_run(bench.loop.get(), 0) >= 0); });
    const auto replies = [&] { return bus.answers + bus.refusals; };
    run_until(bench.loop.get(),
              [&] { return replies() >= static_cast<int>(Connection::max_unsent_errors); });
    // What was kept has been read, so one more is answered, after all that came before it.
    const int before = replies();
    bus.flood(1, [] {});
    run_until(bench.loop.get(), [&] { return replies() > before; });
    CHECK(bus.answers >= static_cast<int>(Connection::max_unsent));
    CHECK(bus.refusals > static_cast<int>(Connection::max_unsent_errors / 2));
    CHECK(replies() < calls / 2);
    CHECK(bench.lost.empty());
}

TEST_CASE("bytes that are no UTF-8 are replaced, and all else is kept") {
    const auto [text, valid] = GENERATE(table<std::string, std::string>({
        {"", ""},
        {"web-1", "web-1"},
        {"größe € 🐧", "größe € 🐧"},
        {"\n\x7f\xc2\x85\xe2\x80\xae", "\n\x7f\xc2\x85\xe2\x80\xae"}, // also what no line may have
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xc3", "\xef\xbf\xbd"},
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                 // "/" in two bytes
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, // a surrogate
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, // > U+10FFFF
        {"\xf0\x9f\x90", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},                 // cut
        {std::string("a\0b", 3), "a"},
    }));
    CHECK(valid_utf8(text) == valid);
}
