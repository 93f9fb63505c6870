// SPDX-License-Identifier: Apache-2.0
#include "host/kernel.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "host/file.hpp"
#include "host/hugepages.hpp"

namespace virtguard::host {

namespace {

using std::filesystem::path;

/// The file's list of CPUs; nothing where there is no such file.
Result<std::optional<IdSet>> read_list(const path& file) {
    const auto text = read_file(file, kernel_file_limit);
    if (!text && text.error().code == Errc::not_found)
        return std::nullopt;
    if (!text)
        return std::unexpected(text.error());
    auto ids = IdSet::parse(*text);
    if (!ids)
        return context(std::move(ids.error()), printable(file.native()));
    return std::move(*ids);
}

/// The cpuset of the cgroup that libvirt puts guests in: cgroup v2, then v1; "machine" is its name
/// where there is no systemd.
constexpr std::array<std::string_view, 4> machine_cpusets{
    "machine.slice/cpuset.cpus.effective",
    "machine/cpuset.cpus.effective",
    "cpuset/machine.slice/cpuset.effective_cpus",
    "cpuset/machine/cpuset.effective_cpus",
};

/// Nothing where there is none, and where it is empty: that is what the kernel shows when cgroups
/// below hold all its CPUs as partitions of their own.
Result<std::optional<IdSet>> read_machine_cpuset(const path& root) {
    for (const std::string_view file : machine_cpusets) {
        auto cpuset = read_list(root / "sys/fs/cgroup" / file);
        if (!cpuset || (*cpuset && !(*cpuset)->empty()))
            return cpuset;
    }
    return std::nullopt;
}

/// The bytes of the line "Hugepagesize:       2048 kB"; nothing where there is none.
Result<std::optional<std::int64_t>> read_default_hugepage(const path& root) {
    const path file = root / "proc/meminfo";
    const auto text = read_file(file, kernel_file_limit);
    if (!text && text.error().code == Errc::not_found)
        return std::nullopt;
    if (!text)
        return std::unexpected(text.error());
    constexpr std::string_view key = "\nHugepagesize:";
    const std::size_t found = text->find(key);
    if (found == std::string::npos)
        return std::nullopt;
    std::string_view value = std::string_view(*text).substr(found + key.size());
    value = value.substr(0, value.find('\n'));
    value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
    constexpr std::string_view unit = " kB";
    std::optional<std::uint64_t> bytes;
    if (value.ends_with(unit))
        if (const auto kilobytes = parse_unsigned(value.substr(0, value.size() - unit.size())))
            bytes = checked_multiply<std::uint64_t>(*kilobytes, 1024);
    if (!bytes || *bytes == 0 || *bytes > std::uint64_t{INT64_MAX})
        return fail(Errc::invalid, "{}: Hugepagesize {} is not a size in kB",
                    printable(file.native()), quote(value));
    return static_cast<std::int64_t>(*bytes);
}

/// Nodes that the topology has not (hwloc leaves out those whose memory is a GPU's) are skipped.
void set_pools(core::Topology& topology, const Hugepages& hugepages) {
    for (core::Node& node : topology.nodes) {
        node.pools.clear();
        for (const NodePages& pages : hugepages.nodes)
            if (pages.node == node.id)
                node.pools.push_back({pages.page_size, pages.pool()});
    }
}

} // namespace

Result<> apply_kernel_files(core::Topology& topology, const path& root) {
    const auto present = read_list(root / "sys/devices/system/cpu/present");
    if (!present)
        return std::unexpected(present.error());
    const auto isolated = read_list(root / "sys/devices/system/cpu/isolated");
    if (!isolated)
        return std::unexpected(isolated.error());
    const auto machine = read_machine_cpuset(root);
    if (!machine)
        return std::unexpected(machine.error());
    const auto default_hugepage = read_default_hugepage(root);
    if (!default_hugepage)
        return std::unexpected(default_hugepage.error());
    const auto hugepages = read_hugepages(root);
    if (!hugepages)
        return std::unexpected(hugepages.error());

    if (*present)
        topology.offline = **present - topology.online;
    if (*isolated)
        topology.isolated = **isolated;
    topology.allowed = *machine ? **machine & topology.online : topology.online;
    topology.default_hugepage = *default_hugepage;
    set_pools(topology, *hugepages);
    return {};
}

std::string hotplug_marks(const path& root) {
    std::string marks;
    const auto add = [&](const path& file) {
        marks += read_file(file, kernel_file_limit).value_or("") + '\n';
    };
    add(root / "sys/devices/system/cpu/online");
    add(root / "sys/devices/system/node/online");
    for (const std::string_view file : machine_cpusets)
        add(root / "sys/fs/cgroup" / file);
    // Without MemFree and the like, which change all the time.
    const auto meminfo = read_file(root / "proc/meminfo", kernel_file_limit);
    if (meminfo && meminfo->starts_with("MemTotal:"))
        marks += meminfo->substr(0, meminfo->find('\n'));
    return marks;
}

} // namespace virtguard::host
