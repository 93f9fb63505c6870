// SPDX-License-Identifier: Apache-2.0
#include "daemon/run_time_store.hpp"

#include <array>
#include <iterator>
#include <utility>

#include <pwd.h>
#include <sys/epoll.h>

#include "base/log.hpp"
#include "base/text.hpp"
#include "state/file.hpp"

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
    found.reserve(values.overcommit.size() + values.reservations.size() + 1);
    for (auto& [resource, set] : values.overcommit)
        found.push_back(&set.by);
    if (values.mode)
        found.push_back(&values.mode->by);
    for (auto& [id, made] : values.reservations)
        found.push_back(&made.by);
    return found;
}

using Names = std::map<std::uint32_t, std::string>; ///< of users

/// Users whose names are not known; `values` is not changed.
std::set<std::uint32_t> nameless(core::RunTime values) {
    std::set<std::uint32_t> uids;
    for (const core::Setter* setter : setters(values))
        if (setter->user.empty())
            uids.insert(setter->uid);
    return uids;
}

Names names_of(const std::set<std::uint32_t>& uids) {
    Names names;
    for (const std::uint32_t uid : uids)
        if (std::string name = name_of_user(uid); !name.empty())
            names.emplace(uid, std::move(name));
    return names;
}

void take_names(core::RunTime& values, const Names& names) {
    for (core::Setter* setter : setters(values))
        if (const auto known = names.find(setter->uid);
            setter->user.empty() && known != names.end())
            setter->user = known->second;
}

Result<json::ReadRunTime> read_values(const std::filesystem::path& file, std::string_view boot) {
    const auto text = state::read(file, max_file_bytes);
    if (text)
        return json::parse_run_time(*text, boot);
    if (text.error().code == Errc::not_found)
        return json::ReadRunTime{};
    return std::unexpected(text.error());
}

/// What a file says, and in its place what was set before it could be read.
core::RunTime merged(core::RunTime of_file, core::RunTime set) {
    set.overcommit.merge(of_file.overcommit);
    set.reservations.merge(of_file.reservations);
    if (!set.mode)
        set.mode = std::move(of_file.mode);
    return set;
}

} // namespace

core::Setter setter_now(std::uint32_t user) {
    return {.time = loop::wall_time(), .uid = user, .user = user == 0 ? "root" : ""};
}

RunTimeStore::RunTimeStore(std::filesystem::path file, FilesThread& files, std::string boot)
    : file_(std::move(file)), files_(files), boot_(std::move(boot)) {
    take_in(read_values(file_, boot_));
}

Result<> RunTimeStore::watch(loop::Loop& loop, std::function<void()> changed,
                             std::function<void()> read_late) {
    auto mail = Mail::create();
    if (!mail)
        return std::unexpected(mail.error());
    mail_ = *std::move(mail);
    auto io = loop.on_io("run time", mail_->fd(), EPOLLIN, [this](std::uint32_t) {
        for (Letter& letter : mail_->drain())
            note(std::move(letter));
    });
    if (!io)
        return std::unexpected(io.error());
    auto retry = loop.timer("run time again", [this] {
        if (!is_writing_)
            write();
    });
    if (!retry)
        return std::unexpected(retry.error());
    reading_mail_ = *std::move(io);
    retry_ = *std::move(retry);
    changed_ = std::move(changed);
    read_late_ = std::move(read_late);
    if (is_unread_)
        retry_->arm_after(backoff_.next());
    return {};
}

/// A file that another reading may find good stays where it is.
void RunTimeStore::take_in(Result<json::ReadRunTime> read) {
    is_unread_ = !read && read.error().code != Errc::invalid && read.error().code != Errc::limit;
    if (read) {
        values_ = merged(std::move(read->values), std::move(values_));
        for (const std::string& dropped : read->dropped)
            log(Level::error, "run time: {}; it is left out", one_line(dropped));
        problem_ = read->dropped.empty()
                       ? ""
                       : fmt::format("{} reservations are left out, such as {}",
                                     read->dropped.size(), one_line(read->dropped.front()));
        return;
    }
    problem_ = fmt::format("{}; what was set at run time is {}", read.error().what,
                           is_unread_ ? "not known" : "lost");
    log(Level::error, "run time: {}", problem_);
    if (is_unread_)
        return;
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

/// Where the file could not be read, it is read first: what is in it is not to be lost.
void RunTimeStore::write() {
    underway_ = std::exchange(waiting_, {});
    const bool reads = is_unread_;
    is_unwritten_ = reads; // else all of it is on its way
    is_writing_ = files_.run([file = file_, values = values_, mail = mail_, boot = boot_, reads] {
        Letter letter;
        if (reads)
            letter.read = read_values(file, boot);
        else
            letter.written =
                state::write(file, json::run_time_document(values, boot), Durability::durable);
        if (mail) // it has room for more than the one write that is under way
            (void)mail->push(std::move(letter));
    });
    if (!is_writing_)
        note({.written = fail(Errc::unavailable, "writing files does not come to an end")});
}

void RunTimeStore::note(Letter letter) {
    if (!letter.names.empty())
        note(letter.names);
    else if (letter.read)
        note_read(*std::move(letter.read));
    else
        note_written(letter.written);
    if (changed_)
        changed_();
}

void RunTimeStore::note(const Names& names) {
    take_names(values_, names);
    is_unwritten_ = true;
    if (!is_writing_)
        write();
}

void RunTimeStore::note_read(Result<json::ReadRunTime> read) {
    is_writing_ = false;
    take_in(std::move(read));
    if (is_unread_)
        return tell(fail(Errc::unavailable, "{}", problem_));
    if (read_late_)
        read_late_();
    // Who waits is told when it is written.
    waiting_.insert(waiting_.begin(), std::make_move_iterator(underway_.begin()),
                    std::make_move_iterator(underway_.end()));
    underway_.clear();
    write();
}

void RunTimeStore::note_written(const Result<>& written) {
    is_writing_ = false;
    problem_ = written
                   ? ""
                   : fmt::format("{}; what is set ends with this virtguardd", written.error().what);
    if (!written)
        log(Level::error, "run time: {}", problem_);
    tell(written);
}

/// Tells who waited for what is done now, and sees to what is not.
void RunTimeStore::tell(const Result<>& done) {
    std::vector<Kept> told = std::exchange(underway_, {});
    if (done) {
        backoff_.reset();
        if (retry_)
            retry_->disarm();
        if (is_unwritten_)
            write();
        else
            find_names();
    } else if (!waiting_.empty())
        write();
    else if (retry_)
        retry_->arm_after(backoff_.next());
    for (Kept& kept : told)
        kept(done ? Result<>{} : fail(done.error().code, "{}{}", not_kept, done.error().what));
}

/// Only when all is on the disk: it may wait for a server. Each user is looked for once.
void RunTimeStore::find_names() {
    std::set<std::uint32_t> uids = nameless(values_);
    std::erase_if(uids, [this](std::uint32_t uid) { return !looked_for_.insert(uid).second; });
    if (uids.empty())
        return;
    (void)files_.run([uids = std::move(uids), mail = mail_] {
        if (Names names = names_of(uids); mail && !names.empty())
            (void)mail->push({.names = std::move(names)});
    });
}

} // namespace virtguard::daemon
