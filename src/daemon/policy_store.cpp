// SPDX-License-Identifier: Apache-2.0
#include "daemon/policy_store.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include <fcntl.h>

#include "policy/load.hpp"

namespace virtguard::daemon {

namespace fs = std::filesystem;

namespace {

constexpr const char* copy_name = "last-good-policy";

/// Copies what load_directory() reads.
void copy_files(const fs::path& from, const fs::path& to, std::error_code& error) {
    fs::create_directories(to / "conf.d", error);
    if (!error && fs::exists(from / "virtguard.toml", error))
        fs::copy_file(from / "virtguard.toml", to / "virtguard.toml", error);
    if (error || !fs::exists(from / "conf.d"))
        return;
    for (const fs::directory_entry& entry : fs::directory_iterator(from / "conf.d", error)) {
        const std::string name = entry.path().filename();
        if (name.ends_with(".toml") && !name.starts_with('.') && !error)
            fs::copy_file(entry.path(), to / "conf.d" / name, error);
    }
}

} // namespace

CheckedPolicy load_checked(const fs::path& folder, const core::Topology& topology) {
    auto loaded = policy::load_directory(folder);
    if (!loaded)
        return loaded;
    auto errors = core::conflicts(*loaded, topology);
    if (!errors.empty())
        return std::unexpected(std::move(errors));
    return loaded;
}

StartPolicy policy_at_start(const fs::path& folder, const fs::path& state_folder,
                            const core::Topology& topology) {
    auto own = load_checked(folder, topology);
    if (own)
        return {.policy = *std::move(own), .in_force = folder};
    auto last_good = load_checked(state_folder / copy_name, topology);
    if (last_good)
        return {.policy = *std::move(last_good),
                .errors = std::move(own.error()),
                .in_force = "the last good policy, " + (state_folder / copy_name).string()};
    core::Policy defaults;
    defaults.mode = core::Mode::observe;
    return {.policy = defaults,
            .errors = std::move(own.error()),
            .in_force = "the built-in defaults, which only observe"};
}

Result<> keep_as_last_good(const fs::path& folder, const fs::path& state_folder) {
    const fs::path kept = state_folder / copy_name;
    const fs::path fresh = state_folder / (std::string(copy_name) + ".new");
    std::error_code error;
    fs::remove_all(fresh, error);
    if (!error)
        copy_files(folder, fresh, error);
    if (error)
        return fail(Errc::io, "{}: {}", fresh.string(), error.message());
    // The two change places in one step; where there is no old one yet, the new one just moves.
    if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, kept.c_str(), RENAME_EXCHANGE) < 0 &&
        (errno != ENOENT || ::rename(fresh.c_str(), kept.c_str()) < 0))
        return fail(Errc::io, "{}: {}", kept.string(), std::strerror(errno));
    fs::remove_all(fresh, error);
    return {};
}

} // namespace virtguard::daemon
