// SPDX-License-Identifier: Apache-2.0
//
// Resources that a policy declares.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "core/guard.hpp"
#include "core/report.hpp"
#include "hosts.hpp"

using namespace virtguard;
using namespace virtguard::core;

namespace {

const Resource licences = Resource::custom("licence/acme");
const Resource gpus = Resource::custom("example.org/gpu");

CustomResource host_wide(std::int64_t amount, std::string unit = "") {
    return {.host = CustomCapacity{.amount = amount}, .demand = "1", .unit = std::move(unit)};
}

CustomResource per_node(std::map<int, CustomCapacity> nodes) {
    return {.nodes = std::move(nodes), .demand = "1"};
}

Policy declaring(const Resource& resource, CustomResource custom) {
    Policy policy = bare_policy();
    policy.resources[resource] = std::move(custom);
    return policy;
}

Domain asking(std::string name, const Resource& resource, std::int64_t amount,
              std::optional<IdSet> nodes = std::nullopt) {
    Domain domain = with_memory(std::move(name), {ram(mib)});
    domain.memory.front().bound_to = std::move(nodes);
    domain.facts[demand_key(resource)].value = amount;
    return domain;
}

/// Lets the domain run when it is admitted.
std::string start(Guard& guard, const Domain& domain) {
    const Answer answer = guard.start_at_once(domain);
    return answer.decision.admitted() ? "admitted" : refusal_line(domain.name, answer.decision);
}

} // namespace

TEST_CASE("a custom resource is given out as far as it goes") {
    Guard guard(equal_nodes(2, 4, gib), declaring(licences, host_wide(4)));
    CHECK(start(guard, asking("a", licences, 3)) == "admitted");
    CHECK(start(guard, asking("b", licences, 2)) ==
          "virtguard: refused b: licence/acme: needs 2, 1 free of 4");
    CHECK(start(guard, asking("c", licences, 0)) == "admitted");
    CHECK(start(guard, asking("d", licences, 1)) == "admitted");
    CHECK(guard.report().host.free.at(licences) == 0);
    CHECK_FALSE(guard.report().nodes[0].figures.free.contains(licences));
}

TEST_CASE("a refusal speaks of a custom resource in its unit") {
    const auto [capacity, asked, expected] =
        GENERATE(table<std::int64_t, std::int64_t, std::string>({
            {4, 2, "licence/acme: needs 2 seats, 1 free of 4"},
            {4, 5, "licence/acme: needs 5 seats, more than the 4 seats that one guest can have"},
            {0, 1, "licence/acme: needs 1 seats, host has none"},
        }));
    Guard guard(equal_nodes(1, 4, gib), declaring(licences, host_wide(capacity, "seats")));
    guard.running(asking("a", licences, std::max<std::int64_t>(capacity - 1, 0)), Instant{});
    CHECK(start(guard, asking("b", licences, asked)) == "virtguard: refused b: " + expected);
    CHECK(guard.report().units == std::map<Resource, std::string>{{licences, "seats"}});
}

TEST_CASE("what a file was never read for is not known in place of too little") {
    Policy policy = declaring(licences, {.host = CustomCapacity{.file = "/x"}, .demand = "1"});
    policy.hook.unavailable_denies = true;
    Guard guard(equal_nodes(1, 4, gib), policy);
    CHECK(start(guard, asking("a", licences, 1)) ==
          "virtguard: refused a: resource.\"licence/acme\".capacity.file could not be read yet");
    policy.hook.unavailable_denies = false;
    guard.apply(policy);
    CHECK(start(guard, asking("a", licences, 1)) == "admitted");
    policy.readings["/x"] = 0;
    guard.apply(policy);
    CHECK(start(guard, asking("b", licences, 1)) ==
          "virtguard: refused b: licence/acme: needs 1, host has none");
}

TEST_CASE("what is per node comes from where a guest's memory is bound to, else from any node") {
    Guard guard(equal_nodes(3, 4, gib),
                declaring(gpus, per_node({{0, {.amount = 2}}, {1, {.amount = 1}}})));
    CHECK(
        start(guard, asking("a", gpus, 2, IdSet{1})) ==
        "virtguard: refused a: example.org/gpu on node 1: needs 2, more than the 1 that one guest "
        "can have");
    CHECK(start(guard, asking("b", gpus, 1, IdSet{2})) ==
          "virtguard: refused b: example.org/gpu on node 2: needs 1, there is none");
    CHECK(start(guard, asking("c", gpus, 2)) == "admitted");
    CHECK(guard.report().nodes[0].figures.free.at(gpus) == 1);
    CHECK(start(guard, asking("d", gpus, 1, IdSet{1, 2})) == "admitted");
    CHECK(start(guard, asking("e", gpus, 1, IdSet{0})) ==
          "virtguard: refused e: example.org/gpu: needs 1, 0 free of 3");
}

TEST_CASE("what one node's file was never read for hid that another node has too little") {
    Policy policy = declaring(gpus, per_node({{0, {.amount = 2}}, {1, {.file = "/x"}}}));
    Guard guard(equal_nodes(2, 4, gib), policy); // lets in what is not known
    CHECK(start(guard, asking("a", gpus, 3, IdSet{0})) ==
          "virtguard: refused a: example.org/gpu on node 0: needs 3, more than the 2 that one "
          "guest can have");
    CHECK(start(guard, asking("b", gpus, 2)) == "admitted");
    CHECK(start(guard, asking("c", gpus, 1)) == "admitted");           // on node 1, if it has one
    CHECK(start(guard, asking("d", gpus, 2, IdSet{0})) == "admitted"); // if b is on node 1
    CHECK(start(guard, asking("e", gpus, 1, IdSet{0})) ==
          "virtguard: refused e: example.org/gpu on node 0: needs 1, 0 free of 2");
    CHECK(start(guard, asking("f", gpus, 9, IdSet{1})) == "admitted");
    policy.readings["/x"] = 20;
    guard.apply(policy);
    CHECK(start(guard, asking("g", gpus, 9, IdSet{1})) ==
          "virtguard: refused g: example.org/gpu: needs 9, 8 free of 22");
}

