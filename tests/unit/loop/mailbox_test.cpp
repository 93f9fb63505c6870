// SPDX-License-Identifier: Apache-2.0
#include <thread>
#include <vector>

#include <poll.h>

#include <catch2/catch.hpp>

#include "loop/mailbox.hpp"

using namespace virtguard;
using loop::Mailbox;

namespace {

bool readable(int fd, int timeout_ms) {
    pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&p, 1, timeout_ms) == 1;
}

} // namespace

TEST_CASE("what is pushed is drained once, in order") {
    auto mailbox = Mailbox<int>::create().value();
    CHECK_FALSE(readable(mailbox->fd(), 0));
    CHECK(mailbox->drain().empty());
    CHECK(mailbox->push(1));
    CHECK(mailbox->push(2));
    CHECK(readable(mailbox->fd(), 0));
    CHECK(mailbox->drain() == std::deque{1, 2});
    CHECK_FALSE(readable(mailbox->fd(), 0));
    CHECK(mailbox->drain().empty());
}

TEST_CASE("a full mailbox says so and keeps what it has") {
    auto mailbox = Mailbox<int>::create(2).value();
    CHECK(mailbox->push(1));
    CHECK(mailbox->push(2));
    CHECK_FALSE(mailbox->push(3));
    CHECK(mailbox->drain() == std::deque{1, 2});
    CHECK(mailbox->push(4));
    CHECK(mailbox->drain() == std::deque{4});
}

TEST_CASE("values that can only be moved pass through") {
    auto mailbox = Mailbox<std::unique_ptr<int>>::create().value();
    CHECK(mailbox->push(std::make_unique<int>(7)));
    CHECK(*mailbox->drain().at(0) == 7);
}

TEST_CASE("nothing is lost, doubled or reordered between threads, and no wake-up is missed") {
    constexpr int writers = 4;
    constexpr int each = 5000;
    auto mailbox = Mailbox<std::pair<int, int>>::create(64).value();
    std::vector<std::jthread> threads;
    for (int writer = 0; writer < writers; ++writer)
        threads.emplace_back([&, writer] {
            for (int i = 0; i < each; ++i)
                while (!mailbox->push({writer, i}))
                    std::this_thread::yield();
        });
    std::vector<int> next(writers, 0);
    for (int seen = 0; seen < writers * each;) {
        REQUIRE(readable(mailbox->fd(), 10'000));
        for (const auto& [writer, i] : mailbox->drain()) {
            REQUIRE(i == next.at(static_cast<std::size_t>(writer))++);
            ++seen;
        }
    }
}
