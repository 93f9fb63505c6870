// SPDX-License-Identifier: Apache-2.0
#include "core/topology.hpp"

#include <algorithm>
#include <bit>

#include "base/checked.hpp"
#include "base/text.hpp"

namespace virtguard::core {

namespace {

IdSet ids_of(const std::vector<Node>& nodes) {
    IdSet ids;
    for (const Node& node : nodes)
        ids.insert(node.id);
    return ids;
}

Int128 bytes_of(const std::vector<PagePool>& pools) {
    Int128 sum = 0;
    for (const PagePool& pool : pools)
        sum += Int128{pool.page_size} * pool.pages;
    return sum;
}

} // namespace

std::int64_t ordinary_memory(const Node& node) {
    if (node.kind == "GPUMemory")
        return 0;
    return saturate(std::max<Int128>(node.memory - bytes_of(node.pools), 0));
}

Result<PageSetting> parse_page_setting(std::string_view text) {
    const auto error = [&](std::string_view what) {
        return fail(Errc::invalid, "{}: {}: expected NODE:SIZE=COUNT such as \"0:2Mi=512\"",
                    quote(text), what);
    };
    const std::size_t colon = text.find(':');
    const std::size_t equals = text.find('=', std::min(colon, text.size()));
    if (equals == std::string_view::npos)
        return error("not a setting of pages");
    const auto node = parse_unsigned(text.substr(0, colon));
    if (!node || *node >= std::uint64_t{IdSet::limit})
        return error("no such node");
    const auto size = parse_size(text.substr(colon + 1, equals - colon - 1));
    if (!size)
        return error("no such size");
    const auto pages = parse_count(text.substr(equals + 1));
    if (!pages)
        return error("no such count");
    return PageSetting{.node = static_cast<int>(*node), .page_size = *size, .pages = *pages};
}

Result<> set_pages(Topology& topology, const PageSetting& setting) {
    const auto node = std::ranges::find(topology.nodes, setting.node, &Node::id);
    if (node == topology.nodes.end())
        return fail(Errc::not_found, "node {}: not there; the topology's nodes are {}",
                    setting.node, ids_of(topology.nodes).text());
    if (!is_hugepage_size(setting.page_size, topology.base_page))
        return fail(Errc::invalid,
                    "node {}: a hugepage of {} bytes is not possible: expected a power of two "
                    "above the base page of {}",
                    setting.node, setting.page_size, format_iec(topology.base_page));
    if (setting.pages < 0)
        return fail(Errc::invalid, "node {}: {} pages are not possible", setting.node,
                    setting.pages);
    std::vector<PagePool> pools = node->pools;
    std::erase_if(pools, [&](const PagePool& pool) { return pool.page_size == setting.page_size; });
    pools.push_back({setting.page_size, setting.pages});
    std::ranges::sort(pools, {}, &PagePool::page_size);
    const Int128 bytes = bytes_of(pools);
    if (bytes > node->memory)
        return fail(Errc::invalid, "node {}: {} in hugepages are more than its {} of memory",
                    setting.node, format_bytes(saturate(bytes), Rounding::up),
                    format_bytes(node->memory, Rounding::down));
    node->pools = std::move(pools);
    topology.default_hugepage = usual_hugepage(topology);
    return {};
}

bool is_hugepage_size(std::int64_t size, std::int64_t base_page) noexcept {
    return size > base_page && std::has_single_bit(static_cast<std::uint64_t>(size));
}

std::optional<std::int64_t> usual_hugepage(const Topology& topology) {
    constexpr std::int64_t usual = std::int64_t{2} << 20;
    std::optional<std::int64_t> smallest;
    for (const Node& node : topology.nodes)
        for (const PagePool& pool : node.pools) {
            if (pool.page_size == usual)
                return usual;
            smallest = std::min(smallest.value_or(pool.page_size), pool.page_size);
        }
    return smallest;
}

} // namespace virtguard::core
