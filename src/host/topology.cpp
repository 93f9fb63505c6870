// SPDX-License-Identifier: Apache-2.0
#include "host/topology.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include <unistd.h>

#include <hwloc.h>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "base/unique.hpp"
#include "host/apart.hpp"
#include "host/file.hpp"
#include "host/kernel.hpp"
#include "host/synthetic.hpp"
#include "host/topology_text.hpp"

namespace virtguard::host {

namespace {

using std::filesystem::path;
using Handle = CPtr<hwloc_topology, hwloc_topology_destroy>;

/// The largest found in the wild (400 CPUs with every device) has 1 MB; 64 nodes and 16,384 PUs
/// take 17 MB.
constexpr std::size_t longest_xml = std::size_t{32} << 20;

/// What is read from a topology are PUs, cores and nodes: distances and the like are not even
/// looked for. (Types of objects are not filtered: with groups gone, nodes get their neighbours'
/// PUs.)
constexpr unsigned long lean = HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS |
                               HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;

Result<Handle> new_handle(unsigned long flags) {
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0)
        return fail(Errc::unavailable, "hwloc: {}", std::generic_category().message(errno));
    Handle handle(raw);
    if (hwloc_topology_set_flags(raw, flags) != 0)
        return fail(Errc::unavailable, "hwloc: {}", std::generic_category().message(errno));
    return handle;
}

Result<IdSet> read_online(hwloc_topology_t topology) {
    IdSet online;
    for (hwloc_obj_t pu = nullptr;
         (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu)) != nullptr;) {
        if (pu->os_index >= unsigned{IdSet::limit})
            return fail(Errc::limit, "PU {}: ids go up to {}", pu->os_index, IdSet::limit - 1);
        online.insert(static_cast<int>(pu->os_index));
    }
    if (online.empty())
        return fail(Errc::invalid, "no PU");
    return online;
}

/// Those of the candidates that are in the bitmap, which in a bad file may be infinite.
IdSet members(hwloc_const_bitmap_t bitmap, const IdSet& candidates) {
    IdSet result;
    if (bitmap == nullptr)
        return result;
    for (int id = hwloc_bitmap_first(bitmap); id >= 0 && id < IdSet::limit;
         id = hwloc_bitmap_next(bitmap, id))
        if (candidates.contains(id))
            result.insert(id);
    return result;
}

