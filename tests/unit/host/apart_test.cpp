// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <tuple>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "host/apart.hpp"

using namespace virtguard;
using namespace std::chrono_literals;

TEST_CASE("what is worked out in a child comes back whole, and leaves no trace") {
    int done = 0;
    const std::string text(3'000'000, 'x'); // more than a pipe holds
    CHECK(host::run_apart([&] {
              ++done;
              return text;
          }).value() == text);
    CHECK(host::run_apart([] { return std::string(); }).value().empty());
    CHECK(done == 0);
}

TEST_CASE("what dies, gives up or complains in a child is an error") {
    const auto [name, work] = GENERATE(table<std::string, std::function<void()>>({
        {"abort", [] { std::abort(); }},
        {"exit", [] { ::_exit(1); }},
        {"kill", [] { ::kill(::getpid(), SIGKILL); }},
        {"stderr", [] { std::fputs("out of order", stderr); }},
    }));
    CAPTURE(name);
    const auto result = host::run_apart([&work = work] {
        work();
        return std::string("done");
    });
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().what == "hwloc cannot make sense of it");
}

TEST_CASE("what takes too much time in a child is given up") {
    const auto result = host::run_apart(
        [] {
            for (volatile bool busy = true; busy;) {
            }
            return std::string();
        },
        1s);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == Errc::limit);
    CHECK(result.error().what == "too much for hwloc, which takes more than 1 s");
}
