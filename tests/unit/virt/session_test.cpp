// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "loop/mailbox.hpp"
#include "virt/domains.hpp"
#include "virt/handles.hpp"
#include "virt/session.hpp"

using namespace virtguard;
using namespace virtguard::virt;
using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {

// How long a test waits for what must come; it costs nothing when it does.
constexpr int patience_ms = 30'000;

const Uuid test_uuid = Uuid::parse("6695eb01-f6a4-8304-79aa-97f2502e193f").value();
const Uuid other_uuid = Uuid::parse("00000000-0000-4000-8000-000000000001").value();

const std::string other_xml = "<domain type='test'><name>other</name><uuid>"
                              "00000000-0000-4000-8000-000000000001</uuid><memory>1024</memory>"
                              "<os><type>hvm</type></os></domain>";

/// Reads the name and nothing else.
Result<core::Domain> parse_name(std::string_view xml) {
    const auto begin = xml.find("<name>") + 6;
    core::Domain domain;
    domain.name = xml.substr(begin, xml.find("</name>") - begin);
    return domain;
}

/// The main thread's end.
class Receiver {
  public:
    bool push(Message message) { return mail_->push(std::move(message)); }

    Message next() {
        while (kept_.empty()) {
            pollfd p{.fd = mail_->fd(), .events = POLLIN, .revents = 0};
            REQUIRE(::poll(&p, 1, patience_ms) == 1);
            kept_ = mail_->drain();
        }
        Message message = std::move(kept_.front());
        kept_.pop_front();
        return message;
    }

    /// The next message that is not only of libvirt being asked; it must be a T.
    template <class T>
    T next() {
        Message message = next();
        while (std::holds_alternative<Asked>(message) && !std::is_same_v<T, Asked>)
            message = next();
        REQUIRE(std::holds_alternative<T>(message));
        return std::get<T>(std::move(message));
    }

    [[nodiscard]] bool empty() {
        std::ranges::move(mail_->drain(), std::back_inserter(kept_));
        return std::ranges::all_of(
            kept_, [](const Message& message) { return std::holds_alternative<Asked>(message); });
    }

  private:
    std::unique_ptr<loop::Mailbox<Message>> mail_ = loop::Mailbox<Message>::create().value();
    std::deque<Message> kept_;
};

/// Options whose clock counts its readings, the first of which is for connecting, and whose timers
/// do not fire within a test.
Options options_for(Receiver& receiver, std::string uri) {
    return {.uri = std::move(uri),
            .parse = parse_name,
            .post = [&receiver](Message message) { return receiver.push(std::move(message)); },
            .now = [n = 0]() mutable { return Instant(std::chrono::nanoseconds(++n)); },
            .look_period = 1h,
            .look_retry = 1h,
            .first_retry = 1h,
            .last_retry = 1h};
}

/// Another client of the same hypervisor, open read-write.
class Client {
  public:
    explicit Client(const char* uri = "test:///default") : connect_(virConnectOpen(uri)) {
        REQUIRE(connect_);
    }
    void create(const std::string& xml) {
        REQUIRE(DomainPtr(virDomainCreateXML(connect_.get(), xml.c_str(), 0)));
    }
    [[nodiscard]] DomainPtr domain(const char* name) {
        DomainPtr found(virDomainLookupByName(connect_.get(), name));
        REQUIRE(found);
        return found;
    }
    void destroy(const char* name) { REQUIRE(virDomainDestroy(domain(name).get()) == 0); }
    void start(const char* name) { REQUIRE(virDomainCreate(domain(name).get()) == 0); }

  private:
    ConnectPtr connect_;
};

/// Complete before it is there.
void write_node(const std::string& path) {
    std::ofstream(path + ".new") << "<node><domain type='test'><name>on</name><memory>1024</memory>"
                                    "<os><type>hvm</type></os></domain>"
                                    "<domain type='test' "
                                    "xmlns:test='http://libvirt.org/schemas/domain/test/1.0'>"
                                    "<name>off</name><memory>1024</memory><os><type>hvm</type></os>"
                                    "<test:runstate>5</test:runstate></domain></node>";
    std::filesystem::rename(path + ".new", path);
}

UniqueFd listen_at(const std::string& path) {
    UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    REQUIRE(path.size() < sizeof address.sun_path);
    std::ranges::copy(path, address.sun_path);
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener.get(), 4) == 0);
    return listener;
}

