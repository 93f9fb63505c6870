// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "core/demand.hpp"
#include "hosts.hpp"

using namespace virtguard;
using namespace virtguard::core;

namespace {

const Resource cpu = Resource::cpu();
const Resource memory = Resource::memory();
const Resource pages_2m = Resource::hugepages(page_2m);
const Resource pages_1g = Resource::hugepages(page_1g);

using Pieces = std::vector<Piece>;
using Lines = std::vector<std::string>;

Demand demand_on(const Topology& topology, const Policy& policy, const Domain& domain) {
    return make_demand(domain, make_host(topology, policy), policy);
}

Lines texts_of(const Demand& demand) {
    Lines texts;
    for (const Reason& reason : demand.impossible)
        texts.push_back(std::string(code_name(reason.code)) + " | " + reason.text);
    return texts;
}

/// PUs 0-7 on two nodes: 0 reserved, 6 offline, 5 isolated, 7 outside machine.slice.
Topology mixed_pus() {
    Topology topology = equal_nodes(2, 4, 64 * gib);
    topology.online.erase(6);
    topology.nodes[1].pus.erase(6);
    topology.offline.insert(6);
    topology.allowed = topology.online - IdSet{7};
    topology.isolated = {5};
    topology.cores.clear();
    for (const int pu : topology.online.ids())
        topology.cores.push_back({pu});
    return topology;
}

Policy mixed_policy() {
    Policy policy = bare_policy();
    policy.reserve.cpus = {0};
    return policy;
}

/// Nodes 0 and 1 with pages of 2 MiB, node 1 alone with one of 1 GiB, node 2 with ordinary memory.
Topology paged() {
    Topology topology = equal_nodes(3, 2, 64 * gib);
    add_pages(topology, 0, page_2m, 512);
    add_pages(topology, 1, page_2m, 512);
    add_pages(topology, 1, page_1g, 1);
    return topology;
}

} // namespace

TEST_CASE("a set of PUs is counted on those of them that guests may use") {
    struct Row {
        std::string name;
        VcpuGroup group;
        Pieces pieces;
        Lines impossible;
        Lines notes;
    };
    const auto row = GENERATE(values<Row>({
        {"unbound: not reserved, offline, isolated or outside the slice",
         floating(4),
         {{cpu, IdSet::range(1, 4), false, 4}},
         {},
         {}},
        {"a set of all kinds",
         on_pus(3, IdSet::range(0, 9)),
         {{cpu, IdSet::range(1, 5), false, 3}},
         {},
         {"of its PUs 0-9 guests may not use 0 (reserved), 7 (outside machine.slice), 6 (offline), "
          "8-9 (absent)"}},
        {"a set that names isolated PUs", on_pus(2, {4, 5}), {{cpu, {4, 5}, false, 2}}, {}, {}},
        {"one PU", on_pus(1, {2}), {{cpu, {2}, true, 1}}, {}, {}},
        {"several vCPUs on one PU cost it once", on_pus(3, {2}), {{cpu, {2}, true, 1}}, {}, {}},
        {"one isolated PU", on_pus(1, {5}), {{cpu, {5}, true, 1}}, {}, {}},
        {"two PUs of which one is usable are no single PU",
         on_pus(1, {0, 1}),
         {{cpu, {1}, false, 1}},
         {},
         {"of its PUs 0-1 guests may not use 0 (reserved)"}},
        {"a reserved PU",
         on_pus(2, {0}),
         {{cpu, {}, false, 2}},
         {"cpu-not-available | cpu: 2 vCPUs pinned to PU 0, which guests may not use: "
          "0 (reserved)"},
         {}},
        {"offline and absent PUs",
         on_pus(1, {6, 9}),
         {{cpu, {}, false, 1}},
         {"cpu-not-available | cpu: 1 vCPU may run on PUs 6,9, which guests may not use: "
          "6 (offline), 9 (absent)"},
         {}},
        {"no vCPU", on_pus(0, {9}), {}, {}, {}},
    }));
    CAPTURE(row.name);
    const Demand demand = demand_on(mixed_pus(), mixed_policy(), with_vcpus("web-1", {row.group}));
    CHECK(demand.pieces == row.pieces);
    CHECK(texts_of(demand) == row.impossible);
    CHECK(demand.notes == row.notes);
    CHECK(demand.total()[cpu] == (row.pieces.empty() ? 0 : row.pieces.front().amount));
}

