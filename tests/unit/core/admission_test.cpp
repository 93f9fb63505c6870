// SPDX-License-Identifier: Apache-2.0
//
// Decisions in whole sentences. Cases named after a letter and a number restate peers' published
// decisions (nova, the kubelet, placement, oVirt); where virtguard means something else on purpose,
// the comment says what.
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "core/admission.hpp"
#include "core/guard.hpp"
#include "hosts.hpp"

using namespace virtguard;
using namespace virtguard::core;

namespace {

const Resource cpu = Resource::cpu();
const Resource memory = Resource::memory();

std::string line_of(const Domain& domain, const Answer& answer) {
    return answer.decision.admitted() ? "admitted" : refusal_line(domain.name, answer.decision);
}

/// Lets the domain run when it is admitted.
std::string start(Guard& guard, const Domain& domain) {
    return line_of(domain, guard.start_at_once(domain));
}

Guard with_ratio(const Topology& topology, const Resource& resource, const char* ratio) {
    Policy policy = bare_policy();
    set_ratio(policy, resource, ratio);
    return {topology, policy};
}

Domain both(std::string name, std::vector<VcpuGroup> vcpus, std::vector<MemoryPart> parts) {
    Domain domain = with_memory(std::move(name), std::move(parts));
    domain.vcpus = std::move(vcpus);
    return domain;
}

Domain vfio(std::string name, std::int64_t size) {
    Domain domain = with_memory(std::move(name), {ram(size)});
    domain.vfio_devices = 1;
    return domain;
}

std::int64_t host_free(Guard& guard, const Resource& resource) {
    return guard.report().host.free.at(resource);
}

std::int64_t node_free(Guard& guard, std::size_t node, const Resource& resource) {
    return guard.report().nodes.at(node).figures.free.at(resource);
}

} // namespace

// Worked examples -------------------------------------------------------------------------------

TEST_CASE("a floating guest may take all that strict guests leave on two nodes") {
    Guard guard(equal_nodes(2, 4, 64 * gib), bare_policy());
    CHECK(start(guard, with_memory("a", {bound_ram(40 * gib, {0})})) == "admitted");
    CHECK(start(guard, with_memory("b", {bound_ram(50 * gib, {1})})) == "admitted");
    CHECK(start(guard, with_memory("c", {ram(39 * gib)})) ==
          "virtguard: refused c: memory: needs 39 GiB, 38 GiB free of 128 GiB");
    CHECK(start(guard, with_memory("d", {ram(38 * gib)})) == "admitted");
    CHECK(host_free(guard, memory) == 0);
}

TEST_CASE("guests bound to {0,1} and {1,2} compete for node 1") {
    Guard guard(equal_nodes(3, 4, 10 * gib), bare_policy());
    CHECK(start(guard, with_memory("a", {bound_ram(16 * gib, {0, 1})})) == "admitted");
    CHECK(node_free(guard, 1, memory) == 10 * gib - 6 * gib);
    CHECK(start(guard, with_memory("b", {bound_ram(15 * gib, {1, 2})})) ==
          "virtguard: refused b: memory: needs 15 GiB, 14 GiB free of 30 GiB");
    CHECK(start(guard, with_memory("c", {bound_ram(14 * gib, {1, 2})})) == "admitted");
    CHECK(start(guard, with_memory("d", {bound_ram(1, {1})})) ==
          "virtguard: refused d: memory: needs 1 B, 0 free of 30 GiB");
}

TEST_CASE("enough pages in total, but not on the node") {
    Topology topology = equal_nodes(2, 4, 8 * gib);
    add_pages(topology, 0, page_2m, 512);
    add_pages(topology, 1, page_2m, 512);
    Guard guard(topology, bare_policy());
    CHECK(start(guard, with_memory("a", {bound_ram(768 * mib, {1}, DefaultHugepages{})})) ==
          "admitted");
    const Domain b = with_memory("b", {bound_ram(512 * mib, {1}, PagesOf{page_2m})});
    const Answer answer = guard.check(b);
    CHECK(line_of(b, answer) ==
          "virtguard: refused b: hugepages-2Mi on node 1: needs 512 MiB, 256 MiB free of 1 GiB");
    CHECK(answer.decision.reasons ==
          std::vector<Reason>{
              {.code = Code::insufficient_node_capacity,
               .resource = Resource::hugepages(page_2m),
               .nodes = {1},
               .requested = 512 * mib,
               .free = 256 * mib,
               .effective = gib,
               .mode = Mode::enforce,
               .text = "hugepages-2Mi on node 1: needs 512 MiB, 256 MiB free of 1 GiB"}});
    CHECK(start(guard, with_memory("c", {ram(512 * mib, DefaultHugepages{})})) == "admitted");
}

TEST_CASE("two nodes of 11 CPUs at 1.5 hold 16 vCPUs each and 33 together") {
    Guard guard = with_ratio(equal_nodes(2, 11, gib), cpu, "1.5");
    CHECK(node_free(guard, 0, cpu) == 16);
    CHECK(host_free(guard, cpu) == 33);
    const IdSet node_0 = IdSet::range(0, 10);
    const IdSet node_1 = IdSet::range(11, 21);
    CHECK(start(guard, with_vcpus("a", {on_pus(8, node_0)})) == "admitted");
    CHECK(start(guard, with_vcpus("b", {on_pus(8, node_0)})) == "admitted");
    CHECK(start(guard, with_vcpus("c", {on_pus(1, node_0)})) ==
          "virtguard: refused c: cpu on PUs 0-10 (node 0): needs 1 vCPU, 0 free of 16");
    CHECK(start(guard, with_vcpus("d", {on_pus(11, node_1)})) == "admitted");
    CHECK(start(guard, with_vcpus("e", {on_pus(5, node_1)})) == "admitted");
    CHECK(start(guard, with_vcpus("f", {floating(2)})) ==
          "virtguard: refused f: cpu: needs 2 vCPUs, 1 free of 33");
    CHECK(start(guard, with_vcpus("g", {floating(1)})) == "admitted");
    CHECK(host_free(guard, cpu) == 0);
}

TEST_CASE("100 CPUs at 1.15 are 115") {
    Guard guard = with_ratio(equal_nodes(1, 100, gib), cpu, "1.15");
    CHECK(start(guard, with_vcpus("a", {floating(100)})) == "admitted");
    CHECK(start(guard, with_vcpus("b", {floating(16)})) ==
          "virtguard: refused b: cpu: needs 16 vCPUs, 15 free of 115");
    CHECK(start(guard, with_vcpus("c", {floating(15)})) == "admitted");
}

TEST_CASE("a pinned guest takes its PUs out of what floating vCPUs share") {
    Guard guard = with_ratio(equal_nodes(2, 4, gib), cpu, "3");
    CHECK(start(guard, pinned("a", {0, 1, 4})) == "admitted");
    CHECK(host_free(guard, cpu) == 5 * 3);
    CHECK(start(guard, with_vcpus("b", {on_pus(2, IdSet::range(0, 3))})) == "admitted");
    CHECK(start(guard, with_vcpus("c", {on_pus(1, {0, 1})})) ==
          "virtguard: refused c: cpu on PUs 0-1 (node 0): needs 1 vCPU, 0 free of 2");
    CHECK(start(guard, pinned("d", {1})) ==
          "virtguard: refused d: cpu on PU 1 (node 0): needs 1 vCPU, 0 free of 1");
    for (const char* name : {"e", "f"})
        CHECK(start(guard, with_vcpus(name, {floating(5)})) == "admitted");
    CHECK(start(guard, pinned("g", {3})) == "admitted"); // 12 vCPUs on the four that are left
    CHECK(start(guard, pinned("h", {2})) ==
          "virtguard: refused h: cpu: needs 1 vCPU, 0 free of 16");
}

TEST_CASE("VFIO guests take no ratio: 240 of 256 GiB at 1.5 leave 24 for pageable ones") {
    Guard guard = with_ratio(equal_nodes(1, 8, 256 * gib), memory, "1.5");
    CHECK(start(guard, vfio("a", 120 * gib)) == "admitted");
    CHECK(start(guard, vfio("b", 120 * gib)) == "admitted");
    CHECK(host_free(guard, memory) == 24 * gib);
    CHECK(start(guard, with_memory("c", {ram(25 * gib)})) ==
          "virtguard: refused c: memory: needs 25 GiB, 24 GiB free of 264 GiB");
    CHECK(start(guard, vfio("d", 17 * gib)) ==
          "virtguard: refused d: memory: needs 17 GiB, 16 GiB free of 264 GiB");
    CHECK(start(guard, with_memory("e", {ram(24 * gib)})) == "admitted");
}

