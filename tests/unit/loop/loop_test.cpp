// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "base/unique.hpp"
#include "loop/loop.hpp"
#include "loop/mailbox.hpp"

using namespace virtguard;
using namespace std::chrono_literals;
using loop::Loop;

namespace {

struct Pair {
    UniqueFd a;
    UniqueFd b;
};

Pair socket_pair() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

void send_byte(const UniqueFd& fd) {
    REQUIRE(::write(fd.get(), "x", 1) == 1);
}

} // namespace

TEST_CASE("the clock counts from boot and does not go back") {
    const Instant first = loop::now();
    CHECK(first.time_since_epoch() > 0s);
    CHECK(loop::now() >= first);
}

TEST_CASE("run ends with the code given to stop") {
    Loop loop = Loop::create().value();
    auto work = loop.deferred("work", [&] { loop.stop(7); }).value();
    work.schedule();
    CHECK(loop.run().value() == 7);
}

TEST_CASE("a readable descriptor reaches its handler") {
    Loop loop = Loop::create().value();
    const Pair pair = socket_pair();
    std::uint32_t seen = 0;
    const auto io = loop.on_io("io", pair.a.get(), EPOLLIN, [&](std::uint32_t events) {
        seen = events;
        loop.stop(0);
    });
    REQUIRE(io.has_value());
    send_byte(pair.b);
    CHECK(loop.run().value() == 0);
    CHECK(seen == EPOLLIN);
}

TEST_CASE("the events a descriptor is watched for can be changed") {
    Loop loop = Loop::create().value();
    const Pair pair = socket_pair();
    std::uint32_t seen = 0;
    auto io = loop.on_io("io", pair.a.get(), EPOLLIN, [&](std::uint32_t events) {
        seen = events;
        loop.stop(0);
    });
    REQUIRE(io->set_events(EPOLLOUT).has_value());
    send_byte(pair.b);
    CHECK(loop.run().value() == 0);
    CHECK(seen == EPOLLOUT);
}

TEST_CASE("a descriptor that cannot be watched is an error") {
    Loop loop = Loop::create().value();
    const auto io = loop.on_io("hook socket", -1, EPOLLIN, [](std::uint32_t) {});
    REQUIRE_FALSE(io.has_value());
    CHECK(io.error().code == Errc::io);
    CHECK(io.error().what == "event loop: hook socket: Bad file descriptor");
}

TEST_CASE("a handler may destroy its own source and still use its captures") {
    Loop loop = Loop::create().value();
    const Pair pair = socket_pair();
    std::optional<loop::Io> io;
    std::string text;
    io = loop.on_io("io", pair.a.get(), EPOLLIN,
                    [&, word = std::string("long enough to be allocated on the heap")](auto) {
                        io.reset();
                        text = word;
                        loop.stop(0);
                    })
             .value();
    send_byte(pair.b);
    CHECK(loop.run().value() == 0);
    CHECK(text == "long enough to be allocated on the heap");
}

TEST_CASE("a destroyed source is silent and has let go of its handler") {
    Loop loop = Loop::create().value();
    const Pair pair = socket_pair();
    auto held = std::make_shared<int>(0);
    {
        const auto io = loop.on_io("io", pair.a.get(), EPOLLIN, [held](auto) { ++*held; });
        send_byte(pair.b);
        CHECK(held.use_count() == 2);
    }
    CHECK(held.use_count() == 1);
    auto last = loop.deferred("last", [&] { loop.stop(0); }).value();
    last.schedule();
    CHECK(loop.run().value() == 0);
    CHECK(*held == 0);
}

TEST_CASE("what happens in a folder reaches its handler by name") {
    struct Row {
        std::string name;
        std::uint32_t change;
        void (*deed)(const Folder&);
        std::string told;
    };
    namespace fs = std::filesystem;
    const auto row = GENERATE(values<Row>({
        {"created", IN_CREATE, [](const Folder& f) { f.write("watched/fresh", ""); }, "fresh"},
        {"deleted", IN_DELETE, [](const Folder& f) { fs::remove(f.file("watched/old")); }, "old"},
        {"replaced", IN_MOVED_TO,
         [](const Folder& f) { fs::rename(f.file("new"), f.file("watched/old")); }, "old"},
        {"renamed itself", IN_MOVE_SELF,
         [](const Folder& f) { fs::rename(f.file("watched"), f.file("else")); }, ""},
        {"deleted itself", IN_DELETE_SELF,
         [](const Folder& f) { fs::remove_all(f.file("watched")); }, ""},
    }));
    const Folder folder;
    folder.write("watched/old", "");
    folder.write("new", "");
    CAPTURE(row.name);
    Loop loop = Loop::create().value();
    std::vector<std::string> told;
    const auto watch =
        loop.on_change("folder", folder.file("watched"), row.change, [&](std::string_view name) {
            told.emplace_back(name);
            loop.stop(0);
        });
    REQUIRE(watch.has_value());
    row.deed(folder);
    CHECK(loop.run().value() == 0);
    CHECK(told == std::vector{row.told});
}

