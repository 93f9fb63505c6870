// SPDX-License-Identifier: Apache-2.0
#include "daemon/residency_watch.hpp"

#include <algorithm>
#include <utility>

#include <sys/epoll.h>

#include "host/residency.hpp"

namespace virtguard::daemon {

namespace {

using Guests = std::map<std::string, host::RunningGuest>;

/// Nothing where it does not run, or has no UUID to know its process by.
std::optional<host::RunningGuest> running(const core::Guest& guest) {
    if (guest.state != core::GuestState::running || !guest.domain.uuid)
        return std::nullopt;
    host::RunningGuest result{
        .name = guest.domain.name, .uuid = *guest.domain.uuid, .page_sizes = {}};
    for (const core::Piece& piece : guest.demand.pieces)
        if (piece.resource.kind == core::Resource::Kind::hugepages &&
            std::ranges::find(result.page_sizes, piece.resource.page_size) ==
                result.page_sizes.end())
            result.page_sizes.push_back(piece.resource.page_size);
    return result;
}

void read_guests(ResidencyRound& round, const Guests& guests, const std::filesystem::path& root,
                 const FilesThread& thread) {
    for (const auto& [identity, guest] : guests) {
        if (thread.is_ending())
            return;
        // One that cannot be read has ended, or is one of which nothing tells.
        if (auto residency = host::read_residency(root, guest))
            round.guests[identity] = *std::move(residency);
    }
}

/// The same, and the host.
void read_all(ResidencyRound& round, const Guests& guests, const std::filesystem::path& root,
              const FilesThread& thread) {
    const auto before = host::read_memory_in_use(root);
    read_guests(round, guests, root, thread);
    const auto after = host::read_memory_in_use(root);
    // A guest that ended meanwhile took its memory along: the smaller figure is the surer one.
    if (before && after)
        round.memory_in_use = std::min(*before, *after);
}

} // namespace

Result<std::unique_ptr<ResidencyWatch>> ResidencyWatch::create(loop::Loop& loop, FilesThread& files,
                                                               const core::Guard& guard,
                                                               std::filesystem::path root,
                                                               Tell tell) {
    auto mail = Mail::create(/*limit=*/1);
    if (!mail)
        return std::unexpected(mail.error());
    std::unique_ptr<ResidencyWatch> watch(
        new ResidencyWatch(files, guard, std::move(root), *std::move(mail)));
    auto arrived = loop.on_io("residency", watch->mail_->fd(), EPOLLIN,
                              [raw = watch.get(), tell = std::move(tell)](std::uint32_t) {
                                  for (ResidencyRound& round : raw->mail_->drain()) {
                                      raw->under_way_ = false;
                                      tell(std::move(round));
                                  }
                                  raw->start_round();
                              });
    if (!arrived)
        return std::unexpected(arrived.error());
    watch->arrived_ = *std::move(arrived);
    return watch;
}

void ResidencyWatch::look_at(const std::string& identity) {
    wanted_.insert(identity);
    start_round();
}

void ResidencyWatch::look_at_all() {
    all_wanted_ = true;
    start_round();
}

void ResidencyWatch::start_round() {
    if (under_way_ || (wanted_.empty() && !all_wanted_))
        return;
    const bool all = std::exchange(all_wanted_, false);
    const std::set<std::string> wanted = std::exchange(wanted_, {});
    Guests guests;
    const auto add = [&](const std::string& identity, const core::Guest& guest) {
        if (auto found = running(guest))
            guests.emplace(identity, *std::move(found));
    };
    if (all)
        for (const auto& [identity, guest] : guard_.ledger().guests())
            add(identity, guest);
    else
        for (const std::string& identity : wanted)
            if (const core::Guest* guest = guard_.ledger().find(identity))
                add(identity, *guest);
    if (guests.empty() && !all)
        return;
    // When the files thread hangs, the next look asks again.
    under_way_ = files_.run([began = loop::now(), all, guests = std::move(guests), root = root_,
                             mail = mail_, &thread = files_] {
        ResidencyRound round{.began = began, .guests = {}, .memory_in_use = std::nullopt};
        (all ? read_all : read_guests)(round, guests, root, thread);
        (void)mail->push(std::move(round)); // there is room: it is the only round
    });
}

} // namespace virtguard::daemon
