// SPDX-License-Identifier: Apache-2.0
#include "daemon/hugepage_pools.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "host/hugepages.hpp"

namespace virtguard::daemon {

namespace {

core::Topology with_pools(core::Topology topology, const host::Hugepages& pages) {
    for (core::Node& node : topology.nodes)
        node.pools.clear();
    for (const host::NodePages& each : pages.nodes) {
        const auto node = std::ranges::find(topology.nodes, each.node, &core::Node::id);
        if (node != topology.nodes.end())
            node->pools.push_back({each.page_size, each.pool()});
    }
    return topology;
}

std::vector<core::PageUse> in_use(const host::Hugepages& pages) {
    std::vector<core::PageUse> use;
    use.reserve(pages.nodes.size() + pages.reserved.size());
    for (const host::NodePages& each : pages.nodes)
        use.push_back({each.node, each.page_size, (each.total - each.free) * each.page_size});
    for (const auto& [size, count] : pages.reserved)
        use.push_back({core::PageUse::no_node, size, count * size});
    return use;
}

} // namespace

void HugepagePools::read_again(core::ForeignPages::Seen seen) {
    if (!root_)
        return;
    const auto pages = host::read_hugepages(*root_);
    if (!pages) {
        if (problem_.empty())
            log(Level::error, "hugepages: {}; using what was read before", pages.error().what);
        problem_ = pages.error().what;
        return changed_();
    }
    problem_.clear();
    core::Topology topology = with_pools(guard_.topology(), *pages);
    if (topology != guard_.topology())
        guard_.apply(std::move(topology));
    guard_.set_page_use(in_use(*pages), seen);
    changed_();
}

} // namespace virtguard::daemon