/// Holds a parser until the test lets it go.
class Gate {
  public:
    /// For the libvirt thread: says that it is here, and waits.
    void pass() {
        if (!arrived_.exchange(true))
            here_.set_value();
        open_.wait();
    }
    void wait_until_held() {
        REQUIRE(here_.get_future().wait_for(30s) == std::future_status::ready);
    }
    void open() { opened_.set_value(); }

  private:
    std::atomic<bool> arrived_ = false;
    std::promise<void> here_;
    std::promise<void> opened_;
    std::shared_future<void> open_ = opened_.get_future().share();
};

/// Whose XML libvirt does not give, for some reason of its own.
std::atomic<const char*> xml_withheld_of = "";

} // namespace

/// In place of libvirt's.
char* virDomainGetXMLDesc(virDomainPtr domain, unsigned int flags) {
    static const auto real =
        reinterpret_cast<decltype(&virDomainGetXMLDesc)>(::dlsym(RTLD_NEXT, "virDomainGetXMLDesc"));
    const bool is_withheld = std::string(virDomainGetName(domain)) == xml_withheld_of.load();
    return real(is_withheld ? nullptr : domain, flags); // which sets an error
}

TEST_CASE("a session connects and looks at what is active, on a thread of its own") {
    Receiver receiver;
    Options options = options_for(receiver, "test:///default");
    std::atomic<std::thread::id> parser;
    options.parse = [&parser](std::string_view xml) {
        parser = std::this_thread::get_id();
        return parse_name(xml);
    };
    const auto session = Session::start(std::move(options)).value();
    (void)receiver.next<Connected>();
    const Look look = receiver.next<Look>();
    CHECK(look.began == Instant(2ns));
    REQUIRE(look.active.size() == 1);
    CHECK(look.active[0].uuid == test_uuid);
    CHECK(look.active[0].name == "test");
    CHECK(look.active[0].domain.value().name == "test");
    CHECK(parser.load() != std::this_thread::get_id());
    CHECK(session->stop(30s));
}

TEST_CASE("a look has no inactive domains") {
    const Folder folder;
    write_node(folder.file("node.xml"));
    Receiver receiver;
    const auto session =
        Session::start(options_for(receiver, "test://" + folder.file("node.xml"))).value();
    (void)receiver.next<Connected>();
    const Look look = receiver.next<Look>();
    REQUIRE(look.active.size() == 1);
    CHECK(look.active[0].name == "on");
}

TEST_CASE("XML that the parser refuses leaves the domain in the look") {
    Receiver receiver;
    Options options = options_for(receiver, "test:///default");
    options.parse = [](std::string_view) { return fail(Errc::invalid, "domain: too large"); };
    const auto session = Session::start(std::move(options)).value();
    (void)receiver.next<Connected>();
    const Look look = receiver.next<Look>();
    REQUIRE(look.active.size() == 1);
    CHECK(look.active[0].uuid == test_uuid);
    CHECK(look.active[0].name == "test");
    REQUIRE_FALSE(look.active[0].domain.has_value());
    CHECK(look.active[0].domain.error().what == "domain: too large");
}

TEST_CASE("an event causes a look at its domain") {
    Receiver receiver;
    const auto session = Session::start(options_for(receiver, "test:///default")).value();
    (void)receiver.next<Connected>();
    (void)receiver.next<Look>();
    Client client;

    client.destroy("test");
    DomainLook look = receiver.next<DomainLook>();
    CHECK(look.began == Instant(3ns));
    CHECK(look.uuid == test_uuid);
    CHECK_FALSE(look.active); // it is still defined, and has XML

    client.start("test");
    look = receiver.next<DomainLook>();
    CHECK(look.uuid == test_uuid);
    REQUIRE(look.active);
    CHECK(look.active->uuid == test_uuid);
    CHECK(look.active->domain.value().name == "test");

    client.create(other_xml);
    look = receiver.next<DomainLook>();
    CHECK(look.uuid == other_uuid);
    CHECK(look.active);

    client.destroy("other");
    look = receiver.next<DomainLook>();
    CHECK(look.uuid == other_uuid);
    CHECK_FALSE(look.active); // it is not known any more
}

