// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include "core/policy.hpp"

using namespace virtguard;
using namespace virtguard::core;

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t gib = std::int64_t{1} << 30;
constexpr std::int64_t page = 2 * mib;

/// Two nodes, 0 and 2, of 64 GiB, 4 of them in 2 MiB pages on node 0: 124 GiB of ordinary memory.
/// PUs 0-7, of which 7 is offline.
Topology two_nodes() {
    return {
        .nodes =
            {{.id = 0,
              .kind = "DRAM",
              .pus = IdSet::range(0, 3),
              .memory = 64 * gib,
              .pools = {{.page_size = page, .pages = 2048}, {.page_size = gib, .pages = 0}}},
             {.id = 2, .kind = "DRAM", .pus = IdSet::range(4, 6), .memory = 64 * gib, .pools = {}}},
        .cores = {},
        .online = IdSet::range(0, 6),
        .offline = {7},
        .allowed = IdSet::range(0, 6),
        .isolated = {},
        .base_page = 4096,
        .default_hugepage = page,
    };
}

using Lines = std::vector<std::string>;

} // namespace

TEST_CASE("modes have the names that the policy file uses") {
    CHECK(mode_name(Mode::off) == "off");
    CHECK(mode_name(Mode::observe) == "observe");
    CHECK(mode_name(Mode::enforce) == "enforce");
}

TEST_CASE("a ratio that nobody set is one") {
    Policy policy;
    policy.overcommit[Resource::cpu()] = *Ratio::parse("1.15");
    CHECK(policy.ratio_of(Resource::cpu()).text() == "1.15");
    CHECK(policy.ratio_of(Resource::memory()).is_one());
    CHECK(policy.ratio_of(Resource::hugepages(page)).is_one());
}

TEST_CASE("the defaults are possible on any host") {
    CHECK(conflicts(Policy{}, two_nodes()).empty());
}

TEST_CASE("memory.nodes of which none has memory was ignored") {
    Topology topology = two_nodes();
    topology.nodes[1].memory = 0;
    Policy policy;
    policy.memory.nodes = IdSet{2};
    CHECK(conflicts(policy, topology) == Lines{"memory.nodes: there is no memory on 2"});
    policy.memory.nodes = IdSet{0, 2};
    CHECK(conflicts(policy, topology).empty());
}

TEST_CASE("a reserve may take exactly what there is, and PUs that are offline") {
    Policy policy;
    policy.reserve.memory = 124 * gib;
    policy.reserve.nodes[0] = {.memory = 60 * gib, .hugepages = {{page, 4 * gib}}};
    policy.reserve.nodes[2] = {.memory = 64 * gib, .hugepages = {}};
    policy.reserve.cpus = {0, 7};
    policy.cpu.dedicated = IdSet{4, 5, 7};
    policy.cpu.shared = IdSet{1, 2};
    policy.memory.nodes = IdSet{0, 2};
    CHECK(conflicts(policy, two_nodes()).empty());
}