TEST_CASE("below 1 a ratio holds memory back from whole and pageable alike") {
    Guard guard = with_ratio(equal_nodes(1, 8, 100 * gib), memory, "0.8");
    CHECK(start(guard, vfio("a", 50 * gib)) == "admitted");
    CHECK(start(guard, with_memory("b", {ram(31 * gib)})) ==
          "virtguard: refused b: memory: needs 31 GiB, 30 GiB free of 80 GiB");
    CHECK(start(guard, with_memory("c", {ram(30 * gib)})) == "admitted");
}

TEST_CASE("a guest cell lies on the host node that binds it, whatever its own number") {
    Guard guard(equal_nodes(2, 4, 8 * gib), bare_policy());
    CHECK(start(guard, with_memory("a", {bound_ram(6 * gib, {1})})) == "admitted");
    // Its guest cell 0 is on host node 1, its guest cell 1 on host node 0.
    CHECK(start(guard, with_memory("b", {bound_ram(3 * gib, {1}), bound_ram(3 * gib, {0})})) ==
          "virtguard: refused b: memory on node 1: needs 3 GiB, 2 GiB free of 8 GiB");
}

TEST_CASE("a preferred node that is full refuses nothing") {
    Guard guard(equal_nodes(2, 4, 8 * gib), bare_policy());
    CHECK(start(guard, with_memory("a", {bound_ram(8 * gib, {0})})) == "admitted");
    CHECK(start(guard, with_memory("b", {ram(8 * gib)})) == "admitted"); // a wish is no binding
}

TEST_CASE("a cell of 1.5 GiB on pages of 1 GiB takes two") {
    Topology topology = equal_nodes(1, 4, 8 * gib);
    add_pages(topology, 0, page_1g, 3);
    Guard guard(topology, bare_policy());
    CHECK(start(guard, with_memory("a", {ram(1536 * mib, PagesOf{page_1g})})) == "admitted");
    CHECK(start(guard, with_memory("b", {ram(1536 * mib, PagesOf{page_1g})})) ==
          "virtguard: refused b: hugepages-1Gi: needs 2 GiB, 1 GiB free of 3 GiB");
}

TEST_CASE(
    "a virtio-mem device is counted with all it may become, or with what is requested of it") {
    for (const bool requested : {false, true}) {
        CAPTURE(requested);
        Policy policy = bare_policy();
        policy.memory.virtio_mem_requested = requested;
        Guard guard(equal_nodes(1, 4, 8 * gib), policy);
        Domain a = with_memory("a", {ram(2 * gib), ram(4 * gib)});
        a.memory[1].kind = MemoryPart::Kind::virtio_mem;
        a.memory[1].requested = gib;
        CHECK(start(guard, a) == "admitted");
        CHECK(start(guard, with_memory("b", {ram(5 * gib)})) ==
              (requested ? "admitted"
                         : "virtguard: refused b: memory: needs 5 GiB, 2 GiB free of 8 GiB"));
    }
}

TEST_CASE("a ratio lowered below use touches only starts that need the resource") {
    Policy policy = bare_policy();
    set_ratio(policy, cpu, "3");
    Guard guard(equal_nodes(1, 4, 16 * gib), policy);
    CHECK(start(guard, both("a", {floating(4)}, {ram(gib)})) == "admitted");
    CHECK(start(guard, both("b", {floating(4)}, {ram(gib)})) == "admitted");
    set_ratio(policy, cpu, "1");
    guard.apply(policy);
    CHECK(host_free(guard, cpu) == -4);
    CHECK(guard.report().over_capacity == std::vector<Resource>{cpu});
    CHECK(start(guard, with_memory("c", {ram(gib)})) == "admitted");
    CHECK(start(guard, both("d", {floating(1)}, {ram(gib)})) ==
          "virtguard: refused d: cpu: needs 1 vCPU, none free of 4 (over by 4)");
}

// A host that is over ---------------------------------------------------------------------------

TEST_CASE("a node that is over refuses nothing on another, and gives nothing to what may float") {
    Guard guard(equal_nodes(2, 4, 64 * gib), bare_policy());
    guard.running(with_memory("a", {bound_ram(100 * gib, {0})}), Instant{});
    guard.running(with_memory("b", {bound_ram(60 * gib, {1})}), Instant{});
    CHECK(node_free(guard, 0, memory) == -36 * gib);
    CHECK(node_free(guard, 1, memory) == 4 * gib);
    CHECK(guard.report().over_capacity == std::vector<Resource>{memory});
    CHECK(start(guard, with_memory("c", {bound_ram(gib, {0})})) ==
          "virtguard: refused c: memory on node 0: needs 1 GiB, none free of 64 GiB (over by 36 "
          "GiB)");
    CHECK(start(guard, with_memory("d", {ram(2 * gib)})) == "admitted");
    CHECK(start(guard, with_memory("e", {bound_ram(2 * gib, {1})})) == "admitted");
    CHECK(start(guard, with_memory("f", {bound_ram(gib, {1})})) ==
          "virtguard: refused f: memory: needs 1 GiB, none free of 128 GiB (over by 36 GiB)");
}

TEST_CASE("a start may not take from what floats, however far over the rest is") {
    Guard guard(equal_nodes(2, 4, 10 * gib), bare_policy());
    guard.running(with_memory("a", {bound_ram(15 * gib, {0})}), Instant{});
    guard.running(with_memory("b", {ram(8 * gib)}), Instant{}); // on node 1, as far as it matters
    CHECK(node_free(guard, 1, memory) == 2 * gib);
    CHECK(start(guard, with_memory("c", {bound_ram(3 * gib, {1})})) ==
          "virtguard: refused c: memory: needs 3 GiB, none free of 20 GiB (over by 3 GiB)");
    CHECK(start(guard, with_memory("d", {bound_ram(2 * gib, {1})})) == "admitted");
}

TEST_CASE("what a pool lost is not given again until it is free") {
    Topology topology = equal_nodes(1, 4, 8 * gib);
    add_pages(topology, 0, page_1g, 4);
    Guard guard(topology, bare_policy());
    const Resource pages = Resource::hugepages(page_1g);
    CHECK(start(guard, with_memory("a", {ram(2 * gib, PagesOf{page_1g})})) == "admitted");
    CHECK(start(guard, with_memory("b", {ram(gib, PagesOf{page_1g})})) == "admitted");
    topology.nodes[0].pools[0].pages = 2;
    guard.apply(topology);
    CHECK(host_free(guard, pages) == -gib);
    const Domain c = with_memory("c", {ram(gib, PagesOf{page_1g})});
    CHECK(start(guard, c) ==
          "virtguard: refused c: hugepages-1Gi: needs 1 GiB, none free of 2 GiB (over by 1 GiB)");
    guard.start_at_once(with_memory("a", {}));
    CHECK(host_free(guard, pages) == gib);
    CHECK(start(guard, c) == "admitted");
}

TEST_CASE("what is held on a node that has lost its pages takes none from another") {
    Topology topology = equal_nodes(3, 4, 16 * gib);
    for (const int node : {0, 1, 2})
        add_pages(topology, node, page_1g, 4);
    Guard guard(topology, bare_policy());
    for (const char* name : {"a", "b"})
        CHECK(start(guard, with_memory(name, {bound_ram(2 * gib, {1}, PagesOf{page_1g})})) ==
              "admitted");
    topology.nodes[1].pools[0].pages = 0;
    guard.apply(topology);
    CHECK(start(guard, with_memory("c", {bound_ram(2 * gib, {0}, PagesOf{page_1g})})) ==
          "admitted");
    CHECK(start(guard, with_memory("d", {bound_ram(3 * gib, {0, 1}, PagesOf{page_1g})})) ==
          "virtguard: refused d: hugepages-1Gi on node 0: needs 3 GiB, 2 GiB free of 4 GiB");
    CHECK(start(guard, with_memory("e", {bound_ram(5 * gib, {0, 1}, PagesOf{page_1g})})) ==
          "virtguard: refused e: hugepages-1Gi on node 0: needs 5 GiB, more than the 4 GiB that "
          "one guest can have");
    CHECK(start(guard, with_memory("f", {bound_ram(2 * gib, {0, 1}, PagesOf{page_1g})})) ==
          "admitted");
}

// Alone -----------------------------------------------------------------------------------------

