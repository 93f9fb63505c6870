// SPDX-License-Identifier: Apache-2.0
#include "daemon/files_thread.hpp"

#include <algorithm>
#include <limits>
#include <system_error>

#include <linux/close_range.h>
#include <poll.h>
#include <unistd.h>

namespace virtguard::daemon {

namespace {

/// Jobs come one per reload and per change of state; more than this means that storage hangs.
constexpr std::size_t max_jobs = 64;

/// Gives this thread a table of descriptors of its own, with two that stay. Where the kernel does
/// not (before 5.9, or by a filter) nothing is closed: it would be closed for all.
void leave_open_only(int one, int other) {
    constexpr int standard = 3;
    const auto [first, last] = std::minmax({one, other});
    const auto close = [](int from, int to, int flags) {
        return from > to ||
               ::close_range(static_cast<unsigned>(from), static_cast<unsigned>(to), flags) == 0;
    };
    if (close(last + 1, std::numeric_limits<int>::max(), CLOSE_RANGE_UNSHARE)) {
        (void)close(first + 1, last - 1, 0);
        (void)close(standard, first - 1, 0);
    }
}

} // namespace

Result<std::unique_ptr<FilesThread>> FilesThread::start(std::optional<int> keep) {
    auto jobs = loop::Mailbox<Job>::create(max_jobs);
    if (!jobs)
        return std::unexpected(jobs.error());
    try {
        return std::unique_ptr<FilesThread>(new FilesThread(*std::move(jobs), keep));
    } catch (const std::system_error& error) { // as many as the unit's TasksMax are there
        return fail(Errc::limit, "no thread: {}", error.code().message());
    }
}

FilesThread::FilesThread(std::unique_ptr<loop::Mailbox<Job>> jobs, std::optional<int> keep)
    : jobs_(std::move(jobs)), thread_([this, keep] { work(keep); }) {}

FilesThread::~FilesThread() {
    (void)stop({});
    thread_.join();
}

bool FilesThread::stop(std::chrono::milliseconds patience) {
    ending_ = true;
    (void)jobs_->push([] {}); // wakes it; when it cannot be pushed there are jobs to wake it
    return end_.wait_for(patience) == std::future_status::ready;
}

void FilesThread::work(std::optional<int> keep) {
    if (keep)
        leave_open_only(*keep, jobs_->fd());
    while (!ending_) {
        pollfd waiting{.fd = jobs_->fd(), .events = POLLIN, .revents = 0};
        (void)::poll(&waiting, 1, -1); // a signal only makes it look once more
        for (Job& job : jobs_->drain())
            job();
    }
    for (Job& job : jobs_->drain()) // given before the end, and not seen yet
        job();
    ended_.set_value();
}

} // namespace virtguard::daemon
