// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small hosts, policies and domains for the tests of core.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/domain.hpp"
#include "core/policy.hpp"
#include "core/topology.hpp"

namespace virtguard::core {

inline constexpr std::int64_t mib = std::int64_t{1} << 20;
inline constexpr std::int64_t gib = std::int64_t{1} << 30;
inline constexpr std::int64_t page_2m = 2 * mib;
inline constexpr std::int64_t page_1g = gib;

/// Nodes 0, 1, ... of equal size, their PUs numbered node by node, a PU to a core; no hugepages,
/// though 2 MiB is the kernel's default size.
inline Topology equal_nodes(int count, int pus_each, std::int64_t memory_each) {
    Topology topology;
    for (int id = 0; id < count; ++id)
        topology.nodes.push_back({.id = id,
                                  .kind = "DRAM",
                                  .pus = IdSet::range(id * pus_each, (id + 1) * pus_each - 1),
                                  .memory = memory_each,
                                  .pools = {}});
    topology.online = IdSet::range(0, count * pus_each - 1);
    topology.allowed = topology.online;
    for (const int pu : topology.online.ids())
        topology.cores.push_back({pu});
    topology.default_hugepage = page_2m;
    return topology;
}

/// PUs 2n and 2n+1 become threads of one core.
inline void make_smt(Topology& topology) {
    topology.cores.clear();
    for (int pu = 0; pu < topology.online.count(); pu += 2)
        topology.cores.push_back({pu, pu + 1});
}

/// Takes a pool of pages out of a node's memory.
inline void add_pages(Topology& topology, int node, std::int64_t size, std::int64_t pages) {
    const auto found = std::ranges::find(topology.nodes, node, &Node::id);
    found->pools.push_back({size, pages});
    std::ranges::sort(found->pools, {}, &PagePool::page_size);
}

/// No reserve and no overhead, so that a test's numbers are its own.
inline Policy bare_policy() {
    Policy policy;
    policy.reserve.memory = 0;
    policy.memory.overhead.reset();
    return policy;
}

inline void set_ratio(Policy& policy, const Resource& resource, const char* ratio) {
    policy.overcommit[resource] = *Ratio::parse(ratio);
}

inline MemoryPart ram(std::int64_t size, PageKind pages = BasePages{}) {
    return {.size = size, .requested = size, .pages = pages, .bound_to = std::nullopt};
}

inline MemoryPart bound_ram(std::int64_t size, IdSet nodes, PageKind pages = BasePages{}) {
    return {.size = size, .requested = size, .pages = pages, .bound_to = std::move(nodes)};
}

/// A domain without vCPUs.
inline Domain with_memory(std::string name, std::vector<MemoryPart> parts) {
    Domain domain{.name = std::move(name)};
    for (const MemoryPart& part : parts)
        domain.current_memory += part.size;
    domain.memory = std::move(parts);
    return domain;
}

inline VcpuGroup floating(std::int64_t count) {
    return {.cpus = std::nullopt, .current = count, .maximum = count};
}

inline VcpuGroup on_pus(std::int64_t count, IdSet pus) {
    return {.cpus = std::move(pus), .current = count, .maximum = count};
}

/// A domain without memory.
inline Domain with_vcpus(std::string name, std::vector<VcpuGroup> vcpus) {
    Domain domain{.name = std::move(name)};
    domain.vcpus = std::move(vcpus);
    return domain;
}

/// A guest of a vCPU on each of the PUs.
inline Domain pinned(std::string name, const IdSet& pus) {
    std::vector<VcpuGroup> vcpus;
    for (const int pu : pus.ids())
        vcpus.push_back(on_pus(1, {pu}));
    return with_vcpus(std::move(name), std::move(vcpus));
}

} // namespace virtguard::core