TEST_CASE("no guest overcommits against itself") {
    struct Row {
        std::string name;
        Domain domain;
        std::string expected;
    };
    const auto row = GENERATE(values<Row>({
        {"memory", with_memory("a", {ram(17 * gib)}),
         "memory: needs 17 GiB, more than the 16 GiB that one guest can have"},
        {"memory of a node", with_memory("a", {bound_ram(9 * gib, {1})}),
         "memory on node 1: needs 9 GiB, more than the 8 GiB that one guest can have"},
        {"parts of it", with_memory("a", {bound_ram(5 * gib, {1}), bound_ram(4 * gib, {1})}),
         "memory on node 1: needs 9 GiB, more than the 8 GiB that one guest can have"},
        {"vCPUs", with_vcpus("a", {floating(9)}),
         "cpu: needs 9 vCPUs, more than the 8 vCPUs that one guest can have"},
        {"vCPUs on a set", with_vcpus("a", {on_pus(5, IdSet::range(0, 3))}),
         "cpu on PUs 0-3 (node 0): needs 5 vCPUs, more than the 4 vCPUs that one guest can have"},
        {"shared vCPUs beside its own dedicated ones",
         with_vcpus("a", {on_pus(1, {0}), on_pus(1, {1}), on_pus(3, IdSet::range(0, 3))}),
         "cpu on PUs 0-3 (node 0): needs 5 vCPUs, more than the 4 vCPUs that one guest can have"},
        {"no such pages on the node", with_memory("a", {bound_ram(gib, {0}, PagesOf{page_1g})}),
         "hugepages-1Gi on node 0: needs 1 GiB, there is none"},
        {"an empty pool", with_memory("a", {ram(gib, DefaultHugepages{})}),
         "hugepages-2Mi: needs 1 GiB, host has none"},
        {"an empty pool, for two",
         with_memory(
             "a", {bound_ram(gib, {0}, PagesOf{page_2m}), bound_ram(gib, {1}, PagesOf{page_2m})}),
         "hugepages-2Mi: needs 2 GiB, host has none"},
    }));
    CAPTURE(row.name);
    Topology topology = equal_nodes(2, 4, 8 * gib);
    topology.nodes[0].pools = {{page_2m, 0}};
    topology.nodes[1].memory += gib;
    topology.nodes[1].pools = {{page_1g, 1}};
    Policy policy = bare_policy();
    set_ratio(policy, cpu, "4");
    set_ratio(policy, memory, "4");
    Guard guard(topology, policy);
    const Answer answer = guard.check(row.domain);
    CHECK(line_of(row.domain, answer) == "virtguard: refused a: " + row.expected);
    REQUIRE(answer.decision.reasons.size() == 1);
    CHECK(answer.decision.reasons.front().code == Code::larger_than_host);
}

// Peers' cases ----------------------------------------------------------------------------------
// docs/peers.md has them in a table, with those that ask what virtguard does not decide.

TEST_CASE("A9, A11: two PUs and 1024 MiB at 2 hold one more of the same, and never five vCPUs") {
    Policy policy = bare_policy();
    set_ratio(policy, cpu, "2");
    set_ratio(policy, memory, "2");
    Guard guard(equal_nodes(1, 2, gib), policy);
    CHECK(start(guard, both("a", {floating(2)}, {ram(gib)})) == "admitted");
    CHECK(guard.check(both("b", {floating(5)}, {ram(gib)})).decision.reasons.front().code ==
          Code::larger_than_host);
    CHECK(start(guard, both("c", {floating(2)}, {ram(gib)})) == "admitted");
    CHECK(host_free(guard, cpu) == 0);
    CHECK(host_free(guard, memory) == 0);
}

TEST_CASE("A1, B5: without a ratio nothing is overcommitted") {
    // nova overcommits without limit where no ratio is given; to virtguard unset is 1.
    Guard guard(equal_nodes(1, 2, gib), bare_policy());
    CHECK(start(guard, with_memory("a", {ram(512 * mib)})) == "admitted");
    CHECK(start(guard, with_memory("b", {ram(gib)})) ==
          "virtguard: refused b: memory: needs 1 GiB, 512 MiB free of 1 GiB");
}

TEST_CASE("A3: pinning changes nothing about memory") {
    // nova refuses overcommitted memory to pinned guests; to virtguard only whole memory is exempt.
    Guard guard = with_ratio(equal_nodes(1, 2, gib), memory, "1.5");
    CHECK(start(guard, with_memory("a", {ram(512 * mib)})) == "admitted");
    Domain b = pinned("b", {0, 1});
    b.memory = {ram(gib)};
    b.current_memory = gib;
    CHECK(start(guard, b) == "admitted");
}

TEST_CASE("A5: a guest of three vCPUs and 4096 MiB is too large for two PUs and 1024 MiB") {
    Guard guard(equal_nodes(1, 2, gib), bare_policy());
    const Domain domain = both("a", {floating(3)}, {ram(4 * gib)});
    CHECK(line_of(domain, guard.check(domain)) ==
          "virtguard: refused a: cpu: needs 3 vCPUs, more than the 2 vCPUs that one guest can "
          "have; memory: needs 4 GiB, more than the 1 GiB that one guest can have");
}

TEST_CASE("A7, C11: base pages that are named are ordinary memory") {
    Guard guard(equal_nodes(1, 2, gib), bare_policy());
    guard.running(with_memory("32 pages", {ram(128 * 1024)}), Instant{});
    const Domain all = with_memory("a", {ram(gib, PagesOf{4096})});
    CHECK(line_of(all, guard.check(all)) ==
          "virtguard: refused a: memory: needs 1 GiB, 1023.87 MiB free of 1 GiB");
    CHECK(start(guard, with_memory("b", {ram(96 * mib, PagesOf{4096})})) == "admitted");
    CHECK(guard.report().host.allocated.at(memory) == 24608 * 4096);
    (void)guard.start_at_once(with_memory("b", {}));
    (void)guard.start_at_once(with_memory("32 pages", {}));
    CHECK(start(guard, all) == "admitted");
}

TEST_CASE("B1, B3: four vCPUs are refused only where a cell is named") {
    // nova fits a guest into one cell and refuses 4 vCPUs; unbound ones float over both here.
    Policy policy = bare_policy();
    set_ratio(policy, cpu, "2");
    set_ratio(policy, memory, "2");
    Guard guard(equal_nodes(2, 2, 2 * gib), policy);
    for (const char* name : {"a", "b"})
        CHECK(start(guard, both(name, {floating(2)}, {ram(2 * gib)})) == "admitted");
    CHECK(guard.check(both("B1", {floating(2)}, {ram(gib)})).decision.admitted());
    CHECK(start(guard, both("B3", {floating(2)}, {ram(2 * gib)})) == "admitted");
    CHECK(guard.check(both("c", {floating(4)}, {ram(gib)})).decision.reasons.size() == 1);
    CHECK(line_of(with_vcpus("c", {floating(4)}), guard.check(with_vcpus("c", {floating(4)}))) ==
          "virtguard: refused c: cpu: needs 4 vCPUs, 2 free of 8");
    (void)guard.start_at_once(with_vcpus("B3", {}));
    CHECK(guard.check(with_vcpus("c", {floating(4)})).decision.admitted());
    CHECK(guard.check(with_vcpus("d", {on_pus(4, {0, 1})})).decision.reasons.front().code ==
          Code::larger_than_host);
}

TEST_CASE("B9: at 1.5, two CPUs with two vCPUs bound to them take one more and not two") {
    Guard guard = with_ratio(equal_nodes(2, 2, gib), cpu, "1.5");
    CHECK(start(guard, with_vcpus("a", {on_pus(2, {0, 1})})) == "admitted");
    CHECK(start(guard, with_vcpus("b", {on_pus(2, {0, 1})})) ==
          "virtguard: refused b: cpu on PUs 0-1 (node 0): needs 2 vCPUs, 1 free of 3");
    CHECK(start(guard, with_vcpus("c", {on_pus(2, {2, 3})})) == "admitted");
}

TEST_CASE("C5, C7: a page size is there or it is not") {
    Topology topology = equal_nodes(1, 2, 2 * gib);
    add_pages(topology, 0, page_2m, 512);
    Guard guard(topology, bare_policy());
    CHECK(guard.check(with_memory("a", {ram(gib, PagesOf{page_2m})})).decision.admitted());
    const Domain b = with_memory("b", {ram(gib, PagesOf{4 * mib})});
    CHECK(line_of(b, guard.check(b)) ==
          "virtguard: refused b: hugepages-4Mi: needs 1 GiB, host has none");
}

TEST_CASE("C15: 1024 pages of 2 MiB are 2048 MiB and not more") {
    Topology topology = equal_nodes(1, 2, 4 * gib);
    add_pages(topology, 0, page_2m, 1024);
    Guard guard(topology, bare_policy());
    CHECK(guard.check(with_memory("a", {ram(2048 * mib, DefaultHugepages{})})).decision.admitted());
    CHECK_FALSE(
        guard.check(with_memory("a", {ram(2049 * mib, DefaultHugepages{})})).decision.admitted());
}

TEST_CASE("C9: used and reserved pages are both gone") {
    Topology topology = equal_nodes(1, 2, 2 * gib);
    add_pages(topology, 0, page_2m, 512);
    Policy policy = bare_policy();
    policy.reserve.nodes[0].hugepages[page_2m] = 128 * page_2m;
    Guard guard(topology, policy);
    CHECK(start(guard, with_memory("a", {ram(128 * page_2m, DefaultHugepages{})})) == "admitted");
    CHECK(start(guard, with_memory("b", {ram(128 * page_2m, DefaultHugepages{})})) == "admitted");
    CHECK(host_free(guard, Resource::hugepages(page_2m)) == 128 * page_2m);
}

