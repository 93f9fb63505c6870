// SPDX-License-Identifier: Apache-2.0
#include "daemon/policy_store.hpp"

#include <cerrno>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.hpp"
#include "base/unique.hpp"
#include "domxml/parse.hpp"
#include "policy/load.hpp"

namespace virtguard::daemon {

namespace fs = std::filesystem;

namespace {

constexpr const char* copy_name = "last-good-policy";

std::unexpected<Error> failed(const fs::path& path, const std::error_code& error) {
    return fail(Errc::io, "{}: {}", path.string(), error.message());
}

std::error_code last_error() {
    return {errno, std::generic_category()};
}

Result<> make_folder_durable(const fs::path& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd || ::fsync(fd.get()) != 0)
        return failed(path, last_error());
    return {};
}

/// An empty file would be a good policy of nothing but defaults: a crash must not leave one.
Result<> copy_one(const fs::path& from, const fs::path& to) {
    const auto text = read_file(from, policy::max_file_bytes);
    if (!text)
        return std::unexpected(text.error());
    return replace_file(to, *text, Durability::durable, 0600);
}

/// Copies whatever load_directory() may read; what it does not read does no harm.
Result<> copy_files(const fs::path& from, const fs::path& to) {
    for (const fs::path& made : {to, to / "conf.d"}) // nobody else's, whatever the umask
        if (::mkdir(made.c_str(), 0700) < 0)
            return failed(made, last_error());
    std::error_code error;
    if (fs::exists(from / "virtguard.toml", error))
        if (auto copied = copy_one(from / "virtguard.toml", to / "virtguard.toml"); !copied)
            return copied;
    if (!fs::exists(from / "conf.d", error))
        return {};
    fs::directory_iterator entry(from / "conf.d", error);
    for (; !error && entry != fs::directory_iterator{}; entry.increment(error)) {
        const std::string name = entry->path().filename();
        if (!name.ends_with(".toml") || name.starts_with('.') || !entry->is_regular_file(error))
            continue; // a link to /dev/null is an empty file, which says nothing
        if (auto copied = copy_one(entry->path(), to / "conf.d" / name); !copied)
            return copied;
    }
    if (error)
        return failed(from / "conf.d", error);
    return make_folder_durable(to / "conf.d");
}

/// A copy of the folder that gives that policy; the files may change while they are copied.
Result<> make_copy(const fs::path& folder, const fs::path& copy, const core::Policy& policy) {
    if (auto copied = copy_files(folder, copy); !copied)
        return copied;
    auto read = policy::load_directory(copy, domxml::check_question);
    if (read) { // these are not from what it says
        read->origins = policy.origins;
        read->readings = policy.readings;
    }
    if (!read || *read != policy)
        return fail(Errc::invalid, "{}: no longer the policy that is in force", folder.string());
    return make_folder_durable(copy);
}

} // namespace

CheckedPolicy load_checked(const fs::path& folder, const core::Topology& topology) {
    auto loaded = policy::load_directory(folder, domxml::check_question);
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
            .in_force = "the built-in defaults, which only observe",
            .only_observes = true};
}

Result<> keep_as_last_good(const fs::path& folder, const fs::path& state_folder,
                           const core::Policy& policy) {
    const fs::path kept = state_folder / copy_name;
    const fs::path fresh = state_folder / (std::string(copy_name) + ".new");
    std::error_code ignored; // of what a crash has left; if it stays, the copying says so
    fs::remove_all(fresh, ignored);
    auto done = make_copy(folder, fresh, policy);
    // The two change places in one step; where there is no old one yet, the new one just moves.
    if (done && ::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, kept.c_str(), RENAME_EXCHANGE) < 0 &&
        (errno != ENOENT || ::rename(fresh.c_str(), kept.c_str()) < 0))
        done = failed(kept, last_error());
    if (done)
        done = make_folder_durable(state_folder);
    fs::remove_all(fresh, ignored);
    return done;
}

} // namespace virtguard::daemon
