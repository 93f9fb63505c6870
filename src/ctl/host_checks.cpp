// SPDX-License-Identifier: Apache-2.0
#include "ctl/host_checks.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.hpp"
#include "base/text.hpp"
#include "bus/follower.hpp"
#include "bus/names.hpp"
#include "core/resource.hpp"
#include "ctl/progress.hpp"
#include "domxml/parse.hpp"
#include "host/hugepages.hpp"
#include "policy/load.hpp"

namespace virtguard::ctl {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view hook_folder = "/etc/libvirt/hooks/qemu.d";
constexpr std::string_view hook_name = "virtguard-hook";
constexpr const char* place_hook =
    "ln -s /usr/sbin/virtguard-hook /etc/libvirt/hooks/qemu.d/50-virtguard; "
    "systemctl reload libvirtd";
/// Files of /proc and /sys that are read here; that of AppArmor has a line per profile.
constexpr std::size_t max_bytes = std::size_t{4} << 20;

/// A path of the host as it is found under root.
fs::path under(const fs::path& root, const fs::path& path) {
    return root / path.relative_path();
}

std::string read(const fs::path& path) {
    return read_file(path, max_bytes).value_or("");
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (!text.empty()) {
        parts.push_back(text.substr(0, text.find(separator)));
        text.remove_prefix(std::min(parts.back().size() + 1, text.size()));
    }
    return parts;
}

// ------------------------------------------------------------------ the hook

struct Hook {
    fs::path entry;  ///< in libvirt's folder
    fs::path target; ///< what is executed: the same, or where its link leads
};

std::optional<Hook> find_hook(const fs::path& root) {
    std::error_code error;
    std::vector<Hook> found;
    for (fs::directory_iterator entry(under(root, hook_folder), error), end; !error && entry != end;
         entry.increment(error)) {
        Hook hook{fs::path(hook_folder) / entry->path().filename(), {}};
        hook.target = hook.entry;
        std::error_code no_link;
        if (const fs::path link = fs::read_symlink(entry->path(), no_link); !no_link)
            hook.target = (hook.entry.parent_path() / link).lexically_normal();
        if (hook.target.filename() == hook_name ||
            hook.entry.filename().string().contains("virtguard"))
            found.push_back(std::move(hook));
    }
    if (found.empty())
        return std::nullopt;
    return std::ranges::min(found, {}, &Hook::entry);
}

/// Debian's profile of libvirtd: what it may execute.
bool apparmor_allows(const fs::path& target) {
    constexpr std::array<std::string_view, 4> folders{"/usr/bin", "/usr/sbin", "/usr/lib/libvirt",
                                                      hook_folder};
    return std::ranges::find(folders, target.parent_path().native()) != folders.end();
}

bool is_libvirt_confined(const fs::path& root) {
    const std::string profiles = read(under(root, "/sys/kernel/security/apparmor/profiles"));
    return std::ranges::any_of(split(profiles, '\n'), [](std::string_view line) {
        return (line.starts_with("libvirtd ") || line.starts_with("virtqemud ")) &&
               line.ends_with("(enforce)");
    });
}

Finding check_apparmor(const fs::path& root, const fs::path& target) {
    Finding finding{.subject = "AppArmor"};
    if (!is_libvirt_confined(root))
        finding.text = "does not confine libvirtd";
    else if (apparmor_allows(target))
        finding.text = fmt::format("lets libvirtd execute {}", printable(target.native()));
    else {
        finding.ok = false;
        finding.text = fmt::format("its profile of libvirtd does not let that execute {}",
                                   printable(target.native()));
        finding.remedy = "install the hook as /usr/sbin/virtguard-hook, and link to that";
    }
    return finding;
}

/// Whether a process is libvirt's daemon, by /proc/PID/comm.
bool is_libvirtd(const fs::path& process) {
    const std::string name = read(process / "comm");
    return name == "libvirtd\n" || name == "virtqemud\n";
}

/// Seconds since the epoch when it started; nothing where it has gone.
std::optional<std::int64_t> start_of(const fs::path& root, const fs::path& process) {
    constexpr std::size_t starttime = 19; // of proc(5), counted from behind the name
    const std::string stat = read(process / "stat");
    const std::string kernel = read(root / "proc/stat");
    const std::size_t behind_name = stat.rfind(") ");
    const std::size_t at = kernel.find("btime ");
    if (behind_name == std::string::npos || at == std::string::npos)
        return std::nullopt;
    const auto fields = split(std::string_view(stat).substr(behind_name + 2), ' ');
    const auto boots = split(std::string_view(kernel).substr(at + 6), '\n');
    if (fields.size() <= starttime || boots.empty())
        return std::nullopt;
    const auto ticks = parse_unsigned(fields[starttime]);
    const auto boot = parse_unsigned(boots.front());
    if (!ticks || !boot)
        return std::nullopt;
    return static_cast<std::int64_t>(*boot +
                                     *ticks / static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK)));
}