TEST_CASE("C13: accounting never refuses what already runs") {
    Guard guard(equal_nodes(1, 2, 512 * mib), bare_policy());
    guard.running(with_memory("a", {ram(512 * mib)}), Instant{});
    guard.running(with_memory("b", {ram(256 * mib)}), Instant{});
    CHECK(guard.report().host.allocated.at(memory) == 768 * mib);
    CHECK(host_free(guard, memory) == -256 * mib);
}

TEST_CASE("D, E, K: the PUs that the XML names are checked, none are chosen") {
    // nova and the kubelet pick CPUs (packing siblings, isolating threads); libvirt starts what the
    // XML says.
    Guard guard(equal_nodes(1, 4, gib), bare_policy());
    CHECK(start(guard, pinned("D5", IdSet::range(0, 3))) == "admitted");
    CHECK(start(guard, pinned("F3", {0, 2})) ==
          "virtguard: refused F3: cpu on PU 0 (node 0): needs 1 vCPU, 0 free of 1; cpu on PU 2 "
          "(node 0): needs 1 vCPU, 0 free of 1");
    (void)guard.start_at_once(with_vcpus("D5", {}));
    CHECK(start(guard, pinned("F3", {0, 2})) == "admitted");
}

TEST_CASE("D, E, K: PUs that are named are had where they are there and nobody's") {
    // What a peer would choose, or refuses to choose, is here what the XML names.
    struct Row {
        std::string name;
        int pus; ///< of the host
        IdSet pinned;
        IdSet asked;
        std::string expected;
    };
    const auto row = GENERATE(values<Row>({
        {"D3", 3, {}, {0, 1, 2}, "admitted"},
        {"D5", 4, {}, {0, 1, 2, 3}, "admitted"},
        {"D7", 8, {}, IdSet::range(0, 7), "admitted"},
        {"D9", 8, {}, {0, 1, 2, 3}, "admitted"},
        {"D13", 8, {0, 1}, {2, 3, 6, 7}, "admitted"},
        {"D15", 8, {}, IdSet::range(0, 5), "admitted"},
        {"D17", 8, {0, 1, 2, 5}, {3, 4, 6, 7}, "admitted"},
        {"D19", 16, {}, {0, 1, 2, 8, 9}, "admitted"},
        {"E1", 4, {}, {2, 3}, "admitted"},
        {"E3, a cell of its own",
         4,
         {0, 2},
         {0, 1},
         "virtguard: refused a: cpu on PU 0 (node 0): needs 1 vCPU, 0 free of 1"},
        {"E3, what is free", 4, {0, 2}, {1, 3}, "admitted"}, // nova: no, not in one cell
        {"E5", 12, {0, 4, 5, 6, 10, 11}, {1, 2, 8, 9}, "admitted"},
        {"E9", 10, {}, IdSet::range(0, 4), "admitted"},
        {"F1", 4, {0, 3}, {1, 2}, "admitted"},
        {"K3", 8, {}, {4}, "admitted"},
    }));
    CAPTURE(row.name);
    Guard guard(equal_nodes(1, row.pus, gib), bare_policy());
    CHECK(start(guard, pinned("before", row.pinned)) == "admitted");
    CHECK(start(guard, pinned("a", row.asked)) == row.expected);
    (void)guard.start_at_once(pinned("a", {}));
    (void)guard.start_at_once(pinned("before", {})); // F5: all of them are free again
    CHECK(start(guard, pinned("all", IdSet::range(0, row.pus - 1))) == "admitted");
}

TEST_CASE("E11, E13, F9: dedicated and shared vCPUs have PUs of their own") {
    Policy policy = bare_policy();
    policy.cpu.dedicated = IdSet{2, 3, 5, 6, 7};
    policy.cpu.shared = IdSet{0, 1, 4};
    Guard guard(equal_nodes(2, 4, gib), policy);
    const auto mixed = [](const char* name, std::int64_t shared, IdSet dedicated) {
        Domain domain = pinned(name, dedicated);
        domain.vcpus.push_back(floating(shared));
        return domain;
    };
    CHECK(start(guard, mixed("E11", 1, {5, 6, 7})) == "admitted");
    Domain uneven = mixed("E13", 1, {2, 3});
    uneven.memory = {bound_ram(256 * mib, {0}), bound_ram(768 * mib, {1})};
    CHECK(start(guard, uneven) == "admitted");
    CHECK(start(guard, mixed("more", 2, {2})) ==
          "virtguard: refused more: cpu on PUs 0-1,4 (nodes 0-1): needs 2 vCPUs, 1 free of 3; cpu "
          "on PU 2 (node 0): needs 1 vCPU, 0 free of 1");
    (void)guard.start_at_once(pinned("E11", {})); // F9: what it had of either is free
    CHECK(start(guard, mixed("again", 2, {5, 6, 7})) == "admitted");
    CHECK(host_free(guard, cpu) == 0);
}

TEST_CASE("D1: four PUs of three do not exist") {
    Guard guard(equal_nodes(1, 3, gib), bare_policy());
    const Domain domain = pinned("D1", IdSet::range(0, 3));
    CHECK(line_of(domain, guard.check(domain)) ==
          "virtguard: refused D1: cpu: 1 vCPU pinned to PU 3, which guests may not use: "
          "3 (absent)");
}

TEST_CASE("E7: more guest nodes than host nodes are no reason") {
    // nova maps each guest node to a host cell of its own; libvirt does not.
    Guard guard(equal_nodes(2, 4, 4 * gib), bare_policy());
    CHECK(start(guard, both("a", {floating(6)}, {ram(gib), ram(gib), ram(gib)})) == "admitted");
}

TEST_CASE("I5, I7, I9: a ratio lowered under what is used refuses any more") {
    // placement lets a consumer shrink, or hand its place on, while all are over; to a host each is
    // a start, and takes from nobody.
    Policy policy = bare_policy();
    set_ratio(policy, cpu, "2");
    Guard guard(equal_nodes(1, 10, gib), policy);
    for (const char* name : {"a", "b"})
        CHECK(start(guard, with_vcpus(name, {floating(7)})) == "admitted");
    set_ratio(policy, cpu, "1");
    guard.apply(policy);
    // The same guest with fewer vCPUs is decided without the old one, and takes from nobody: b
    // alone leaves room for 3.
    CHECK(start(guard, with_vcpus("a", {floating(6)})) ==
          "virtguard: refused a: cpu: needs 6 vCPUs, 3 free of 10");
    CHECK(start(guard, with_vcpus("a", {floating(3)})) == "admitted");
    CHECK(start(guard, with_vcpus("c", {floating(1)})) ==
          "virtguard: refused c: cpu: needs 1 vCPU, 0 free of 10");
}

TEST_CASE("I11: memory that shrinks below use is over, and nobody is touched") {
    Topology topology = equal_nodes(1, 2, 2048 * mib);
    Guard guard(topology, bare_policy());
    CHECK(start(guard, with_memory("a", {ram(500 * mib)})) == "admitted");
    topology.nodes[0].memory = 400 * mib;
    guard.apply(topology);
    CHECK(guard.report().host.allocated.at(memory) == 500 * mib);
    CHECK(host_free(guard, memory) == -100 * mib);
    CHECK(guard.report().over_capacity == std::vector<Resource>{memory});
}

TEST_CASE("I13: what is left to the last vCPU and less than all memory is had") {
    Guard guard(equal_nodes(1, 20, 4096 * mib), bare_policy());
    CHECK(start(guard, both("a", {floating(15)}, {ram(1024 * mib)})) == "admitted");
    CHECK(start(guard, both("b", {floating(5)}, {ram(1024 * mib)})) == "admitted");
    CHECK(host_free(guard, cpu) == 0);
}

TEST_CASE("J1, J3: what is short of memory and of pages is said at once") {
    Topology topology = equal_nodes(1, 4, 3 * gib);
    add_pages(topology, 0, page_1g, 1);
    Policy policy = bare_policy();
    policy.reserve.memory = 512 * mib;
    Guard guard(topology, policy);
    CHECK(host_free(guard, memory) == 1536 * mib);
    CHECK(start(guard, with_memory("a", {ram(gib), ram(gib, PagesOf{page_1g})})) == "admitted");
    CHECK(start(guard, with_memory("b", {ram(gib), ram(gib, PagesOf{page_1g})})) ==
          "virtguard: refused b: memory: needs 1 GiB, 512 MiB free of 1.5 GiB; hugepages-1Gi: "
          "needs 1 GiB, 0 free of 1 GiB");
}

