// SPDX-License-Identifier: Apache-2.0
#include <future>
#include <vector>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/unique.hpp"
#include "daemon/files_thread.hpp"

using namespace virtguard;
using daemon::FilesThread;

TEST_CASE("jobs run in order, also those not yet begun when the thread ends") {
    for (int round = 0; round < 200; ++round) {
        std::vector<int> ran;
        auto thread = FilesThread::start().value();
        for (int i = 0; i < 10; ++i)
            REQUIRE(thread->run([&ran, i] { ran.push_back(i); }));
        thread.reset();
        REQUIRE(ran == std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    }
}

TEST_CASE("a job too many is not taken and does not wait") {
    std::promise<void> hang;
    std::promise<void> hangs;
    int ran = 0;
    auto thread = FilesThread::start().value();
    REQUIRE(thread->run([&] {
        hangs.set_value();
        hang.get_future().wait();
    }));
    hangs.get_future().wait();
    int taken = 0;
    while (thread->run([&ran] { ++ran; }))
        ++taken;
    hang.set_value();
    thread.reset();
    CHECK(taken == 64);
    CHECK(ran == taken);
}

TEST_CASE("storage that hangs does not hold up the end") {
    std::promise<void> hang;
    auto thread = FilesThread::start().value();
    REQUIRE(thread->run([&] { hang.get_future().wait(); }));
    CHECK_FALSE(thread->stop(std::chrono::milliseconds(10)));
    hang.set_value();
    CHECK(thread->stop(std::chrono::seconds(60)));
}

TEST_CASE("a thread apart keeps nothing open of the process but what it is given") {
    const UniqueFd kept(::eventfd(0, EFD_CLOEXEC));
    const UniqueFd below(::eventfd(0, EFD_CLOEXEC));
    auto thread = FilesThread::start_apart(kept.get()).value();
    const auto is_open = [](int fd) { return ::fcntl(fd, F_GETFD) >= 0; };
    std::promise<std::vector<bool>> seen;
    REQUIRE(thread->run([&] {
        seen.set_value({is_open(kept.get()), is_open(below.get()), is_open(STDERR_FILENO)});
    }));
    CHECK(seen.get_future().get() == std::vector{true, false, true});
    CHECK(is_open(below.get()));
}
