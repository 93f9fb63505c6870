// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <catch2/catch.hpp>

#include "virt/backoff.hpp"

using namespace virtguard::virt;
using namespace std::chrono_literals;

TEST_CASE("waits double up to the last and begin anew after a reset") {
    Backoff backoff(1s, 60s);
    std::vector<std::chrono::milliseconds> waits;
    for (int i = 0; i < 8; ++i)
        waits.push_back(backoff.next());
    CHECK(waits == std::vector<std::chrono::milliseconds>{1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s});
    backoff.reset();
    CHECK(backoff.next() == 1s);
}
