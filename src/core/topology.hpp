// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the hardware and the kernel have, as plain values.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
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
    /// Bytes of all its RAM, that of the hugepage pools included. In a file it may be less than
    /// they claim (0 where it was not known): then there is no ordinary memory.
    std::int64_t memory = 0;
    std::vector<PagePool> pools; ///< by page size, ascending

    friend bool operator==(const Node&, const Node&) = default;
};

/// Bytes of a node's memory that are in no hugepage pool: none where the pools claim all, and none
/// of a GPU's (it is a node on some hosts, but none a guest's RAM should lie in).
[[nodiscard]] std::int64_t ordinary_memory(const Node& node);

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

/// A pool to be, as simulate's --pages says it.
struct PageSetting {
    int node = 0;
    std::int64_t page_size = 0;
    std::int64_t pages = 0;

    friend bool operator==(const PageSetting&, const PageSetting&) = default;
};

/// Reads "NODE:SIZE=COUNT", such as "0:2Mi=512".
[[nodiscard]] Result<PageSetting> parse_page_setting(std::string_view text);

/// Makes that size's pool on that node have so many pages, out of the node's memory, and the
/// default hugepage what usual_hugepage() then says. On an error nothing is changed.
[[nodiscard]] Result<> set_pages(Topology& topology, const PageSetting& setting);

/// A power of two above the base page.
[[nodiscard]] bool is_hugepage_size(std::int64_t size, std::int64_t base_page) noexcept;

/// The default hugepage of a topology that came without its kernel's word: 2 MiB where it has that
/// size, else its smallest; nothing where it has none.
[[nodiscard]] std::optional<std::int64_t> usual_hugepage(const Topology& topology);

} // namespace virtguard::core