/// The oldest of libvirt's daemons.
std::optional<std::int64_t> libvirtd_start(const fs::path& root) {
    std::optional<std::int64_t> oldest;
    std::error_code error;
    for (fs::directory_iterator entry(root / "proc", error), end; !error && entry != end;
         entry.increment(error))
        if (parse_unsigned(entry->path().filename().native()) && is_libvirtd(entry->path()))
            if (const auto start = start_of(root, entry->path()))
                oldest = std::min(oldest.value_or(*start), *start);
    return oldest;
}

/// Whether the package had libvirt's daemons reloaded at that time or later; it leaves a mark then.
bool were_reloaded(const fs::path& root, std::int64_t since) {
    struct stat mark {};
    return ::lstat((root / "run/virtguard/libvirt-reloaded").c_str(), &mark) == 0 &&
           mark.st_mtim.tv_sec >= since;
}

// ------------------------------------------------------------------ the bus

/// Whether virtguardd is on the bus of this address, or comes within a second, as one that has just
/// been started does. Error: it could not be asked.
Result<bool> is_on_bus(const std::string& address) {
    constexpr std::chrono::milliseconds pause{500};
    constexpr int max_pauses = 2;
    bool is_there = false;
    const bus::FollowHandlers handlers{.host =
                                           [&](const core::HeardHost&) {
                                               is_there = true;
                                               return false;
                                           },
                                       .start = [](const core::HeardStart&) { return true; },
                                       .absent = [] { return false; }};
    const Progress progress("waiting for the bus");
    for (int pauses = 0;; ++pauses) {
        if (const auto asked = bus::follow(address, bus::Bus::that_is_there, handlers); !asked)
            return std::unexpected(asked.error());
        if (is_there || pauses == max_pauses)
            return is_there;
        std::this_thread::sleep_for(pause);
    }
}

/// What is to be done where virtguardd is not on the system bus.
const char* way_to_system_bus(const fs::path& root) {
    std::error_code error;
    for (const std::string_view folder : {"/usr/share/dbus-1/system.d", "/etc/dbus-1/system.d"})
        if (fs::exists(under(root, fs::path(folder) / "org.virtguard1.conf"), error))
            return "systemctl reload dbus; systemctl restart virtguardd; journalctl -u virtguardd";
    return "install org.virtguard1.conf in /usr/share/dbus-1/system.d; systemctl reload dbus";
}

} // namespace

std::vector<Finding> check_hook(const fs::path& root) {
    Finding finding{.subject = "hook", .ok = false};
    const auto hook = find_hook(root);
    if (!hook) {
        finding.text =
            fmt::format("libvirt has none of virtguard in {}: starts are not decided", hook_folder);
        finding.remedy = place_hook;
        return {finding};
    }
    const std::string name = printable(hook->entry.native());
    struct stat found {};
    if (::stat(under(root, hook->target).c_str(), &found) != 0) {
        finding.text = fmt::format("{} leads to {}, which is not there", name,
                                   printable(hook->target.native()));
        finding.remedy = "install virtguard-hook there, or make the link anew";
        return {finding};
    }
    if (!S_ISREG(found.st_mode) || (found.st_mode & 0111U) == 0) {
        finding.text = fmt::format("{} cannot be executed, so libvirt passes over it", name);
        finding.remedy = fmt::format("chmod 755 {}", printable(hook->target.native()));
        return {finding};
    }
    finding.ok = true;
    finding.text = fmt::format("{} is in place", name);
    return {finding, check_apparmor(root, hook->target)};
}

Finding check_hook_is_seen(const fs::path& root, bool any_decided) {
    Finding finding{.subject = "libvirtd"};
    if (any_decided) {
        finding.text = "runs the hook: starts have been decided";
        return finding;
    }
    const auto hook = find_hook(root);
    const auto start = libvirtd_start(root);
    struct stat entry {};
    if (!start || !hook || ::lstat(under(root, hook->entry).c_str(), &entry) != 0) {
        finding.text = start ? "runs" : "does not run now; it looks for hooks when it starts";
        return finding;
    }
    if (entry.st_ctim.tv_sec < *start) {
        finding.text = "started after the hook was put in place";
        return finding;
    }
    if (were_reloaded(root, entry.st_ctim.tv_sec)) {
        finding.text = "was reloaded after the hook was put in place";
        return finding;
    }
    finding.ok = false;
    finding.text = "started before the hook was put in place, and nothing has been decided yet: "
                   "unless it was reloaded since, it does not run the hook";
    finding.remedy = "systemctl reload libvirtd (harmless; guests go on)";
    return finding;
}

