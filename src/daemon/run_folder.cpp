// SPDX-License-Identifier: Apache-2.0
#include "daemon/run_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/file.hpp"
#include "base/log.hpp"

namespace virtguard::daemon {

namespace {

constexpr int backlog = 4096;

/// Something that undoes all repairs must not keep us from answering. One `rm -r` takes several:
/// it goes on with what is there anew.
constexpr int max_repairs = 16;
constexpr std::chrono::seconds repair_interval{1};
/// inotify does not tell of a mount above the folder, or of a parent's new name.
constexpr std::chrono::minutes check_interval{1};

} // namespace

Result<UniqueFd> listen_at(const std::string& path) {
    const auto failed = [&] { return kernel_failure(path, errno); };
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        return fail(Errc::limit, "{}: too long for a socket, which has at most {} bytes", path,
                    sizeof address.sun_path - 1);
    std::ranges::copy(path, address.sun_path);
    UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // Linux gives the file the mode that the socket has.
    if (!listener || ::fchmod(listener.get(), 0600) < 0)
        return failed();
    if (::unlink(path.c_str()) < 0 && errno != ENOENT)
        return failed();
    if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0 ||
        ::listen(listener.get(), backlog) < 0)
        return failed();
    return listener;
}

std::optional<RunFolder::FileId> RunFolder::id_of(const std::string& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) < 0)
        return std::nullopt;
    return FileId{status.st_dev, status.st_ino};
}

Result<std::unique_ptr<RunFolder>> RunFolder::take(std::string path) {
    std::unique_ptr<RunFolder> folder(new RunFolder(std::move(path)));
    if (auto done = folder->make_and_lock(); !done)
        return std::unexpected(done.error());
    return folder;
}

Result<> RunFolder::make_and_lock() {
    constexpr int tries = 10; // it is deleted again and again
    for (int i = 0; i < tries; ++i) {
        if (::mkdir(path_.c_str(), 0755) < 0 && errno != EEXIST)
            return kernel_failure(path_, errno);
        auto lock = try_lock();
        if (!lock && lock.error().code == Errc::not_found && i + 1 < tries)
            continue;
        if (!lock)
            return std::unexpected(lock.error());
        lock_ = *std::move(lock);
        if (has_lock())
            return {};
    }
    return fail(Errc::io, "{}: is deleted as soon as it is there", lock_path());
}

Result<UniqueFd> RunFolder::try_lock() {
    UniqueFd lock(::open(lock_path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock)
        return kernel_failure(lock_path(), errno);
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) < 0)
        return fail(Errc::unavailable, "{}: another virtguardd runs", lock_path());
    return lock;
}

bool RunFolder::has_lock() const {
    struct stat status {};
    return ::fstat(lock_.get(), &status) == 0 &&
           id_of(lock_path()) == FileId{status.st_dev, status.st_ino};
}

bool RunFolder::has_socket() const {
    return !listens_ || (socket_ && id_of(socket_path()) == socket_);
}

Result<UniqueFd> RunFolder::listen() {
    listens_ = true;
    auto listener = listen_at(socket_path());
    socket_ = listener ? id_of(socket_path()) : std::nullopt;
    return listener;
}

Result<> RunFolder::keep(loop::Loop& loop, Handlers handlers) {
    loop_ = &loop;
    handlers_ = std::move(handlers);
    auto timer = loop.timer("run folder", [this] { check(); });
    if (!timer)
        return std::unexpected(timer.error());
    timer_ = *std::move(timer);
    timer_->arm_after({}); // what was deleted before there was a watch
    return watch();
}

Result<> RunFolder::watch() {
    auto watch = loop_->on_change(
        "run folder", path_,
        IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF,
        [this](std::string_view) { check(); }, loop::Priority::urgent);
    if (!watch)
        return std::unexpected(watch.error());
    watch_ = *std::move(watch);
    return {};
}

void RunFolder::check() {
    if (has_lock() && has_socket() && watch_)
        return timer_->arm_after(check_interval);
    const Instant now = loop::now();
    if (now >= interval_end_) {
        interval_end_ = now + repair_interval;
        repairs_ = 0;
    }
    timer_->arm(interval_end_); // then for what is undone until then, or before there is a watch
    if (++repairs_ > max_repairs)
        return;
    const auto done = repair();
    if (!done && done.error().code == Errc::unavailable) {
        log(Level::error, "{}, and has taken {}: this one ends", done.error().what, path_);
        return handlers_.on_taken();
    }
    const std::string problem = done ? "" : done.error().what;
    if (!done && problem != problem_)
        log(Level::error, "{}; hooks cannot ask", problem);
    problem_ = problem;
}

Result<> RunFolder::repair() {
    if (!has_lock()) {
        watch_.reset();
        if (auto made = make_and_lock(); !made)
            return made;
        emptied_ = true;
        log(Level::warning, "{}: was deleted, and is there again", lock_path());
    }
    if (!watch_)
        if (auto watched = watch(); !watched)
            return watched;
    if (!has_socket()) {
        auto listener = listen();
        if (!listener)
            return std::unexpected(listener.error());
        log(Level::warning, "{}: was deleted or replaced; virtguardd listens there again",
            socket_path());
        handlers_.on_socket(*std::move(listener));
    }
    if (std::exchange(emptied_, false))
        handlers_.on_emptied();
    return {};
}

} // namespace virtguard::daemon
