// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the hardware and the kernel have, as plain values.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/idset.hpp"

namespace virtguard::core {

/// The pool of one hugepage size on one node, as configured (surplus pages are not in it). A size
/// that the kernel knows is listed also where its pool is empty.
struct PagePool {
    std::int64_t page_size = 0; ///< bytes, above the base page
    std::int64_t pages = 0;     ///< pages in the pool, free or used

    friend bool operator==(const PagePool&, const PagePool&) = default;
};

/// A NUMA node.
struct Node {
    int id = 0;       ///< as the kernel numbers it; ids may have gaps
    std::string kind; ///< hwloc's subtype: "DRAM", "HBM", "MCDRAM", "NVM", "GPUMemory"; often ""
    IdSet pus;        ///< online PUs local to it; nodes may share them (HBM beside DRAM)
    std::int64_t memory = 0;     ///< bytes of all its RAM, that of the hugepage pools included
    std::vector<PagePool> pools; ///< by page size, ascending

    friend bool operator==(const Node&, const Node&) = default;
};

struct Topology {
    std::vector<Node> nodes;       ///< by id, ascending; at least one
    std::vector<IdSet> cores;      ///< online PUs core by core; every online PU is in exactly one
    IdSet online;                  ///< PUs that are online
    IdSet offline;                 ///< PUs that exist and are offline
    IdSet allowed;                 ///< online PUs that machine.slice's cpuset lets guests use
    IdSet isolated;                ///< PUs isolated by the kernel (isolcpus)
    std::int64_t base_page = 4096; ///< bytes
    std::optional<std::int64_t> default_hugepage; ///< bytes; what <hugepages/> alone means

    /// The folder where libvirt puts guest RAM that is backed by files is a tmpfs.
    bool file_backing_is_ram = false;

    friend bool operator==(const Topology&, const Topology&) = default;
};

} // namespace virtguard::core
