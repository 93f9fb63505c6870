// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <sys/epoll.h>
#include <systemd/sd-event.h>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "../journal.hpp"
#include "daemon/service.hpp"
#include "domxml/parse.hpp"
#include "slow_storage.hpp"
#include "state/file.hpp"
#include "wire/exchange.hpp"
#include "json/document.hpp"
#include "json/run_time.hpp"

using namespace virtguard;
using namespace virtguard::daemon;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;
const std::string uuid_of_web = "00000000-0000-4000-8000-000000000001";

/// 8 GiB and 4 CPUs; nothing is reserved and nothing is added, so that figures can be seen.
core::Topology topology() {
    return {.nodes = {{.id = 0, .pus = {0, 1, 2, 3}, .memory = 8 * gib}},
            .cores = {{0}, {1}, {2}, {3}},
            .online = {0, 1, 2, 3},
            .allowed = {0, 1, 2, 3}};
}

constexpr const char* bare = "memory = { overhead = \"none\" }\nreserve = { memory = \"0\" }\n";

std::string xml(int number, int gibibytes, std::string_view more = "") {
    return fmt::format("<domain type='kvm'><name>web-{0}</name>"
                       "<uuid>00000000-0000-4000-8000-{0:012x}</uuid>"
                       "<memory unit='GiB'>{1}</memory><vcpu>1</vcpu>{2}"
                       "<os><type arch='x86_64'>hvm</type></os></domain>",
                       number, gibibytes, more);
}

Instant after(std::chrono::nanoseconds span) {
    return loop::now() + span;
}

/// A service on folders of its own.
class Bench {
  public:
    explicit Bench(const std::string& policy = bare, bool live = false,
                   const core::Topology& host = topology(),
                   std::optional<StorageReader> storage_reader = std::nullopt)
        : storage(std::move(storage_reader)) {
        domxml::initialise();
        folder.write("etc/virtguard.toml", policy);
        std::filesystem::create_directories(folder.path() / "state");
        std::filesystem::create_directories(folder.path() / "run/virtguard");
        start(live, host);
    }

    /// The daemon starts, in place of one that was killed.
    void start(bool live = false, const core::Topology& host = topology(),
               std::chrono::nanoseconds machine_interval = 1h) {
        service.reset();
        auto start = policy_at_start(folder.path() / "etc", folder.path() / "state", host);
        service = Service::create({.policy_folder = folder.path() / "etc",
                                   .state_folder = folder.path() / "state",
                                   .run_folder = folder.path() / "run/virtguard",
                                   .root = folder.path(),
                                   .live_topology = live,
                                   .machine_interval = machine_interval,
                                   .storage = storage,
                                   .clock_is_right = clock_is_right},
                                  host, std::move(start), *files, loop)
                      .value();
    }

    /// The reply; nothing while there is none, a Reply without bytes for none at all.
    std::optional<wire::Reply> send(wire::Operation operation, std::string body,
                                    std::optional<Instant> exec = std::nullopt,
                                    std::chrono::milliseconds wait = 2000ms) {
        const wire::Request request{
            .header = {.operation = operation,
                       .exec_time = exec.value_or(loop::now()),
                       .wait = wait,
                       .body_length = static_cast<std::uint32_t>(body.size())},
            .body = std::move(body)};
        auto bytes = std::make_shared<std::optional<std::string>>();
        service->handle(request, [bytes](std::string reply) { *bytes = std::move(reply); });
        if (!*bytes)
            return std::nullopt;
        if ((*bytes)->empty())
            return wire::Reply{};
        const auto header = wire::decode_reply_header(**bytes);
        REQUIRE(header.has_value());
        return wire::Reply{(*header)->verdict, (*bytes)->substr(wire::reply_header_size)};
    }
    wire::Reply prepare(const std::string& body) {
        return send(wire::Operation::prepare, body).value();
    }
    /// What a start was answered that may wait for something to be read.
    wire::Reply prepare_in_time(const std::string& body) {
        const wire::Request request{
            .header = {.operation = wire::Operation::prepare,
                       .exec_time = loop::now(),
                       .wait = 2000ms,
                       .body_length = static_cast<std::uint32_t>(body.size())},
            .body = body};
        return answer_to(request);
    }
    core::Status status() {
        const auto reply = send(wire::Operation::status, "");
        REQUIRE(reply->verdict == wire::Verdict::done);
        const auto read = json::parse_status(reply->body);
        REQUIRE(read.has_value());
        return *read;
    }
    /// "web-1 running, web-2 pending"
    std::string guests() {
        std::string result;
        for (const core::GuestReport& guest : status().guests)
            result += fmt::format("{}{} {}", result.empty() ? "" : ", ", guest.name,
                                  core::state_name(guest.state));
        return result;
    }
    void look(std::vector<virt::ActiveDomain> active, Instant began) {
        service->handle(virt::Look{began, std::move(active)});
    }
    /// Turns the loop until `is_so`; it can be run only once, but turned as often as one likes.
    void run_until(const std::function<bool()>& is_so) {
        constexpr std::uint64_t microseconds = 1000;
        while (!is_so())
            REQUIRE(sd_event_run(loop.handle(), microseconds) >= 0);
    }
    /// What an order was answered, when it is on the disk.
    wire::Reply give(const core::Order& order) {
        std::string body = json::order_document(order);
        const wire::Request request{
            .header = {.operation = wire::Operation::order,
                       .exec_time = loop::now(),
                       .wait = 2000ms,
                       .body_length = static_cast<std::uint32_t>(body.size())},
            .body = std::move(body)};
        return answer_to(request);
    }
    wire::Reply answer_to(const wire::Request& request) {
        std::string bytes;
        service->handle(request, [&](std::string reply) { bytes = std::move(reply); });
        run_until([&] { return !bytes.empty(); });
        const auto header = wire::decode_reply_header(bytes);
        REQUIRE(header.has_value());
        return {(*header)->verdict, bytes.substr(wire::reply_header_size)};
    }
    wire::Reply set_ratio(const std::string& resource, const std::string& ratio) {
        return give(core::read_set_overcommit(resource, ratio).value());
    }
    json::PolicyInForce policy() {
        return json::parse_policy(send(wire::Operation::policy, "")->body).value();
    }
    /// "1.5, run time by root ...", of a key of the policy.
    std::string set_to(const std::string& key) {
        for (const core::Setting& setting : policy().settings)
            if (setting.key == key)
                return fmt::format("{}, {}", setting.value, setting.origin);
        return "absent";
    }
    /// Waits for what the files thread was given.
    void finish_files() {
        service.reset();
        files.reset();
    }

    Folder folder;
    std::optional<StorageReader> storage;
    Reservations::ClockIsRight clock_is_right = [] { return true; };
    loop::Loop loop = loop::Loop::create().value();
    std::unique_ptr<FilesThread> files = FilesThread::start().value();
    std::unique_ptr<Service> service;
};

virt::ActiveDomain active(int number, int gibibytes) {
    const std::string text = xml(number, gibibytes);
    auto domain = domxml::parse_domain(text);
    return {*domain->uuid, domain->name, domain};
}

virt::ActiveDomain unreadable(int number) {
    virt::ActiveDomain domain = active(number, 1);
    domain.domain = fail(Errc::invalid, "too odd");
    return domain;
}

constexpr auto prepare = wire::Operation::prepare;
constexpr auto started = wire::Operation::started;
constexpr auto release = wire::Operation::release;
constexpr auto reconnect = wire::Operation::reconnect;

} // namespace

TEST_CASE("a start that fits is admitted and holds its place") {
    Bench bench;
    CHECK(bench.prepare(xml(1, 5)).verdict == wire::Verdict::admitted);
    CHECK(bench.guests() == "web-1 pending");
    const core::Status status = bench.status();
    CHECK(status.report.host.pending.at(core::Resource::memory()) == 5 * gib);
    CHECK(status.admitted == 1);
}

TEST_CASE("starts are remembered with their verdicts, and checks are not") {
    Bench bench;
    bench.prepare(xml(1, 5));
    bench.prepare(xml(2, 5));
    bench.prepare("<domain/>");
    bench.send(wire::Operation::check, xml(3, 5));
    const std::vector<core::DecidedStart> starts = bench.service->history().recent();
    REQUIRE(starts.size() == 3);
    CHECK(starts[0].reasons.front().code == core::Code::invalid_domain);
    CHECK(starts[1].name == "web-2");
    CHECK(starts[1].verdict == core::Verdict::refuse);
    CHECK(starts[1].scheduler == "default-scheduler");
    CHECK(starts[2].verdict == core::Verdict::admit);
    CHECK(bench.service->history().latencies().count() == 3);
    CHECK(json::parse_history(bench.send(wire::Operation::recent, "")->body).value() == starts);
}

TEST_CASE("the latency of an answer counts from the hook's exec") {
    Bench bench;
    bench.send(prepare, xml(1, 5), loop::now() - 300ms);
    CHECK(bench.service->history().latencies().sum >= 300ms);
}

TEST_CASE(
    "a start that does not fit is refused with the line for its operator, and leaves nothing") {
    Bench bench;
    REQUIRE(bench.prepare(xml(1, 5)).verdict == wire::Verdict::admitted);
    const wire::Reply reply = bench.prepare(xml(2, 4));
    CHECK(reply.verdict == wire::Verdict::refused);
    CHECK(reply.body == "virtguard: refused web-2: memory: needs 4 GiB, 3 GiB free of 8 GiB");
    CHECK(bench.guests() == "web-1 pending");
    CHECK(bench.status().refused == 1);
    // libvirt sends these for a refused start, too
    (void)bench.send(release, xml(2, 4));
    CHECK(bench.guests() == "web-1 pending");
}

