// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <tuple>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "host/rehearsal.hpp"

using namespace virtguard;

TEST_CASE("what ends quietly in a child may be done here, and leaves no trace") {
    int done = 0;
    CHECK(host::rehearse([&] { ++done; }).has_value());
    CHECK(done == 0);
}

TEST_CASE("what dies, gives up or complains in a child may not be done here") {
    const auto [name, attempt] = GENERATE(table<std::string, std::function<void()>>({
        {"abort", [] { std::abort(); }},
        {"exit", [] { ::_exit(1); }},
        {"kill", [] { ::kill(::getpid(), SIGKILL); }},
        {"stderr", [] { std::fputs("out of order", stderr); }},
    }));
    CAPTURE(name);
    const auto rehearsed = host::rehearse(attempt);
    REQUIRE_FALSE(rehearsed.has_value());
    CHECK(rehearsed.error().what == "hwloc cannot make sense of it");
}
