// SPDX-License-Identifier: Apache-2.0
#include "core/foreign.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace virtguard::core {

namespace {

using Bounds = ForeignPages::Bounds;

/// What use there is beyond that of guests: beyond all that could lie on the node, and beyond what
/// surely does.
Bounds on_node(const Classes& classes, int node, std::int64_t used) {
    Int128 least = used;
    Int128 most = used;
    for (const auto& [piece_class, share] : classes) {
        if (!piece_class.places.contains(node))
            continue;
        least -= share.allocated + share.pending;
        if (piece_class.places.count() == 1)
            most -= share.allocated;
    }
    return {saturate(least), saturate(most)};
}

Bounds on_host(const Classes& classes, std::int64_t used) {
    Int128 least = used;
    Int128 most = used;
    for (const auto& [piece_class, share] : classes) {
        least -= share.allocated + share.pending;
        most -= share.allocated;
    }
    return {saturate(least), saturate(most)};
}

std::map<Resource, std::map<int, std::int64_t>> by_resource(const std::vector<PageUse>& use) {
    std::map<Resource, std::map<int, std::int64_t>> result;
    for (const PageUse& each : use)
        result[Resource::hugepages(each.page_size)][each.node] += each.bytes;
    return result;
}

} // namespace

std::int64_t& ForeignPages::settle(const Resource& resource, int node, const Bounds& bounds) {
    const std::int64_t least = std::max<std::int64_t>(bounds.least, 0);
    std::int64_t& estimate = estimates_.try_emplace({resource, node}, least).first->second;
    estimate = std::clamp(estimate, least, std::max(least, bounds.most));
    return estimate;
}

std::vector<Piece> ForeignPages::update(const Host& host, const Holdings& held,
                                        const std::vector<PageUse>& use) {
    std::vector<Piece> pieces;
    for (const auto& [resource, used_by_node] : by_resource(use))
        if (const Pool* pool = host.pool(resource))
            update_pool(resource, *pool, held.of(resource), used_by_node, pieces);
    return pieces;
}

void ForeignPages::update_pool(const Resource& resource, const Pool& pool, const Classes& classes,
                               const std::map<int, std::int64_t>& used_by_node,
                               std::vector<Piece>& pieces) {
    std::int64_t used_on_host = 0;
    for (const auto& [node, used] : used_by_node)
        used_on_host += used;
    const std::int64_t on_all = settle(resource, PageUse::no_node, on_host(classes, used_on_host));
    std::int64_t excess = -on_all;
    for (const auto& [node, used] : used_by_node)
        if (pool.places.contains(node))
            excess += settle(resource, node, on_node(classes, node, used));
    std::int64_t reserve_left = 0;
    std::int64_t nowhere_yet = on_all;
    for (const auto& [node, used] : used_by_node) {
        const auto place = pool.places.find(node);
        if (place == pool.places.end())
            continue;
        // The host's sum is the surer figure: what nodes were thought to hold beyond it is gone,
        // as far as their own counters allow.
        const Bounds bounds = on_node(classes, node, used);
        std::int64_t& estimate = settle(resource, node, bounds);
        const std::int64_t cut =
            std::clamp<std::int64_t>(excess, 0, estimate - std::max<std::int64_t>(bounds.least, 0));
        estimate -= cut;
        excess -= cut;
        nowhere_yet -= estimate;
        reserve_left += std::max<std::int64_t>(place->second.reserved - estimate, 0);
        if (estimate > place->second.reserved)
            pieces.push_back(
                {resource, IdSet{node}, /*whole=*/true, estimate - place->second.reserved});
    }
    if (nowhere_yet > reserve_left)
        pieces.push_back({resource, pool.all(), /*whole=*/true, nowhere_yet - reserve_left});
}

} // namespace virtguard::core
