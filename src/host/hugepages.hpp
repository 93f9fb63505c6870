// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernel's counters of hugepages.

#include <cstdint>
#include <filesystem>
#include <map>
#include <vector>

#include "base/error.hpp"

namespace virtguard::host {

/// The pages of one size on one node.
struct NodePages {
    int node = 0;               ///< as the kernel numbers it
    std::int64_t page_size = 0; ///< bytes
    std::int64_t total = 0;     ///< pages there are, surplus ones included
    std::int64_t free = 0;      ///< of total, those not in use
    std::int64_t surplus = 0;   ///< of total, those that go back to the kernel once free

    /// Pages that are capacity.
    [[nodiscard]] std::int64_t pool() const { return total - surplus; }

    friend bool operator==(const NodePages&, const NodePages&) = default;
};

struct Hugepages {
    std::vector<NodePages> nodes; ///< by node, then by page size, ascending
    /// By page size, host-wide: pages promised to a mapping and not touched yet. They count as free
    /// on their node, and are not to be had.
    std::map<std::int64_t, std::int64_t> reserved;
};

/// Reads them under root ("/" but for tests). Cheap enough for each decision: three small files per
/// node and size that has pages. A kernel without NUMA has them all on node 0, one without
/// hugepages has none.
[[nodiscard]] Result<Hugepages> read_hugepages(const std::filesystem::path& root);

} // namespace virtguard::host
