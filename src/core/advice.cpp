// SPDX-License-Identifier: Apache-2.0
#include "core/advice.hpp"

#include <algorithm>
#include <span>

#include "base/checked.hpp"

namespace virtguard::core {

namespace {

using Pieces = std::span<const Piece>;

/// What amounts of a resource come in.
std::int64_t unit_of(const Resource& resource) {
    switch (resource.kind) {
    case Resource::Kind::cpu:
        return 1;
    case Resource::Kind::memory:
        return std::int64_t{1} << 20;
    case Resource::Kind::hugepages:
        return resource.page_size;
    case Resource::Kind::storage:
        return std::int64_t{1} << 20;
    case Resource::Kind::custom:
        return 1;
    }
    std::unreachable();
}

/// The pieces at a smaller size: of vCPUs the first, of memory each its share.
std::vector<Load> scaled(Pieces pieces, std::int64_t size, std::int64_t total) {
    std::vector<Load> loads;
    std::int64_t left = size;
    for (const Piece& piece : pieces) {
        std::int64_t amount = std::min(piece.amount, left);
        if (piece.resource.kind != Resource::Kind::cpu)
            amount = saturate(-multiply_divide(-Int128{piece.amount}, size, total));
        left -= amount;
        if (amount > 0 && !piece.places.empty())
            loads.push_back({&piece.places, piece.whole, amount});
    }
    return loads;
}

/// Bisection: what fits fits smaller, too.
std::int64_t largest_that_fits(Pieces pieces, std::int64_t total, Occupancy& occupancy) {
    if (std::ranges::any_of(pieces, &IdSet::empty, &Piece::places))
        return 0; // impossible at any size
    const std::int64_t unit = unit_of(pieces.front().resource);
    if (occupancy.fits(scaled(pieces, total, total)))
        return total;
    std::int64_t fits = 0;
    std::int64_t too_large = (total + unit - 1) / unit;
    while (fits + 1 < too_large) {
        const std::int64_t middle = fits + (too_large - fits) / 2;
        (occupancy.fits(scaled(pieces, middle * unit, total)) ? fits : too_large) = middle;
    }
    return fits * unit;
}

/// By node, of those where each of the pieces may lie: what of them would fit there alone.
std::map<int, std::int64_t> largest_per_node(Pieces pieces, std::int64_t total,
                                             Occupancy& occupancy, const Host& host) {
    const Resource& resource = pieces.front().resource;
    std::map<int, std::int64_t> largest;
    for (const auto& [node, cpus] : host.node_cpus) {
        const IdSet places = host.places_of(resource, node);
        std::vector<Piece> there(pieces.begin(), pieces.end());
        for (Piece& piece : there)
            piece.places &= places;
        if (std::ranges::any_of(there, &IdSet::empty, &Piece::places))
            continue;
        merge_pieces(there);
        largest[node] = largest_that_fits(there, total, occupancy);
    }
    return largest;
}

} // namespace

IdSet nodes_for_all(const Fit& fit, std::int64_t demand) {
    IdSet nodes;
    for (const auto& [node, largest] : fit.per_node)
        if (largest >= demand)
            nodes.insert(node);
    return nodes;
}

std::vector<Fit> what_fits(const Demand& demand, Holdings& others, const Host& host) {
    std::vector<Fit> result;
    for (auto first = demand.pieces.begin(); first != demand.pieces.end();) {
        const Resource resource = first->resource;
        const auto last = std::find_if(first, demand.pieces.end(), [&](const Piece& piece) {
            return piece.resource != resource;
        });
        const Pieces pieces(first, last);
        std::int64_t total = 0;
        for (const Piece& piece : pieces)
            total += piece.amount;
        if (Occupancy* occupancy = others.occupancy(resource))
            result.push_back({.resource = resource,
                              .largest = largest_that_fits(pieces, total, *occupancy),
                              .per_node = largest_per_node(pieces, total, *occupancy, host)});
        first = last;
    }
    return result;
}

} // namespace virtguard::core