TEST_CASE("what is only observed is admitted and counted apart") {
    Bench bench("mode = \"observe\"\n" + std::string(bare));
    CHECK(bench.prepare(xml(1, 9)).verdict == wire::Verdict::admitted);
    const core::Status status = bench.status();
    CHECK(std::tuple(status.admitted, status.refused, status.would_refuse) == std::tuple(1, 0, 1));
    CHECK(status.report.over_capacity == std::vector{core::Resource::memory()});
}

TEST_CASE(
    "a domain that no host could run is refused, one that cannot be read is nobody's verdict") {
    Bench bench;
    const auto [body, verdict, line] = GENERATE(table<std::string, wire::Verdict, std::string>({
        {"<domain><name>a</name><memory>0</memory></domain>", wire::Verdict::refused,
         "virtguard: refused a: invalid domain: line 1: <memory>: no memory: expected some here "
         "or in guest cells"},
        {"hello", wire::Verdict::error, "line 1: not XML: Start tag expected, '<' not found"},
        {"", wire::Verdict::error, "line 1: not XML: Document is empty"},
        {"<network/>", wire::Verdict::error, "root element is <network>: expected <domain>"},
    }));
    const wire::Reply reply = bench.prepare(body);
    CHECK(reply.verdict == verdict);
    CHECK(reply.body == line);
    CHECK(bench.guests().empty());
}

TEST_CASE("a prepare whose hook has given up is a claim where the hook lets in") {
    const bool denies = GENERATE(false, true);
    Bench bench(std::string(bare) + (denies ? "[hook]\nunavailable = \"deny\"\n" : ""));
    const auto reply = bench.send(prepare, xml(1, 100), after(-3s));
    REQUIRE(reply.has_value());
    CHECK(reply->body.empty());
    CHECK(bench.guests() == (denies ? "" : "web-1 pending"));
    const core::Status status = bench.status(); // what the hook did alone is no decision of ours
    CHECK(std::tuple(status.admitted, status.refused) == std::tuple(0, 0));
}

TEST_CASE("what hooks tell moves a guest along, also with XML that was cut") {
    Bench bench;
    REQUIRE(bench.prepare(xml(1, 5)).verdict == wire::Verdict::admitted);
    const bool cut = GENERATE(false, true);
    const std::string whole = xml(1, 5);
    const std::string body = cut ? whole.substr(0, whole.find("<vcpu>")) : whole;
    CHECK(bench.send(started, body)->body.empty());
    CHECK(bench.guests() == "web-1 running");
    (void)bench.send(release, body);
    CHECK(bench.guests() == "web-1 returning");
}

TEST_CASE("a message without a UUID, or about nobody known, changes nothing") {
    Bench bench;
    const auto operation = GENERATE(started, release, reconnect);
    const auto body = GENERATE(as<std::string>(), "", "hello", "<domain><uuid>x</uuid>",
                               "<domain><uuid>" + uuid_of_web + "</uuid>");
    const auto reply = bench.send(operation, body);
    REQUIRE(reply.has_value());
    CHECK(reply->body.empty());
    CHECK(bench.guests().empty());
}

TEST_CASE("a guest that reconnects is counted whatever is free") {
    Bench bench;
    (void)bench.send(reconnect, xml(1, 50));
    CHECK(bench.guests() == "web-1 running");
    CHECK(bench.status().report.host.free.at(core::Resource::memory()) == -42 * gib);
}

TEST_CASE("release of a claim frees at once, of a guest that ran after claim.return") {
    Bench bench;
    REQUIRE(bench.prepare(xml(1, 8)).verdict == wire::Verdict::admitted);
    (void)bench.send(release, xml(1, 8));
    REQUIRE(bench.prepare(xml(2, 8)).verdict == wire::Verdict::admitted);
    (void)bench.send(started, xml(2, 8));
    (void)bench.send(release, xml(2, 8));
    CHECK(bench.send(prepare, xml(3, 8)) == std::nullopt); // waits for the place
    CHECK(bench.guests() == "web-2 returning");
    CHECK(bench.prepare(xml(2, 8)).verdict == wire::Verdict::admitted); // comes back
    CHECK(bench.guests() == "web-2 pending");
}

TEST_CASE("a start that waits for a place gets it when nobody returns") {
    Bench bench(std::string(bare) + "[claim]\nreturn = \"20ms\"\n");
    (void)bench.send(started, xml(1, 8));
    (void)bench.send(release, xml(1, 8));
    std::string got;
    const wire::Request request{.header = {.exec_time = loop::now(), .wait = 20s},
                                .body = xml(2, 8)};
    bench.service->handle(request, [&](std::string reply) {
        got = std::move(reply);
        bench.loop.stop(0);
    });
    REQUIRE(got.empty());
    REQUIRE(bench.loop.run().value() == 0);
    CHECK(got == wire::encode_reply(prepare, wire::Verdict::admitted, ""));
}

TEST_CASE("a start that waits for a place is refused when the guest has returned to it") {
    Bench bench(std::string(bare) + "[claim]\nreturn = \"1h\"\n");
    (void)bench.send(started, xml(1, 8));
    (void)bench.send(release, xml(1, 8));
    std::string got;
    const wire::Request request{.header = {.exec_time = loop::now(), .wait = 1h},
                                .body = xml(2, 8)};
    bench.service->handle(request, [&](std::string reply) {
        got = std::move(reply);
        bench.loop.stop(0);
    });
    REQUIRE(got.empty());
    REQUIRE(bench.prepare(xml(1, 8)).verdict == wire::Verdict::admitted);
    auto end = bench.loop.timer(
        "end", [&] { bench.loop.stop(0); }, loop::Priority::idle);
    end->arm_after(20ms);
    REQUIRE(bench.loop.run().value() == 0);
    CHECK(got ==
          wire::encode_reply(prepare, wire::Verdict::refused,
                             "virtguard: refused web-2: memory: needs 8 GiB, 0 free of 8 GiB"));
}

TEST_CASE("an older message than what is known is ignored") {
    Bench bench;
    REQUIRE(bench.prepare(xml(1, 5)).verdict == wire::Verdict::admitted);
    (void)bench.send(release, xml(1, 5), after(-1s));
    CHECK(bench.guests() == "web-1 pending");
}

TEST_CASE("a message from the future counts as of now, and what is told later is heard") {
    Bench bench;
    const Instant end_of_time(std::chrono::nanoseconds::max());
    const auto reply = bench.send(prepare, xml(1, 5), end_of_time, 4294967295ms);
    CHECK(reply->verdict == wire::Verdict::admitted);
    CHECK(bench.guests() == "web-1 pending");
    (void)bench.send(release, xml(1, 5));
    CHECK(bench.guests().empty());
}

TEST_CASE("check answers like a start and changes nothing") {
    Bench bench;
    for (const int size : {5, 9}) {
        const auto reply = bench.send(wire::Operation::check, xml(1, size));
        REQUIRE(reply->verdict == wire::Verdict::done);
        const auto outcome = json::parse_outcome(reply->body);
        REQUIRE(outcome.has_value());
        CHECK(outcome->name == "web-1");
        CHECK(outcome->admitted == (size == 5));
        CHECK(outcome->demand.at(core::Resource::memory()) == size * gib);
    }
    CHECK(bench.guests().empty());
    const core::Status status = bench.status();
    CHECK(std::tuple(status.admitted, status.refused) == std::tuple(0, 0));
    CHECK(bench.send(wire::Operation::check, "x")->verdict == wire::Verdict::error);
    const auto impossible =
        bench.send(wire::Operation::check, "<domain><name>a</name><memory>0</memory></domain>");
    CHECK(json::parse_outcome(impossible->body)->reasons.front().code ==
          core::Code::invalid_domain);
}

TEST_CASE("a daemon that is killed has told the next one what it knew, before it answered") {
    Bench bench;
    REQUIRE(bench.prepare(xml(1, 2)).verdict == wire::Verdict::admitted);
    bench.start();
    CHECK(bench.guests() == "web-1 pending");
    (void)bench.send(started, xml(1, 2));
    (void)bench.send(reconnect, xml(2, 1));
    bench.look({active(1, 2), active(2, 1), active(3, 1)}, loop::now());
    bench.start();
    CHECK(bench.guests() == "web-1 running, web-2 running, web-3 running");
    CHECK(bench.prepare(xml(4, 5)).verdict == wire::Verdict::refused);
    (void)bench.send(release, xml(1, 2));
    bench.start();
    CHECK(bench.guests() == "web-1 returning, web-2 running, web-3 running");
    bench.service->handle(
        virt::DomainLook{.began = loop::now(), .uuid = *active(2, 1).domain->uuid, .active = {}});
    bench.start();
    CHECK(bench.guests() == "web-1 returning, web-3 running");
    CHECK(bench.status().state == "starting"); // libvirt has told this one nothing yet
}

TEST_CASE("a returning guest's place is kept by the next daemon no longer than by this one") {
    Bench bench(std::string(bare) + "[claim]\nreturn = \"100ms\"\n");
    (void)bench.send(reconnect, xml(1, 5), after(-10s));
    (void)bench.send(release, xml(1, 5), after(-5s));
    bench.start();
    CHECK(bench.prepare(xml(2, 5)).verdict == wire::Verdict::admitted);
}

TEST_CASE("a place that was kept when the daemon was killed ends though nobody asks") {
    Bench bench(std::string(bare) + "[claim]\nreturn = \"20ms\"\n");
    (void)bench.send(reconnect, xml(1, 5));
    (void)bench.send(release, xml(1, 5));
    bench.start();
    auto end = bench.loop.timer(
        "end", [&] { bench.loop.stop(0); }, loop::Priority::idle);
    end->arm_after(20ms);
    REQUIRE(bench.loop.run().value() == 0);
    CHECK(bench.guests().empty());
}

