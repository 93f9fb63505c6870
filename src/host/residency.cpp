// SPDX-License-Identifier: Apache-2.0
#include "host/residency.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <unistd.h>

#include "base/checked.hpp"
#include "base/idset.hpp"
#include "base/text.hpp"
#include "host/file.hpp"

namespace virtguard::host {

namespace {

using core::Residency;
using core::Resource;
using std::filesystem::path;
using ByNode = std::map<int, std::int64_t>;

/// A line per mapping of 100 to 250 bytes; a process has at most 65,530 (vm.max_map_count).
constexpr std::size_t numa_maps_limit = std::size_t{16} << 20;
/// "4194304\n" is the largest.
constexpr std::size_t pid_limit = 32;

/// Cuts the text up to a separator, which is dropped, off its front.
std::string_view take(std::string_view& text, char separator) {
    const std::size_t end = std::min(text.find(separator), text.size());
    const std::string_view head = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return head;
}

std::optional<std::int64_t> amount_of(std::string_view digits, std::int64_t unit) {
    const auto count = parse_unsigned(digits);
    if (!count || *count > std::uint64_t{INT64_MAX})
        return std::nullopt;
    return checked_multiply(static_cast<std::int64_t>(*count), unit);
}

/// Adds what the "N0=12" among words says; other words are passed over.
void add_nodes(ByNode& by_node, std::string_view words, std::int64_t unit) {
    while (!words.empty()) {
        std::string_view word = take(words, ' ');
        if (!word.starts_with('N') || !word.contains('='))
            continue;
        word.remove_prefix(1);
        const auto node = parse_unsigned(take(word, '='));
        const auto amount = amount_of(word, unit);
        if (node && *node < std::uint64_t{IdSet::limit} && amount)
            by_node[static_cast<int>(*node)] =
                saturate(Int128{by_node[static_cast<int>(*node)]} + *amount);
    }
}

// ------------------------------------------------------------------ the process

/// The UUID that a QEMU's command line gives its guest; nothing where it gives none.
std::optional<Uuid> uuid_in(std::string_view command_line) {
    while (!command_line.empty())
        if (take(command_line, '\0') == "-uuid")
            return Uuid::parse(take(command_line, '\0'));
    return std::nullopt;
}

/// As libvirt begins it, whatever its emulator is called.
bool is_of_libvirt(std::string_view command_line) {
    constexpr std::string_view name("\0-name\0guest=", 13);
    return command_line.contains(name);
}

Result<std::string> read_command_line(const path& process) {
    return read_file(process / "cmdline", kernel_file_limit);
}

/// libvirt (tried: 9.0) escapes the name in the file's name, as if that were XML.
std::string pid_file_name(std::string_view domain) {
    constexpr std::array<std::pair<char, std::string_view>, 5> escapes{
        {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'\'', "&apos;"}, {'"', "&quot;"}}};
    std::string name;
    for (const char letter : domain) {
        const auto escape =
            std::ranges::find(escapes, letter, &std::pair<char, std::string_view>::first);
        name += escape == escapes.end() ? std::string_view(&letter, 1) : escape->second;
    }
    return name + ".pid";
}

/// The folder of the guest's QEMU in /proc.
Result<path> find_process(const path& root, const RunningGuest& guest) {
    constexpr std::string_view never_in_a_name("/\0", 2);
    if (guest.name.find_first_of(never_in_a_name) != std::string::npos)
        return fail(Errc::invalid, "{} is no name of a domain", quote(guest.name));
    const path file = root / "run/libvirt/qemu" / pid_file_name(guest.name);
    const auto text = read_file(file, pid_limit);
    if (!text)
        return std::unexpected(text.error());
    std::string_view rest = *text;
    const auto pid = parse_unsigned(take(rest, '\n'));
    if (!pid)
        return fail(Errc::invalid, "{}: {} is no pid", printable(file.native()), quote(*text));
    return root / "proc" / std::to_string(*pid);
}

/// Pids are used again, and a file that tells one stays behind when libvirtd is killed.
Result<> check_process(const path& process, const RunningGuest& guest) {
    const auto command_line = read_command_line(process);
    if (!command_line)
        return std::unexpected(command_line.error());
    if (uuid_in(*command_line) != guest.uuid)
        return fail(Errc::not_found, "{}: not the QEMU of {}", printable(process.native()),
                    guest.uuid.text());
    return {};
}

// ------------------------------------------------------------------ its cgroup

/// The folder that libvirt makes for one guest: a scope of systemd-machined's, or without systemd
/// one of its own. In it are QEMU and what serves it alone (swtpm, virtiofsd).
bool is_of_one_guest(std::string_view folder) {
    return (folder.starts_with("machine-qemu") && folder.ends_with(".scope")) ||
           (folder.starts_with("qemu-") && folder.ends_with(".libvirt-qemu"));
}

/// Of "/machine.slice/machine-qemu….scope/libvirt/emulator" the part up to the guest's folder.
std::optional<path> own_part(std::string_view cgroup) {
    path part;
    while (!cgroup.empty()) {
        const std::string_view folder = take(cgroup, '/');
        if (folder == "..")
            return std::nullopt; // outside our cgroup namespace
        part /= folder;
        if (is_of_one_guest(folder))
            return part;
    }
    return std::nullopt;
}

/// A cgroup of the guest's own that a controller may count in.
struct Cgroup {
    path folder;
    bool is_v1 = false;
};

/// Of /proc/PID/cgroup, lines such as "4:memory:/path" (v1) and "0::/path" (v2).
std::optional<Cgroup> find_cgroup(const path& root, std::string_view lines,
                                  std::string_view controller) {
    const path mounts = root / "sys/fs/cgroup";
    std::optional<path> unified;
    while (!lines.empty()) {
        std::string_view line = take(lines, '\n');
        (void)take(line, ':');
        std::string_view controllers = take(line, ':');
        if (controllers.empty())
            unified = own_part(line);
        while (!controllers.empty())
            if (take(controllers, ',') == controller) {
                const auto part = own_part(line);
                return part ? std::optional(Cgroup{mounts / controller / *part, /*is_v1=*/true})
                            : std::nullopt;
            }
    }
    return unified ? std::optional(Cgroup{mounts / *unified, /*is_v1=*/false}) : std::nullopt;
}

/// Adds up lines of a numa_stat file by their first words; nothing where there is no such file or
/// line.
std::optional<ByNode> read_numa_stat(const path& file, std::initializer_list<std::string_view> keys,
                                     std::int64_t unit) {
    const auto text = read_file(file, kernel_file_limit);
    if (!text)
        return std::nullopt;
    std::optional<ByNode> result;
    std::string_view lines = *text;
    while (!lines.empty()) {
        std::string_view line = take(lines, '\n');
        const std::string_view key =
            line.substr(0, std::min(line.find_first_of(" ="), line.size()));
        if (std::ranges::find(keys, key) != keys.end())
            add_nodes(result ? *result : result.emplace(), line, unit);
    }
    return result;
}

std::optional<ByNode> memory_in(const Cgroup& cgroup) {
    const path file = cgroup.folder / "memory.numa_stat";
    if (!cgroup.is_v1)
        return read_numa_stat(file, {"anon", "shmem", "pagetables"}, 1);
    // By the kernel's lists, in pages: shared memory is on the one of anonymous pages, what is
    // locked on the last.
    return read_numa_stat(file, {"hierarchical_anon", "hierarchical_unevictable"},
                          ::sysconf(_SC_PAGESIZE));
}

/// "2MB", "1GB", "64KB": how the kernel names the files of a page size.
std::string page_name(std::int64_t bytes) {
    constexpr std::array<std::pair<int, std::string_view>, 3> units{
        {{30, "GB"}, {20, "MB"}, {10, "KB"}}};
    for (const auto& [shift, unit] : units)
        if (bytes >= std::int64_t{1} << shift)
            return std::to_string(bytes >> shift) + std::string(unit);
    return {};
}

std::optional<ByNode> hugepages_in(const Cgroup& cgroup, std::int64_t page_size) {
    return read_numa_stat(cgroup.folder / ("hugetlb." + page_name(page_size) + ".numa_stat"),
                          {cgroup.is_v1 ? "hierarchical_total" : "total"}, 1);
}

Residency read_cgroups(const path& root, const path& process, const RunningGuest& guest) {
    Residency residency;
    const auto lines = read_file(process / "cgroup", kernel_file_limit);
    if (!lines)
        return residency;
    if (const auto cgroup = find_cgroup(root, *lines, "memory"))
        if (auto memory = memory_in(*cgroup))
            residency[Resource::memory()] = *std::move(memory);
    if (const auto cgroup = find_cgroup(root, *lines, "hugetlb"))
        for (const std::int64_t size : guest.page_sizes)
            if (auto pages = hugepages_in(*cgroup, size))
                residency[Resource::hugepages(size)] = *std::move(pages);
    return residency;
}

// ------------------------------------------------------------------ its mappings

/// Whether a mapped file is memory; else its pages are the page cache's, of libraries mostly, which
/// all guests share and the kernel drops when it likes.
bool is_memory(std::string_view file) {
    constexpr std::array<std::string_view, 5> places{"/memfd:", "/dev/shm/", "/dev/zero", "/SYSV",
                                                     "/var/lib/libvirt/qemu/ram/"};
    return std::ranges::any_of(places,
                               [&](std::string_view place) { return file.starts_with(place); });
}

/// A line such as "7f30c0000000 bind:0 file=/memfd:a huge dirty=4 N0=3 N1=1
/// kernelpagesize_kB=2048".
void add_mapping(Residency& residency, std::string_view line) {
    constexpr std::string_view file = "file=";
    constexpr std::string_view kilobytes = "kernelpagesize_kB=";
    bool is_counted = true;
    bool is_huge = false;
    std::optional<std::int64_t> page_size;
    std::string_view words = line;
    while (!words.empty()) {
        const std::string_view word = take(words, ' ');
        if (word.starts_with(file))
            is_counted = is_memory(word.substr(file.size()));
        else if (word == "huge")
            is_huge = true;
        else if (word.starts_with(kilobytes))
            page_size = amount_of(word.substr(kilobytes.size()), 1024);
    }
    if (page_size && (is_huge || is_counted))
        add_nodes(residency[is_huge ? Resource::hugepages(*page_size) : Resource::memory()], line,
                  *page_size);
}

Result<Residency> read_numa_maps(const path& process, const RunningGuest& guest) {
    const auto text = read_file(process / "numa_maps", numa_maps_limit);
    if (!text)
        return std::unexpected(text.error());
    Residency residency{{Resource::memory(), {}}};
    for (const std::int64_t size : guest.page_sizes)
        residency[Resource::hugepages(size)];
    std::string_view lines = *text;
    while (!lines.empty())
        add_mapping(residency, take(lines, '\n'));
    return residency;
}

bool is_known(const Residency& residency, const RunningGuest& guest) {
    return residency.contains(Resource::memory()) &&
           std::ranges::all_of(guest.page_sizes, [&](std::int64_t size) {
               return residency.contains(Resource::hugepages(size));
           });
}

/// The bytes of "MemTotal:       131072 kB"; nothing where there is no such line.
std::optional<std::int64_t> kilobytes_of(std::string_view lines, std::string_view key) {
    while (!lines.empty()) {
        std::string_view line = take(lines, '\n');
        if (take(line, ':') != key)
            continue;
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        return amount_of(take(line, ' '), 1024);
    }
    return std::nullopt;
}

} // namespace