TEST_CASE("a folder that is not there cannot be watched") {
    const Folder folder;
    folder.write("file", "");
    Loop loop = Loop::create().value();
    const auto absent = loop.on_change("run folder", folder.file("absent"), IN_CREATE, [](auto) {});
    CHECK(absent.error().code == Errc::not_found);
    CHECK(absent.error().what == "event loop: run folder: No such file or directory");
    const auto file = loop.on_change("run folder", folder.file("file"), IN_CREATE, [](auto) {});
    CHECK(file.error().what == "event loop: run folder: Not a directory");
}

TEST_CASE("a timer fires once, not early, and can be armed again from its handler") {
    Loop loop = Loop::create().value();
    std::vector<Instant> fired;
    std::optional<loop::Timer> timer;
    timer = loop.timer("timer",
                       [&] {
                           fired.push_back(loop::now());
                           if (fired.size() == 3)
                               loop.stop(0);
                           else
                               timer->arm_after(5ms);
                       })
                .value();
    const Instant start = loop::now();
    timer->arm_after(5ms);
    CHECK(loop.run().value() == 0);
    REQUIRE(fired.size() == 3);
    CHECK(fired[0] - start >= 5ms);
    CHECK(fired[1] - fired[0] >= 5ms);
    CHECK(fired[2] - fired[1] >= 5ms);
}

TEST_CASE("a timer armed for the past fires at once; one armed anew keeps the last time only") {
    Loop loop = Loop::create().value();
    int early = 0;
    auto disarmed = loop.timer("disarmed", [&] { ++early; }).value();
    auto moved = loop.timer("moved", [&] { ++early; }).value();
    auto past = loop.timer("past", [&] { loop.stop(0); }).value();
    disarmed.arm_after(0ns);
    disarmed.disarm();
    moved.arm_after(0ns);
    moved.arm_after(1h);
    past.arm(Instant(1us));
    CHECK(loop.run().value() == 0);
    CHECK(early == 0);
}

TEST_CASE("deferred work runs once, after everything more urgent") {
    Loop loop = Loop::create().value();
    std::string order;
    auto later = loop.deferred("later",
                               [&] {
                                   order += 'l';
                                   loop.stop(0);
                               })
                     .value();
    const Pair pair = socket_pair();
    char byte = 0;
    const auto io = loop.on_io("io", pair.a.get(), EPOLLIN, [&](auto) {
        REQUIRE(::read(pair.a.get(), &byte, 1) == 1);
        order += 'i';
        later.schedule();
        later.schedule();
    });
    send_byte(pair.b);
    send_byte(pair.b);
    CHECK(loop.run().value() == 0);
    CHECK(order == "iil");
}

TEST_CASE("sources of a higher priority are served first") {
    Loop loop = Loop::create().value();
    std::string order;
    auto normal = loop.deferred(
                          "normal", [&] { order += 'n'; }, loop::Priority::normal)
                      .value();
    auto important = loop.deferred(
                             "important", [&] { order += 'i'; }, loop::Priority::important)
                         .value();
    auto idle = loop.deferred("idle", [&] { loop.stop(0); }).value();
    idle.schedule();
    normal.schedule();
    important.schedule();
    CHECK(loop.run().value() == 0);
    CHECK(order == "in");
}

TEST_CASE("SIGTERM and SIGINT end the loop with code 0") {
    const int signal = GENERATE(SIGTERM, SIGINT);
    CAPTURE(signal);
    Loop loop = Loop::create().value();
    REQUIRE(::kill(::getpid(), signal) == 0);
    CHECK(loop.run().value() == 0);
}

TEST_CASE("a handled signal reaches the loop, also when a thread of later birth could take it") {
    Loop loop = Loop::create().value();
    int seen = 0;
    const auto hangup = loop.on_signal("reload", SIGHUP, [&] {
        ++seen;
        loop.stop(0);
    });
    REQUIRE(hangup.has_value());
    std::jthread sender([] { CHECK(::kill(::getpid(), SIGHUP) == 0); });
    CHECK(loop.run().value() == 0);
    CHECK(seen == 1);
}

TEST_CASE("a mailbox wakes the loop") {
    Loop loop = Loop::create().value();
    auto mailbox = loop::Mailbox<int>::create().value();
    int sum = 0;
    const auto io = loop.on_io("mail", mailbox->fd(), EPOLLIN, [&](auto) {
        for (const int value : mailbox->drain())
            sum += value;
        if (sum == 6)
            loop.stop(0);
    });
    std::jthread writer([&] {
        for (const int value : {1, 2, 3})
            (void)mailbox->push(value);
    });
    CHECK(loop.run().value() == 0);
    CHECK(sum == 6);
}

TEST_CASE("the watchdog is off where systemd asks for none") {
    ::unsetenv("WATCHDOG_USEC");
    Loop loop = Loop::create().value();
    CHECK_FALSE(loop.enable_watchdog().value());
}