TEST_CASE("cpu.dedicated and cpu.shared send each kind of vCPU to its own PUs") {
    struct Row {
        std::string name;
        std::optional<IdSet> dedicated;
        std::optional<IdSet> shared;
        bool exclusive;
        VcpuGroup group;
        Pieces pieces;
    };
    const auto row = GENERATE(values<Row>({
        {"floating", IdSet{2, 3}, IdSet{0, 1}, true, floating(2), {{cpu, {0, 1}, false, 2}}},
        {"a set in both",
         IdSet{2, 3},
         IdSet{0, 1},
         true,
         on_pus(2, {1, 2, 3}),
         {{cpu, {1}, false, 2}}},
        {"a single PU", IdSet{2, 3}, IdSet{0, 1}, true, on_pus(1, {2}), {{cpu, {2}, true, 1}}},
        {"a single PU of the shared",
         IdSet{2, 3},
         IdSet{0, 1},
         true,
         on_pus(1, {1}),
         {{cpu, {}, false, 1}}},
        {"a set of the dedicated",
         IdSet{2, 3},
         IdSet{0, 1},
         true,
         on_pus(1, {2, 3}),
         {{cpu, {}, false, 1}}},
        {"only dedicated given",
         IdSet{2, 3},
         std::nullopt,
         true,
         floating(1),
         {{cpu, IdSet{0, 1} | IdSet::range(4, 7), false, 1}}},
        {"only shared given",
         std::nullopt,
         IdSet{0, 1},
         true,
         on_pus(1, {7}),
         {{cpu, {7}, true, 1}}},
        {"pinning is shared",
         IdSet{2, 3},
         IdSet{0, 1},
         false,
         on_pus(3, {1}),
         {{cpu, {1}, false, 3}}},
        {"pinning is shared, no split",
         std::nullopt,
         std::nullopt,
         false,
         on_pus(3, {1}),
         {{cpu, {1}, false, 3}}},
    }));
    CAPTURE(row.name);
    Policy policy = bare_policy();
    policy.cpu.dedicated = row.dedicated;
    policy.cpu.shared = row.shared;
    policy.cpu.pinning_exclusive = row.exclusive;
    const Demand demand =
        demand_on(equal_nodes(2, 4, gib), policy, with_vcpus("web-1", {row.group}));
    CHECK(demand.pieces == row.pieces);
    CHECK(demand.impossible.size() == (row.pieces.front().places.empty() ? 1 : 0));
}

TEST_CASE("a PU that the split keeps from a vCPU is named with the reason") {
    Policy policy = bare_policy();
    policy.cpu.dedicated = IdSet{2, 3};
    CHECK(texts_of(demand_on(equal_nodes(1, 4, gib), policy, with_vcpus("a", {on_pus(1, {1})}))) ==
          Lines{"cpu-not-available | cpu: 1 vCPU pinned to PU 1, which guests may not use: 1 (kept "
                "by cpu.dedicated, cpu.shared or a reserved core)"});
}

TEST_CASE("with cores as CPUs, both threads of a dedicated core are one CPU") {
    Topology topology = equal_nodes(1, 8, gib);
    make_smt(topology);
    Policy policy = bare_policy();
    policy.cpu.count_cores = true;
    policy.reserve.cpus = {1};
    const Domain domain =
        with_vcpus("a", {on_pus(1, {2}), on_pus(1, {3}), on_pus(1, {4}), on_pus(2, {3, 4})});
    CHECK(demand_on(topology, policy, domain).pieces ==
          Pieces{{cpu, {2}, true, 1}, {cpu, {4}, true, 1}, {cpu, {2, 4}, false, 2}});
    CHECK(texts_of(demand_on(topology, policy, with_vcpus("b", {on_pus(1, {0})}))) ==
          Lines{"cpu-not-available | cpu: 1 vCPU pinned to PU 0, which guests may not use: 0 (kept "
                "by cpu.dedicated, cpu.shared or a reserved core)"});
}

