// SPDX-License-Identifier: Apache-2.0
#include "core/foreign.hpp"

#include <algorithm>

namespace virtguard::core {

namespace {

struct Bounds {
    std::int64_t least = 0;
    std::int64_t most = 0;
};

/// What use there is beyond that of guests: beyond all that could lie on the node, and beyond what
/// surely does.
Bounds on_node(const Classes& classes, int node, std::int64_t used) {
    Bounds bounds{used, used};
    for (const auto& [piece_class, share] : classes) {
        if (!piece_class.places.contains(node))
            continue;
        bounds.least -= share.allocated + share.pending;
        if (piece_class.places.count() == 1)
            bounds.most -= share.allocated;
    }
    return bounds;
}

Bounds on_host(const Classes& classes, std::int64_t used) {
    Bounds bounds{used, used};
    for (const auto& [piece_class, share] : classes) {
        bounds.least -= share.allocated + share.pending;
        bounds.most -= share.allocated;
    }
    return bounds;
}

std::map<Resource, std::map<int, std::int64_t>> by_resource(const std::vector<PageUse>& use) {
    std::map<Resource, std::map<int, std::int64_t>> result;
    for (const PageUse& each : use)
        result[Resource::hugepages(each.page_size)][each.node] += each.bytes;
    return result;
}

} // namespace

std::int64_t ForeignPages::settle(const Resource& resource, int node, std::int64_t least,
                                  std::int64_t most) {
    least = std::max<std::int64_t>(least, 0);
    const auto at = estimates_.try_emplace({resource, node}, least).first;
    at->second = std::clamp(at->second, least, std::max(least, most));
    return at->second;
}

std::vector<Piece> ForeignPages::update(const Host& host, const Holdings& held,
                                        const std::vector<PageUse>& use) {
    std::vector<Piece> pieces;
    for (const auto& [resource, used_by_node] : by_resource(use)) {
        const Pool* pool = host.pool(resource);
        if (pool == nullptr)
            continue;
        const Classes& classes = held.of(resource);
        std::int64_t used_on_host = 0;
        std::int64_t reserved_on_host = 0;
        std::int64_t foreign_on_nodes = 0;
        for (const auto& [node, used] : used_by_node) {
            used_on_host += used;
            const auto place = pool->places.find(node);
            if (place == pool->places.end())
                continue;
            const std::int64_t reserved = place->second.reserved;
            reserved_on_host += reserved;
            const auto [least, most] = on_node(classes, node, used);
            const std::int64_t amount = settle(resource, node, least - reserved, most - reserved);
            foreign_on_nodes += amount;
            if (amount > 0)
                pieces.push_back({resource, IdSet{node}, /*whole=*/true, amount});
        }
        const auto [least, most] = on_host(classes, used_on_host);
        const std::int64_t amount =
            settle(resource, PageUse::no_node, least - reserved_on_host, most - reserved_on_host) -
            foreign_on_nodes;
        if (amount > 0)
            pieces.push_back({resource, pool->all(), /*whole=*/true, amount});
    }
    return pieces;
}

} // namespace virtguard::core