Finding check_bus(const fs::path& root) {
    const bool is_chosen = std::getenv("DBUS_SYSTEM_BUS_ADDRESS") != nullptr;
    const fs::path socket = under(root, "/run/dbus/system_bus_socket");
    std::error_code error; // what cannot be looked at is as good as absent
    if (!is_chosen && !fs::exists(socket, error))
        return {.subject = "bus", .text = "there is no system bus; virtguardd does without"};
    const std::string address =
        is_chosen ? bus::system_bus_address() : fmt::format("unix:path={}", socket.native());
    const std::string name =
        is_chosen ? fmt::format("that of DBUS_SYSTEM_BUS_ADDRESS, {}", one_line(address))
                  : "the system bus";
    const auto is_there = is_on_bus(address);
    if (is_there && *is_there)
        return {.subject = "bus", .text = fmt::format("virtguardd is on {}", name)};
    return {.subject = "bus",
            .ok = false,
            .text = is_there ? fmt::format("virtguardd is not on {}", name) : is_there.error().what,
            .remedy = is_chosen
                          ? "set DBUS_SYSTEM_BUS_ADDRESS as it is for virtguardd, or not at all"
                          : way_to_system_bus(root)};
}

std::vector<Finding> check_policy(const fs::path& folder) {
    const auto loaded = policy::load_directory(folder, domxml::check_question);
    if (loaded)
        return {
            {.subject = "policy",
             .text = fmt::format("the files of {} are well written", printable(folder.native()))}};
    std::vector<Finding> findings;
    for (const std::string& error : loaded.error())
        findings.push_back({.subject = "policy",
                            .ok = false,
                            .text = error,
                            .remedy = "correct it, then: systemctl reload virtguardd"});
    return findings;
}

/// Whether the rules that all guests share let QEMU read which CPUs a node has. Those of Debian 12
/// do not, so its QEMU, which wants to know that before it takes hugepages of some nodes only, ends
/// at once.
bool may_read_cpus_of_nodes(const fs::path& root) {
    const fs::path rules = "abstractions/libvirt-qemu";
    const fs::path profiles = under(root, "/etc/apparmor.d");
    std::error_code error;
    return !fs::exists(profiles / rules, error) ||
           (read(profiles / rules) + read(profiles / "local" / rules)).contains("/cpumap r");
}

std::vector<Finding> check_hugepages(const fs::path& root) {
    const auto pages = host::read_hugepages(root);
    if (!pages)
        return {{.subject = "hugepages", .ok = false, .text = pages.error().what}};
    std::map<std::int64_t, std::string> pools; // by page size
    for (const host::NodePages& node : pages->nodes)
        if (node.total > 0) {
            std::string& text = pools[node.page_size];
            text +=
                fmt::format("{}{} on node {}", text.empty() ? "" : ", ",
                            format_bytes(node.total * node.page_size, Rounding::down), node.node);
        }
    const std::string mounts = read(root / "proc/mounts");
    std::vector<Finding> findings;
    for (const auto& [size, text] : pools) {
        Finding finding{.subject = core::Resource::hugepages(size).name(), .text = text};
        const std::string iec = format_iec(size);
        const std::string option =
            fmt::format("pagesize={}", std::string_view(iec).substr(0, iec.size() - 1));
        finding.ok = std::ranges::any_of(split(mounts, '\n'), [&](std::string_view line) {
            const auto fields = split(line, ' ');
            return fields.size() > 3 && fields[2] == "hugetlbfs" &&
                   std::ranges::count(split(fields[3], ','), option) > 0;
        });
        if (!finding.ok) {
            finding.text += ", and no hugetlbfs of such pages is mounted: guests cannot have them";
            finding.remedy =
                fmt::format("mkdir -p /dev/hugepages-{0}; mount -t hugetlbfs -o {1} hugetlbfs "
                            "/dev/hugepages-{0}; systemctl restart libvirtd",
                            iec, option);
        }
        findings.push_back(std::move(finding));
    }
    if (!pools.empty() && is_libvirt_confined(root) && !may_read_cpus_of_nodes(root))
        findings.push_back(
            {.subject = "AppArmor",
             .ok = false,
             .text = "its rules for guests do not let QEMU read which CPUs a node has: guests with "
                     "hugepages of certain nodes cannot start",
             .remedy = "echo '/sys/devices/system/node/node[0-9]*/cpumap r,' "
                       ">>/etc/apparmor.d/local/abstractions/libvirt-qemu"});
    return findings;
}

} // namespace virtguard::ctl
