// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "core/host.hpp"
#include "hosts.hpp"

using namespace virtguard;
using namespace virtguard::core;

namespace {

const Resource cpu = Resource::cpu();
const Resource memory = Resource::memory();
const Resource pages_2m = Resource::hugepages(page_2m);

using Amounts = std::vector<std::int64_t>;

Amounts reserved_of(const Host& host, const Resource& resource) {
    Amounts amounts;
    for (const auto& [id, place] : host.pools.at(resource).places)
        amounts.push_back(place.reserved);
    return amounts;
}

Amounts capacity_of(const Host& host, const Resource& resource) {
    Amounts amounts;
    for (const auto& [id, place] : host.pools.at(resource).places)
        amounts.push_back(place.capacity);
    return amounts;
}

IdSet allocatable_cpus(const Host& host) {
    IdSet cpus;
    for (const auto& [id, place] : host.pools.at(cpu).places)
        if (place.allocatable() == 1)
            cpus.insert(id);
    return cpus;
}

Topology nodes_of(const Amounts& memories) {
    Topology topology = equal_nodes(static_cast<int>(memories.size()), 2, 0);
    for (std::size_t i = 0; i < memories.size(); ++i)
        topology.nodes[i].memory = memories[i];
    return topology;
}

} // namespace

TEST_CASE("without a word in the policy, 512 MiB are held back, spread by ordinary memory") {
    struct Row {
        std::string name;
        Amounts memory;
        Amounts reserved;
    };
    const auto row = GENERATE(values<Row>({
        {"one node", {8 * gib}, {512 * mib}},
        {"equal nodes", {8 * gib, 8 * gib}, {256 * mib, 256 * mib}},
        {"by memory", {24 * gib, 8 * gib}, {384 * mib, 128 * mib}},
        {"none where there is none", {0, 8 * gib}, {0, 512 * mib}},
        {"the remainder on the lowest", {gib, gib, gib}, {178956972, 178956970, 178956970}},
        {"the lowest that has memory", {0, gib, gib, gib}, {0, 178956972, 178956970, 178956970}},
        {"no more than there is", {256 * mib}, {256 * mib}},
        {"no more than there is on two", {100 * mib, 200 * mib}, {100 * mib, 200 * mib}},
        {"no memory", {0}, {0}},
    }));
    CAPTURE(row.name);
    CHECK(reserved_of(make_host(nodes_of(row.memory), Policy{}), memory) == row.reserved);
}

TEST_CASE("the default reserve counts memory without the hugepage pools") {
    Topology topology = nodes_of({16 * gib, 16 * gib});
    add_pages(topology, 0, page_2m, 4096); // 8 GiB
    const Host host = make_host(topology, Policy{});
    CHECK(capacity_of(host, memory) == Amounts{8 * gib, 16 * gib});
    CHECK(reserved_of(host, memory) == Amounts{178956971, 357913941});
}

TEST_CASE("a named reserve of memory is taken as it is named") {
    struct Row {
        std::string name;
        std::optional<std::int64_t> host;
        std::map<int, std::int64_t> nodes;
        Amounts reserved;
    };
    const auto row = GENERATE(values<Row>({
        {"the host's, spread", 4 * gib, {}, {2 * gib, gib, gib}},
        {"none at all", 0, {}, {0, 0, 0}},
        {"a node's and no other", std::nullopt, {{1, gib}}, {0, gib, 0}},
        {"a node's, the rest over the others", 4 * gib, {{1, gib}}, {2 * gib, gib, gib}},
        {"a node of nothing", 3 * gib, {{0, 0}}, {0, 3 * gib / 2, 3 * gib / 2}},
        {"all nodes'", 6 * gib, {{0, gib}, {1, 2 * gib}, {2, 3 * gib}}, {gib, 2 * gib, 3 * gib}},
        {"cut to the node", std::nullopt, {{1, 99 * gib}}, {0, 8 * gib, 0}},
        {"less than the nodes'", gib, {{1, 2 * gib}}, {0, 2 * gib, 0}},
        {"cut to the host", 99 * gib, {}, {16 * gib, 8 * gib, 8 * gib}},
        {"of an absent node", std::nullopt, {{7, gib}}, {256 * mib, 128 * mib, 128 * mib}},
    }));
    CAPTURE(row.name);
    Policy policy;
    policy.reserve.memory = row.host;
    for (const auto& [id, bytes] : row.nodes)
        policy.reserve.nodes[id].memory = bytes;
    const Host host = make_host(nodes_of({16 * gib, 8 * gib, 8 * gib}), policy);
    CHECK(reserved_of(host, memory) == row.reserved);
}