Result<std::set<Uuid>> read_qemus(const path& root) {
    const auto processes = list_folder(root / "proc");
    if (!processes)
        return std::unexpected(processes.error());
    std::set<Uuid> uuids;
    for (const std::string& process : *processes) {
        if (!parse_unsigned(process))
            continue;
        // One that cannot be read has ended meanwhile.
        const auto command_line = read_command_line(root / "proc" / process);
        if (!command_line || !is_of_libvirt(*command_line))
            continue;
        if (const auto uuid = uuid_in(*command_line))
            uuids.insert(*uuid);
    }
    return uuids;
}

Result<Residency> read_residency(const path& root, const RunningGuest& guest) {
    const auto process = find_process(root, guest);
    if (!process)
        return std::unexpected(process.error());
    if (auto checked = check_process(*process, guest); !checked)
        return std::unexpected(std::move(checked.error()));
    Residency residency = read_cgroups(root, *process, guest);
    if (!is_known(residency, guest)) {
        auto mapped = read_numa_maps(*process, guest);
        if (!mapped && residency.empty())
            return mapped;
        if (mapped)
            residency.merge(*mapped); // what the cgroup counted stays
    }
    // It may have ended meanwhile, and its pid be another's.
    if (auto checked = check_process(*process, guest); !checked)
        return std::unexpected(std::move(checked.error()));
    return residency;
}

Result<std::int64_t> read_memory_in_use(const path& root) {
    const path file = root / "proc/meminfo";
    const auto text = read_file(file, kernel_file_limit);
    if (!text)
        return std::unexpected(text.error());
    const auto total = kilobytes_of(*text, "MemTotal");
    const auto available = kilobytes_of(*text, "MemAvailable");
    if (!total || !available)
        return fail(Errc::invalid, "{}: no MemTotal and MemAvailable", printable(file.native()));
    const std::int64_t pools = kilobytes_of(*text, "Hugetlb").value_or(0);
    return saturate(std::max<Int128>(0, Int128{*total} - pools - *available));
}

} // namespace virtguard::host
