// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <thread>

#include <catch2/catch.hpp>

#include "daemon/slow_lane.hpp"

using namespace virtguard;
using namespace std::chrono_literals;
using daemon::SlowLane;

namespace {

constexpr std::size_t kib = 1024;

/// 2 ms of the processor.
void work_hard() {
    const std::clock_t until = std::clock() + CLOCKS_PER_SEC / 500;
    while (std::clock() < until) {
    }
}

struct Bench {
    loop::Loop loop = loop::Loop::create().value();
    std::unique_ptr<SlowLane> lane = SlowLane::create(loop).value();
    std::string done;
    std::optional<SlowLane::Turn> turn;

    void take(const std::string& caller) {
        lane->enter(caller, 0,
                    [this](Result<SlowLane::Turn> given) { turn.emplace(*std::move(given)); });
        REQUIRE(turn);
    }
    void note(char name, std::size_t size, const std::string& caller = "other") {
        lane->enter(caller, size, [this, name](const Result<SlowLane::Turn>& given) {
            done += given ? name : '-';
        });
    }
    /// Until all have had their turns.
    void run() {
        lane->enter("last", 20 * kib, [this](const Result<SlowLane::Turn>&) { loop.stop(0); });
        turn.reset();
        REQUIRE(loop.run().has_value());
    }
};

} // namespace

TEST_CASE("in the slow lane one has its turn at once, and others when it is over, as they came") {
    Bench bench;
    bench.take("first");
    for (const char name : {'a', 'b', 'c'})
        bench.note(name, 10);
    CHECK(bench.done.empty());
    bench.run();
    CHECK(bench.done == "abc");
}

TEST_CASE("in the slow lane what is asked in few bytes passes what was asked in many") {
    Bench bench;
    bench.take("first");
    bench.note('l', 10 * kib);
    bench.note('s', 2 * kib);
    bench.run();
    CHECK(bench.done == "sl");
}

TEST_CASE("in the slow lane who had a turn lets others pass") {
    Bench bench;
    bench.take("often");
    bench.turn->begin();
    work_hard();
    bench.note('o', 0, "often");
    std::this_thread::sleep_for(1ms);
    bench.note('s', 0, "seldom");
    bench.run();
    CHECK(bench.done == "so");
}

TEST_CASE("in the slow lane nothing is done for a hundred times what the last turn took") {
    Bench bench;
    bench.take("first");
    bench.turn->begin();
    work_hard();
    const Instant ended = loop::now();
    bench.run();
    CHECK(loop::now() - ended >= 190ms); // std::clock() has other threads' time, too
}

TEST_CASE("in the slow lane time in which the processor does something else is nobody's") {
    Bench bench;
    bench.take("first");
    bench.turn->begin();
    std::this_thread::sleep_for(50ms);
    const Instant ended = loop::now();
    bench.run();
    CHECK(loop::now() - ended < 2500ms); // 5 s if it counted
}

TEST_CASE("in the slow lane who has waited too long is told so") {
    Bench bench;
    bench.lane = SlowLane::create(bench.loop, 100ms).value();
    bench.take("first");
    bench.note('l', 0);
    std::this_thread::sleep_for(110ms);
    bench.note('n', 0);
    CHECK(bench.done == "-");
    bench.run();
    CHECK(bench.done == "-n");
}

TEST_CASE("who was forgotten in the slow lane has no turn, and others do") {
    Bench bench;
    bench.take("first");
    bench.note('f', 0);
    bench.lane->forget();
    bench.run();
    CHECK(bench.done.empty());
}