TEST_CASE("a reserve of hugepages is rounded up to pages, and no reserve of memory") {
    Topology topology = nodes_of({16 * gib, 16 * gib});
    add_pages(topology, 0, page_2m, 8);
    add_pages(topology, 1, page_2m, 2);
    Policy policy;
    policy.reserve.nodes[0].hugepages[page_2m] = 3 * mib;
    policy.reserve.nodes[1].hugepages[page_2m] = 99 * mib;
    policy.reserve.nodes[1].hugepages[gib] = gib; // no such pages there
    const Host host = make_host(topology, policy);
    CHECK(capacity_of(host, pages_2m) == Amounts{16 * mib, 4 * mib});
    CHECK(reserved_of(host, pages_2m) == Amounts{4 * mib, 4 * mib});
    CHECK(host.pool(Resource::hugepages(gib)) == nullptr);
    const Amounts default_reserve = reserved_of(host, memory);
    CHECK(default_reserve[0] + default_reserve[1] == 512 * mib);
}

TEST_CASE("pools are those of the topology, also empty ones") {
    Topology topology = nodes_of({4 * gib, 4 * gib});
    topology.nodes[1].id = 3;
    topology.nodes[1].pools = {{page_2m, 0}, {gib, 1}};
    const Host host = make_host(topology, bare_policy());
    CHECK(host.pools.size() == 4);
    CHECK(host.pools.at(memory).all() == IdSet{0, 3});
    CHECK(host.pools.at(pages_2m).all() == IdSet{3});
    CHECK(capacity_of(host, pages_2m) == Amounts{0});
    CHECK(capacity_of(host, Resource::hugepages(gib)) == Amounts{gib});
    CHECK(capacity_of(host, memory) == Amounts{4 * gib, 3 * gib});
}

TEST_CASE("pools larger than the node's memory leave none, and no overflow") {
    Topology topology = nodes_of({gib});
    topology.nodes[0].pools = {{page_2m, INT64_MAX}};
    const Host host = make_host(topology, Policy{});
    CHECK(capacity_of(host, memory) == Amounts{0});
    CHECK(capacity_of(host, pages_2m) == Amounts{INT64_MAX / page_2m * page_2m});
}

TEST_CASE("unbound memory may be where there is memory, and where memory.nodes says") {
    Topology topology = nodes_of({4 * gib, 0, 4 * gib});
    topology.nodes.push_back({.id = 3, .kind = "GPUMemory", .pus = {}, .memory = 80 * gib});
    Policy policy = bare_policy();
    CHECK(make_host(topology, policy).pools.at(memory).unbound == IdSet{0, 2});
    CHECK(capacity_of(make_host(topology, policy), memory) == Amounts{4 * gib, 0, 4 * gib, 0});
    policy.memory.nodes = IdSet{2, 3};
    CHECK(make_host(topology, policy).pools.at(memory).unbound == IdSet{2});
    policy.memory.nodes = IdSet{1};
    CHECK(make_host(topology, policy).pools.at(memory).unbound == IdSet{1});
}

TEST_CASE("hugepages on nodes that memory.nodes leaves out were given to unbound guests") {
    Topology topology = equal_nodes(3, 2, 16 * gib);
    add_pages(topology, 1, page_1g, 4); // not listed on the others, as in a topology file
    Policy policy = bare_policy();
    policy.memory.nodes = IdSet{0, 2};
    CHECK(make_host(topology, policy).pools.at(Resource::hugepages(page_1g)).unbound ==
          IdSet{0, 2});
}