TEST_CASE("a shorter claim.return counts for places that are kept already") {
    Bench bench(std::string(bare) + "[claim]\nreturn = \"1h\"\n");
    (void)bench.send(reconnect, xml(1, 5));
    (void)bench.send(release, xml(1, 5));
    core::Policy policy;
    policy.claim.return_hold = 20ms;
    bench.service->policy().apply(policy);
    auto end = bench.loop.timer(
        "end", [&] { bench.loop.stop(0); }, loop::Priority::idle);
    end->arm_after(20ms);
    REQUIRE(bench.loop.run().value() == 0);
    CHECK(bench.guests().empty());
}

TEST_CASE("a start that was admitted holds its place also where nothing can be written") {
    Bench bench;
    std::filesystem::remove_all(bench.folder.path() / "run/virtguard");
    CHECK(bench.prepare(xml(1, 5)).verdict == wire::Verdict::admitted);
    CHECK(bench.prepare(xml(2, 5)).verdict == wire::Verdict::refused);
    const core::Status status = bench.status();
    CHECK(status.state == "degraded");
    CHECK(status.problems == std::vector{"guests: " + bench.folder.file("run/virtguard/guests") +
                                         ": No such file or directory"});
    std::filesystem::create_directories(bench.folder.path() / "run/virtguard");
    (void)bench.send(started, xml(1, 5));
    CHECK(bench.status().problems.empty());
    bench.start();
    CHECK(bench.guests() == "web-1 running");
}

TEST_CASE("before libvirt answers, its own files tell what runs") {
    Bench bench;
    const auto status_file = [](int number, int pid) {
        return fmt::format("<domstatus state='running' reason='booted' pid='{}'>{}</domstatus>",
                           pid, xml(number, 2));
    };
    (void)bench.prepare(xml(2, 1));
    bench.folder.write("proc/100/comm", "qemu");
    bench.folder.write("run/libvirt/qemu/web-1.xml", status_file(1, 100));
    bench.folder.write("run/libvirt/qemu/web-2.xml", status_file(2, 100)); // its hook has not told
    bench.folder.write("run/libvirt/qemu/web-3.xml", status_file(3, 101)); // has no process
    bench.folder.write("run/libvirt/qemu/web-4.xml", "<domstatus state=");
    bench.folder.write("run/libvirt/qemu/web-1.pid", "100");
    bench.start();
    CHECK(bench.guests() == "web-1 running, web-2 pending");
    CHECK(bench.status().report.host.allocated.at(core::Resource::memory()) == 2 * gib);
    bench.look({}, loop::now());
    CHECK(bench.guests() == "web-2 pending");
}

TEST_CASE("check tells a misspelt scheduler, and a start is decided all the same") {
    Bench bench;
    const std::string body =
        xml(1, 1,
            "<metadata><v:admission xmlns:v='https://virtguard.org/xmlns/admission/1'>"
            "<v:schedular>cortex</v:schedular></v:admission></metadata>");
    const auto reply = bench.send(wire::Operation::check, body);
    CHECK(json::parse_outcome(reply->body)->notes ==
          std::vector<std::string>{"<schedular> in its metadata is not known and ignored: expected "
                                   "<virtguard:scheduler> in <virtguard:admission>"});
    CHECK(bench.prepare(body).verdict == wire::Verdict::admitted);
}

TEST_CASE("a look finds guests and ends those that are gone") {
    Bench bench;
    CHECK(bench.status().state == "starting");
    (void)bench.send(started, xml(1, 1));
    bench.look({active(2, 2)}, after(0s));
    CHECK(bench.guests() == "web-2 running");
    CHECK(bench.status().state == "ready");
    bench.look({}, after(-1min)); // older than what is known
    CHECK(bench.guests() == "web-2 running");
    bench.service->handle(virt::DomainLook{after(0s), *active(3, 3).domain->uuid, active(3, 3)});
    CHECK(bench.guests() == "web-2 running, web-3 running");
    bench.service->handle(virt::DomainLook{after(0s), *active(3, 3).domain->uuid, std::nullopt});
    CHECK(bench.guests() == "web-2 running");
}

TEST_CASE(
    "a guest whose XML cannot be read is not taken for gone, and is a problem while it runs") {
    Bench bench;
    bench.look({active(1, 1)}, after(0s));
    bench.look({unreadable(1), unreadable(2)}, after(0s));
    CHECK(bench.guests() == "web-1 running");
    core::Status status = bench.status();
    CHECK(status.state == "degraded");
    CHECK(status.problems ==
          std::vector<std::string>{"libvirt: " + uuid_of_web +
                                       " runs and is counted as it was last known",
                                   "libvirt: 00000000-0000-4000-8000-000000000002 runs and is not "
                                   "counted"});
    bench.look({active(1, 1)}, after(0s));
    status = bench.status();
    CHECK(status.problems.empty());
    CHECK(status.state == "ready");
}

TEST_CASE("a connection that is lost is a problem until there is one again") {
    Bench bench;
    bench.look({}, after(0s));
    bench.service->handle(virt::Lost{"no libvirtd"});
    CHECK(bench.status().problems ==
          std::vector<std::string>{"libvirt: no libvirtd; what is known of it is 0 s old"});
    CHECK(bench.prepare(xml(1, 1)).verdict == wire::Verdict::admitted);
    bench.service->handle(virt::Connected{});
    CHECK(bench.status().problems.empty());
}

TEST_CASE("a reload takes a good policy, and keeps the old one where the new one is bad") {
    Bench bench;
    auto loaded = loop::Mailbox<CheckedPolicy>::create().value();
    Result<> result;
    const auto reload = [&](const std::string& text) {
        bench.folder.write("etc/virtguard.toml", text);
        loop::Loop loop = loop::Loop::create().value();
        auto mail = loop.on_io("loaded", loaded->fd(), EPOLLIN, [&](std::uint32_t) {
            for (CheckedPolicy& policy : loaded->drain())
                bench.service->policy().apply(std::move(policy));
            loop.stop(0);
        });
        REQUIRE(mail.has_value());
        result = fail(Errc::unavailable, "nobody told");
        bench.service->policy().reload(topology(), *loaded,
                                       [&](Result<> done) { result = std::move(done); });
        REQUIRE(loop.run().value() == 0);
    };
    reload(std::string(bare) + "[overcommit]\ncpu = 2\n[hook]\ntimeout = \"3s\"\n");
    CHECK(result.has_value());
    CHECK(bench.status().report.host.effective.at(core::Resource::cpu()) == 8);
    reload("[overcommit]\ncpu = 3\nmemry = 2\n");
    const core::Status status = bench.status();
    CHECK(status.report.host.effective.at(core::Resource::cpu()) == 8);
    REQUIRE(status.problems.size() == 1);
    REQUIRE_FALSE(result.has_value());
    CHECK(status.problems.front() == "policy: " + result.error().what);
    CHECK(status.problems.front().starts_with(
        "policy: " + (bench.folder.path() / "etc/virtguard.toml").string() + ":3:"));
    CHECK(bench.service->status_line() == "policy has errors, see the journal");
    bench.finish_files();
    CHECK(bench.folder.read("state/hook.conf") == "timeout-ms=3000\nunavailable=allow\n");
    // What is on disk by the time it is copied is the bad one; it must not have been kept.
    CHECK_FALSE(bench.folder.read("state/last-good-policy/virtguard.toml").contains("memry"));
}

const core::Resource licences = core::Resource::custom("licences");

/// A start asks for as many licences as it has vCPUs, which is one.
std::string declaring_licences(const std::string& file) {
    return fmt::format("{}storage.paths = []\n[resource.licences]\ncapacity = {{ file = \"{}\" }}\n"
                       "demand = \"/domain/vcpu\"\n",
                       bare, file);
}

/// That of a capacity, or "".
std::string capacity_problem(Bench& bench) {
    for (const std::string& problem : bench.status().problems)
        if (problem.starts_with("resource."))
            return problem;
    return "";
}

TEST_CASE("a capacity in a file counts from the start, is read again, and stays when it is lost") {
    Bench bench;
    const std::string file = bench.folder.file("count");
    const auto write = [&](const std::string& text) { // in one step: it is read at any time
        bench.folder.write("new", text);
        std::filesystem::rename(bench.folder.file("new"), file);
    };
    write("1\n");
    bench.folder.write("etc/virtguard.toml", declaring_licences(file));
    bench.start(/*live=*/true, topology(), /*machine_interval=*/1ms);
    CHECK(bench.prepare(xml(1, 1)).verdict == wire::Verdict::admitted);
    CHECK(bench.prepare_in_time(xml(2, 1)).body ==
          "virtguard: refused web-2: licences: needs 1, 0 free of 1");
    write("2\n");
    bench.run_until([&] { return bench.status().report.host.capacity.at(licences) == 2; });
    CHECK(bench.prepare(xml(2, 1)).verdict == wire::Verdict::admitted);
    write("some\n");
    bench.run_until([&] { return !capacity_problem(bench).empty(); });
    CHECK(capacity_problem(bench) ==
          "resource.licences.capacity.file: " + file +
              ": \"some\" is no capacity: expected a whole number, at most 4503599627370496; it "
              "stays 2");
    CHECK(bench.status().state == "degraded");
    write("1\n");
    bench.run_until([&] { return capacity_problem(bench).empty(); });
    CHECK(bench.status().report.over_capacity == std::vector{licences});
    CHECK(bench.guests() == "web-1 pending, web-2 pending");
}

