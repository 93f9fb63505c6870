// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include <catch2/catch.hpp>

#include "ctl/recent.hpp"

using namespace virtguard;
using namespace virtguard::core;
using namespace std::chrono_literals;

TEST_CASE("recent shows a row for each start, with its time here and all its reasons") {
    ::setenv("TZ", "VGT-2", 1); // two hours ahead of UTC
    const WallTime time = std::chrono::sys_days(2026y / 12 / 31) + 22h + 5min + 9s + 999999us;
    const Reason refused{.mode = Mode::enforce, .text = "memory: no"};
    const Reason observed{.mode = Mode::observe, .text = "cpu:\nno"};
    CHECK(ctl::recent_text({{.time = time, .name = "web\n1", .scheduler = "cortex"},
                            {.time = time + 1s,
                             .name = "db",
                             .verdict = Verdict::refuse,
                             .reasons = {refused, observed}},
                            {.time = time + 2s,
                             .name = "db",
                             .verdict = Verdict::would_refuse,
                             .reasons = {observed}}},
                           {}) ==
          "TIME                DOMAIN   SCHEDULER VERDICT      REASONS\n"
          "2027-01-01 00:05:09 web\\x0a1 cortex    admit        \n"
          "2027-01-01 00:05:10 db                 refuse       memory: no; cpu:\\x0ano, only "
          "observed\n"
          "2027-01-01 00:05:11 db                 would-refuse cpu:\\x0ano\n");
}

TEST_CASE("recent says that there was no start") {
    CHECK(ctl::recent_text({}, {}) == "no start has been decided since virtguardd began\n");
}
