// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is set at run time, and the file that has it for the next daemon.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "core/run_time.hpp"
#include "daemon/files_thread.hpp"
#include "loop/loop.hpp"
#include "loop/mailbox.hpp"

namespace virtguard::daemon {

/// Holds at once what it is given, and has the files thread write it. While that is under way, or
/// storage hangs, what comes in waits for one more write.
class RunTimeStore {
  public:
    /// Runs when what was set is on the disk, or with why it is not (io, unavailable); set it is.
    using Kept = std::move_only_function<void(Result<>)>;

    /// Reads the file, which is waited for. One that cannot be used is set aside, and nothing is
    /// set then.
    RunTimeStore(std::filesystem::path file, FilesThread& files);
    RunTimeStore(const RunTimeStore&) = delete;
    RunTimeStore& operator=(const RunTimeStore&) = delete;
    /// What is set and nobody was told of yet, the next daemon may know or not.
    ~RunTimeStore() = default;

    /// Tells who waits for what was set, from now on; `changed` when problem() or a name of
    /// values() has.
    [[nodiscard]] Result<> watch(loop::Loop& loop, std::function<void()> changed);

    [[nodiscard]] const core::RunTime& values() const { return values_; }
    void set(core::RunTime values, Kept kept);

    /// Why the next daemon would not know what is set now, or this one does not know what was set;
    /// else "".
    [[nodiscard]] const std::string& problem() const { return problem_; }

  private:
    /// What the files thread has written, or failed to.
    struct Written {
        Result<> result;
        core::RunTime values; ///< with the names of users
    };
    using Mail = loop::Mailbox<Written>;

    void read();
    void write();
    void note(const Written& written);

    std::filesystem::path file_;
    FilesThread& files_;
    core::RunTime values_;
    std::string problem_;
    std::vector<Kept> waiting_;  ///< for a write that has not begun
    std::vector<Kept> underway_; ///< for the one that has
    bool is_writing_ = false;
    bool is_unwritten_ = false;  ///< values_ has what no write that has begun has
    std::shared_ptr<Mail> mail_; ///< outlives this, for the files thread
    std::optional<loop::Io> reading_mail_;
    std::function<void()> changed_;
};

} // namespace virtguard::daemon