TEST_CASE("a start that too little is left for has the files read again that say what there is") {
    Bench bench;
    const std::string file = bench.folder.file("count");
    bench.folder.write("count", "1\n");
    bench.folder.write("etc/virtguard.toml", declaring_licences(file));
    bench.start(); // nothing has them read from time to time
    CHECK(bench.prepare(xml(1, 1)).verdict == wire::Verdict::admitted);
    bench.folder.write("count", "2\n");
    CHECK(bench.prepare_in_time(xml(2, 1)).verdict == wire::Verdict::admitted);
    CHECK(bench.prepare_in_time(xml(3, 1)).body ==
          "virtguard: refused web-3: licences: needs 1, 0 free of 2");
}

TEST_CASE("what a file says that was never there is not known, which is a problem") {
    Bench bench;
    const std::string file = bench.folder.file("absent");
    bench.folder.write("etc/virtguard.toml",
                       declaring_licences(file) + "[hook]\nunavailable = \"deny\"\n");
    bench.start();
    CHECK(bench.prepare_in_time(xml(1, 1)).body ==
          "virtguard: refused web-1: resource.licences.capacity.file could not be read yet");
    bench.folder.write("etc/virtguard.toml", declaring_licences(file));
    bench.start();
    CHECK(bench.prepare(xml(1, 1)).verdict == wire::Verdict::admitted); // as unavailable = "allow"
    bench.run_until([&] { return !capacity_problem(bench).empty(); });
    CHECK(capacity_problem(bench) ==
          "resource.licences.capacity.file: " + file +
              ": No such file or directory; what there is of it is not known");
}

TEST_CASE("a policy with capacities in files is kept as the last good one") {
    Bench bench;
    bench.folder.write("count", "1\n");
    bench.folder.write("etc/virtguard.toml", declaring_licences(bench.folder.file("count")));
    bench.start();
    bench.finish_files();
    CHECK(
        bench.folder.read("state/last-good-policy/virtguard.toml").contains("[resource.licences]"));
}

TEST_CASE("a ratio is set of declared resources only, and reset of those that were") {
    Bench bench(declaring_licences("/absent"));
    CHECK(bench.set_ratio("licences", "2").verdict == wire::Verdict::done);
    CHECK(bench.set_to("overcommit.licences").starts_with("2, run time"));
    CHECK(bench.set_ratio("licence", "2").body ==
          "\"licence\" is not a resource; did you mean \"licences\"?");
    bench.folder.write("etc/virtguard.toml", bare);
    bench.start();
    CHECK(bench.set_ratio("licences", "3").verdict == wire::Verdict::error);
    const std::vector<std::string> no_effect{"run time: overcommit.licences = 2 has no effect, as "
                                             "the policy does not declare licences"};
    CHECK(bench.status().problems == no_effect); // was said nowhere
    const core::Order reset = core::read_reset_overcommit("licences").value();
    CHECK(bench.give(reset).verdict == wire::Verdict::done);
    CHECK(bench.status().problems.empty());
    CHECK(bench.give(reset).body == "\"licences\" is not a resource; did you mean \"cpu\"?");
}

TEST_CASE("a rule is asked of starts at once, and of guests that run when libvirt tells of them") {
    Bench bench;
    REQUIRE(bench.prepare(xml(1, 1)).verdict == wire::Verdict::admitted);
    core::Policy policy = bench.service->guard().policy();
    policy.rules["one"] = {.match = "/domain/name = 'web-2'",
                           .action = core::Rule::Action::refuse,
                           .message = "not today"};
    bench.service->policy().apply(policy);
    CHECK(bench.prepare(xml(2, 1)).body == "virtguard: refused web-2: not today (rule one)");
    REQUIRE(bench.prepare(xml(3, 1)).verdict == wire::Verdict::admitted);
    const auto has_problem = [&] {
        const auto problems = bench.status().problems;
        return std::ranges::find(problems, "policy: guests not asked yet what it asks of their "
                                           "XML: 1") != problems.end();
    };
    CHECK(has_problem());
    auto seen = domxml::parse_domain(xml(1, 1), bench.service->guard().questions());
    bench.look({{*seen->uuid, seen->name, seen}}, after(1s));
    CHECK_FALSE(has_problem());
}

TEST_CASE("a start that waited was decided by what the policy asked before a reload") {
    Bench bench(std::string(bare) + "[claim]\nreturn = \"1h\"\n");
    (void)bench.send(started, xml(1, 8));
    (void)bench.send(release, xml(1, 8));
    std::string got;
    const wire::Request request{.header = {.exec_time = loop::now(), .wait = 1h},
                                .body = xml(2, 8)};
    bench.service->handle(request, [&](std::string reply) { got = std::move(reply); });
    REQUIRE(got.empty());
    core::Policy policy = bench.service->guard().policy();
    policy.claim.return_hold = 0ms;
    policy.rules["two"] = {.match = "domain/name = 'web-2'", .action = core::Rule::Action::refuse};
    bench.service->policy().apply(policy);
    bench.run_until([&] { return !got.empty(); });
    CHECK(got == wire::encode_reply(prepare, wire::Verdict::refused,
                                    "virtguard: refused web-2: rule two refuses it"));
}

TEST_CASE("a changed rule was answered by what guests were asked before, by the next daemon too") {
    Bench bench(std::string(bare) + "[rule.one]\nmatch = \"domain/name = 'web-1'\"\n"
                                    "action = \"exempt\"\n");
    REQUIRE(bench.prepare(xml(1, 1)).verdict == wire::Verdict::admitted);
    const auto problems = [&] { return bench.status().problems.size(); };
    const std::size_t before = problems();
    bench.start();
    CHECK(problems() == before);
    bench.folder.write("etc/virtguard.toml", std::string(bare) +
                                                 "[rule.one]\nmatch = \"domain/name = 'web-2'\"\n"
                                                 "action = \"exempt\"\n");
    bench.start();
    CHECK(problems() == before + 1);
    auto seen = domxml::parse_domain(xml(1, 1), bench.service->guard().questions());
    bench.look({{*seen->uuid, seen->name, seen}}, after(1s));
    CHECK(bench.service->guard().unasked_guests() == 0);
}

TEST_CASE("enforce set at run time was laid over the defaults that stand in for a bad policy") {
    Bench bench;
    REQUIRE(bench.give(core::read_set_mode("enforce", "").value()).verdict == wire::Verdict::done);
    bench.finish_files();
    std::filesystem::remove_all(bench.folder.path() / "state/last-good-policy");
    bench.files = FilesThread::start().value();
    bench.folder.write("etc/virtguard.toml", "memry = 2\n");
    bench.start();
    CHECK(bench.status().mode == core::Mode::observe);
    CHECK(bench.prepare(xml(1, 9)).verdict == wire::Verdict::admitted);
    const auto has_problem = [&] {
        const auto problems = bench.status().problems;
        return std::ranges::find(problems,
                                 "run time: mode enforce waits for a policy without errors") !=
               problems.end();
    };
    CHECK(has_problem());
    REQUIRE(bench.give(core::read_set_mode("maintenance", "").value()).verdict ==
            wire::Verdict::done);
    CHECK(bench.prepare(xml(2, 1)).body == "virtguard: refused web-2: the host is in maintenance");
    REQUIRE(bench.give(core::read_set_mode("enforce", "").value()).verdict == wire::Verdict::done);
    CHECK(bench.status().mode == core::Mode::observe);
    bench.folder.write("etc/virtguard.toml", bare);
    bench.service->policy().apply(load_checked(bench.folder.path() / "etc", topology()));
    CHECK(bench.status().mode == core::Mode::enforce);
    CHECK_FALSE(has_problem());
}

TEST_CASE("a start whose XML could not be read was let in though the host is in maintenance") {
    Bench bench(std::string(bare) + "[claim]\nreturn = \"1h\"\n");
    const std::string unread = "<domain><uuid>" + uuid_of_web + "</uuid><name>web-1</domain>";
    CHECK(bench.prepare(unread).verdict == wire::Verdict::error);
    (void)bench.send(reconnect, xml(1, 5), after(-10s));
    REQUIRE(bench.give(core::read_set_mode("maintenance", "").value()).verdict ==
            wire::Verdict::done);
    CHECK(bench.prepare("<domain>").verdict == wire::Verdict::refused);
    CHECK(bench.prepare("<domain>").body.ends_with("the host is in maintenance"));
    (void)bench.send(release, xml(1, 5));
    CHECK(bench.prepare(unread).verdict == wire::Verdict::error); // it may be returning
}

TEST_CASE("a guest that is known is explained by its name or UUID, beside itself") {
    Bench bench;
    bench.prepare(xml(1, 5));
    for (const std::string& guest : {std::string("web-1"), uuid_of_web}) {
        const auto outcome = bench.service->explain(guest);
        REQUIRE(outcome.has_value());
        CHECK(outcome->admitted);
        CHECK(outcome->demand.at(core::Resource::memory()) == 5 * gib);
    }
    const auto unknown = bench.service->explain("web-2");
    REQUIRE_FALSE(unknown.has_value());
    CHECK(unknown.error().code == Errc::not_found);
    CHECK(unknown.error().what == "no guest \"web-2\"");
}

TEST_CASE("whoever shows the status hears of changes, and of checks nothing") {
    Bench bench;
    int changes = 0;
    bench.service->set_on_change([&] { ++changes; });
    bench.prepare(xml(1, 5));
    CHECK(std::exchange(changes, 0) > 0);
    bench.send(wire::Operation::check, xml(2, 5));
    CHECK(changes == 0);
    bench.send(wire::Operation::release, xml(1, 5));
    CHECK(std::exchange(changes, 0) > 0);
    bench.look({}, loop::now());
    CHECK(changes > 0);
}

TEST_CASE("a bad policy at start is a problem, and hooks learn what is in force") {
    Bench bench("[hook]\ntimeout = \"0s\"\n");
    CHECK(bench.status().state == "degraded");
    CHECK(bench.status().mode == core::Mode::observe);
    bench.finish_files();
    CHECK(bench.folder.read("state/hook.conf") == "timeout-ms=2000\nunavailable=allow\n");
    CHECK(bench.folder.read("state/last-good-policy/virtguard.toml").empty());
}

