// SPDX-License-Identifier: Apache-2.0
#include "host/hugepages.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

#include "base/checked.hpp"
#include "base/idset.hpp"
#include "base/text.hpp"
#include "host/file.hpp"

namespace virtguard::host {

namespace {

using std::filesystem::path;

/// The folder's names; none where there is no such folder.
Result<std::vector<std::string>> names_in(const path& folder) {
    auto names = list_folder(folder);
    if (!names && names.error().code == Errc::not_found)
        return std::vector<std::string>{};
    return names;
}

/// The number of "node12"; nothing for the other names in that folder ("possible", "has_cpu").
std::optional<int> node_of(std::string_view name) {
    constexpr std::string_view prefix = "node";
    if (!name.starts_with(prefix))
        return std::nullopt;
    const auto id = parse_unsigned(name.substr(prefix.size()));
    if (!id || *id >= std::uint64_t{IdSet::limit})
        return std::nullopt;
    return static_cast<int>(*id);
}

/// The bytes of "hugepages-2048kB".
std::optional<std::int64_t> size_of(std::string_view name) {
    constexpr std::string_view prefix = "hugepages-";
    constexpr std::string_view suffix = "kB";
    if (!name.starts_with(prefix) || !name.ends_with(suffix))
        return std::nullopt;
    name.remove_prefix(prefix.size());
    name.remove_suffix(suffix.size());
    const auto kilobytes = parse_unsigned(name);
    const auto bytes = kilobytes ? checked_multiply<std::uint64_t>(*kilobytes, 1024) : std::nullopt;
    if (!bytes || *bytes == 0 || *bytes > std::uint64_t{INT64_MAX})
        return std::nullopt;
    return static_cast<std::int64_t>(*bytes);
}

Result<NodePages> read_pages(const path& folder, int node, std::int64_t page_size) {
    NodePages pages{.node = node, .page_size = page_size};
    const auto total = read_number(folder / "nr_hugepages");
    if (!total)
        return std::unexpected(total.error());
    if (*total == 0)
        return pages;
    const auto free = read_number(folder / "free_hugepages");
    if (!free)
        return std::unexpected(free.error());
    const auto surplus = read_number(folder / "surplus_hugepages");
    if (!surplus)
        return std::unexpected(surplus.error());
    pages.total = *total;
    // The files are read one after the other while pools may change: never more than there are.
    pages.free = std::min(*free, *total);
    pages.surplus = std::min(*surplus, *total);
    return pages;
}

/// Adds what the folder (…/hugepages) has. A node whose memory is taken away meanwhile has nothing.
Result<> add_pools(std::vector<NodePages>& pools, const path& folder, int node) {
    const auto names = names_in(folder);
    if (!names)
        return std::unexpected(names.error());
    for (const std::string& name : *names) {
        const auto page_size = size_of(name);
        if (!page_size)
            continue;
        auto pages = read_pages(folder / name, node, *page_size);
        if (pages)
            pools.push_back(*pages);
        else if (pages.error().code != Errc::not_found)
            return std::unexpected(std::move(pages.error()));
    }
    return {};
}

Result<> add_reserved(std::map<std::int64_t, std::int64_t>& reserved, const path& folder) {
    const auto names = names_in(folder);
    if (!names)
        return std::unexpected(names.error());
    for (const std::string& name : *names) {
        const auto page_size = size_of(name);
        if (!page_size)
            continue;
        const auto pages = read_number(folder / name / "resv_hugepages");
        if (!pages)
            return std::unexpected(pages.error());
        reserved[*page_size] = *pages;
    }
    return {};
}

} // namespace

Result<Hugepages> read_hugepages(const path& root) {
    const path node_folder = root / "sys/devices/system/node";
    const path host_folder = root / "sys/kernel/mm/hugepages";
    const auto names = names_in(node_folder);
    if (!names)
        return std::unexpected(names.error());
    Hugepages result;
    bool has_nodes = false;
    for (const std::string& name : *names) {
        const auto node = node_of(name);
        if (!node)
            continue;
        has_nodes = true;
        if (auto added = add_pools(result.nodes, node_folder / name / "hugepages", *node); !added)
            return std::unexpected(std::move(added.error()));
    }
    if (!has_nodes)
        if (auto added = add_pools(result.nodes, host_folder, 0); !added)
            return std::unexpected(std::move(added.error()));
    if (auto added = add_reserved(result.reserved, host_folder); !added)
        return std::unexpected(std::move(added.error()));
    std::ranges::sort(result.nodes, {}, [](const NodePages& pages) {
        return std::tuple(pages.node, pages.page_size);
    });
    return result;
}

} // namespace virtguard::host
