// SPDX-License-Identifier: Apache-2.0
#include "daemon/run_time_store.hpp"

#include <array>
#include <map>
#include <utility>

#include <pwd.h>
#include <sys/epoll.h>

#include "base/log.hpp"
#include "base/text.hpp"
#include "state/file.hpp"
#include "json/run_time.hpp"

namespace virtguard::daemon {

namespace {

/// Some hundred bytes for each resource, and for each reservation.
constexpr std::size_t max_file_bytes = std::size_t{16} << 20;

/// "" where there is none. It asks whatever nsswitch.conf(5) names, which may be a server.
std::string name_of_user(std::uint32_t uid) {
    std::array<char, 16384> room{}; // for the whole line, which may name a long folder
    passwd entry{};
    passwd* found = nullptr;
    return ::getpwuid_r(uid, &entry, room.data(), room.size(), &found) == 0 && found != nullptr
               ? found->pw_name
               : "";
}

/// All who have set something that is set.
std::vector<core::Setter*> setters(core::RunTime& values) {
    std::vector<core::Setter*> found;
    for (auto& [resource, set] : values.overcommit)
        found.push_back(&set.by);
    if (values.mode)
        found.push_back(&values.mode->by);
    return found;
}

void name_users(core::RunTime& values) {
    for (core::Setter* setter : setters(values))
        if (setter->user.empty())
            setter->user = name_of_user(setter->uid);
}

/// The names that are known by now of who set what is still set.
void take_names(core::RunTime& values, core::RunTime named) {
    std::map<std::uint32_t, std::string> names;
    for (const core::Setter* setter : setters(named))
        names.emplace(setter->uid, setter->user);
    for (core::Setter* setter : setters(values))
        if (const auto known = names.find(setter->uid);
            setter->user.empty() && known != names.end())
            setter->user = known->second;
}

} // namespace

RunTimeStore::RunTimeStore(std::filesystem::path file, FilesThread& files)
    : file_(std::move(file)), files_(files) {
    read();
}

Result<> RunTimeStore::watch(loop::Loop& loop, std::function<void()> changed) {
    auto mail = Mail::create();
    if (!mail)
        return std::unexpected(mail.error());
    mail_ = *std::move(mail);
    auto io = loop.on_io("run time", mail_->fd(), EPOLLIN, [this](std::uint32_t) {
        for (const Written& written : mail_->drain())
            note(written);
    });
    if (!io)
        return std::unexpected(io.error());
    reading_mail_ = *std::move(io);
    changed_ = std::move(changed);
    return {};
}

void RunTimeStore::read() {
    const auto text = state::read(file_, max_file_bytes);
    if (!text && text.error().code == Errc::not_found)
        return;
    auto values = text ? json::parse_run_time(*text) : std::unexpected(text.error());
    if (values) {
        values_ = *std::move(values);
        return;
    }
    problem_ = fmt::format("{}; what was set at run time is lost", values.error().what);
    log(Level::error, "run time: {}", problem_);
    if (const auto done = state::set_aside(file_); !done)
        log(Level::error, "run time: {}", done.error().what);
}

void RunTimeStore::set(core::RunTime values, Kept kept) {
    values_ = std::move(values);
    is_unwritten_ = true;
    waiting_.push_back(std::move(kept));
    if (!is_writing_)
        write();
}

void RunTimeStore::write() {
    is_unwritten_ = false;
    underway_ = std::exchange(waiting_, {});
    is_writing_ = files_.run([file = file_, values = values_, mail = mail_]() mutable {
        name_users(values);
        auto result = state::write(file, json::run_time_document(values), Durability::durable);
        if (mail) // it has room for more than the one write that is under way
            (void)mail->push({std::move(result), std::move(values)});
    });
    if (!is_writing_)
        note({fail(Errc::unavailable, "writing files does not come to an end"), values_});
}

void RunTimeStore::note(const Written& written) {
    is_writing_ = false;
    take_names(values_, written.values);
    problem_ = written.result ? ""
                              : fmt::format("{}; what is set ends with this virtguardd",
                                            written.result.error().what);
    if (!written.result)
        log(Level::error, "run time: {}", problem_);
    std::vector<Kept> told = std::exchange(underway_, {});
    if (is_unwritten_)
        write();
    for (Kept& kept : told)
        kept(written.result ? Result<>{}
                            : fail(written.result.error().code, "set, but not kept: {}",
                                   written.result.error().what));
    if (changed_)
        changed_();
}

} // namespace virtguard::daemon