TEST_CASE("over capacity is what the status says it is") {
    Bench bench;
    bench.look({active(1, 9)}, after(0s));
    const core::Status status = bench.status();
    CHECK(status.report.over_capacity == std::vector{core::Resource::memory()});
    CHECK(bench.prepare(xml(2, 1)).verdict == wire::Verdict::refused);
}

TEST_CASE("what a guest occupies is looked at when it starts, reconnects or is found") {
    const auto message =
        GENERATE(as<std::optional<wire::Operation>>{}, started, reconnect, std::nullopt);
    core::Topology host = topology();
    host.nodes.push_back({.id = 1, .memory = 8 * gib});
    Bench bench(bare, /*live=*/false, host);
    bench.folder.write("run/libvirt/qemu/web-1.pid", "7\n");
    bench.folder.write("proc/7/cmdline", std::string("qemu\0-uuid\0", 11) + uuid_of_web);
    bench.folder.write("proc/7/numa_maps", "1000 default anon=9 N1=9 kernelpagesize_kB=4\n");
    bench.folder.write("proc/meminfo", "MemTotal: 3145728 kB\nMemAvailable: 2097152 kB\n");
    bench.start(/*live=*/true, host);
    bench.run_until([&] { return bench.status().foreign_memory == gib; }); // the look at a start
    if (message)
        (void)bench.send(*message, xml(1, 4), after(-1s));
    else
        bench.look({active(1, 4)}, after(-1s));
    const auto on_node_1 = [&] {
        return bench.status().report.nodes.at(1).figures.allocated.at(core::Resource::memory());
    };
    CHECK(on_node_1() == 0);
    bench.run_until([&] { return on_node_1() > 0; });
    CHECK(on_node_1() == 9 * 4096);
    const core::Status status = bench.status();
    CHECK(status.report.host.allocated.at(core::Resource::memory()) == 4 * gib);
    CHECK(status.foreign_memory == (message ? gib : gib - 9 * 4096));
}

TEST_CASE("what more guests occupy than are taken in at one turn is all taken in") {
    constexpr int count = 1000;
    core::Topology host = topology();
    host.nodes.push_back({.id = 1, .memory = 8 * gib});
    Bench bench(bare, /*live=*/true, host);
    std::vector<virt::ActiveDomain> guests;
    for (int i = 1; i <= count; ++i) {
        guests.push_back(active(i, 1));
        const std::string uuid = guests.back().uuid.text();
        bench.folder.write(fmt::format("run/libvirt/qemu/web-{}.pid", i), std::to_string(i));
        bench.folder.write(fmt::format("proc/{}/cmdline", i),
                           std::string("qemu\0-uuid\0", 11) + uuid);
        bench.folder.write(fmt::format("proc/{}/numa_maps", i),
                           "1000 default anon=1 N1=1 kernelpagesize_kB=4\n");
    }
    bench.look(std::move(guests), after(-1s));
    bench.run_until([&] {
        const auto nodes = bench.status().report.nodes;
        return nodes.at(1).figures.allocated.at(core::Resource::memory()) == count * 4096;
    });
}

TEST_CASE("this machine is looked at again and again also while libvirt does not answer") {
    Bench bench;
    const auto use = [&](std::int64_t gibibytes) {
        bench.folder.write("proc/meminfo",
                           fmt::format("MemTotal: {} kB\nMemAvailable: 0 kB\n", gibibytes << 20));
    };
    use(1);
    bench.start(/*live=*/true, topology(), /*machine_interval=*/1ms);
    bench.run_until([&] { return bench.status().foreign_memory == gib; });
    use(2);
    bench.run_until([&] { return bench.status().foreign_memory == 2 * gib; });
}

TEST_CASE("a start gets the ordinary memory that a pool which grew or shrank just now leaves") {
    Bench bench(bare, /*live=*/true);
    const auto resize_pool = [&](int gibibytes) {
        for (const char* file : {"nr_hugepages", "free_hugepages"})
            bench.folder.write(
                fmt::format("sys/devices/system/node/node0/hugepages/hugepages-1048576kB/{}", file),
                fmt::format("{}\n", gibibytes));
        bench.folder.write(
            "sys/devices/system/node/node0/hugepages/hugepages-1048576kB/surplus_hugepages", "0\n");
    };
    const auto would_admit = [&](int gibibytes) {
        const auto reply = bench.send(wire::Operation::check, xml(1, gibibytes));
        return json::parse_outcome(reply->body)->admitted;
    };
    REQUIRE(would_admit(5));
    resize_pool(4);
    CHECK_FALSE(would_admit(5));
    resize_pool(2);
    CHECK(would_admit(5));
    resize_pool(4);
    CHECK(bench.prepare(xml(1, 5)).verdict == wire::Verdict::refused);
    resize_pool(2);
    CHECK(bench.prepare(xml(1, 5)).verdict == wire::Verdict::admitted);
}

TEST_CASE("a guest that came back while no daemon ran is not dropped with the place kept for it") {
    Bench bench(std::string(bare) + "[claim]\nreturn = \"1ms\"\n");
    (void)bench.send(reconnect, xml(1, 5), after(-10s));
    (void)bench.send(release, xml(1, 5), after(-5s));
    bench.folder.write("proc/100/comm", "qemu");
    bench.folder.write("run/libvirt/qemu/web-1.xml",
                       "<domstatus state='running' reason='booted' pid='100'>" + xml(1, 5) +
                           "</domstatus>");
    bench.start();
    CHECK(bench.prepare(xml(2, 5)).verdict == wire::Verdict::refused);
    CHECK(bench.guests() == "web-1 running");
}

TEST_CASE("one guest whose XML libvirt does not give keeps no other that ended") {
    Bench bench;
    bench.look({active(1, 1), active(2, 1)}, after(0s));
    virt::ActiveDomain held = active(1, 1);
    held.domain = fail(Errc::unavailable, "domain XML: timed out");
    bench.look({held}, after(0s));
    CHECK(bench.guests() == "web-1 running");
}

TEST_CASE("a ratio is set at run time, survives a kill and a reload, and is reset") {
    Bench bench(std::string(bare) + "[overcommit]\ncpu = 3\n");
    CHECK(bench.set_ratio("cpu", "1.5").verdict == wire::Verdict::done);
    CHECK(bench.status().report.overcommit.at(core::Resource::cpu()).text() == "1.5");
    CHECK(bench.set_to("overcommit.cpu").starts_with("1.5, run time by root at 20"));
    bench.start();
    CHECK(bench.set_to("overcommit.cpu").starts_with("1.5, run time by root at 20"));
    bench.service->policy().apply(load_checked(bench.folder.path() / "etc", topology()));
    CHECK(bench.set_to("overcommit.cpu").starts_with("1.5, run time by root at 20"));
    const auto replaced = bench.policy().replaced;
    REQUIRE(replaced.size() == 1);
    CHECK(replaced.front() ==
          core::Setting{"overcommit.cpu", "3", bench.folder.file("etc/virtguard.toml") + ":4"});
    CHECK(bench.give(core::ResetOvercommit{}).verdict == wire::Verdict::done);
    CHECK(bench.set_to("overcommit.cpu") == "3, " + bench.folder.file("etc/virtguard.toml") + ":4");
    CHECK(bench.policy().replaced.empty());
}

TEST_CASE("a ratio that no file sets stands in place of 1") {
    Bench bench;
    REQUIRE(bench.set_ratio("memory", "2").verdict == wire::Verdict::done);
    CHECK(bench.policy().replaced ==
          std::vector<core::Setting>{{"overcommit.memory", "1", "default"}});
}

TEST_CASE("the last good policy is without what is set at run time") {
    Bench bench(std::string(bare) + "mode = \"enforce\"\n");
    REQUIRE(bench.set_ratio("cpu", "2").verdict == wire::Verdict::done);
    bench.start();
    bench.finish_files();
    CHECK(bench.folder.read("state/last-good-policy/virtguard.toml") ==
          bench.folder.read("etc/virtguard.toml"));
}

TEST_CASE("a ratio lowered below use touches no guest, and hinders only starts that need more") {
    Bench bench;
    REQUIRE(bench.set_ratio("cpu", "2").verdict == wire::Verdict::done);
    for (int number = 1; number <= 6; ++number)
        REQUIRE(bench.prepare(xml(number, 1)).verdict == wire::Verdict::admitted);
    bool is_changed = false;
    bench.service->set_on_change([&] { is_changed = true; });
    CHECK(bench.set_ratio("cpu", "0.5").verdict == wire::Verdict::done);
    CHECK(is_changed);
    const core::Status status = bench.status();
    CHECK(status.guests.size() == 6);
    CHECK(status.report.over_capacity == std::vector{core::Resource::cpu()});
    CHECK(status.report.host.free.at(core::Resource::cpu()) == -4);
    CHECK(bench.prepare(xml(7, 1)).body ==
          "virtguard: refused web-7: cpu: needs 1 vCPU, none free of 2 (over by 4)");
    // Memory is what it was.
    REQUIRE(bench.set_ratio("cpu", "2").verdict == wire::Verdict::done);
    REQUIRE(bench.set_ratio("memory", "0.5").verdict == wire::Verdict::done);
    CHECK(bench.status().report.over_capacity == std::vector{core::Resource::memory()});
}

TEST_CASE("what is no order is answered by an error and changes nothing") {
    Bench bench;
    const auto reply = bench.send(wire::Operation::order, "{}");
    REQUIRE(reply.has_value());
    CHECK(reply->verdict == wire::Verdict::error);
    CHECK(reply->body.starts_with("order: "));
    CHECK(bench.policy().replaced.empty());
}