TEST_CASE("a change of a running domain causes a look, too") {
    Receiver receiver;
    const auto session = Session::start(options_for(receiver, "test:///default")).value();
    (void)receiver.next<Connected>();
    (void)receiver.next<Look>();
    Client client;
    REQUIRE(virDomainSetMetadata(client.domain("test").get(), VIR_DOMAIN_METADATA_TITLE, "new",
                                 nullptr, nullptr, VIR_DOMAIN_AFFECT_LIVE) == 0);
    CHECK(receiver.next<DomainLook>().uuid == test_uuid);
}

TEST_CASE("events that come while the thread is held make one look at each domain") {
    Receiver receiver;
    Gate gate;
    Options options = options_for(receiver, "test:///default");
    options.parse = [&gate](std::string_view xml) {
        gate.pass();
        return parse_name(xml);
    };
    const auto session = Session::start(std::move(options)).value();
    gate.wait_until_held();
    Client client;
    client.create(other_xml);
    client.destroy("other");
    client.create(other_xml);
    gate.open();
    (void)receiver.next<Connected>();
    CHECK(receiver.next<Look>().active.size() == 1);
    const DomainLook look = receiver.next<DomainLook>();
    CHECK(look.uuid == other_uuid);
    CHECK(look.active);
    session->request_look();
    CHECK(receiver.next<Look>().active.size() == 2);
}

TEST_CASE("a domain that vanishes during a look is not in it") {
    const auto [name, xml] = GENERATE(table<const char*, std::string>({
        {"other", other_xml}, // transient: libvirt knows no such domain
        {"test", ""},         // defined: libvirt has XML, but of no running domain
    }));
    CAPTURE(name);
    Client client;
    client.create(other_xml);
    Receiver receiver;
    Options options = options_for(receiver, "test:///default");
    options.parse = [&client, first = true](std::string_view given) mutable {
        auto domain = parse_name(given);
        if (std::exchange(first, false))
            client.destroy(domain->name == "test" ? "other" : "test");
        return domain;
    };
    const auto session = Session::start(std::move(options)).value();
    (void)receiver.next<Connected>();
    const Look look = receiver.next<Look>();
    CHECK(look.active.size() == 1);
}

TEST_CASE("looks are made when asked for and on the timer") {
    Receiver receiver;
    Options options = options_for(receiver, "test:///default");
    SECTION("asked for") {
        const auto session = Session::start(std::move(options)).value();
        (void)receiver.next<Connected>();
        CHECK(receiver.next<Look>().began == Instant(2ns));
        session->request_look();
        CHECK(receiver.next<Look>().began == Instant(3ns));
        session->request_look();
        CHECK(receiver.next<Look>().began == Instant(4ns));
    }
    SECTION("on the timer") {
        options.look_period = 1ms;
        const auto session = Session::start(std::move(options)).value();
        (void)receiver.next<Connected>();
        for (int look = 1; look <= 3; ++look)
            CHECK(receiver.next<Look>().began == Instant(std::chrono::nanoseconds(1 + look)));
    }
}

TEST_CASE("what a full receiver did not take is told again, whole") {
    const int refused = GENERATE(1, 2, 3, 5);
    CAPTURE(refused);
    Receiver receiver;
    Options options = options_for(receiver, "test:///default");
    options.look_retry = 1ms;
    options.post = [&receiver, left = refused](Message message) mutable {
        return left-- <= 0 && receiver.push(std::move(message));
    };
    const auto session = Session::start(std::move(options)).value();
    (void)receiver.next<Connected>();
    CHECK(receiver.next<Look>().active.size() == 1);
}