TEST_CASE("CPUs are those that guests may use") {
    struct Row {
        std::string name;
        void (*change)(Topology&, Policy&);
        IdSet allocatable;
        IdSet unbound;
    };
    const auto row = GENERATE(values<Row>({
        {"all of them", [](Topology&, Policy&) {}, IdSet::range(0, 7), IdSet::range(0, 7)},
        {"not the reserved",
         [](Topology&, Policy& p) {
             p.reserve.cpus = {0, 1, 99};
         },
         IdSet::range(2, 7), IdSet::range(2, 7)},
        {"not those outside the slice",
         [](Topology& t, Policy&) {
             t.allowed = {0, 5};
         },
         {0, 5},
         {0, 5}},
        {"isolated ones only by name",
         [](Topology& t, Policy&) {
             t.isolated = {6, 7};
         },
         IdSet::range(0, 7), IdSet::range(0, 5)},
        {"of a split, both",
         [](Topology&, Policy& p) {
             p.cpu.dedicated = IdSet{4, 5};
             p.cpu.shared = IdSet{0, 1};
         },
         {0, 1, 4, 5},
         {0, 1}},
        {"of dedicated alone, the rest shared",
         [](Topology&, Policy& p) { p.cpu.dedicated = IdSet::range(4, 7); }, IdSet::range(0, 7),
         IdSet::range(0, 3)},
        {"of shared alone, the rest dedicated",
         [](Topology&, Policy& p) { p.cpu.shared = IdSet::range(4, 7); }, IdSet::range(0, 7),
         IdSet::range(4, 7)},
    }));
    CAPTURE(row.name);
    Topology topology = equal_nodes(2, 4, gib);
    Policy policy;
    row.change(topology, policy);
    const Host host = make_host(topology, policy);
    CHECK(allocatable_cpus(host) == row.allocatable);
    CHECK(host.pools.at(cpu).unbound == row.unbound);
    CHECK(host.pools.at(cpu).all() == topology.online);
    CHECK((host.cpus_are_split && host.dedicated_cpus.intersects(host.shared_cpus)) == false);
}

TEST_CASE("with cpu.count = cores, a core is one CPU, named by its lowest thread") {
    Topology topology = equal_nodes(2, 4, gib);
    make_smt(topology);
    Policy policy;
    policy.cpu.count_cores = true;
    Host host = make_host(topology, policy);
    CHECK(host.pools.at(cpu).all() == IdSet{0, 2, 4, 6});
    CHECK(host.cpus_of({1, 2, 3, 99}) == IdSet{0, 2});
    CHECK(host.node_cpus == std::map<int, IdSet>{{0, {0, 2}}, {1, {4, 6}}});

    policy.reserve.cpus = {3}; // half a core: the guests have lost all of it
    policy.cpu.dedicated = IdSet{5};
    topology.isolated = {7};
    host = make_host(topology, policy);
    CHECK(allocatable_cpus(host) == IdSet{0, 4, 6});
    CHECK(host.dedicated_cpus == IdSet{4});
    CHECK(host.shared_cpus == IdSet{0, 6});
    CHECK(host.pools.at(cpu).unbound == IdSet{0});
}

TEST_CASE("a core with an offline thread is a CPU all the same") {
    Topology topology = equal_nodes(1, 4, gib);
    topology.online = {1, 2, 3};
    topology.allowed = topology.online;
    topology.offline = {0};
    topology.nodes[0].pus = topology.online;
    topology.cores = {{1}, {2, 3}};
    Policy policy;
    policy.cpu.count_cores = true;
    const Host host = make_host(topology, policy);
    CHECK(host.pools.at(cpu).all() == IdSet{1, 2});
    CHECK(host.cpus_of({0}).empty());
}

TEST_CASE("a CPU belongs to the lowest node it is local to") {
    Topology topology = equal_nodes(2, 2, gib);
    topology.nodes.push_back({.id = 4, .kind = "HBM", .pus = {2, 3}, .memory = gib});
    topology.nodes.push_back({.id = 5, .kind = "DRAM", .pus = {}, .memory = gib});
    const Host host = make_host(topology, Policy{});
    CHECK(host.nodes_of(cpu, {1, 2}) == IdSet{0, 1});
    CHECK(host.nodes_of(cpu, {3}) == IdSet{1});
    CHECK(host.nodes_of(memory, {4, 5}) == IdSet{4, 5});
    CHECK(host.places_of(cpu, 4) == IdSet{2, 3});
    CHECK(host.places_of(cpu, 5).empty());
    CHECK(host.places_of(cpu, 99).empty());
    CHECK(host.places_of(memory, 5) == IdSet{5});
}

TEST_CASE("ratios and what the kernel says are taken over") {
    Topology topology = equal_nodes(1, 2, gib);
    topology.base_page = 65536;
    topology.file_backing_is_ram = true;
    Policy policy;
    set_ratio(policy, cpu, "3");
    set_ratio(policy, memory, "1.25");
    const Host host = make_host(topology, policy);
    CHECK(host.pools.at(cpu).ratio.text() == "3");
    CHECK(host.pools.at(memory).ratio.text() == "1.25");
    CHECK(host.base_page == 65536);
    CHECK(host.default_hugepage == page_2m);
    CHECK(host.file_backing_is_ram);
}
