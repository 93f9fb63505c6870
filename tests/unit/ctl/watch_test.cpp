// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "ctl/watch.hpp"

using namespace virtguard;
using namespace virtguard::core;
using Lines = std::vector<std::string>;

namespace {

const HeardReason refused{.code = "insufficient-capacity", .mode = "enforce", .text = "memory: no"};
const HeardReason observed{.code = "insufficient-capacity", .mode = "observe", .text = "cpu:\nno"};
const HeardHost host{.version = "1.2",
                     .mode = "enforce",
                     .state = "ready",
                     .overcommit = {{"cpu", "3"}, {"memory", "1.25"}}};

Lines changes(const HeardHost& before, const HeardHost& now) {
    return ctl::host_texts(&before, now, {});
}

} // namespace

TEST_CASE("a start is told with all its reasons, and nothing of it reaches a terminal raw") {
    const auto text = [](const HeardStart& start) { return ctl::start_text(start, {}); };
    CHECK(text({.name = "web\x1b[31m"}) == "admitted web\\x1b[31m");
    CHECK(text({.name = "web", .verdict = Verdict::refuse, .reasons = {refused, observed}}) ==
          "refused web: memory: no; cpu:\\x0ano, only observed");
    CHECK(text({.name = "web", .verdict = Verdict::would_refuse, .reasons = {observed}}) ==
          "would refuse web: cpu:\\x0ano");
    CHECK(text({.verdict = Verdict::refuse, .reasons = {refused}}) ==
          "refused a domain without a name: memory: no");
}

TEST_CASE("a host that comes is told with what is not as it should be") {
    HeardHost now = host;
    now.state = "degraded";
    now.problems = {"policy: no\nsuch key"};
    now.over_capacity = {"cpu"};
    CHECK(ctl::host_texts(nullptr, now, {}) ==
          Lines{"virtguardd 1.2 is degraded: mode enforce, overcommit cpu 3, memory 1.25",
                "problem: policy: no\\x0asuch key", "cpu is over capacity"});
}

TEST_CASE("ratios are told in the order of the status") {
    HeardHost now = host;
    now.overcommit = {{"hugepages-2Mi", "1"}, {"memory", "2"}, {"a/gpu", "1"}, {"cpu", "3"}};
    CHECK(ctl::host_texts(nullptr, now, {}) ==
          Lines{"virtguardd 1.2 is ready: mode enforce, overcommit cpu 3, memory 2, "
                "hugepages-2Mi 1, a/gpu 1"});
}

TEST_CASE("of a host that is known only what has changed is told") {
    CHECK(changes(host, host).empty());
    HeardHost now = host;
    now.mode = "observe";
    now.overcommit["cpu"] = "1.5";
    CHECK(changes(host, now) == Lines{"mode observe, was enforce",
                                      "overcommit cpu 1.5, memory 1.25, was cpu 3, memory 1.25"});
    HeardHost before = host;
    before.problems = {"one", "two"};
    before.over_capacity = {"cpu", "memory"};
    now = host;
    now.problems = {"two", "three"};
    now.over_capacity = {"memory"};
    CHECK(changes(before, now) ==
          Lines{"problem: three", "solved: one", "cpu is no longer over capacity"});
}