TEST_CASE("a damaged file of what was set at run time is a problem, and said") {
    Bench bench;
    REQUIRE(bench.set_ratio("cpu", "2").verdict == wire::Verdict::done);
    bench.folder.write("state/run-time", "nonsense");
    bench.start();
    const core::Status status = bench.status();
    CHECK(status.state == "degraded");
    REQUIRE(status.problems.size() == 1);
    CHECK(status.problems.front().starts_with("run time: " + bench.folder.file("state/run-time")));
    CHECK(status.report.overcommit.at(core::Resource::cpu()).is_one());
}

TEST_CASE("maintenance refuses starts, survives a kill, is shown, and ends by a reset") {
    Bench bench(std::string(bare) + "mode = \"observe\"\n");
    (void)bench.send(reconnect, xml(1, 5), after(-10s));
    REQUIRE(bench.give(core::read_set_mode("maintenance", "new kernel").value()).verdict ==
            wire::Verdict::done);
    bench.start();
    CHECK(bench.prepare(xml(2, 1)).body ==
          "virtguard: refused web-2: the host is in maintenance: new kernel");
    CHECK(bench.prepare("<domain/>").verdict == wire::Verdict::refused);
    (void)bench.send(reconnect, xml(3, 1));
    CHECK(bench.guests() == "web-1 running, web-3 running");
    CHECK(bench.status().maintenance == "new kernel");
    CHECK(bench.service->status_line() == "2 guests, mode maintenance");
    CHECK(bench.set_to("mode").starts_with("\"maintenance\", run time by root at 20"));
    (void)bench.send(release, xml(1, 5));
    CHECK(bench.prepare(xml(1, 5)).verdict == wire::Verdict::admitted); // it returns
    REQUIRE(bench.give(core::ResetMode{}).verdict == wire::Verdict::done);
    CHECK(bench.prepare(xml(2, 9)).verdict == wire::Verdict::admitted);
    CHECK_FALSE(bench.status().maintenance.has_value());
}

namespace {

/// A service on storage that answers when it is told to.
class StorageBench {
  public:
    explicit StorageBench(const std::string& more = "")
        : bench(fmt::format("{}storage.paths = [\"/a\", \"/b\"]\n{}", bare, more), /*live=*/true,
                topology(), slow.reader()) {
        (void)wait(ask(disk("/b/known")));
        answers.clear();
    }
    StorageBench(const StorageBench&) = delete;
    StorageBench& operator=(const StorageBench&) = delete;
    ~StorageBench() { slow.release(); }

    static std::string disk(const std::string& path) {
        return fmt::format("<devices><disk type='file'><driver type='raw'/><source file='{}'/>"
                           "</disk></devices>",
                           path);
    }
    /// Asks for a start of the next guest; its number.
    int ask(const std::string& devices, wire::Operation operation = prepare,
            std::chrono::milliseconds patience = 2000ms) {
        const std::string body = xml(++last, 1, devices);
        const wire::Request request{
            .header = {.operation = operation,
                       .exec_time = loop::now(),
                       .wait = patience,
                       .body_length = static_cast<std::uint32_t>(body.size())},
            .body = body};
        bench.service->handle(request, [this, number = last](std::string bytes) {
            const auto header = wire::decode_reply_header(bytes);
            answers[number] = bytes.empty() ? wire::Reply{}
                                            : wire::Reply{(*header)->verdict,
                                                          bytes.substr(wire::reply_header_size)};
        });
        return last;
    }
    wire::Reply wait(int number) {
        bench.run_until([&] { return answers.contains(number); });
        return answers.at(number);
    }

    SlowStorage slow;
    Bench bench;
    std::map<int, wire::Reply> answers;
    int last = 0;
};

} // namespace

TEST_CASE("a start waits for its images, and others are answered meanwhile") {
    StorageBench storage;
    storage.slow.set_image("/a/large",
                           core::Image{.device = 1, .virtual_size = 101 * gib, .allocated = 0});
    storage.slow.hang("/a/large");
    const int waiting = storage.ask(StorageBench::disk("/a/large"));
    const int diskless = storage.ask("");
    CHECK(storage.answers.contains(diskless)); // at once
    CHECK(storage.wait(storage.ask(StorageBench::disk("/b/1"))).verdict == wire::Verdict::admitted);
    CHECK_FALSE(storage.answers.contains(waiting));
    storage.slow.release();
    CHECK(storage.wait(waiting).body ==
          "virtguard: refused web-2: ephemeral-storage on /a: needs 101 GiB, more than the 100 GiB "
          "that one guest can have");
}

TEST_CASE("a start whose images cannot be read in time is decided by the policy") {
    struct Row {
        std::string policy;
        wire::Verdict verdict;
        std::string line;
    };
    const auto row = GENERATE(values<Row>({
        {"", wire::Verdict::admitted, ""},
        {"storage.unknown = \"refuse\"\n", wire::Verdict::refused,
         "virtguard: refused web-2: how much /a/1 may grow is not known: it could not be read in "
         "time"},
    }));
    StorageBench storage(row.policy);
    storage.slow.hang("/a/1");
    const Instant began = loop::now();
    const wire::Reply reply = storage.wait(storage.ask(StorageBench::disk("/a/1")));
    CHECK(loop::now() - began >= StorageWatch::patience);
    CHECK(reply.verdict == row.verdict);
    CHECK(reply.body == row.line);
    // What is known from before counts in either case.
    storage.slow.hang("/b/known");
    const int known = storage.ask(StorageBench::disk("/b/known"));
    CHECK(storage.wait(known).verdict == wire::Verdict::admitted);
    CHECK(storage.bench.status().report.host.pending.at(core::Resource::storage()) == 20 * gib);
}

TEST_CASE("a start whose hook waits only briefly waits less for its images") {
    StorageBench storage;
    storage.slow.hang("/a/1");
    const Instant began = loop::now();
    (void)storage.wait(storage.ask(StorageBench::disk("/a/1"), prepare, 200ms));
    CHECK(loop::now() - began < StorageWatch::patience);
}

TEST_CASE("a guest that returns does not lose its place to the wait for its images") {
    StorageBench storage("claim.return = \"1h\"\n");
    const std::string body = xml(50, 1, StorageBench::disk("/a/1"));
    (void)storage.bench.send(reconnect, body);
    storage.slow.hang("/a/1");
    (void)storage.bench.send(release, body);
    CHECK(storage.bench.prepare(body).verdict == wire::Verdict::admitted); // at once
    storage.slow.release();
    storage.bench.run_until([&] {
        const auto pending = storage.bench.status().report.host.pending;
        return pending.contains(core::Resource::storage());
    });
}

TEST_CASE("what is observed is not that guests seem to owe what they have written since") {
    StorageBench storage("mode = \"observe\"\n");
    const auto with = [](std::int64_t written) {
        return core::Image{.device = 1, .virtual_size = 85 * gib, .allocated = written};
    };
    storage.slow.set_image("/a/writer", with(0));
    const std::string writer = xml(50, 1, StorageBench::disk("/a/writer"));
    (void)storage.bench.send(reconnect, writer);
    storage.bench.run_until([&] {
        const auto allocated = storage.bench.status().report.host.allocated;
        return allocated.contains(core::Resource::storage());
    });
    storage.slow.set_image("/a/writer", with(85 * gib));
    for (const char* path : {"/a", "/a/1", "/a/2"})
        storage.slow.set_file_system(
            path,
            core::FileSystem{.path = "/a", .device = 1, .capacity = 100 * gib, .used = 85 * gib});
    (void)storage.wait(storage.ask(StorageBench::disk("/a/1")));
    CHECK(storage.bench.status().would_refuse == 0);
    CHECK(storage.bench.status().report.host.pending.at(core::Resource::storage()) == 20 * gib);
    (void)storage.wait(storage.ask(StorageBench::disk("/a/2")));
    CHECK(storage.bench.status().would_refuse == 1);
}

TEST_CASE("who shows the status hears that storage was read") {
    StorageBench storage;
    (void)storage.bench.send(reconnect, xml(50, 1, StorageBench::disk("/a/1")));
    const auto allocated = [&] {
        const auto figures = storage.bench.service->status().report.host.allocated;
        const auto found = figures.find(core::Resource::storage());
        return found == figures.end() ? 0 : found->second;
    };
    std::int64_t shown = allocated();
    CHECK(shown == 0);
    storage.bench.service->set_on_change([&] { shown = allocated(); });
    storage.bench.run_until([&] { return allocated() == 10 * gib; });
    CHECK(shown == 10 * gib);
}

TEST_CASE("what running guests owe outlives the daemon, also where storage hangs then") {
    StorageBench storage;
    (void)storage.bench.send(reconnect, xml(50, 1, StorageBench::disk("/a/1")));
    const auto allocated = [&] {
        const auto figures = storage.bench.status().report.host.allocated;
        const auto found = figures.find(core::Resource::storage());
        return found == figures.end() ? 0 : found->second;
    };
    storage.bench.run_until([&] { return allocated() == 10 * gib; });
    storage.slow.hang("/a/1");
    storage.bench.start(/*live=*/true);
    storage.bench.run_until([&] { return allocated() == 10 * gib; }); // as soon as /a is known
    storage.slow.release();
}

TEST_CASE("a check waits for images as a start does") {
    StorageBench storage;
    storage.slow.hang("/a/1");
    const int number = storage.ask(StorageBench::disk("/a/1"), wire::Operation::check);
    CHECK(storage.answers.empty());
    storage.slow.release();
    const auto outcome = json::parse_outcome(storage.wait(number).body).value();
    CHECK(outcome.demand.at(core::Resource::storage()) == 10 * gib);
}