TEST_CASE("with cores as CPUs, a thread outside machine.slice was given with its core") {
    Topology topology = equal_nodes(1, 4, gib);
    make_smt(topology);
    topology.allowed = {0, 2, 3};
    Policy policy = bare_policy();
    policy.cpu.count_cores = true;
    const Demand one = demand_on(topology, policy, with_vcpus("a", {on_pus(1, {1})}));
    CHECK(texts_of(one) == Lines{"cpu-not-available | cpu: 1 vCPU pinned to PU 1, which guests may "
                                 "not use: 1 (outside machine.slice)"});
    const Demand two = demand_on(topology, policy, with_vcpus("a", {on_pus(2, {1, 2})}));
    CHECK(two.pieces == Pieces{{cpu, {2}, false, 2}});
    CHECK(two.notes == Lines{"of its PUs 1-2 guests may not use 1 (outside machine.slice)"});
}

TEST_CASE("a thousand vCPUs with sets of their own are one note") {
    std::vector<VcpuGroup> groups;
    for (int pu = 1; pu < 5; ++pu)
        groups.push_back(on_pus(1, {0, pu}));
    CHECK(demand_on(mixed_pus(), mixed_policy(), with_vcpus("a", groups)).notes ==
          Lines{"of its PUs 0-4 guests may not use 0 (reserved)"});
}

TEST_CASE("vCPUs are counted as the policy says") {
    Policy policy = bare_policy();
    const Domain domain = with_vcpus("a", {{.cpus = std::nullopt, .current = 2, .maximum = 8}});
    CHECK(demand_on(equal_nodes(1, 4, gib), policy, domain).total()[cpu] == 2);
    policy.cpu.vcpus_maximum = true;
    CHECK(demand_on(equal_nodes(1, 4, gib), policy, domain).total()[cpu] == 8);
}

TEST_CASE("a host where guests may use no PU says so") {
    Topology topology = equal_nodes(1, 2, gib);
    topology.isolated = {0, 1};
    CHECK(texts_of(demand_on(topology, bare_policy(), with_vcpus("a", {floating(1)}))) ==
          Lines{"cpu-not-available | cpu: 1 vCPU may run where guests may, and this host has no "
                "such PU"});
}

TEST_CASE("each part of memory becomes pages of its size on the nodes that bind it") {
    struct Row {
        std::string name;
        std::vector<MemoryPart> parts;
        Pieces pieces;
        Lines impossible;
    };
    const auto row = GENERATE(values<Row>({
        {"base pages", {ram(3 * mib)}, {{memory, {0, 1, 2}, false, 3 * mib}}, {}},
        {"base pages by their size",
         {ram(3 * mib, PagesOf{4096})},
         {{memory, {0, 1, 2}, false, 3 * mib}},
         {}},
        {"each cell rounds up to whole pages",
         {ram(3 * mib, PagesOf{page_2m}), ram(mib, PagesOf{page_2m})},
         {{pages_2m, {0, 1}, true, 6 * mib}},
         {}},
        {"1.5 GiB on pages of 1 GiB",
         {ram(1536 * mib, PagesOf{page_1g})},
         {{pages_1g, {1}, true, 2 * gib}},
         {}},
        {"the default size",
         {ram(2 * mib, DefaultHugepages{})},
         {{pages_2m, {0, 1}, true, 2 * mib}},
         {}},
        {"bound", {bound_ram(gib, {2})}, {{memory, {2}, false, gib}}, {}},
        {"alike in places",
         {bound_ram(gib, {1, 2}), bound_ram(2 * gib, {1, 2}), ram(mib)},
         {{memory, {1, 2}, false, 3 * gib}, {memory, {0, 1, 2}, false, mib}},
         {}},
        {"bound to a node without such pages stays there",
         {bound_ram(gib, {2}, PagesOf{page_1g})},
         {{pages_1g, {2}, true, gib}},
         {}},
        {"partly absent nodes",
         {bound_ram(gib, {1, 7})},
         {{memory, {1}, false, gib}},
         {"no-such-node | memory on node 7: host has no such node"}},
        {"absent nodes",
         {bound_ram(gib, {7, 9}, PagesOf{page_2m})},
         {{pages_2m, {}, true, gib}},
         {"no-such-node | hugepages-2Mi on nodes 7,9: host has no such node"}},
        {"an absent size",
         {ram(3 * gib, PagesOf{16 * gib})},
         {{Resource::hugepages(16 * gib), {}, true, 16 * gib}},
         {"no-such-page-size | hugepages-16Gi: needs 3 GiB, host has none"}},
    }));
    CAPTURE(row.name);
    const Demand demand = demand_on(paged(), bare_policy(), with_memory("db-1", row.parts));
    CHECK(demand.pieces == row.pieces);
    CHECK(texts_of(demand) == row.impossible);
    CHECK(demand.overhead == 0);
}