TEST_CASE("a custom resource is overcommitted by its ratio, and no guest against itself") {
    Policy policy = declaring(licences, host_wide(4));
    set_ratio(policy, licences, "1.5");
    Guard guard(equal_nodes(1, 4, gib), policy);
    CHECK(start(guard, asking("a", licences, 5)) ==
          "virtguard: refused a: licence/acme: needs 5, more than the 4 that one guest can have");
    CHECK(start(guard, asking("b", licences, 4)) == "admitted");
    CHECK(start(guard, asking("c", licences, 2)) == "admitted");
    CHECK(start(guard, asking("d", licences, 1)) ==
          "virtguard: refused d: licence/acme: needs 1, 0 free of 6");
}

TEST_CASE("a mode and a quota of a custom resource are kept as any other's") {
    Policy policy = declaring(licences, host_wide(4, "seats"));
    policy.resource_mode[licences] = Mode::observe;
    policy.scheduler.accept["x"] = {.match = "default-scheduler",
                                    .quota = {{licences, {.percent = Ratio::parse("50").value()}}}};
    Guard guard(equal_nodes(1, 4, gib), policy);
    const Answer answer = guard.check(asking("a", licences, 3));
    CHECK(answer.decision.would_refuse());
    REQUIRE(answer.decision.reasons.size() == 1);
    CHECK(answer.decision.reasons[0].code == Code::scheduler_quota);
    CHECK(answer.decision.reasons[0].text == "licence/acme: needs 3 seats, 2 left of the quota of "
                                             "2 of scheduler.accept.x");
}

TEST_CASE(
    "a demand that has no answer is a reason, which refuses where nothing else would let in") {
    Policy policy = declaring(licences, host_wide(4));
    policy.hook.unavailable_denies = GENERATE(true, false);
    Guard guard(equal_nodes(1, 4, gib), policy);
    Domain domain = asking("a", licences, 0);
    domain.facts[demand_key(licences)] = {.problem = "gives -1: expected 0 to 4503599627370496"};
    const Decision decision = guard.check(domain).decision;
    CHECK(decision.admitted() == !policy.hook.unavailable_denies);
    REQUIRE(decision.reasons.size() == 1);
    CHECK(decision.reasons[0].code == Code::not_ready);
    CHECK(decision.reasons[0].resource == licences);
    CHECK(decision.reasons[0].text ==
          "resource.\"licence/acme\".demand gives -1: expected 0 to 4503599627370496");
}

TEST_CASE("less capacity than is held touches no guest, and hinders only starts that need some") {
    Policy policy = declaring(licences, host_wide(4));
    Guard guard(equal_nodes(1, 4, gib), policy);
    CHECK(start(guard, asking("a", licences, 3)) == "admitted");
    policy.resources[licences].host->amount = 1;
    guard.apply(policy);
    CHECK(guard.ledger().guests().size() == 1);
    CHECK(guard.report().host.free.at(licences) == -2);
    CHECK(guard.report().over_capacity == std::vector{licences});
    CHECK(start(guard, asking("b", licences, 1)) ==
          "virtguard: refused b: licence/acme: needs 1, none free of 1 (over by 2)");
    CHECK(start(guard, asking("c", licences, 0)) == "admitted");
    policy.resources.clear();
    guard.apply(policy);
    CHECK(guard.report().over_capacity.empty());
}

TEST_CASE("a capacity that a file says is what was read last, and nothing before") {
    Policy policy = declaring(licences, {.host = CustomCapacity{.file = "/x"}, .demand = "1"});
    CHECK(make_host(equal_nodes(1, 4, gib), policy).pool(licences)->places.at(0).capacity == 0);
    policy.readings["/x"] = 7;
    CHECK(make_host(equal_nodes(1, 4, gib), policy).pool(licences)->places.at(0).capacity == 7);
}

TEST_CASE("a node that the host lacks has no capacity, which is told") {
    Policy policy = declaring(gpus, per_node({{0, {.amount = 1}}, {7, {.file = "/x"}}}));
    policy.origins["resource.\"example.org/gpu\".capacity.node.7.file"] = "p:3";
    CHECK(
        conflicts(policy, equal_nodes(2, 4, gib)) ==
        std::vector<std::string>{"p:3: resource.\"example.org/gpu\".capacity.node.7.file: the host "
                                 "has no such node"});
    CHECK(make_host(equal_nodes(2, 4, gib), policy).pool(gpus)->all() == IdSet{0, 1});
}

TEST_CASE("reasons name what is built in first, then custom resources by name") {
    Policy policy = declaring(licences, host_wide(0));
    policy.resources[gpus] = host_wide(0);
    Guard guard(equal_nodes(1, 4, gib), policy);
    Domain domain = asking("a", licences, 1);
    domain.memory.front().size = 2 * gib;
    domain.facts[demand_key(gpus)].value = 1;
    CHECK(start(guard, domain) ==
          "virtguard: refused a: memory: needs 2 GiB, more than the 1 GiB that one guest can have; "
          "example.org/gpu: needs 1, host has none; licence/acme: needs 1, host has none");
}
