// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <optional>
#include <string>

#include <catch2/catch.hpp>

#include "daemon/slow_lane.hpp"

using namespace virtguard;
using namespace std::chrono_literals;
using daemon::SlowLane;

namespace {

struct Bench {
    loop::Loop loop = loop::Loop::create().value();
    std::unique_ptr<SlowLane> lane = SlowLane::create(loop).value();
    std::string done;

    SlowLane::Work note(char name) {
        return [this, name](SlowLane::Turn) { done += name; };
    }
    SlowLane::Work stop() {
        return [this](SlowLane::Turn) { loop.stop(0); };
    }
};

} // namespace

TEST_CASE("in the slow lane one has its turn at once, and others when it is over, as they came") {
    Bench bench;
    std::optional<SlowLane::Turn> turn;
    bench.lane->enter(10, [&](SlowLane::Turn given) { turn.emplace(std::move(given)); });
    REQUIRE(turn);
    for (const char name : {'a', 'b', 'c'})
        bench.lane->enter(10, bench.note(name));
    bench.lane->enter(10, bench.stop());
    CHECK(bench.done.empty());
    turn.reset();
    REQUIRE(bench.loop.run().has_value());
    CHECK(bench.done == "abc");
}

TEST_CASE("in the slow lane what is asked in few bytes passes what was asked in many") {
    Bench bench;
    std::optional<SlowLane::Turn> turn;
    bench.lane->enter(0, [&](SlowLane::Turn given) { turn.emplace(std::move(given)); });
    bench.lane->enter(256 << 10, bench.stop());
    bench.lane->enter(100 << 10, bench.note('l'));
    bench.lane->enter(2 << 10, bench.note('s'));
    turn.reset();
    REQUIRE(bench.loop.run().has_value());
    CHECK(bench.done == "sl");
}

TEST_CASE("in the slow lane nothing is done for a hundred times as long as the last turn took") {
    Bench bench;
    const Instant began = loop::now();
    Instant ended;
    bench.lane->enter(0, [&](SlowLane::Turn turn) {
        turn.begin();
        while (loop::now() < began + 2ms) {
        }
        ended = loop::now();
    });
    Instant next;
    bench.lane->enter(0, [&](SlowLane::Turn) {
        next = loop::now();
        bench.loop.stop(0);
    });
    REQUIRE(bench.loop.run().has_value());
    CHECK(next - ended >= 200ms);
}

TEST_CASE("who was forgotten in the slow lane has no turn, and others do") {
    Bench bench;
    std::optional<SlowLane::Turn> turn;
    bench.lane->enter(0, [&](SlowLane::Turn given) { turn.emplace(std::move(given)); });
    bench.lane->enter(0, bench.note('f'));
    bench.lane->forget();
    turn.reset();
    bench.lane->enter(0, bench.stop());
    REQUIRE(bench.loop.run().has_value());
    CHECK(bench.done.empty());
}