TEST_CASE("the default page size of a host that has none is impossible") {
    Topology topology = paged();
    topology.default_hugepage.reset();
    const Demand demand =
        demand_on(topology, bare_policy(), with_memory("a", {ram(gib, DefaultHugepages{})}));
    CHECK(demand.pieces.empty());
    REQUIRE(texts_of(demand) == Lines{"no-such-page-size | hugepages: needs 1 GiB, host has none"});
    CHECK_FALSE(demand.impossible.front().resource.has_value());
}

TEST_CASE("memory.nodes says where unbound memory may be, and nothing about bound memory") {
    Policy policy = bare_policy();
    policy.memory.nodes = IdSet{0, 1};
    const Domain domain =
        with_memory("a", {ram(gib), bound_ram(gib, {2}), ram(page_2m, DefaultHugepages{})});
    CHECK(demand_on(paged(), policy, domain).pieces == Pieces{{memory, {0, 1}, false, gib},
                                                              {memory, {2}, false, gib},
                                                              {pages_2m, {0, 1}, true, page_2m}});
}

TEST_CASE("what keeps memory from being paged out makes it whole") {
    struct Row {
        std::string name;
        void (*change)(Domain&);
        bool whole;
        bool whole_overhead;
    };
    const auto row = GENERATE(values<Row>({
        {"nothing", [](Domain&) {}, false, false},
        {"locked", [](Domain& d) { d.locked = true; }, true, true},
        {"VFIO", [](Domain& d) { d.vfio_devices = 1; }, true, false},
        {"SEV and the like", [](Domain& d) { d.confidential = true; }, true, false},
        {"allocation immediate", [](Domain& d) { d.preallocated = true; }, true, false},
        {"a file", [](Domain& d) { d.file_backed = true; }, false, false},
    }));
    CAPTURE(row.name);
    Policy policy = bare_policy();
    policy.memory.overhead = Overhead{.base = mib, .per_gib = 0};
    Domain domain = with_memory("a", {ram(gib)});
    row.change(domain);
    const Pieces pieces = demand_on(equal_nodes(1, 2, 4 * gib), policy, domain).pieces;
    if (row.whole == row.whole_overhead)
        CHECK(pieces == Pieces{{memory, {0}, row.whole, gib + mib}});
    else
        CHECK(pieces == Pieces{{memory, {0}, false, mib}, {memory, {0}, true, gib}});
}

TEST_CASE("memory.count, virtio-mem and file choose what of a guest's memory is counted") {
    struct Row {
        std::string name;
        void (*policy)(MemoryPolicy&);
        void (*domain)(Domain&);
        std::int64_t expected;
    };
    const auto row = GENERATE(values<Row>({
        {"all of it", [](MemoryPolicy&) {}, [](Domain& d) { d.current_memory = gib; }, 6 * gib},
        {"current", [](MemoryPolicy& p) { p.count_current = true; },
         [](Domain& d) { d.current_memory = 3 * gib; }, 3 * gib},
        {"current of a guest that is whole", [](MemoryPolicy& p) { p.count_current = true; },
         [](Domain& d) {
             d.current_memory = gib;
             d.locked = true;
         },
         6 * gib},
        {"an odd share rounds up", [](MemoryPolicy& p) { p.count_current = true; },
         [](Domain& d) { d.current_memory = 1; }, 2},
        {"current, of which a virtio-mem that requests nothing gets no share",
         [](MemoryPolicy& p) { p.count_current = p.virtio_mem_requested = true; },
         [](Domain& d) {
             d.memory[1].kind = MemoryPart::Kind::virtio_mem;
             d.memory[1].requested = 0;
             d.current_memory = 4 * gib;
         },
         4 * gib},
        {"virtio-mem requested", [](MemoryPolicy& p) { p.virtio_mem_requested = true; },
         [](Domain& d) {
             d.memory[1].kind = MemoryPart::Kind::virtio_mem;
             d.memory[1].requested = gib;
         },
         5 * gib},
        {"virtio-mem in full", [](MemoryPolicy&) {},
         [](Domain& d) {
             d.memory[1].kind = MemoryPart::Kind::virtio_mem;
             d.memory[1].requested = gib;
         },
         6 * gib},
        {"a DIMM has no requested size", [](MemoryPolicy& p) { p.virtio_mem_requested = true; },
         [](Domain& d) { d.memory[1].kind = MemoryPart::Kind::dimm; }, 6 * gib},
        {"a file is memory", [](MemoryPolicy&) {}, [](Domain& d) { d.file_backed = true; },
         6 * gib},
        {"a file is storage", [](MemoryPolicy& p) { p.file_is_storage = true; },
         [](Domain& d) { d.file_backed = true; }, 0},
    }));
    CAPTURE(row.name);
    Policy policy = bare_policy();
    row.policy(policy.memory);
    Domain domain = with_memory("a", {ram(4 * gib), ram(2 * gib)});
    row.domain(domain);
    CHECK(demand_on(equal_nodes(2, 2, 16 * gib), policy, domain).total()[memory] == row.expected);
}

