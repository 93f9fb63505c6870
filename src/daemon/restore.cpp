// SPDX-License-Identifier: Apache-2.0
#include "daemon/restore.hpp"

#include <system_error>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "domxml/parse.hpp"
#include "loop/loop.hpp"

namespace virtguard::daemon {

namespace fs = std::filesystem;

namespace {

/// Nothing where its QEMU has ended. That there is a process of that pid is all that is asked: its
/// command line could be waited for.
Result<std::optional<core::Domain>> read_status_file(const fs::path& file, const fs::path& root,
                                                     const core::Questions& questions) {
    const auto text = read_file(file, 2 * domxml::max_document_bytes);
    if (!text)
        return std::unexpected(text.error());
    auto status = domxml::parse_status(*text, questions);
    if (!status)
        return context(status.error(), printable(file.native()));
    std::error_code unknown; // is none, for our purpose
    if (!fs::exists(root / "proc" / std::to_string(status->pid), unknown))
        return std::nullopt;
    return std::move(status->domain);
}

/// What a start in flight has is not changed by what runs. A guest that left and has a file is
/// back: libvirt removes the file before the hook tells of the release.
void take_up(core::Guard& guard, const core::Domain& domain, Instant when) {
    const core::Guest* known = guard.ledger().find(core::identity_of(domain));
    if (known == nullptr || known->state != core::GuestState::pending)
        guard.running(domain, when);
}

void read_status_files(core::Guard& guard, const fs::path& root) {
    const Instant began = loop::now();
    std::error_code absent; // libvirtd has not run yet
    for (fs::directory_iterator entry(root / "run/libvirt/qemu", absent);
         !absent && entry != fs::directory_iterator{}; entry.increment(absent)) {
        if (entry->path().extension() != ".xml")
            continue;
        const auto domain = read_status_file(entry->path(), root, guard.questions());
        if (domain && *domain)
            take_up(guard, **domain, began);
        else if (!domain && domain.error().code != Errc::not_found)
            log(Level::warning, "{}, ignoring until libvirt tells of it", domain.error().what);
    }
}

} // namespace

void restore(core::Guard& guard, GuestStore& store, const fs::path& root) {
    std::vector<json::KeptGuest> guests = store.load();
    core::Images images;
    for (json::KeptGuest& guest : guests)
        images.merge(guest.images);
    guard.set_images(images);
    const core::Ledger::Batch batch = guard.batch();
    for (json::KeptGuest& guest : guests)
        guard.put(std::move(guest));
    read_status_files(guard, root);
    if (const std::size_t count = guard.ledger().guests().size(); count > 0)
        log(Level::info, "{} guests are known from before", count);
}

} // namespace virtguard::daemon