TEST_CASE("what the host does not have is named") {
    struct Row {
        std::string name;
        void (*change)(Policy&);
        Lines expected;
    };
    const auto row = GENERATE(values<Row>({
        {"reserved CPUs",
         [](Policy& p) {
             p.reserve.cpus = {0, 8, 9, 12};
         },
         {"reserve.cpus: the host has no CPU 8-9,12"}},
        {"dedicated CPUs",
         [](Policy& p) {
             p.cpu.dedicated = IdSet{4, 8};
         },
         {"cpu.dedicated: the host has no CPU 8"}},
        {"shared CPUs",
         [](Policy& p) { p.cpu.shared = IdSet{9}; },
         {"cpu.shared: the host has no CPU 9"}},
        {"all CPUs reserved",
         [](Policy& p) { p.reserve.cpus = IdSet::range(0, 7); },
         {"reserve.cpus: no CPU is left for guests: all that are online (0-6) are reserved"}},
        {"nodes for guests",
         [](Policy& p) { p.memory.nodes = IdSet::range(0, 3); },
         {"memory.nodes: the host has no node 1,3"}},
        {"memory",
         [](Policy& p) { p.reserve.memory = 512 * gib; },
         {"reserve.memory: 512 GiB is more than the host's 124 GiB of memory"}},
        {"memory by a byte",
         [](Policy& p) { p.reserve.memory = 124 * gib + 1; },
         {"reserve.memory: 124.01 GiB is more than the host's 124 GiB of memory"}},
        {"memory below its parts",
         [](Policy& p) {
             p.reserve.memory = 3 * gib;
             p.reserve.nodes[0].memory = 2 * gib;
             p.reserve.nodes[2].memory = 2 * gib;
         },
         {"reserve.memory: 3 GiB is less than the 4 GiB of the nodes it names"}},
        {"rest too large for the other node",
         [](Policy& p) {
             p.reserve.memory = 70 * gib;
             p.reserve.nodes[0].memory = 2 * gib;
         },
         {"reserve.memory: 68 GiB is left for the nodes it does not name, which have 64 GiB"}},
        {"rest with no other node",
         [](Policy& p) {
             p.reserve.memory = 5 * gib;
             p.reserve.nodes[0].memory = 2 * gib;
             p.reserve.nodes[2].memory = 2 * gib;
         },
         {"reserve.memory: 1 GiB is left for the nodes it does not name, which have 0"}},
        {"memory of a node",
         [](Policy& p) { p.reserve.nodes[0].memory = 61 * gib; },
         {"reserve.node.0.memory: 61 GiB is more than the 60 GiB of memory that node 0 has"}},
        {"pages of a node",
         [](Policy& p) { p.reserve.nodes[0].hugepages[page] = 5 * gib; },
         {"reserve.node.0.hugepages.2Mi: 5 GiB is more than node 0's pool of 4 GiB"}},
        {"empty pool",
         [](Policy& p) { p.reserve.nodes[0].hugepages[gib] = gib; },
         {"reserve.node.0.hugepages.1Gi: 1 GiB is more than node 0's pool of 0"}},
        {"page size",
         [](Policy& p) { p.reserve.nodes[2].hugepages[16 * gib] = 0; },
         {"reserve.node.2.hugepages.16Gi: node 2 has no pages of this size"}},
        {"absent node",
         [](Policy& p) {
             p.reserve.nodes[1] = {.memory = gib, .hugepages = {{page, page}}};
         },
         {"reserve.node.1.memory: the host has no node 1",
          "reserve.node.1.hugepages.2Mi: the host has no node 1"}},
    }));
    CAPTURE(row.name);
    Policy policy;
    row.change(policy);
    CHECK(conflicts(policy, two_nodes()) == row.expected);
}

TEST_CASE("no memory can be reserved where there is none, though nothing of it") {
    Topology topology = two_nodes();
    topology.nodes[0].memory = gib; // less than its pools claim
    topology.nodes[1].kind = "GPUMemory";
    Policy policy;
    policy.reserve.memory = 0;
    policy.reserve.nodes[0].memory = 0;
    CHECK(conflicts(policy, topology).empty());
    policy.reserve.memory.reset();
    policy.reserve.nodes[0].memory = 1;
    policy.reserve.nodes[2].memory = gib;
    CHECK(conflicts(policy, topology) ==
          Lines{"reserve.node.0.memory: 1 B is more than the 0 of memory that node 0 has",
                "reserve.node.2.memory: 1 GiB is more than the 0 of memory that node 2 has"});
}

TEST_CASE("all that is impossible is said at once, with where its key was set") {
    Policy policy;
    policy.memory.nodes = IdSet{5};
    policy.reserve.cpus = {9};
    policy.reserve.memory = 512 * gib;
    policy.reserve.nodes[7].hugepages[page] = page;
    policy.origins = {
        {"reserve.memory", "/etc/virtguard/virtguard.toml:12"},
        {"reserve.node.7.hugepages.2Mi", "/etc/virtguard/conf.d/50-site.toml:3"},
    };
    CHECK(conflicts(policy, two_nodes()) ==
          Lines{"memory.nodes: the host has no node 5", "reserve.cpus: the host has no CPU 9",
                "/etc/virtguard/virtguard.toml:12: reserve.memory: 512 GiB is more than the "
                "host's 124 GiB of memory",
                "/etc/virtguard/conf.d/50-site.toml:3: reserve.node.7.hugepages.2Mi: the host has "
                "no node 7"});
}

TEST_CASE("of sixty thousand things that are impossible the first fifty are told") {
    Policy policy;
    for (int node = 100; node < 10'100; ++node)
        for (int order = 0; order < 6; ++order)
            policy.reserve.nodes[node].hugepages[page << order] = page;
    const Lines lines = conflicts(policy, two_nodes());
    REQUIRE(lines.size() == 51);
    CHECK(lines.front() == "reserve.node.100.hugepages.2Mi: the host has no node 100");
    CHECK(lines.back() == "and 59950 more");
}

TEST_CASE("sums of reserves do not overflow") {
    Policy policy;
    const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
    policy.reserve.memory = huge;
    policy.reserve.nodes[0].memory = huge;
    policy.reserve.nodes[2].memory = huge;
    CHECK(conflicts(policy, two_nodes()) ==
          Lines{"reserve.memory: 8 EiB is more than the host's 124 GiB of memory",
                "reserve.node.0.memory: 8 EiB is more than the 60 GiB of memory that node 0 has",
                "reserve.node.2.memory: 8 EiB is more than the 64 GiB of memory that node 2 has"});
}