TEST_CASE("a file on a tmpfs is memory whatever the policy says, and hugepages are never storage") {
    Topology topology = paged();
    Policy policy = bare_policy();
    policy.memory.file_is_storage = true;
    Domain domain = with_memory("a", {ram(gib), ram(gib, DefaultHugepages{})});
    domain.file_backed = true;
    CHECK(demand_on(topology, policy, domain).total() == Quantities{{pages_2m, gib}});
    topology.file_backing_is_ram = true;
    CHECK(demand_on(topology, policy, domain).total() ==
          Quantities{{memory, gib}, {pages_2m, gib}});
}

TEST_CASE("hugepages of virtio-mem count its requested size in whole pages") {
    Policy policy = bare_policy();
    policy.memory.virtio_mem_requested = true;
    policy.memory.count_current = true;
    MemoryPart part = ram(8 * mib, PagesOf{page_2m});
    part.kind = MemoryPart::Kind::virtio_mem;
    part.requested = 3 * mib;
    Domain domain = with_memory("a", {part});
    domain.current_memory = mib;
    CHECK(demand_on(paged(), policy, domain).total() == Quantities{{pages_2m, 4 * mib}});
}

TEST_CASE("overhead adds up term by term") {
    struct Row {
        std::string name;
        Overhead formula;
        std::int64_t expected;
    };
    const Overhead none{.base = 0, .per_vcpu = 0, .per_iothread = 0, .per_gib = 0, .video = false};
    const auto with = [&](auto change) {
        Overhead formula = none;
        change(formula);
        return formula;
    };
    const auto row = GENERATE_COPY(values<Row>({
        {"none of them", none, 0},
        {"base", with([](Overhead& o) { o.base = 5; }), 5},
        {"each vCPU", with([](Overhead& o) { o.per_vcpu = 7; }), 21},
        {"each I/O thread", with([](Overhead& o) { o.per_iothread = 7; }), 14},
        {"each GiB on base pages, rounded up", with([](Overhead& o) { o.per_gib = 3; }), 8},
        {"video", with([](Overhead& o) { o.video = true; }), 16 * mib},
        {"each VFIO device", with([](Overhead& o) { o.per_vfio = 9; }), 18},
        {"SEV", with([](Overhead& o) { o.sev = 11; }), 11},
        {"TPM", with([](Overhead& o) { o.tpm = 13; }), 13},
        {"the default", Overhead{}, 64 * mib + 3 * 8 * mib + 2 * 8 * mib + 5 * mib + 16 * mib},
    }));
    CAPTURE(row.name);
    Policy policy = bare_policy();
    policy.memory.overhead = row.formula;
    Domain domain = with_memory("a", {ram(2560 * mib), ram(gib, DefaultHugepages{})});
    domain.vcpus = {{.cpus = std::nullopt, .current = 2, .maximum = 8}, on_pus(1, {0})};
    domain.iothreads = 2;
    domain.video_ram = 16 * mib;
    domain.vfio_devices = 2;
    domain.confidential = true;
    domain.tpm = true;
    const Demand demand = demand_on(paged(), policy, domain);
    CHECK(demand.overhead == row.expected);
    CHECK(Demand(demand).total()[memory] == 2560 * mib + row.expected);
}

