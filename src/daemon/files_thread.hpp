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
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "loop/mailbox.hpp"

namespace virtguard::daemon {

class FilesThread {
  public:
    using Job = std::move_only_function<void()>;

    [[nodiscard]] static Result<std::unique_ptr<FilesThread>> start() { return start({}); }
    /// Its jobs see nothing open of ours but this descriptor and the standard ones. When the
    /// process is killed while storage holds the thread, its lock and its sockets end all the same.
    [[nodiscard]] static Result<std::unique_ptr<FilesThread>> start_apart(int keep) {
        return start(std::optional(keep));
    }

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
    FilesThread(std::unique_ptr<loop::Mailbox<Job>> jobs, std::optional<int> keep);
    [[nodiscard]] static Result<std::unique_ptr<FilesThread>> start(std::optional<int> keep);
    void work(std::optional<int> keep);

    std::unique_ptr<loop::Mailbox<Job>> jobs_;
    std::atomic<bool> ending_ = false;
    std::promise<void> ended_;
    std::future<void> end_ = ended_.get_future();
    std::thread thread_;
};

} // namespace virtguard::daemon
