// SPDX-License-Identifier: Apache-2.0
#include "core/foreign.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace virtguard::core {

namespace {

using Seen = ForeignPages::Seen;

/// What use there is beyond that of guests: beyond all that could lie on the node, and beyond what
/// surely does.
ForeignBounds on_node(const Classes& classes, int node, std::int64_t used, Seen seen) {
    Int128 least = used;
    Int128 most = used;
    bool is_exact = seen == Seen::now;
    for (const auto& [piece_class, share] : classes) {
        if (!piece_class.places.contains(node))
            continue;
        const Int128 touched = share.allocated - share.untouched;
        least -= share.allocated + share.pending;
        if (piece_class.places.count() == 1)
            most -= touched;
        else
            is_exact = is_exact && touched == 0;
        is_exact = is_exact && share.pending == 0;
    }
    return {saturate(is_exact ? most : least), saturate(most)};
}

/// The same for all nodes. Of what is in use, `reserved` lies on none yet: it may be what guests
/// have not touched.
ForeignBounds on_host(const Classes& classes, std::int64_t used, std::int64_t reserved, Seen seen) {
    Int128 least = used;
    Int128 most = used;
    Int128 untouched = 0;
    bool is_exact = seen == Seen::now;
    for (const auto& [piece_class, share] : classes) {
        least -= share.allocated + share.pending;
        most -= share.allocated - share.untouched;
        untouched += share.untouched;
        is_exact = is_exact && share.pending == 0;
    }
    if (is_exact)
        least = most = most - std::min<Int128>(untouched, reserved);
    return {saturate(least), saturate(most)};
}

/// The estimate there was, moved within the bounds; without one, only what is certain.
std::int64_t settled(std::optional<std::int64_t> estimate, const ForeignBounds& bounds) {
    const std::int64_t least = std::max<std::int64_t>(bounds.least, 0);
    return std::clamp(estimate.value_or(least), least, std::max(least, bounds.most));
}

std::map<Resource, std::map<int, std::int64_t>> by_resource(const std::vector<PageUse>& use) {
    std::map<Resource, std::map<int, std::int64_t>> result;
    for (const PageUse& each : use)
        result[Resource::hugepages(each.page_size)][each.node] += each.bytes;
    return result;
}

} // namespace

std::int64_t& ForeignPages::settle(const Resource& resource, int node,
                                   const ForeignBounds& bounds) {
    const auto [found, is_new] = estimates_.try_emplace({resource, node}, 0);
    std::int64_t& estimate = found->second;
    estimate = settled(is_new ? std::nullopt : std::optional(estimate), bounds);
    return estimate;
}

std::vector<Piece> ForeignPages::update(const Host& host, const Holdings& held,
                                        const std::vector<PageUse>& use, Seen seen) {
    std::vector<Piece> pieces;
    for (const auto& [resource, used_by_node] : by_resource(use))
        if (const Pool* pool = host.pool(resource))
            update_pool(resource, *pool, held.of(resource), used_by_node, seen, pieces);
    return pieces;
}

void ForeignPages::update_pool(const Resource& resource, const Pool& pool, const Classes& classes,
                               const std::map<int, std::int64_t>& used_by_node, Seen seen,
                               std::vector<Piece>& pieces) {
    std::int64_t used_on_host = 0;
    for (const auto& [node, used] : used_by_node)
        used_on_host += used;
    const auto reserved = used_by_node.find(PageUse::no_node);
    const std::int64_t on_all =
        settle(resource, PageUse::no_node,
               on_host(classes, used_on_host, reserved == used_by_node.end() ? 0 : reserved->second,
                       seen));
    std::int64_t excess = -on_all;
    for (const auto& [node, used] : used_by_node)
        if (pool.places.contains(node))
            excess += settle(resource, node, on_node(classes, node, used, seen));
    std::int64_t reserve_left = 0;
    std::int64_t nowhere_yet = on_all;
    for (const auto& [node, used] : used_by_node) {
        const auto place = pool.places.find(node);
        if (place == pool.places.end())
            continue;
        // The host's sum is the surer figure: what nodes were thought to hold beyond it is gone,
        // as far as their own counters allow.
        const ForeignBounds bounds = on_node(classes, node, used, seen);
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

void ForeignMemory::update(std::int64_t in_use, std::int64_t resident, std::int64_t unseen) {
    const Int128 most = Int128{in_use} - resident;
    estimate_ = settled(estimate_, {.least = saturate(most - unseen), .most = saturate(most)});
}

std::optional<std::int64_t> ForeignMemory::beyond_reserve(const Host& host) const {
    const Pool* pool = host.pool(Resource::memory());
    if (!estimate_ || pool == nullptr)
        return std::nullopt;
    Int128 beyond = *estimate_;
    for (const auto& [node, place] : pool->places)
        beyond -= place.reserved;
    return saturate(std::max<Int128>(beyond, 0));
}

} // namespace virtguard::core
