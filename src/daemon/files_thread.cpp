// SPDX-License-Identifier: Apache-2.0
#include "daemon/files_thread.hpp"

#include <poll.h>

namespace virtguard::daemon {

namespace {

/// Jobs come one per reload and per change of state; more than this means that storage hangs.
constexpr std::size_t max_jobs = 64;

} // namespace

Result<std::unique_ptr<FilesThread>> FilesThread::start() {
    auto jobs = loop::Mailbox<Job>::create(max_jobs);
    if (!jobs)
        return std::unexpected(jobs.error());
    return std::unique_ptr<FilesThread>(new FilesThread(*std::move(jobs)));
}

FilesThread::FilesThread(std::unique_ptr<loop::Mailbox<Job>> jobs)
    : jobs_(std::move(jobs)), thread_([this] { work(); }) {}

FilesThread::~FilesThread() {
    (void)stop({});
    thread_.join();
}

bool FilesThread::stop(std::chrono::milliseconds patience) {
    ending_ = true;
    (void)jobs_->push([] {}); // wakes it; when it cannot be pushed there are jobs to wake it
    return end_.wait_for(patience) == std::future_status::ready;
}

void FilesThread::work() {
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