TEST_CASE("a look at one domain that was not taken is followed by a look at all") {
    Receiver receiver;
    Options options = options_for(receiver, "test:///default");
    options.look_retry = 1ms;
    options.post = [&receiver](Message message) {
        return !std::holds_alternative<DomainLook>(message) && receiver.push(std::move(message));
    };
    const auto session = Session::start(std::move(options)).value();
    (void)receiver.next<Connected>();
    CHECK(receiver.next<Look>().active.size() == 1);
    Client client;
    client.create(other_xml);
    CHECK(receiver.next<Look>().active.size() == 2);
}

TEST_CASE("one domain is looked at when that is asked for") {
    Receiver receiver;
    const auto session = Session::start(options_for(receiver, "test:///default")).value();
    (void)receiver.next<Connected>();
    (void)receiver.next<Look>();
    session->request_look(test_uuid);
    const DomainLook look = receiver.next<DomainLook>();
    CHECK(look.uuid == test_uuid);
    CHECK(look.active.has_value());
}

TEST_CASE("what libvirt runs can be asked for once") {
    const auto domains = live_domains("test:///default");
    REQUIRE(domains.has_value());
    REQUIRE(domains->size() == 1);
    CHECK(domains->front().uuid == test_uuid);
    CHECK(domains->front().name == "test");
    CHECK(domains->front().xml.starts_with("<domain type='test' id='1'>"));
    const auto absent = live_domains("test:///absent/node.xml");
    REQUIRE_FALSE(absent.has_value());
    CHECK(absent.error().code == Errc::unavailable);
}

TEST_CASE("of the domains that are off, those that libvirt starts at boot can be asked for") {
    const std::string uri = "test:///default"; // which all connections of a process share
    const ConnectPtr connect(virConnectOpen(uri.c_str()));
    const DomainPtr other(virDomainDefineXML(connect.get(), other_xml.c_str()));
    const DomainPtr running(virDomainLookupByName(connect.get(), "test"));
    REQUIRE(virDomainSetAutostart(running.get(), 1) == 0);
    CHECK(autostart_domains(uri).value().empty());
    REQUIRE(virDomainSetAutostart(other.get(), 1) == 0);
    const auto domains = autostart_domains(uri).value();
    REQUIRE(virDomainUndefine(other.get()) == 0);
    REQUIRE(virDomainSetAutostart(running.get(), 0) == 0);
    REQUIRE(domains.size() == 1);
    CHECK(domains.front().name == "other");
    CHECK(domains.front().xml.starts_with("<domain type='test'>"));
}

TEST_CASE("a domain is found by its name or UUID, running or not") {
    const auto by_name = find_domain("test:///default", "test");
    REQUIRE(by_name.has_value());
    CHECK(by_name->uuid == test_uuid);
    const auto by_uuid = find_domain("test:///default", test_uuid.text());
    REQUIRE(by_uuid.has_value());
    CHECK(by_uuid->xml == by_name->xml);
    const Folder folder;
    write_node(folder.file("node.xml"));
    const auto off = find_domain("test://" + folder.file("node.xml"), "off");
    REQUIRE(off.has_value());
    CHECK(off->xml.contains("<name>off</name>"));
    const auto none = find_domain("test:///default", "none");
    REQUIRE_FALSE(none.has_value());
    CHECK(none.error().code == Errc::not_found);
    CHECK(none.error().what == "there is no domain \"none\"");
}

TEST_CASE("before each look it is told that libvirt is asked") {
    Receiver receiver;
    const auto session = Session::start(options_for(receiver, "test:///default")).value();
    (void)receiver.next<Connected>();
    Instant asked = receiver.next<Asked>().when;
    CHECK(receiver.next<Look>().began == asked);
    Client client;
    client.create(other_xml);
    asked = receiver.next<Asked>().when;
    CHECK(receiver.next<DomainLook>().began == asked);
}