TEST_CASE("of starts that wait for their images and race for one place, one gets it") {
    StorageBench storage;
    for (const char* path : {"/a/1", "/a/2"})
        storage.slow.set_image(path,
                               core::Image{.device = 1, .virtual_size = 60 * gib, .allocated = 0});
    storage.slow.hang("/a/1");
    const int first = storage.ask(StorageBench::disk("/a/1"));
    const int second = storage.ask(StorageBench::disk("/a/2"));
    storage.slow.release();
    (void)storage.wait(first);
    (void)storage.wait(second);
    CHECK(storage.answers.at(first).verdict != storage.answers.at(second).verdict);
}

namespace {

std::string owned_xml(int number, int gibibytes, std::string_view scheduler = "cortex",
                      std::string_view more = "") {
    return xml(number, gibibytes,
               fmt::format("<metadata><v:admission "
                           "xmlns:v='https://virtguard.org/xmlns/admission/1'><v:scheduler>{}"
                           "</v:scheduler></v:admission></metadata>{}",
                           scheduler, more));
}

const std::string open_to_all = std::string(bare) + "[scheduler]\naccept-any = true\n";

core::ReserveWords spot(std::int64_t gibibytes) {
    return {.id = {"cortex", "spot"}, .amounts = {{"memory", gibibytes * gib}}};
}

/// "" when it is made, else what was answered.
std::string reserve(Bench& bench, core::ReserveWords words) {
    const wire::Reply reply = bench.give(core::read_reserve(std::move(words)).value());
    if (reply.verdict == wire::Verdict::done)
        return reply.body;
    return (reply.verdict == wire::Verdict::refused ? "refused: " : "error: ") + reply.body;
}

/// GiB of memory: asked, still booked.
std::string reserved(Bench& bench) {
    std::string text;
    for (const core::ReservationReport& each : bench.status().reservations) {
        const auto left = each.booked.find("memory");
        text += fmt::format("{}{} {}/{}", text.empty() ? "" : ", ", each.id.name,
                            left == each.booked.end() ? 0 : left->second / gib,
                            each.asked.at("memory") / gib);
    }
    return text;
}

WallTime in(std::chrono::microseconds span) {
    return loop::wall_time() + span;
}

} // namespace

TEST_CASE("space is taken before its guest, which comes, goes and comes back") {
    Bench bench(open_to_all);
    CHECK(reserve(bench, spot(6)) == "");
    CHECK(reserved(bench) == "spot 6/6");
    CHECK(bench.prepare(owned_xml(2, 3, "other")).body ==
          "virtguard: refused web-2: memory: needs 3 GiB, 2 GiB free of 8 GiB");
    CHECK(bench.prepare(owned_xml(1, 6)).verdict == wire::Verdict::admitted);
    CHECK(reserved(bench) == "spot 0/6");
    (void)bench.send(wire::Operation::started, owned_xml(1, 6));
    CHECK(reserve(bench, spot(6)) == ""); // again: it is there, and draws
    CHECK(reserved(bench) == "spot 0/6");
    (void)bench.send(release, owned_xml(1, 6));
    bench.run_until([&] { return reserved(bench) == "spot 6/6"; });
    CHECK(bench.prepare(owned_xml(2, 3, "other")).verdict == wire::Verdict::refused);
    CHECK(bench.prepare(owned_xml(1, 6)).verdict == wire::Verdict::admitted);
    CHECK(bench.prepare(owned_xml(2, 2, "other")).verdict == wire::Verdict::admitted);
    CHECK(bench.give(core::CancelReservation{{"cortex", "spot"}}).verdict == wire::Verdict::done);
    CHECK(reserved(bench) == "");
    CHECK(bench.status().report.host.pending.at(core::Resource::memory()) == 8 * gib);
}

TEST_CASE("what does not fit is refused with the reason, and made by force") {
    Bench bench(open_to_all);
    CHECK(reserve(bench, spot(9)) == "refused: memory: needs 9 GiB, 8 GiB free of 8 GiB");
    CHECK(reserved(bench) == "");
    core::ReserveWords by_force = spot(9);
    by_force.force = true;
    CHECK(reserve(bench, by_force) == "");
    CHECK(reserved(bench) == "spot 9/9");
    CHECK(bench.status().report.over_capacity == std::vector{core::Resource::memory()});
    bench.start();
    CHECK(reserved(bench) == "spot 9/9");
    CHECK(reserve(bench, spot(8)) == "");
    CHECK(bench.status().report.over_capacity.empty());
}

TEST_CASE("what is reserved is there after a kill, and a guest that drew draws still") {
    Bench bench(open_to_all);
    CHECK(reserve(bench, spot(6)) == "");
    CHECK(bench.prepare(owned_xml(1, 4)).verdict == wire::Verdict::admitted);
    bench.start();
    CHECK(reserved(bench) == "spot 2/6");
    CHECK(bench.guests() == "web-1 pending");
    CHECK(bench.prepare(owned_xml(2, 3, "other")).verdict == wire::Verdict::refused);
    CHECK(bench.give(core::RenewReservation{{"cortex", "spot"}, core::Never{}}).verdict ==
          wire::Verdict::done);
    bench.start();
    CHECK(bench.status().reservations.at(0).expiry == std::nullopt);
}

TEST_CASE("what is reserved is there after a reboot, whose guests are gone") {
    Bench bench(open_to_all);
    CHECK(reserve(bench, spot(6)) == "");
    CHECK(bench.prepare(owned_xml(1, 4)).verdict == wire::Verdict::admitted);
    std::filesystem::remove_all(bench.folder.path() / "run/virtguard");
    std::filesystem::create_directories(bench.folder.path() / "run/virtguard");
    bench.start();
    CHECK(bench.guests() == "");
    CHECK(reserved(bench) == "spot 6/6");
}

TEST_CASE("a reservation ends in mid-start, and what the start drew stays its own") {
    Bench bench(open_to_all);
    CHECK(reserve(bench, spot(6)) == "");
    CHECK(bench.prepare(owned_xml(1, 4)).verdict == wire::Verdict::admitted);
    CHECK(reserved(bench) == "spot 2/6");
    CHECK(bench.give(core::RenewReservation{{"cortex", "spot"}, 50ms}).verdict ==
          wire::Verdict::done);
    bench.run_until([&] { return reserved(bench).empty(); });
    CHECK(bench.prepare(owned_xml(2, 5, "other")).verdict == wire::Verdict::refused);
    CHECK(bench.prepare(owned_xml(2, 4, "other")).verdict == wire::Verdict::admitted);
    (void)bench.send(wire::Operation::started, owned_xml(1, 4));
    CHECK(bench.status().report.host.allocated.at(core::Resource::memory()) == 4 * gib);
    bench.finish_files();
    const auto kept = state::read(bench.folder.path() / "state/run-time", 1 << 20);
    CHECK(json::parse_run_time(kept.value(), "").value().values.reservations.empty());
}

TEST_CASE("a reservation that ended while no daemon ran ends at once") {
    Bench bench(open_to_all);
    core::ReserveWords words = spot(6);
    words.expiry = in(100ms);
    CHECK(reserve(bench, words) == "");
    bench.service.reset();
    const Instant late = after(150ms);
    bench.run_until([&] { return loop::now() > late; });
    bench.start();
    bench.run_until([&] { return reserved(bench).empty(); });
}

TEST_CASE("as long as the clock is not known to be right, no reservation ends") {
    Bench bench(open_to_all);
    bench.clock_is_right = [] { return false; };
    bench.start();
    core::ReserveWords words = spot(6);
    words.expiry = in(100ms);
    CHECK(reserve(bench, words) == "");
    CHECK(bench.status().problems.empty());
    const Instant later = after(200ms);
    bench.run_until([&] { return loop::now() > later; });
    CHECK(reserved(bench) == "spot 6/6");
    bench.start(); // still not
    CHECK(reserved(bench) == "spot 6/6");
    CHECK(bench.status().problems ==
          std::vector<std::string>{"reservation spot of cortex: its time is past, and it ends only "
                                   "when the kernel says that the clock is synchronised"});
    bench.clock_is_right = [] { return true; };
    bench.start(); // it is, by now
    bench.run_until([&] { return reserved(bench).empty(); });
    CHECK(bench.status().problems.empty());
}

TEST_CASE("what is past is not reserved, whether the clock is right or not") {
    Bench bench(open_to_all);
    bench.clock_is_right = [] { return false; };
    bench.start();
    core::ReserveWords words = spot(6);
    words.expiry = in(-1h);
    CHECK(reserve(bench, words).starts_with("error: expiry: "));
    bench.clock_is_right = [] { return true; };
    bench.start();
    CHECK(reserve(bench, words).starts_with("error: expiry: "));
    CHECK(reserved(bench) == "");
}

TEST_CASE("what lasts for a span ends after it, whether the clock is right or not") {
    Bench bench(open_to_all);
    bench.clock_is_right = [] { return false; };
    bench.start();
    core::ReserveWords words = spot(6);
    words.expiry = 50ms;
    CHECK(reserve(bench, words) == "");
    bench.run_until([&] { return reserved(bench).empty(); });
    words.expiry = 1h;
    CHECK(reserve(bench, words) == "");
    bench.clock_is_right = [] { return true; };
    bench.start();
    CHECK(reserved(bench) == "spot 6/6");
    const auto left = bench.status().reservations.at(0).expiry.value() - loop::wall_time();
    CHECK(left > 59min);
    CHECK(left <= 1h);
}