/// A PU outside every core (there are machines with no core at all) is a core of its own.
std::vector<IdSet> read_cores(hwloc_topology_t topology, const IdSet& online) {
    std::vector<IdSet> cores;
    IdSet left = online;
    for (hwloc_obj_t core = nullptr;
         (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;) {
        IdSet pus = members(core->cpuset, left);
        left -= pus;
        if (!pus.empty())
            cores.push_back(std::move(pus));
    }
    for (int pu = left.first(); pu >= 0; pu = left.next(pu))
        cores.push_back({pu});
    std::ranges::sort(cores, {}, &IdSet::first);
    return cores;
}

using PageTypes =
    std::span<const hwloc_obj_attr_u::hwloc_numanode_attr_s::hwloc_memory_page_type_s>;

PageTypes page_types(hwloc_obj_t node) {
    const auto& numa = node->attr->numanode;
    return {numa.page_types, numa.page_types_len};
}

/// The smallest size named, if it can be one: no kernel that KVM runs on has base pages above
/// 64 KiB, so where only larger ones are named the base page was left out.
std::int64_t read_base_page(std::span<const hwloc_obj_t> nodes) {
    constexpr std::uint64_t largest_base_page = 65536;
    std::optional<std::uint64_t> smallest;
    for (const hwloc_obj_t node : nodes)
        for (const auto& type : page_types(node))
            if (type.size > 0 && type.size <= largest_base_page)
                smallest = std::min(smallest.value_or(largest_base_page), type.size);
    return static_cast<std::int64_t>(smallest.value_or(4096));
}

/// Amounts that no machine can have are an error, not cut to what fits: a file that claims them is
/// wrong, and what it says of the rest is not to be trusted either. Pools that exceed the node's
/// memory are kept as they are; such machines are real (memory is 0 where it could not be read).
Result<std::vector<core::PagePool>> read_pools(hwloc_obj_t object, std::int64_t base_page) {
    std::vector<core::PagePool> pools;
    std::int64_t sum = 0;
    for (const auto& type : page_types(object)) {
        const auto size = static_cast<std::int64_t>(type.size);
        const auto pages = static_cast<std::int64_t>(type.count);
        if (type.size == 0 || size == base_page)
            continue;
        if (!core::is_hugepage_size(size, base_page))
            return fail(Errc::invalid, "a page of {} bytes is not a power of two above {}",
                        type.size, base_page);
        const auto bytes = pages < 0 ? std::nullopt : checked_multiply(size, pages);
        const auto together = bytes ? checked_add(sum, *bytes) : std::nullopt;
        if (!together)
            return fail(Errc::invalid, "{} pages of {} are more than there can be", type.count,
                        format_iec(size));
        sum = *together;
        pools.push_back({size, pages});
    }
    std::ranges::sort(pools, {}, &core::PagePool::page_size);
    const auto twice = std::ranges::adjacent_find(pools, {}, &core::PagePool::page_size);
    if (twice != pools.end())
        return fail(Errc::invalid, "pages of {} are there twice", format_iec(twice->page_size));
    return pools;
}

Result<core::Node> read_node(hwloc_obj_t object, const IdSet& online, std::int64_t base_page) {
    if (object->os_index >= unsigned{IdSet::limit})
        return fail(Errc::limit, "ids go up to {}", IdSet::limit - 1);
    const auto memory = static_cast<std::int64_t>(object->attr->numanode.local_memory);
    if (memory < 0)
        return fail(Errc::invalid, "{} bytes are more than there can be",
                    object->attr->numanode.local_memory);
    auto pools = read_pools(object, base_page);
    if (!pools)
        return std::unexpected(std::move(pools.error()));
    return core::Node{
        .id = static_cast<int>(object->os_index),
        .kind = object->subtype == nullptr ? std::string{} : printable(object->subtype),
        .pus = members(object->cpuset, online),
        .memory = memory,
        .pools = std::move(*pools),
    };
}

Result<> read_nodes(hwloc_topology_t source, core::Topology& topology) {
    std::vector<hwloc_obj_t> objects;
    for (hwloc_obj_t node = nullptr;
         (node = hwloc_get_next_obj_by_type(source, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
        objects.push_back(node);
    if (objects.empty())
        return fail(Errc::invalid, "no NUMA node");
    topology.base_page = read_base_page(objects);
    std::int64_t total = 0;
    for (const hwloc_obj_t object : objects) {
        auto node = read_node(object, topology.online, topology.base_page);
        if (!node)
            return context(std::move(node.error()), fmt::format("node {}", object->os_index));
        const auto sum = checked_add(total, node->memory);
        if (!sum)
            return fail(Errc::invalid, "the nodes' memory together is more than there can be");
        total = *sum;
        topology.nodes.push_back(std::move(*node));
    }
    std::ranges::sort(topology.nodes, {}, &core::Node::id);
    const auto twice = std::ranges::adjacent_find(topology.nodes, {}, &core::Node::id);
    if (twice != topology.nodes.end())
        return fail(Errc::invalid, "node {} is there twice", twice->id);
    return {};
}

Result<core::Topology> convert(hwloc_topology_t source) {
    auto online = read_online(source);
    if (!online)
        return std::unexpected(std::move(online.error()));
    core::Topology topology;
    topology.online = std::move(*online);
    topology.cores = read_cores(source, topology.online);
    topology.offline =
        members(hwloc_topology_get_complete_cpuset(source), IdSet::range(0, IdSet::limit - 1)) -
        topology.online;
    topology.allowed = topology.online;
    if (auto read = read_nodes(source, topology); !read)
        return std::unexpected(std::move(read.error()));
    topology.default_hugepage = core::usual_hugepage(topology);
    return topology;
}

using SetSource = std::function<bool(hwloc_topology_t)>;

/// Error syntax: hwloc does not take the source.
Result<core::Topology> load(const SetSource& set_source) {
    auto handle = new_handle(lean);
    if (!handle)
        return std::unexpected(std::move(handle.error()));
    if (!set_source(handle->get()) || hwloc_topology_load(handle->get()) != 0)
        return fail(Errc::syntax, "not a topology");
    return convert(handle->get());
}

/// The same for what others wrote.
Result<core::Topology> load_foreign(const SetSource& set_source) {
    const auto text = run_apart([&] { return topology_to_text(load(set_source)); });
    if (!text)
        return std::unexpected(text.error());
    return topology_from_text(*text);
}

/// The version that an XML file of hwloc gives itself: "3.0" of <topology version="3.0">. Only for
/// a message: a file that hwloc reads is not looked at.
std::string_view xml_version(std::string_view xml) {
    constexpr std::string_view element = "<topology";
    constexpr std::string_view attribute = "version=\"";
    xml = xml.substr(std::min(xml.find(element), xml.size()));
    xml = xml.substr(0, xml.find('>'));
    const std::size_t found = xml.find(attribute);
    if (found == std::string_view::npos)
        return {};
    xml = xml.substr(found + attribute.size());
    return xml.substr(0, xml.find('"'));
}

bool is_newer_than_hwloc_2(std::string_view version) {
    const auto major = parse_unsigned(version.substr(0, version.find('.')));
    return major && *major > 2;
}

constexpr std::string_view example = "numa:2(memory=64GiB) core:8 pu:2";

} // namespace

Result<core::Topology> live_topology(const path& root) {
    // Without "do not change the binding" hwloc moves this thread from CPU to CPU to ask each.
    auto handle = new_handle(lean | HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED |
                             HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING);
    if (!handle)
        return std::unexpected(std::move(handle.error()));
    if (hwloc_topology_load(handle->get()) != 0)
        return fail(Errc::unavailable, "hwloc: {}", std::generic_category().message(errno));
    if (hwloc_topology_is_thissystem(handle->get()) == 0)
        return fail(Errc::invalid, "hwloc shows another machine than this one: a variable such as "
                                   "HWLOC_XMLFILE is set in the environment");
    auto topology = convert(handle->get());
    if (!topology)
        return context(std::move(topology.error()), "hwloc");
    topology->base_page = ::sysconf(_SC_PAGESIZE);
    if (auto applied = apply_kernel_files(*topology, root); !applied)
        return std::unexpected(std::move(applied.error()));
    return topology;
}

Result<core::Topology> topology_from_xml(const path& file) {
    const auto xml = read_stream(file, longest_xml);
    if (!xml)
        return std::unexpected(xml.error());
    // hwloc counts the terminating NUL.
    const int size = static_cast<int>(xml->size()) + 1;
    auto topology = load_foreign([&](hwloc_topology_t handle) {
        return hwloc_topology_set_xmlbuffer(handle, xml->c_str(), size) == 0;
    });
    if (topology)
        return topology;
    const std::string name = printable(file.native());
    if (topology.error().code != Errc::syntax)
        return context(std::move(topology.error()), name);
    const std::string_view version = xml_version(*xml);
    if (is_newer_than_hwloc_2(version))
        return fail(Errc::invalid,
                    "{}: hwloc XML of version {} cannot be read: export it as version 2", name,
                    printable(version));
    return fail(Errc::syntax, "{}: not an XML topology of hwloc", name);
}

Result<core::Topology> topology_from_synthetic(std::string_view description) {
    if (auto checked = check_synthetic(description); !checked)
        return context(std::move(checked.error()), quote(description));
    auto topology = load_foreign([text = std::string(description)](hwloc_topology_t handle) {
        return hwloc_topology_set_synthetic(handle, text.c_str()) == 0;
    });
    if (topology)
        return topology;
    if (topology.error().code != Errc::syntax)
        return context(std::move(topology.error()), quote(description));
    return fail(Errc::syntax, "{} is not a synthetic description of hwloc: expected such as \"{}\"",
                quote(description), example);
}

Result<core::Topology> topology_from(std::string_view file_or_description) {
    std::error_code error; // a description can be too long for a file name, for one
    if (std::filesystem::exists(file_or_description, error))
        return topology_from_xml(file_or_description);
    auto topology = topology_from_synthetic(file_or_description);
    if (!topology && topology.error().code == Errc::syntax)
        return fail(Errc::not_found,
                    "{} is neither a file nor a synthetic description of hwloc such as \"{}\"",
                    quote(file_or_description), example);
    return topology;
}

} // namespace virtguard::host
