// SPDX-License-Identifier: Apache-2.0
#pragma once
// Hugepages and memory that something other than a libvirt guest holds.
//
// Of hugepages the kernel says how many pages of a node are in use, not by whom. A running guest
// has touched all of its hugepages (QEMU preallocates them) but for those that it was seen not to
// occupy (virtio-mem's); a start in flight has touched any part of them. So what is foreign lies
// between two bounds: at least what is in use beyond all claims, at most what is in use beyond what
// running guests have touched. Between them the last estimate is kept: it was made before the
// claim, and so a start in flight is counted neither twice nor in place of what was foreign before
// it. Where all guests have just been seen, the upper bound is the figure. Of memory the bounds are
// the same, but for a running guest that was not seen, which has touched any part of it.

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/host.hpp"
#include "core/ledger.hpp"

namespace virtguard::core {

/// Hugepages of one size on one node by the kernel's counters.
struct PageUse {
    /// The node of pages that are reserved by a mapping but not yet touched: they lie nowhere yet.
    static constexpr int no_node = -1;

    int node = no_node;
    std::int64_t page_size = 0; ///< bytes
    std::int64_t bytes = 0;     ///< in use
};

/// Bytes in use that are surely and at most foreign; may be negative.
struct ForeignBounds {
    std::int64_t least = 0;
    std::int64_t most = 0;
};

class ForeignPages {
  public:
    /// Whether what guests were seen to occupy is as new as the counters.
    enum class Seen { before, now };

    /// What is foreign now, per node and, where no node can be told, on any of the pool's nodes.
    /// The part of it that the policy reserves for the host is left out.
    [[nodiscard]] std::vector<Piece> update(const Host& host, const Holdings& held,
                                            const std::vector<PageUse>& use,
                                            Seen seen = Seen::before);

  private:
    void update_pool(const Resource& resource, const Pool& pool, const Classes& classes,
                     const std::map<int, std::int64_t>& used_by_node, Seen seen,
                     std::vector<Piece>& pieces);
    /// Keeps an estimate within bounds.
    std::int64_t& settle(const Resource& resource, int node, const ForeignBounds& bounds);

    std::map<std::pair<Resource, int>, std::int64_t> estimates_; ///< bytes, with what is reserved;
                                                                 ///< no_node: the host
};

/// Ordinary memory, host-wide: the kernel does not say on which node what is foreign lies.
class ForeignMemory {
  public:
    /// in_use: bytes of the host that are not to be had, at one time; resident: what of them guests
    /// were seen to occupy; unseen: what those hold of which it is not known.
    void update(std::int64_t in_use, std::int64_t resident, std::int64_t unseen);

    /// What is foreign beyond the policy's reserve; nothing before the first update.
    [[nodiscard]] std::optional<std::int64_t> beyond_reserve(const Host& host) const;

  private:
    std::optional<std::int64_t> estimate_; ///< bytes, with what is reserved
};

} // namespace virtguard::core