TEST_CASE("overhead follows what is counted, and does not grow where nothing asks for it") {
    Policy policy = bare_policy();
    policy.memory.overhead = Overhead{.sev = mib, .tpm = mib};
    policy.memory.count_current = true;
    policy.cpu.vcpus_maximum = true;
    Domain domain = with_memory("a", {ram(4 * gib)});
    domain.current_memory = gib;
    domain.vcpus = {{.cpus = std::nullopt, .current = 1, .maximum = 2}};
    CHECK(demand_on(equal_nodes(1, 2, gib), policy, domain).overhead ==
          64 * mib + 2 * 8 * mib + 2 * mib);
}

TEST_CASE("overhead lies on any node that the guest's memory may use") {
    struct Row {
        std::string name;
        std::vector<MemoryPart> parts;
        IdSet nodes;
    };
    const auto row = GENERATE(values<Row>({
        {"bound", {bound_ram(gib, {1})}, {1}},
        {"two cells", {bound_ram(gib, {0}), bound_ram(gib, {2})}, {0, 2}},
        {"one of them unbound", {bound_ram(gib, {0}), ram(gib)}, {0, 1, 2}},
        {"bound hugepages", {bound_ram(gib, {1}, DefaultHugepages{})}, {1}},
        {"unbound hugepages", {ram(gib, PagesOf{page_1g})}, {0, 1, 2}},
        {"an absent node beside another", {bound_ram(gib, {1, 7})}, {1}},
        {"only absent nodes", {bound_ram(gib, {7})}, {0, 1, 2}},
        {"no memory at all", {}, {0, 1, 2}},
    }));
    CAPTURE(row.name);
    Policy policy = bare_policy();
    policy.memory.overhead = Overhead{.base = 3 * mib, .per_gib = 0};
    IdSet nodes;
    for (const Piece& piece : demand_on(paged(), policy, with_memory("a", row.parts)).pieces)
        if (piece.resource == memory && piece.amount % gib == 3 * mib)
            nodes = piece.places;
    CHECK(nodes == row.nodes);
}

TEST_CASE("a guest that runs holds something wherever it says it is") {
    Domain domain = with_memory("a", {bound_ram(gib, {7}), ram(gib, PagesOf{16 * gib})});
    domain.vcpus = {on_pus(2, {9}), floating(1)};
    const Policy policy = bare_policy();
    const Host host = make_host(paged(), policy);
    CHECK(make_held_demand(domain, host, policy).pieces ==
          Pieces{{cpu, IdSet::range(0, 5), false, 3},
                 {memory, {0, 1, 2}, false, gib},
                 {Resource::hugepages(16 * gib), {}, true, 16 * gib}});
}

TEST_CASE("pieces alike in resource, places and wholeness become one") {
    Pieces pieces{{memory, {1}, true, 1}, {cpu, {0}, false, 1},   {memory, {1}, false, 4},
                  {memory, {1}, true, 2}, {memory, {0}, true, 8}, {cpu, {0}, false, 1}};
    merge_pieces(pieces);
    CHECK(pieces == Pieces{{cpu, {0}, false, 2},
                           {memory, {0}, true, 8},
                           {memory, {1}, false, 4},
                           {memory, {1}, true, 3}});
    Pieces empty;
    merge_pieces(empty);
    CHECK(empty.empty());
}

TEST_CASE("what is impossible is said once, however many pieces ask for it") {
    Domain domain = with_memory("cells", {bound_ram(4 * gib, {7}), bound_ram(4 * gib, {7})});
    domain.vcpus = {{.cpus = IdSet{100}, .current = 1, .maximum = 1},
                    {.cpus = IdSet{101}, .current = 1, .maximum = 1}};
    const Policy policy;
    const Demand demand =
        make_demand(domain, make_host(equal_nodes(2, 4, 16 * gib), policy), policy);
    REQUIRE(demand.impossible.size() == 2);
    CHECK(demand.impossible[0].text == "memory on node 7: host has no such node");
    CHECK(demand.impossible[0].requested == 8 * gib);
    CHECK(demand.impossible[1].text == "cpu: 2 vCPUs pinned to PUs 100-101, which guests may not "
                                       "use: 100-101 (absent)");
}
