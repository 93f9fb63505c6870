// SPDX-License-Identifier: Apache-2.0
#pragma once
// The topology with the policy applied: the places guests may lie on, and how much each holds.
//
// A pool is what one resource has: its places are NUMA nodes (memory, each hugepage size, custom
// resources), CPUs (cpu), file systems (storage), which belong to no node, or the host as one
// place. A CPU is a PU or, with cpu.count = "cores", a whole core; it goes by the number of its
// lowest online PU. A place's amount is in bytes, of custom resources in what the policy counts, or
// 1 for a CPU.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/idset.hpp"
#include "core/policy.hpp"
#include "core/resource.hpp"
#include "core/storage.hpp"
#include "core/topology.hpp"

namespace virtguard::core {

/// nova's default (reserved_host_memory_mb), used when the policy names no reserve of memory.
inline constexpr std::int64_t default_memory_reserve = std::int64_t{512} << 20;

struct Place {
    std::int64_t capacity = 0; ///< what the hardware and kernel have there
    std::int64_t reserved = 0; ///< held back from guests, at most the capacity

    [[nodiscard]] std::int64_t allocatable() const { return capacity - reserved; }

    friend bool operator==(const Place&, const Place&) = default;
};

struct Pool {
    std::map<int, Place> places; ///< by node id or CPU
    IdSet unbound; ///< the places of a demand that names none; never empty with places
    Ratio ratio;
    bool is_host_wide = false; ///< its one place is host_place, and no node
    std::string unit;          ///< of a custom resource, as its policy has it
    /// Of a custom resource, by place: the key of the file that says what there is and was never
    /// read; the place has nothing.
    std::map<int, std::string> unread{};

    static constexpr int host_place = 0;

    [[nodiscard]] IdSet all() const;

    friend bool operator==(const Pool&, const Pool&) = default;
};

/// Built once for a topology and a policy; a value.
struct Host {
    static constexpr int no_cpu = -1;

    IdSet nodes; ///< the ids of all its nodes
    std::map<Resource, Pool> pools;
    std::map<int, IdSet> node_pus;  ///< the online PUs local to each node, by node id
    std::map<int, IdSet> node_cpus; ///< the CPUs they belong to
    std::vector<int> cpu_of_pu;     ///< by PU; no_cpu where that is not online
    bool cpus_are_pus = true;       ///< cpu.count = "threads"
    IdSet dedicated_cpus;           ///< CPUs that dedicated vCPUs may have
    IdSet shared_cpus;              ///< CPUs that all other vCPUs may have
    bool cpus_are_split = false;    ///< cpu.dedicated or cpu.shared is set: the two are disjoint
    std::int64_t base_page = 4096;
    std::optional<std::int64_t> default_hugepage;
    bool file_backing_is_ram = false;
    FileSystems file_systems;
    Images images; ///< what is known of them
    /// For messages: why a PU is none that guests may use.
    IdSet online;
    IdSet offline;
    IdSet reserved_pus;
    IdSet outside_slice;

    [[nodiscard]] const Pool* pool(const Resource& resource) const;
    [[nodiscard]] bool is_host_wide(const Resource& resource) const;
    /// The CPUs that PUs belong to; PUs that are not online belong to none.
    [[nodiscard]] IdSet cpus_of(const IdSet& pus) const;
    /// The online PUs of CPUs.
    [[nodiscard]] IdSet pus_of(const IdSet& cpus) const;
    /// Each place's own node: of CPUs the lowest node they are local to (HBM nodes share the CPUs
    /// of the DRAM beside them), of file systems and what is host-wide none.
    [[nodiscard]] IdSet nodes_of(const Resource& resource, const IdSet& places) const;
    /// A node's places in a pool: itself, the CPUs local to it, or none.
    [[nodiscard]] IdSet places_of(const Resource& resource, int node) const;
};

/// Applies a policy to a topology; whatever of the policy is impossible there is cut to what there
/// is (conflicts() tells the operator).
[[nodiscard]] Host make_host(const Topology& topology, const Policy& policy,
                             FileSystems file_systems = {});

} // namespace virtguard::core