TEST_CASE("J5, J7: more than a node has is refused only where that node is named") {
    // The kubelet ties a container to one node, or to nodes no other kind of container uses.
    Topology topology = equal_nodes(2, 4, gib);
    topology.nodes[0].memory = 512 * mib;
    Guard guard(topology, bare_policy());
    const Domain bound = with_memory("J5", {bound_ram(513 * mib, {0})});
    CHECK(line_of(bound, guard.check(bound)) ==
          "virtguard: refused J5: memory on node 0: needs 513 MiB, more than the 512 MiB that one "
          "guest can have");
    CHECK(start(guard, with_memory("J7", {ram(1280 * mib)})) == "admitted");
}

TEST_CASE("K1, K9: PUs that are reserved or somebody's are no shared vCPU's") {
    Policy policy = bare_policy();
    policy.reserve.cpus = {0};
    Guard eight(equal_nodes(1, 8, gib), policy);
    const Domain k1 = with_vcpus("K1", {floating(8)});
    CHECK(line_of(k1, eight.check(k1)) ==
          "virtguard: refused K1: cpu: needs 8 vCPUs, more than the 7 vCPUs that one guest can "
          "have");
    Guard twelve(equal_nodes(2, 6, gib), policy);
    CHECK(start(twelve, pinned("held", {1, 2, 3})) == "admitted");
    CHECK(start(twelve, with_vcpus("K9", {floating(10)})) ==
          "virtguard: refused K9: cpu: needs 10 vCPUs, 8 free of 11");
}

TEST_CASE("K7, O3: with cores as CPUs, a core of which a thread is gone is gone") {
    Topology topology = equal_nodes(1, 12, gib);
    make_smt(topology);
    Policy policy = bare_policy();
    policy.cpu.count_cores = true;
    policy.reserve.cpus = {1, 6}; // a thread each of two cores
    Guard guard(topology, policy);
    CHECK(host_free(guard, cpu) == 4);
    const Domain k7 = with_vcpus("K7", {floating(5)});
    CHECK_FALSE(guard.check(k7).decision.admitted());
    CHECK(start(guard, pinned("held", {2, 4, 8, 10})) == "admitted");
    CHECK(start(guard, with_vcpus("O3", {floating(1)})) ==
          "virtguard: refused O3: cpu: needs 1 vCPU, 0 free of 4");
}

TEST_CASE("K11: both shortages are told") {
    Guard guard(equal_nodes(1, 10, 20 * gib), bare_policy());
    CHECK(start(guard, both("a", {floating(5)}, {ram(19 * gib)})) == "admitted");
    CHECK(start(guard, both("b", {floating(8)}, {ram(10 * gib)})) ==
          "virtguard: refused b: cpu: needs 8 vCPUs, 5 free of 10; memory: needs 10 GiB, 1 GiB "
          "free of 20 GiB");
}

TEST_CASE("L9, L11: overhead counts like any memory, and the ratio takes nothing of the reserve") {
    // oVirt takes the reserve off what the ratio gives: 2 × 10000 − 256; here it comes first.
    Policy policy = bare_policy();
    policy.memory.overhead = Overhead{.base = 65 * mib, .per_gib = 0};
    policy.reserve.memory = 256 * mib;
    set_ratio(policy, memory, "2");
    Guard guard(equal_nodes(1, 4, 10000 * mib), policy);
    guard.running(with_memory("committed", {ram(9935 * mib)}), Instant{});
    CHECK(host_free(guard, memory) == (2 * (10000 - 256) - 10000) * mib);
    const Domain vm = with_memory("L9", {ram(8800 * mib)});
    CHECK(guard.check(vm).decision.admitted());
    CHECK_FALSE(guard.check(with_memory("b", {ram(9424 * mib)})).decision.admitted());
    guard.apply(equal_nodes(1, 4, 5000 * mib));
    CHECK(line_of(vm, guard.check(vm)) ==
          "virtguard: refused L9: memory: needs 8.66 GiB, more than the 4.63 GiB that one guest "
          "can have");
    const Domain small = with_memory("L11", {ram(mib)});
    CHECK(line_of(small, guard.check(small)) ==
          "virtguard: refused L11: memory: needs 66 MiB, none free of 9.26 GiB (over by 512 MiB)");
}

TEST_CASE("L13: two cells of 1000 MiB do not fit 512 and 512") {
    Guard guard(equal_nodes(2, 4, 512 * mib), bare_policy());
    const Domain domain = with_memory("a", {ram(1000 * mib), ram(1000 * mib)});
    CHECK(line_of(domain, guard.check(domain)) ==
          "virtguard: refused a: memory: needs 1.96 GiB, more than the 1 GiB that one guest can "
          "have");
}

TEST_CASE("L15: a piece that may lie anywhere makes way for those that may not") {
    Guard guard(equal_nodes(4, 4, 1500 * mib), bare_policy());
    const IdSet others{1, 2, 3};
    CHECK(start(guard, with_memory("a", {ram(1500 * mib), bound_ram(1500 * mib, others),
                                         bound_ram(1500 * mib, others),
                                         bound_ram(1500 * mib, others)})) == "admitted");
}

TEST_CASE("L17, L19: a start in flight holds its place, and the last byte may be taken") {
    // Ganeti (O11) must leave something; here what is free may be used up.
    Guard guard(equal_nodes(1, 4, 1050 * mib), bare_policy());
    guard.claim(with_memory("a", {ram(50 * mib)}), Instant{});
    CHECK(start(guard, with_memory("b", {ram(1024 * mib)})) ==
          "virtguard: refused b: memory: needs 1 GiB, 1000 MiB free of 1.02 GiB");
    CHECK(start(guard, with_memory("c", {ram(1000 * mib)})) == "admitted");
}

TEST_CASE("O1: a tenth is held back by a ratio of 0.9") {
    // OpenNebula reserves a percentage; here a reserve is a size.
    Guard guard = with_ratio(equal_nodes(1, 4, 64000 * mib), memory, "0.9");
    CHECK(host_free(guard, memory) == 57600 * mib);
}

TEST_CASE("O5: pages may be divided over nodes where nothing binds them") {
    // OpenNebula wants one node to hold them all.
    Topology topology = equal_nodes(2, 4, 4 * gib);
    add_pages(topology, 0, page_2m, 512);
    add_pages(topology, 1, page_2m, 512);
    Guard guard(topology, bare_policy());
    CHECK(start(guard, with_memory("a", {ram(768 * page_2m, DefaultHugepages{})})) == "admitted");
}

TEST_CASE("O7: what is claimed is nobody else's") {
    Guard guard(equal_nodes(1, 4, 1000 * mib), bare_policy());
    guard.claim(with_memory("claimed", {ram(300 * mib)}), Instant{});
    CHECK_FALSE(guard.check(with_memory("a", {ram(800 * mib)})).decision.admitted());
    CHECK(guard.check(with_memory("a", {ram(700 * mib)})).decision.admitted());
}

TEST_CASE("O13: a ratio counts at once for what already runs") {
    // CloudStack keeps the ratio a guest was started with.
    Policy policy = bare_policy();
    Guard guard(equal_nodes(1, 4, 8 * gib), policy);
    CHECK(start(guard, with_memory("a", {ram(4 * gib)})) == "admitted");
    set_ratio(policy, memory, "2");
    guard.apply(policy);
    CHECK(host_free(guard, memory) == 12 * gib);
}

// Reasons, modes, owners ------------------------------------------------------------------------

TEST_CASE("all reasons come at once, by code, resource and node") {
    Topology topology = equal_nodes(2, 4, 8 * gib);
    add_pages(topology, 0, page_2m, 512);
    add_pages(topology, 1, page_2m, 512);
    Guard guard(topology, bare_policy());
    guard.running(
        both("held", {on_pus(4, IdSet::range(0, 3))},
             {bound_ram(6 * gib, {0}), bound_ram(7 * gib, {1}), ram(gib, PagesOf{page_2m})}),
        Instant{});
    Domain domain =
        both("new", {on_pus(1, {9}), on_pus(5, IdSet::range(0, 7))},
             {bound_ram(2 * gib, {1}), bound_ram(2 * gib, {0}), ram(3 * gib, PagesOf{page_2m}),
              bound_ram(3 * gib, {1}, PagesOf{page_1g}), bound_ram(gib, {5})});
    domain.scheduler = "cortex";
    const Answer answer = guard.check(domain);
    std::vector<std::string> lines;
    for (const Reason& reason : answer.decision.reasons)
        lines.push_back(fmt::format("{} {} [{}] {} {} {}", code_name(reason.code),
                                    reason.resource ? reason.resource->name() : "-",
                                    reason.nodes.text(), reason.requested, reason.free,
                                    reason.effective));
    CHECK(lines ==
          std::vector<std::string>{
              "foreign-scheduler - [] 0 0 0", fmt::format("no-such-node memory [5] {} 0 0", gib),
              fmt::format("no-such-page-size hugepages-1Gi [] {} 0 0", 3 * gib),
              "cpu-not-available cpu [] 1 0 0",
              fmt::format("larger-than-host hugepages-2Mi [] {} {} {}", 3 * gib, gib, 2 * gib),
              "insufficient-capacity cpu [] 5 4 8",
              fmt::format("insufficient-node-capacity memory [0] {} {} {}", 2 * gib, gib, 7 * gib),
              fmt::format("insufficient-node-capacity memory [1] {} {} {}", 2 * gib, 0, 7 * gib)});
    CHECK(refusal_line("new", answer.decision) ==
          "virtguard: refused new: it belongs to scheduler \"cortex\", and this host serves "
          "default-scheduler; memory on node 5: host has no such node; hugepages-1Gi: needs 3 GiB, "
          "host has none; cpu: 1 vCPU pinned to PU 9, which guests may not use: 9 (absent); "
          "hugepages-2Mi: needs 3 GiB, more than the 2 GiB that one guest can have; cpu: needs 5 "
          "vCPUs, 4 free of 8; "
          "memory on node 0: needs 2 GiB, 1 GiB free of 7 GiB; memory on node 1: needs 2 GiB, 0 "
          "free of 7 GiB");
}

