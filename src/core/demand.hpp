// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a domain asks of a host: divisible pieces, each with the places it may lie on.

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "core/decision.hpp"
#include "core/domain.hpp"
#include "core/host.hpp"
#include "core/policy.hpp"

namespace virtguard::core {

struct Piece {
    Resource resource;
    IdSet places;            ///< CPUs or node ids; empty: none of those the domain names is there
    bool whole = false;      ///< takes no overcommit: a dedicated CPU, memory that cannot be paged
    std::int64_t amount = 0; ///< vCPUs or bytes, above 0

    friend bool operator==(const Piece&, const Piece&) = default;
};

/// Pieces that are alike in this are one.
[[nodiscard]] inline auto key_of(const Piece& piece) {
    return std::tie(piece.resource, piece.places, piece.whole);
}

struct Demand {
    std::vector<Piece> pieces; ///< by key_of(), no two alike
    std::int64_t overhead = 0; ///< bytes of memory in the pieces that are QEMU's own
    /// What no host like this one can give, however empty it is: absent nodes, page sizes, CPUs;
    /// and what is not known of it where the policy refuses that. Their mode is not set.
    std::vector<Reason> impossible;
    /// What the operator should know though it refuses nothing: "PU 3 is offline".
    std::vector<std::string> notes;

    /// vCPUs and bytes by resource, overhead included.
    [[nodiscard]] Quantities total() const;

    friend bool operator==(const Demand&, const Demand&) = default;
};

/// Applies the policy's way of counting to a domain. Never fails: what is impossible is said in the
/// demand.
[[nodiscard]] Demand make_demand(const Domain& domain, const Host& host, const Policy& policy);

/// The demand of a guest that is let in or runs: a piece whose places the host does not have lies
/// somewhere all the same, and is counted where an unbound one may lie.
[[nodiscard]] Demand as_held(Demand demand, const Host& host);
[[nodiscard]] Demand make_held_demand(const Domain& domain, const Host& host, const Policy& policy);

/// What the disks of a domain that is let in or runs may grow by what is known of them now, in
/// place of what they could before.
void replace_storage(std::vector<Piece>& pieces, const Domain& domain, const Host& host,
                     const Policy& policy);

/// Makes pieces canonical: sorted by key_of(), those alike added up.
void merge_pieces(std::vector<Piece>& pieces);

} // namespace virtguard::core