TEST_CASE("a guest whose XML a reservation matches draws on it, others do not") {
    Bench bench(open_to_all);
    core::ReserveWords words = spot(6);
    words.match = "boolean(/domain/title[.='big'])";
    bool is_asked = false;
    bench.service->set_on_questions([&] { is_asked = true; });
    CHECK(reserve(bench, words) == "");
    CHECK(is_asked);
    CHECK(bench.prepare(owned_xml(1, 3)).verdict == wire::Verdict::refused);
    CHECK(bench.prepare(owned_xml(1, 3, "cortex", "<title>big</title>")).verdict ==
          wire::Verdict::admitted);
    CHECK(reserved(bench) == "spot 3/6");
    words.match = "boolean(";
    CHECK(reserve(bench, words) == "error: match: has a parenthesis that is not closed");
    words.match = "/domain/x:title";
    CHECK(reserve(bench, words) ==
          "error: match: has the prefix \"x\", which its namespaces do not declare");
    CHECK(reserved(bench) == "spot 3/6");
}

TEST_CASE("a restart forgot which guests a reservation matches, and what they drew from it") {
    Bench bench(open_to_all);
    core::ReserveWords words = spot(4);
    words.match = "boolean(/domain/title[.='big'])";
    CHECK(reserve(bench, words) == "");
    CHECK(reserve(bench, {.id = {"cortex", "z"}, .amounts = {{"memory", 2 * gib}}}) == "");
    const std::string big = owned_xml(1, 4, "cortex", "<title>big</title>");
    CHECK(bench.prepare(big).verdict == wire::Verdict::admitted);
    (void)bench.send(started, big);
    bench.folder.write("proc/100/comm", "qemu");
    bench.folder.write("run/libvirt/qemu/web-1.xml",
                       "<domstatus state='running' reason='booted' pid='100'>" + big +
                           "</domstatus>");
    bench.start();
    CHECK(reserved(bench) == "spot 0/4, z 2/2");
    CHECK(bench.prepare(owned_xml(2, 2, "other")).verdict == wire::Verdict::admitted);
    CHECK(bench.give(core::RenewReservation{{"cortex", "spot"}, in(50ms)}).verdict ==
          wire::Verdict::done);
    bench.service.reset(); // and it ends while no daemon runs
    const Instant late = after(100ms);
    bench.run_until([&] { return loop::now() > late; });
    bench.start();
    CHECK(reserved(bench) == "z 2/2");
    bench.start();
    CHECK(reserved(bench) == "z 2/2");
}

TEST_CASE("a guest that was not asked yet what a reservation matches is no problem of the policy") {
    Bench bench(open_to_all);
    (void)bench.send(reconnect, owned_xml(1, 3));
    core::ReserveWords words = spot(4);
    words.match = "true()";
    CHECK(reserve(bench, words) == "");
    CHECK(reserved(bench) == "spot 4/4");
    CHECK(bench.status().problems.empty());
    (void)bench.send(reconnect, owned_xml(1, 3)); // is asked, but was there before
    CHECK(reserved(bench) == "spot 4/4");
}

TEST_CASE("a guest that was there before a reservation ate it") {
    Bench bench(open_to_all);
    (void)bench.send(reconnect, owned_xml(1, 3));
    CHECK(reserve(bench, spot(4)) == "");
    CHECK(reserved(bench) == "spot 4/4");
    bench.start(); // knows who was first
    CHECK(reserved(bench) == "spot 4/4");
    CHECK(bench.prepare(owned_xml(2, 2, "other")).verdict == wire::Verdict::refused);
    CHECK(bench.prepare(owned_xml(3, 4)).verdict == wire::Verdict::admitted);
    CHECK(reserved(bench) == "spot 0/4");
    CHECK(reserve(bench, spot(4)) == ""); // again: it was made before that
    CHECK(reserved(bench) == "spot 0/4");
    core::ReserveWords named = spot(4);
    named.id.name = "of-web-1";
    named.uuids = {uuid_of_web};
    CHECK(reserve(bench, named) == "");
    CHECK(reserved(bench) == "of-web-1 1/4, spot 0/4");
}

TEST_CASE("a refusal of what guests would draw on at once tells how much was asked, too") {
    Bench bench(open_to_all);
    (void)bench.send(reconnect, owned_xml(1, 3));
    core::ReserveWords named = spot(12);
    named.uuids = {uuid_of_web};
    CHECK(reserve(bench, named) == "refused: memory: needs 9 GiB, 5 GiB free of 8 GiB; memory: 12 "
                                   "GiB asked for, 3 GiB of it drawn by guests at once");
}

TEST_CASE("a guest whose reservation had ended drew on another, also for the next daemon") {
    Bench bench(open_to_all);
    core::ReserveWords first = spot(3);
    first.id.name = "first";
    CHECK(reserve(bench, first) == "");
    CHECK(bench.prepare(owned_xml(1, 3)).verdict == wire::Verdict::admitted);
    CHECK(reserve(bench, spot(3)) == ""); // younger, but web-1 could draw on it if it came again
    core::ReserveWords older = spot(2);
    older.id.name = "second";
    CHECK(reserve(bench, older) == "");
    CHECK(bench.prepare(owned_xml(2, 5)).verdict == wire::Verdict::admitted);
    CHECK(reserved(bench) == "first 0/3, second 0/2, spot 0/3");
    CHECK(bench.give(core::CancelReservation{{"cortex", "second"}}).verdict == wire::Verdict::done);
    CHECK(reserved(bench) == "first 0/3, spot 0/3");
    CHECK(bench.give(core::RenewReservation{{"cortex", "first"}, 20ms}).verdict ==
          wire::Verdict::done);
    bench.run_until([&] { return reserved(bench) == "spot 0/3"; });
    bench.run_until([&] { return !bench.folder.read("state/run-time").contains("first"); });
    bench.start();
    CHECK(reserved(bench) == "spot 0/3");
    (void)bench.send(release, owned_xml(2, 5));
    CHECK(reserved(bench) == "spot 3/3");
}

TEST_CASE("a reservation that cannot be kept is not made") {
    Bench bench(open_to_all);
    CHECK(reserve(bench, spot(2)) == "");
    const std::filesystem::path state = bench.folder.path() / "state";
    std::filesystem::remove_all(state);
    bench.folder.write("state", "no folder");
    CHECK(reserve(bench, spot(5)).starts_with("error: not reserved: "));
    CHECK(reserved(bench) == "spot 2/2");
    core::ReserveWords other = spot(4);
    other.id.name = "other";
    CHECK(reserve(bench, other).starts_with("error: not reserved: "));
    CHECK(reserved(bench) == "spot 2/2");
    CHECK(bench.status().report.host.booked.at(core::Resource::memory()) == 2 * gib);
}

TEST_CASE("a reservation that could not be kept stayed, as the clock was put right meanwhile") {
    static bool is_right;
    is_right = false;
    Bench bench(open_to_all);
    bench.clock_is_right = [] { return is_right; };
    bench.start();
    CHECK(bench.set_ratio("cpu", "2").verdict == wire::Verdict::done); // no more is being written
    const std::filesystem::path state = bench.folder.path() / "state";
    std::filesystem::remove_all(state);
    bench.folder.write("state", "no folder");
    std::optional<Result<>> kept;
    bench.service->carry_out(core::read_reserve(spot(4)).value(), 0,
                             [&](Result<> done) { kept = std::move(done); });
    is_right = true;
    core::ReserveWords other = spot(2);
    other.id.name = "other";
    CHECK(reserve(bench, other).starts_with("error: not reserved: "));
    bench.run_until([&] { return kept.has_value(); });
    CHECK_FALSE(kept->has_value());
    CHECK(reserved(bench) == "");
}

TEST_CASE("what is reserved of a resource that is not declared any more is not booked, and said") {
    Bench bench(std::string(open_to_all) + "[resource.licences]\ncapacity = 4\ndemand = '0'\n");
    core::ReserveWords words = spot(2);
    words.amounts["licences"] = 3;
    CHECK(reserve(bench, words) == "");
    bench.folder.write("etc/virtguard.toml", open_to_all);
    bench.start();
    CHECK(reserved(bench) == "spot 2/2");
    CHECK(bench.status().report.over_capacity.empty());
    CHECK(bench.status().problems ==
          std::vector<std::string>{"reservation spot of cortex: nothing is booked of licences, "
                                   "which the policy does not declare"});
}

TEST_CASE("the domain of a reservation is asked what the policy counts of it") {
    Bench bench(std::string(open_to_all) +
                "[resource.licences]\ncapacity = 4\ndemand = 'count(/domain/title)'\n");
    CHECK(reserve(bench, {.id = {"cortex", "spot"}, .xml = xml(1, 5, "<title>big</title>")}) == "");
    CHECK(bench.status().reservations.at(0).booked.at("licences") == 1);
}

TEST_CASE("the XML of a domain stands for amounts, and is not kept where it cannot be read") {
    Bench bench(open_to_all);
    CHECK(reserve(bench, {.id = {"cortex", "spot"}, .xml = xml(1, 5)}) == "");
    CHECK(reserved(bench) == "spot 5/5");
    CHECK(bench.status().reservations.at(0).asked.at("cpu") == 1);
    bench.start();
    CHECK(reserved(bench) == "spot 5/5");
    CHECK(
        reserve(bench, {.id = {"cortex", "spot"}, .xml = "<domain>"}).starts_with("error: xml: "));
    CHECK(reserved(bench) == "spot 5/5");
}

TEST_CASE("what is not reserved is neither renewed nor cancelled, and that is said") {
    Bench bench(open_to_all);
    const wire::Reply reply = bench.give(core::CancelReservation{{"cortex", "spot"}});
    CHECK(reply.verdict == wire::Verdict::error);
    CHECK(reply.body == "\"cortex\" has no reservation \"spot\"");
    CHECK(bench.give(core::RenewReservation{{"cortex", "spot"}, core::Never{}}).verdict ==
          wire::Verdict::error);
}