TEST_CASE("a shortage was hidden behind a part that is too small even when empty") {
    Guard guard(equal_nodes(2, 4, 16 * gib), bare_policy());
    REQUIRE(start(guard, with_memory("big", {ram(28 * gib)})) == "admitted");
    CHECK(start(guard, with_memory("cells", {bound_ram(20 * gib, {0}), bound_ram(8 * gib, {1})})) ==
          "virtguard: refused cells: memory on node 0: needs 20 GiB, more than the 16 GiB that one "
          "guest can have; memory: needs 28 GiB, 4 GiB free of 32 GiB");
}

TEST_CASE("one connected shortage is one reason, two are two") {
    Guard guard(equal_nodes(4, 1, 4 * gib), bare_policy());
    CHECK(start(guard, with_memory("a", {bound_ram(7 * gib, {0, 1}), bound_ram(gib, {3})})) ==
          "admitted");
    CHECK(start(guard, with_memory("b", {bound_ram(gib, {0}), bound_ram(gib, {1}),
                                         bound_ram(4 * gib, {3}), bound_ram(4 * gib, {2})})) ==
          "virtguard: refused b: memory on nodes 0-1: needs 2 GiB, 1 GiB free of 8 GiB; memory on "
          "node 3: needs 4 GiB, 3 GiB free of 4 GiB");
}

TEST_CASE("what is free of a mixed request is told in its own proportion") {
    Guard guard = with_ratio(equal_nodes(1, 4, 12 * gib), memory, "2");
    CHECK(start(guard, vfio("a", 8 * gib)) == "admitted");
    Domain b = with_memory("b", {ram(6 * gib)});
    b.vfio_devices = 1;
    b.locked = false;
    // 4 GiB of whole memory are left.
    CHECK(start(guard, b) == "virtguard: refused b: memory: needs 6 GiB, 4 GiB free of 16 GiB");
}

TEST_CASE("modes are looked up for each reason: scheduler, resource, host") {
    struct Row {
        std::string name;
        Mode host;
        std::optional<Mode> cpu;
        std::optional<Mode> scheduler;
        bool admitted;
        std::vector<Mode> reasons; ///< of cpu, of memory
    };
    using enum Mode;
    const auto row = GENERATE(values<Row>({
        {"enforce", enforce, {}, {}, false, {enforce, enforce}},
        {"observe", observe, {}, {}, true, {observe, observe}},
        {"off", off, {}, {}, true, {}},
        {"a resource observed", enforce, observe, {}, false, {observe, enforce}},
        {"a resource off", enforce, off, {}, false, {enforce}},
        {"a resource enforced", observe, enforce, {}, false, {enforce, observe}},
        {"a resource enforced, all else off", off, enforce, {}, false, {enforce}},
        {"a scheduler observed", enforce, {}, observe, true, {observe, observe}},
        {"a scheduler over a resource", enforce, enforce, observe, true, {observe, observe}},
        {"a scheduler enforced", off, observe, enforce, false, {enforce, enforce}},
        {"a scheduler off", enforce, enforce, off, true, {}},
    }));
    CAPTURE(row.name);
    Policy policy = bare_policy();
    policy.mode = row.host;
    if (row.cpu)
        policy.resource_mode[cpu] = *row.cpu;
    policy.scheduler.accept["cortex"] = {.match = "cortex*", .mode = row.scheduler};
    Guard guard(equal_nodes(1, 2, gib), policy);
    Domain domain = both("a", {floating(3)}, {ram(2 * gib)});
    domain.scheduler = "cortex-7";
    const Decision decision = guard.check(domain).decision;
    std::vector<Mode> modes;
    for (const Reason& reason : decision.reasons)
        modes.push_back(reason.mode);
    CHECK(modes == row.reasons);
    CHECK(decision.admitted() == row.admitted);
    CHECK(decision.would_refuse() == (row.admitted && !row.reasons.empty()));
}

TEST_CASE("the line names only what refuses") {
    Policy policy = bare_policy();
    policy.resource_mode[cpu] = Mode::observe;
    Guard guard(equal_nodes(1, 2, gib), policy);
    const Domain domain = both("a", {floating(3)}, {ram(2 * gib)});
    CHECK(line_of(domain, guard.check(domain)) ==
          "virtguard: refused a: memory: needs 2 GiB, more than the 1 GiB that one guest can have");
}

TEST_CASE("a domain with marks of others is theirs, unless it names a scheduler") {
    struct Row {
        std::string named;
        Facts facts;
        std::string owner;
    };
    const Fact yes{.value = 1};
    const Fact no{.value = 0};
    const std::string nova = "scheduler.recognise.nova.match";
    const std::string ovirt = "scheduler.recognise.\"o virt\".match";
    const auto row = GENERATE_REF(values<Row>({
        {"", {{nova, no}, {ovirt, no}}, "default-scheduler"},
        {"", {{nova, yes}, {ovirt, no}}, "nova"},
        {"", {{nova, no}, {ovirt, yes}}, "o virt"},
        {"", {{nova, yes}, {ovirt, yes}}, "nova"},
        {"cortex", {{nova, yes}, {ovirt, yes}}, "cortex"},
    }));
    Policy policy = bare_policy();
    policy.scheduler.accept_any = true;
    policy.scheduler.recognise = {{"nova", {.match = "x"}}, {"o virt", {.match = "y"}}};
    Guard guard(equal_nodes(1, 2, gib), policy);
    Domain domain = with_vcpus("a", {floating(1)});
    domain.scheduler = row.named;
    domain.facts = row.facts;
    const Answer answer = guard.check(domain);
    CHECK(answer.scheduler == row.owner);
    CHECK(answer.decision.reasons.empty());
}

namespace {

/// Of rules a, b, ...: refuse, exempt and observe, of priorities 0 where not given.
Policy with_rules(std::vector<std::pair<Rule::Action, int>> rules) {
    Policy policy = bare_policy();
    for (char name = 'a'; const auto& [action, priority] : rules)
        policy.rules[std::string{name++}] = {.priority = priority, .match = "x", .action = action};
    return policy;
}

/// Matched by the rules of these letters, and by no other of a to c.
Domain matched(const std::string& rules, std::int64_t vcpus = 1) {
    Domain domain = with_vcpus("new", {floating(vcpus)});
    for (const char name : {'a', 'b', 'c'})
        domain.facts[fmt::format("rule.{}.match", name)].value = rules.contains(name) ? 1 : 0;
    return domain;
}

} // namespace

namespace {

Domain of(const std::string& scheduler, const std::string& name, std::int64_t vcpus) {
    Domain domain = with_vcpus(name, {floating(vcpus)});
    domain.scheduler = scheduler;
    return domain;
}

} // namespace

TEST_CASE("guests of a scheduler hold no more together than its quota") {
    Policy policy = bare_policy();
    policy.scheduler.accept["cortex"] = {.match = "cortex*", .quota = {{cpu, {.amount = 5}}}};
    policy.scheduler.accept["nova"] = {.match = "nova"};
    Guard guard(equal_nodes(1, 24, gib), policy);
    CHECK(start(guard, of("cortex-1", "a", 2)) == "admitted");
    CHECK(start(guard, of("nova", "b", 6)) == "admitted");
    CHECK(start(guard, of("cortex-2", "c", 3)) == "admitted");
    CHECK(start(guard, of("cortex-1", "d", 1)) ==
          "virtguard: refused d: cpu: needs 1 vCPU, 0 left of the quota of 5 of "
          "scheduler.accept.cortex");
    CHECK(start(guard, of("nova", "e", 1)) == "admitted");
    CHECK(start(guard, of("cortex-1", "a", 1)) == "admitted"); // in place of itself
    CHECK(start(guard, of("cortex-1", "d", 1)) == "admitted");
    guard.released("c", Instant{});
    CHECK(start(guard, of("cortex-1", "f", 3)) == "admitted");
    const Reason reason = guard.check(of("cortex-1", "g", 7)).decision.reasons.at(0);
    CHECK(reason.code == Code::scheduler_quota);
    CHECK(std::tuple(reason.requested, reason.free, reason.effective) == std::tuple(7, 0, 5));
}

