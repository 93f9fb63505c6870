// SPDX-License-Identifier: Apache-2.0
#pragma once
// What would fit, where a start does not: for check and explain, never on the way to an answer.

#include <cstdint>
#include <map>
#include <vector>

#include "core/demand.hpp"
#include "core/host.hpp"
#include "core/ledger.hpp"

namespace virtguard::core {

struct Fit {
    Resource resource;
    /// The most of the same shape that would fit: memory in proportion on the same places, to the
    /// MiB or page; of vCPUs the first so many. All of the demand where it fits.
    std::int64_t largest = 0;
    /// The same were it bound to one node alone, for each node where all of it may lie.
    std::map<int, std::int64_t> per_node;

    friend bool operator==(const Fit&, const Fit&) = default;
};

/// The nodes that alone have room for all of a demand.
[[nodiscard]] IdSet nodes_for_all(const Fit& fit, std::int64_t demand);

/// One per resource that the demand asks for, each looked at by itself. What others hold is tried
/// on and stays as it was.
[[nodiscard]] std::vector<Fit> what_fits(const Demand& demand, Holdings& others, const Host& host);

} // namespace virtguard::core
