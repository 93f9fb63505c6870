// SPDX-License-Identifier: Apache-2.0
#pragma once
// A thread for what can block: policy files, durable state, /proc files of guests. It runs jobs
// in order; a job that has a result posts it to a mailbox itself. XmlReader and StorageWatch have
// others.

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "loop/mailbox.hpp"

namespace virtguard::daemon {

class FilesThread {
  public:
    using Job = std::move_only_function<void()>;

    [[nodiscard]] static Result<std::unique_ptr<FilesThread>> start();

    FilesThread(const FilesThread&) = delete;
    FilesThread& operator=(const FilesThread&) = delete;
    ~FilesThread();

    /// Finishes the jobs it was given, and ends. False: it has not after that time, as storage
    /// hangs; then nothing but the end of the process is left, without destroying this.
    [[nodiscard]] bool stop(std::chrono::milliseconds patience);

    /// Never waits. False: there are too many jobs already, and this one was not taken.
    [[nodiscard]] bool run(Job job) { return jobs_->push(std::move(job)); }

    /// For long jobs: it is to end, and what nobody will read is not worth finishing. Any thread.
    [[nodiscard]] bool is_ending() const { return ending_; }

  private:
    explicit FilesThread(std::unique_ptr<loop::Mailbox<Job>> jobs);
    void work();

    std::unique_ptr<loop::Mailbox<Job>> jobs_;
    std::atomic<bool> ending_ = false;
    std::promise<void> ended_;
    std::future<void> end_ = ended_.get_future();
    std::thread thread_;
};

} // namespace virtguard::daemon