TEST_CASE("a quota in percent is of what is effective now, rounded down") {
    Policy policy = bare_policy();
    policy.scheduler.accept["a"] = {.match = "a",
                                    .quota = {{cpu, {.percent = Ratio::parse("62.5").value()}}}};
    Guard guard(equal_nodes(1, 7, gib), policy);
    CHECK(guard.check(of("a", "x", 4)).decision.admitted()); // 4.375 of 7
    CHECK_FALSE(guard.check(of("a", "x", 5)).decision.admitted());
    set_ratio(policy, cpu, "2");
    guard.apply(policy);
    CHECK(guard.check(of("a", "x", 7)).decision.admitted());
    guard.running(of("a", "y", 9), Instant{}); // a guest that runs is left alone
    CHECK(line_of(of("a", "x", 1), guard.check(of("a", "x", 1))) ==
          "virtguard: refused x: cpu: needs 1 vCPU, none left of the quota of 8 of "
          "scheduler.accept.a");
}

TEST_CASE("the first rule that matches counts, by priority, then name") {
    using enum Rule::Action;
    Guard guard(equal_nodes(1, 2, gib), with_rules({{refuse, 0}, {exempt, -1}, {exempt, 0}}));
    CHECK(start(guard, matched("")) == "admitted");
    CHECK(start(guard, matched("a")) == "virtguard: refused new: rule a refuses it");
    CHECK(start(guard, matched("ab")) == "admitted");
    CHECK(start(guard, matched("ac")) == "virtguard: refused new: rule a refuses it");
}

TEST_CASE("a rule that refuses says so beside all other reasons, in the order of codes") {
    Policy policy = with_rules({{Rule::Action::refuse, 0}});
    policy.rules["a"].message = "host is in maintenance";
    Guard guard(equal_nodes(1, 2, gib), policy);
    Domain domain = matched("a", 3);
    domain.scheduler = "cortex";
    CHECK(line_of(domain, guard.check(domain)) ==
          "virtguard: refused new: it belongs to scheduler \"cortex\", and this host serves "
          "default-scheduler; host is in maintenance (rule a); cpu: needs 3 vCPUs, more than the 2 "
          "vCPUs that one guest can have");
    CHECK(guard.check(domain).decision.reasons.at(1).code == Code::policy_rule);
}

TEST_CASE("a rule that exempts admits whatever does not fit, and what it admits counts") {
    Guard guard(equal_nodes(1, 2, gib), with_rules({{Rule::Action::exempt, 0}}));
    Domain domain = matched("a", 3);
    domain.scheduler = "cortex";
    const Answer answer = guard.check(domain);
    CHECK(answer.decision.reasons.empty());
    CHECK(answer.demand.notes == std::vector<std::string>{"rule a exempts it from all checks"});
    CHECK(start(guard, domain) == "admitted");
    CHECK(guard.report().host.free.at(cpu) == -1);
}

TEST_CASE("a rule's observe goes over the modes of scheduler, resource and host") {
    Policy policy = with_rules({{Rule::Action::observe, 0}});
    policy.resource_mode[cpu] = Mode::enforce;
    policy.scheduler.accept["cortex"] = {.match = "cortex", .mode = Mode::enforce};
    Guard guard(equal_nodes(1, 2, gib), policy);
    Domain domain = matched("a", 3);
    domain.scheduler = "cortex";
    const Decision decision = guard.check(domain).decision;
    CHECK(decision.would_refuse());
    REQUIRE(decision.reasons.size() == 1);
    CHECK(decision.reasons[0].mode == Mode::observe);
}

TEST_CASE("a rule refuses in the mode of the scheduler, else of the host") {
    using enum Mode;
    struct Row {
        Mode host;
        std::optional<Mode> scheduler;
        bool admitted;
    };
    const auto row = GENERATE(values<Row>({{enforce, {}, false},
                                           {observe, {}, true},
                                           {off, {}, true},
                                           {observe, enforce, false},
                                           {enforce, observe, true}}));
    Policy policy = with_rules({{Rule::Action::refuse, 0}});
    policy.mode = row.host;
    policy.scheduler.accept["d"] = {.match = "default-scheduler", .mode = row.scheduler};
    Guard guard(equal_nodes(1, 2, gib), policy);
    CHECK(guard.check(matched("a")).decision.admitted() == row.admitted);
}

TEST_CASE(
    "a rule that could not tell does not match, and is a reason, unless one before it matches") {
    using enum Rule::Action;
    Policy policy = with_rules({{refuse, 0}, {exempt, 0}, {refuse, 0}});
    policy.hook.unavailable_denies = true;
    Guard guard(equal_nodes(1, 2, gib), policy);
    Domain domain = matched("c");
    domain.facts["rule.a.match"] = {.problem = "takes too many steps"};
    CHECK(line_of(domain, guard.check(domain)) ==
          "virtguard: refused new: rule c refuses it; rule.a.match takes too many steps");
    domain.facts["rule.b.match"] = {.value = 1};
    CHECK(guard.check(domain).decision.reasons.empty());
    domain.facts["rule.b.match"] = {.problem = "takes too many steps"};
    domain.facts["rule.a.match"] = {.value = 1};
    CHECK(line_of(domain, guard.check(domain)) == "virtguard: refused new: rule a refuses it");
}

TEST_CASE("no rule keeps a guest from the place held for its return") {
    Policy policy = with_rules({{Rule::Action::refuse, 0}});
    policy.claim.return_hold = std::chrono::seconds(1);
    Guard guard(equal_nodes(1, 2, gib), policy);
    const Domain domain = matched("a");
    guard.running(domain, Instant{std::chrono::seconds(1)});
    guard.released("new", Instant{std::chrono::seconds(2)});
    CHECK(
        guard.admit(domain, Instant{std::chrono::seconds(2)}, IfKept::refuse)->decision.admitted());
    CHECK_FALSE(guard.admit(matched("a"), Instant{std::chrono::seconds(9)}, IfKept::refuse)
                    ->decision.admitted());
}

TEST_CASE("a question without an answer is a reason, which refuses where hook.unavailable denies") {
    Policy policy = bare_policy();
    policy.hook.unavailable_denies = GENERATE(false, true);
    policy.scheduler.recognise = {{"nova", {.match = "x"}}, {"ovirt", {.match = "y"}}};
    Guard guard(equal_nodes(1, 2, gib), policy);
    Domain domain = with_vcpus("a", {floating(1)});
    domain.facts = {{"scheduler.recognise.nova.match", {.problem = "takes too many steps"}}};
    const Answer answer = guard.check(domain);
    CHECK(answer.scheduler == "default-scheduler");
    REQUIRE(answer.decision.reasons.size() == 2);
    CHECK(answer.decision.reasons[0].text == "scheduler.recognise.nova.match takes too many steps");
    CHECK(answer.decision.reasons[1].text ==
          "scheduler.recognise.ovirt.match was not asked yet of this domain");
    for (const Reason& reason : answer.decision.reasons) {
        CHECK(reason.code == Code::not_ready);
        CHECK(reason.mode == (policy.hook.unavailable_denies ? Mode::enforce : Mode::observe));
    }
    domain.scheduler = "default-scheduler"; // nobody has to be asked then
    CHECK(guard.check(domain).decision.reasons.empty());
}

