// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is set at run time, and the file that has it for the next daemon.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "core/run_time.hpp"
#include "daemon/files_thread.hpp"
#include "loop/loop.hpp"
#include "loop/mailbox.hpp"
#include "virt/backoff.hpp"
#include "json/run_time.hpp"

namespace virtguard::daemon {

/// Who orders something now.
[[nodiscard]] core::Setter setter_now(std::uint32_t user);

/// Holds at once what it is given, and has the files thread write it. While that is under way, or
/// storage hangs, what comes in waits for one more write.
class RunTimeStore {
  public:
    /// Leads what an error says: set it is.
    static constexpr std::string_view not_kept = "set, but not kept: ";
    /// Runs when what was set is on the disk, or with why it is not (io, unavailable).
    using Kept = std::move_only_function<void(Result<>)>;

    /// Reads the file, which is waited for. One that is damaged is set aside, and nothing is set
    /// then; a reservation that cannot be is left out. One that cannot be read now is left alone,
    /// and tried again until it can. `boot` tells this boot of the host from others.
    RunTimeStore(std::filesystem::path file, FilesThread& files, std::string boot = {});
    RunTimeStore(const RunTimeStore&) = delete;
    RunTimeStore& operator=(const RunTimeStore&) = delete;
    /// What is set and nobody was told of yet, the next daemon may know or not.
    ~RunTimeStore() = default;

    /// Tells who waits for what was set, and tries again what failed, from now on; `changed` when
    /// problem() or a name of values() has, `read_late` when more is set, as the file says.
    [[nodiscard]] Result<> watch(loop::Loop& loop, std::function<void()> changed,
                                 std::function<void()> read_late = nullptr);

    [[nodiscard]] const core::RunTime& values() const { return values_; }
    void set(core::RunTime values, Kept kept);

    /// Why the next daemon would not know what is set now, or this one does not know what was set;
    /// else "".
    [[nodiscard]] const std::string& problem() const { return problem_; }

  private:
    using Names = std::map<std::uint32_t, std::string>;
    /// What the files thread has done: one of the three.
    struct Letter {
        Result<> written{};
        std::optional<Result<json::ReadRunTime>> read{};
        Names names{};
    };
    using Mail = loop::Mailbox<Letter>;

    void take_in(Result<json::ReadRunTime> read);
    void write();
    void note(Letter letter);
    void note(const Names& names);
    void note_read(Result<json::ReadRunTime> read);
    void note_written(const Result<>& written);
    void tell(const Result<>& done);
    void find_names();

    std::filesystem::path file_;
    FilesThread& files_;
    std::string boot_;
    core::RunTime values_;
    std::string problem_;
    std::vector<Kept> waiting_;  ///< for a write that has not begun
    std::vector<Kept> underway_; ///< for the one that has
    bool is_unread_ = false;     ///< the file may have more than values_, and is not to be replaced
    bool is_writing_ = false;
    bool is_unwritten_ = false;          ///< values_ has what no write that has begun has
    std::set<std::uint32_t> looked_for_; ///< users whose names were asked for
    virt::Backoff backoff_{std::chrono::seconds(1), std::chrono::minutes(5)};
    std::shared_ptr<Mail> mail_; ///< outlives this, for the files thread
    std::optional<loop::Io> reading_mail_;
    std::optional<loop::Timer> retry_;
    std::function<void()> changed_;
    std::function<void()> read_late_;
};

} // namespace virtguard::daemon
