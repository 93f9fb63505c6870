// SPDX-License-Identifier: Apache-2.0
#pragma once
// What running guests occupy. Their pages do not move: a start that counts on their moving is let
// in on paper, and the kernel kills somebody for it.

#include <cstdint>
#include <map>
#include <vector>

#include "core/demand.hpp"
#include "core/host.hpp"
#include "core/resource.hpp"

namespace virtguard::core {

/// What one guest occupies: bytes by resource (memory and hugepages) and node. A resource is absent
/// where that could not be read.
using Residency = std::map<Resource, std::map<int, std::int64_t>>;

struct BoundPieces {
    std::vector<Piece> pieces;
    std::vector<Piece> untouched; ///< of them, the hugepages that are known to be on no node yet
};

/// A guest's pieces with what lies on a node bound to that node; only the rest may still be divided
/// over a piece's places. No piece is less or more than before, so what is resident beyond the
/// pieces is left out. As much as possible is taken to lie where its piece may; what cannot
/// (migrated, or only wished elsewhere) is bound to where it lies all the same. Of pieces that
/// compete for what lies on a node whole ones come first, then narrow ones.
[[nodiscard]] BoundPieces bind_resident(const std::vector<Piece>& pieces,
                                        const Residency& residency, const Host& host);

} // namespace virtguard::core