TEST_CASE("a domain belongs to the scheduler it names, and the host serves whom it accepts") {
    struct Row {
        std::string name;
        std::string scheduler;
        void (*change)(SchedulerPolicy&);
        std::string owner;
        std::string refusal;
    };
    const auto row = GENERATE(values<Row>({
        {"nobody named", "", [](SchedulerPolicy&) {}, "default-scheduler", ""},
        {"the default named", "default-scheduler", [](SchedulerPolicy&) {}, "default-scheduler",
         ""},
        {"another default", "", [](SchedulerPolicy& s) { s.default_name = "nova"; }, "nova", ""},
        {"a foreign one", "cortex", [](SchedulerPolicy&) {}, "cortex",
         "it belongs to scheduler \"cortex\", and this host serves default-scheduler"},
        {"the default refused", "", [](SchedulerPolicy& s) { s.accept_default = false; },
         "default-scheduler",
         "it belongs to scheduler \"default-scheduler\", and this host serves none"},
        {"any", "cortex", [](SchedulerPolicy& s) { s.accept_any = true; }, "cortex", ""},
        {"a glob", "cortex-7",
         [](SchedulerPolicy& s) { s.accept["c"] = {.match = "cortex*", .mode = {}}; }, "cortex-7",
         ""},
        {"no glob", "nova",
         [](SchedulerPolicy& s) {
             s.accept["c"] = {.match = "cortex*", .mode = {}};
             s.accept["d"] = {.match = "ironcore", .mode = {}};
         },
         "nova",
         "it belongs to scheduler \"nova\", and this host serves default-scheduler, cortex*, "
         "ironcore"},
        {"hostile", "a\nb", [](SchedulerPolicy&) {}, "a\nb",
         "it belongs to scheduler \"a\\x0ab\", and this host serves default-scheduler"},
    }));
    CAPTURE(row.name);
    Policy policy = bare_policy();
    row.change(policy.scheduler);
    Guard guard(equal_nodes(1, 2, gib), policy);
    Domain domain = with_vcpus("a", {floating(1)});
    domain.scheduler = row.scheduler;
    const Answer answer = guard.check(domain);
    CHECK(answer.scheduler == row.owner);
    CHECK(line_of(domain, answer) ==
          (row.refusal.empty() ? "admitted" : "virtguard: refused a: " + row.refusal));
}

TEST_CASE("an invalid domain is refused as the host's mode says") {
    Policy policy;
    const Error error{Errc::invalid, "memory: 0 bytes"};
    const auto answered = [&] { return answer_invalid({}, error, policy).decision; };
    CHECK(refusal_line("a", answered()) == "virtguard: refused a: invalid domain: memory: 0 bytes");
    policy.mode = Mode::observe;
    CHECK(answered().would_refuse());
    policy.mode = Mode::off;
    CHECK(answered().reasons.empty());
}

TEST_CASE("rules and the scheduler's mode were not looked up for an invalid domain") {
    Policy policy = with_rules({{Rule::Action::exempt, 0}, {Rule::Action::refuse, 1}});
    policy.scheduler.accept["nova"] = {.match = "nova", .mode = Mode::observe};
    policy.scheduler.recognise["nova"] = {.namespaces = {}, .match = "x"};
    const Error error{Errc::invalid, "memory: 0 bytes"};
    Domain domain = matched("b");
    domain.facts["scheduler.recognise.nova.match"] = {.value = 0};
    CHECK(refusal_line("new", answer_invalid(domain, error, policy).decision) ==
          "virtguard: refused new: invalid domain: memory: 0 bytes; rule b refuses it");
    domain.facts["scheduler.recognise.nova.match"] = {.value = 1};
    CHECK(answer_invalid(domain, error, policy).decision.would_refuse());
    CHECK(answer_invalid(domain, error, policy).scheduler == "nova");
    const Answer exempt = answer_invalid(matched("a"), error, policy);
    CHECK(exempt.decision.reasons.empty());
    CHECK(exempt.demand.notes == std::vector<std::string>{"rule a exempts it from all checks"});
}

TEST_CASE("a recogniser that could not tell made a start the default scheduler's, and foreign") {
    Policy policy = bare_policy();
    policy.scheduler.recognise = {{"nova", {.namespaces = {}, .match = "x"}}};
    policy.scheduler.accept["nova"] = {.match = "nova", .mode = {}};
    policy.scheduler.accept_default = false;
    Domain domain = with_vcpus("a", {floating(1)});
    domain.facts["scheduler.recognise.nova.match"] = {.problem = "takes too many steps"};
    const auto answered = [&](const Domain& asked) {
        Guard guard(equal_nodes(1, 2, gib), policy);
        return line_of(asked, guard.check(asked));
    };
    CHECK(answered(domain) == "admitted");
    policy.hook.unavailable_denies = true;
    CHECK(answered(domain) ==
          "virtguard: refused a: scheduler.recognise.nova.match takes too many steps");

    policy.hook.unavailable_denies = false; // nor has it the default scheduler's mode and quota
    policy.scheduler.accept["d"] = {
        .match = "default-scheduler", .mode = Mode::observe, .quota = {{cpu, {.amount = 0}}}};
    CHECK(answered(domain) == "admitted");
    domain.vcpus = {floating(3)};
    CHECK(answered(domain) == "virtguard: refused a: cpu: needs 3 vCPUs, more than the 2 vCPUs "
                              "that one guest can have");
}

TEST_CASE("what a rule might have lifted that could not tell was refused all the same") {
    Policy policy = with_rules(
        {{GENERATE(Rule::Action::exempt, Rule::Action::observe), 0}, {Rule::Action::refuse, 1}});
    Domain domain = matched("b", 3);
    domain.facts["rule.a.match"] = {.problem = "takes too many steps"};
    const auto decided = [&] {
        return Guard(equal_nodes(1, 2, gib), policy).check(domain).decision;
    };
    CHECK(decided().would_refuse());
    CHECK(decided().reasons.size() == 3);
    policy.hook.unavailable_denies = true;
    CHECK_FALSE(decided().admitted());
    policy.hook.unavailable_denies = false;
    policy.maintenance = "new kernel";
    CHECK(refusal_line("new", decided()) ==
          "virtguard: refused new: the host is in maintenance: new kernel");
}

TEST_CASE("a start that a rule exempts is admitted in maintenance, too") {
    Policy policy = with_rules({{Rule::Action::exempt, 0}, {Rule::Action::observe, 0}});
    policy.maintenance = "";
    Guard guard(equal_nodes(1, 2, gib), policy);
    CHECK(start(guard, matched("b")) == "virtguard: refused new: the host is in maintenance");
    CHECK(start(guard, matched("a")) == "admitted");
}

TEST_CASE("whom the host serves filled a refusal where they were many") {
    Policy policy = bare_policy();
    Domain domain = with_vcpus("a", {floating(1)});
    domain.scheduler = "nova";
    for (const char* name : {"b", "c", "d", "e", "f", "g"})
        policy.scheduler.accept[name] = {.match = name, .mode = {}};
    Guard guard(equal_nodes(1, 2, gib), policy);
    CHECK(line_of(domain, guard.check(domain)) ==
          "virtguard: refused a: it belongs to scheduler \"nova\", and this host serves "
          "default-scheduler, b, c, d, e and 2 more");
}

TEST_CASE("what the operator reads is one line of at most 2,000 bytes") {
    Decision decision;
    decision.reasons.assign(60, {.text = "memory:\nneeds\t" + std::string(60, 'x')});
    const std::string line = refusal_line("we\nb\x1b", decision);
    CHECK(line.starts_with("virtguard: refused we\\x0ab\\x1b: memory:\\x0aneeds\\x09xxx"));
    CHECK(line.size() == 2000);
    CHECK(line.ends_with("..."));
}

TEST_CASE("a refusal that is too long is not cut inside a character") {
    const auto shift = GENERATE(0, 1, 2, 3);
    Decision decision;
    std::string text(static_cast<std::size_t>(shift), 'x');
    for (int i = 0; i < 600; ++i)
        text += "\xf0\x9f\x90\x9f"; // four bytes
    decision.reasons = {{.text = text}};
    const std::string line = refusal_line("a", decision);
    CHECK(line.size() > 1996);
    CHECK(line.size() <= 2000);
    CHECK(line.ends_with("\xf0\x9f\x90\x9f..."));
}

// Figures ---------------------------------------------------------------------------------------

TEST_CASE("what may lie on a node without room is counted where it must lie") {
    Topology topology = equal_nodes(2, 4, 64 * gib);
    add_pages(topology, 0, page_1g, 8);
    Guard guard(topology, bare_policy());
    CHECK(start(guard, with_memory("a", {bound_ram(6 * gib, {0, 1}, PagesOf{page_1g})})) ==
          "admitted");
    CHECK(start(guard, with_memory("b", {bound_ram(4 * gib, {0}, PagesOf{page_1g})})) ==
          "virtguard: refused b: hugepages-1Gi: needs 4 GiB, 2 GiB free of 8 GiB");
    CHECK(guard.report().nodes.at(0).figures.allocated.at(Resource::hugepages(page_1g)) == 6 * gib);
}

TEST_CASE("effective capacity takes the ratio on all but what is whole") {
    Policy policy = bare_policy();
    set_ratio(policy, cpu, "1.15");
    policy.cpu.dedicated = IdSet{0, 1};
    Guard guard(equal_nodes(1, 12, gib), policy);
    const auto effective = [&] { return guard.report().host.effective.at(cpu); };
    CHECK(effective() == 13); // (12 - 2) × 1.15 + 2, taken or not
    CHECK(start(guard, pinned("a", {0})) == "admitted");
    CHECK(effective() == 13);
    CHECK(host_free(guard, cpu) == 12);
    CHECK(node_free(guard, 0, cpu) == 11); // what shared vCPUs may have
}