TEST_CASE("a libvirtd that accepts and never answers is told to be asked") {
    const Folder folder;
    const std::string path = folder.file("sock");
    UniqueFd listener = listen_at(path);
    Receiver receiver;
    const auto session =
        Session::start(options_for(receiver, "qemu:///system?socket=" + path)).value();
    CHECK(receiver.next<Asked>().when == Instant(1ns));
    CHECK(receiver.empty());
    listener.reset(); // which hangs up
    CHECK(receiver.next<Lost>().why.starts_with("qemu:///system?socket="));
    CHECK(session->stop(30s));
}

TEST_CASE("a domain whose XML libvirt does not give is in the look, with the others, and soon "
          "looked at again") {
    Client client;
    client.create(other_xml);
    Receiver receiver;
    Options options = options_for(receiver, "test:///default");
    options.look_retry = 1ms;
    xml_withheld_of = "other";
    const auto session = Session::start(std::move(options)).value();
    (void)receiver.next<Connected>();
    for (int look = 0; look < 2; ++look) {
        const std::vector<ActiveDomain> active = receiver.next<Look>().active;
        REQUIRE(active.size() == 2);
        for (const ActiveDomain& domain : active) {
            CHECK(domain.domain.has_value() == (domain.name == "test"));
            if (!domain.domain)
                CHECK(domain.domain.error().code == Errc::unavailable);
        }
    }
    xml_withheld_of = "";
    CHECK(session->stop(30s));
}

TEST_CASE("a hypervisor that is not there is told once and tried again until it is") {
    const Folder folder;
    const std::string path = folder.file("node.xml");
    Receiver receiver;
    Options options = options_for(receiver, "test://" + path);
    options.first_retry = 1ms;
    options.last_retry = 4ms;
    const auto session = Session::start(std::move(options)).value();
    const Lost lost = receiver.next<Lost>();
    CHECK(lost.why.starts_with("test://" + path + ": "));
    write_node(path);
    (void)receiver.next<Connected>();
    CHECK(receiver.next<Look>().active.size() == 1);
}

TEST_CASE("a libvirtd that hangs up during the greeting is tried again") {
    const Folder folder;
    const std::string path = folder.file("sock");
    Receiver receiver;
    Options options = options_for(receiver, "qemu:///system?socket=" + path);
    options.first_retry = 1ms;
    options.last_retry = 4ms;
    const auto session = Session::start(std::move(options)).value();
    CHECK(receiver.next<Lost>().why.find("No such file or directory") != std::string::npos);
    const UniqueFd listener = listen_at(path);
    for (int attempt = 0; attempt < 3; ++attempt) {
        pollfd p{.fd = listener.get(), .events = POLLIN, .revents = 0};
        REQUIRE(::poll(&p, 1, patience_ms) == 1);
        REQUIRE(UniqueFd(::accept(listener.get(), nullptr, nullptr)));
    }
    CHECK(session->stop(30s));
}

TEST_CASE("a parser that holds the thread holds nobody else") {
    Receiver receiver;
    Gate gate;
    Options options = options_for(receiver, "test:///default");
    options.parse = [&gate](std::string_view xml) {
        gate.pass();
        return parse_name(xml);
    };
    const auto session = Session::start(std::move(options)).value();
    gate.wait_until_held();
    for (int i = 0; i < 100; ++i)
        session->request_look();
    (void)receiver.next<Connected>();
    CHECK(receiver.empty());
    CHECK_FALSE(session->stop(10ms));
    gate.open();
    CHECK(session->stop(30s));
    CHECK(session->stop(0ms));
    CHECK(receiver.empty()); // a look broken off is no look
}

TEST_CASE("a session that has ended holds no connection") {
    // The test driver forgets what was done to it when its last connection is closed.
    for (int round = 0; round < 2; ++round) {
        Receiver receiver;
        const auto session = Session::start(options_for(receiver, "test:///default")).value();
        (void)receiver.next<Connected>();
        CHECK(receiver.next<Look>().active.size() == 1);
        Client().destroy("test");
        CHECK_FALSE(receiver.next<DomainLook>().active);
    }
}
