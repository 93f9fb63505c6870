// SPDX-License-Identifier: Apache-2.0
#include "daemon/guest_store.hpp"

#include <cerrno>
#include <cstddef>
#include <optional>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "base/uuid.hpp"
#include "state/file.hpp"

namespace virtguard::daemon {

namespace fs = std::filesystem;

namespace {

/// A domain's XML has at most 4 MiB, and what is kept of it is rarely larger than a few KiB.
constexpr std::size_t max_file_bytes = std::size_t{16} << 20;

/// In the folder, which boot its files are of.
constexpr const char* boot_name = "boot";

Result<> remove_files(const fs::path& folder) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator{};
         entry.increment(error))
        fs::remove_all(entry->path(), error);
    if (error)
        return kernel_failure(folder.native(), error.value());
    return {};
}

Result<json::KeptGuest> load_one(const fs::path& file, const Uuid& uuid) {
    const auto text = state::read(file, max_file_bytes);
    if (!text)
        return std::unexpected(text.error());
    auto guest = json::parse_guest(*text);
    if (!guest)
        return context(guest.error(), printable(file.native()));
    if (guest->domain.uuid != uuid)
        return fail(Errc::invalid, "{}: of another domain", printable(file.native()));
    return guest;
}

void set_aside(const fs::path& file, const Error& why) {
    log(Level::error, "{}; its guest is not known until libvirt tells whether it runs", why.what);
    if (const auto done = state::set_aside(file); !done)
        log(Level::error, "{}", done.error().what);
}

} // namespace

Result<> GuestStore::open() {
    if (is_open_)
        return {};
    if (::mkdir(folder_.c_str(), 0700) < 0 && errno != EEXIST)
        return kernel_failure(folder_.native(), errno);
    const auto known = state::read(folder_ / boot_name, max_file_bytes);
    if (!known || *known != boot_id_) {
        // Also where the note is damaged: nothing else tells the age of what is there.
        if (auto removed = remove_files(folder_); !removed)
            return removed;
        if (auto noted = state::write(folder_ / boot_name, boot_id_, Durability::volatile_); !noted)
            return noted;
    }
    is_open_ = true;
    return {};
}

std::vector<json::KeptGuest> GuestStore::load() {
    std::vector<json::KeptGuest> guests;
    if (const auto opened = open(); !opened) {
        log(Level::error, "{}; what the last virtguardd knew is lost", opened.error().what);
        return guests;
    }
    std::error_code error;
    for (fs::directory_iterator entry(folder_, error); !error && entry != fs::directory_iterator{};
         entry.increment(error)) {
        const auto uuid = Uuid::parse(entry->path().filename().native());
        if (!uuid)
            continue;
        if (auto guest = load_one(entry->path(), *uuid))
            guests.push_back(*std::move(guest));
        else
            set_aside(entry->path(), guest.error());
    }
    if (error)
        log(Level::error, "{}", kernel_failure(folder_.native(), error.value()).error().what);
    return guests;
}

void GuestStore::save(core::Guard& guard) {
    unsaved_.merge(guard.take_changed());
    const bool was_open = is_open_;
    auto saved = save_all(guard);
    if (!saved && was_open) // somebody may have deleted the folder
        saved = save_all(guard);
    const std::string problem = saved ? "" : saved.error().what;
    if (!saved && problem != problem_)
        log(Level::error, "{}; a virtguardd that starts now would not know all guests", problem);
    if (saved && !problem_.empty())
        log(Level::notice, "{}: written again", printable(folder_.native()));
    problem_ = problem;
}

void GuestStore::save_anew(core::Guard& guard) {
    is_open_ = false;
    want_all(guard.ledger());
    save(guard);
}

void GuestStore::want_all(const core::Ledger& ledger) {
    for (const auto& [identity, guest] : ledger.guests())
        unsaved_.insert(identity);
}

Result<> GuestStore::save_all(const core::Guard& guard) {
    if (unsaved_.empty())
        return {};
    if (!is_open_) // the folder may be a new one
        want_all(guard.ledger());
    if (auto opened = open(); !opened)
        return opened;
    Result<> first;
    std::erase_if(unsaved_, [&](const std::string& identity) {
        auto saved = save_one(identity, guard);
        if (!saved && first)
            first = saved;
        return saved.has_value();
    });
    std::error_code unknown; // is absent, for our purpose
    if (!first && !fs::exists(folder_ / boot_name, unknown))
        is_open_ = false; // the folder is gone, not one file
    return first;
}

Result<> GuestStore::save_one(const std::string& identity, const core::Guard& guard) const {
    const auto uuid = Uuid::parse(identity);
    if (!uuid) // no domain of libvirt's is without one
        return {};
    const fs::path file = folder_ / uuid->text();
    if (const core::Guest* guest = guard.ledger().find(identity))
        return state::write(file, json::guest_document(*guest, guard.host().images),
                            Durability::volatile_);
    if (::unlink(file.c_str()) < 0 && errno != ENOENT)
        return kernel_failure(file.native(), errno);
    return {};
}

} // namespace virtguard::daemon
