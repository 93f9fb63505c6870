// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads the files that capacities of custom resources come from, on the files thread: a read may
// hang.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "core/policy.hpp"
#include "daemon/files_thread.hpp"
#include "host/capacity.hpp"
#include "loop/loop.hpp"
#include "loop/mailbox.hpp"

namespace virtguard::daemon {

/// What the files of a policy say at start. It waits for them, but not for long: what is not known
/// by then is left out.
[[nodiscard]] host::CapacityReadings read_at_start(FilesThread& files, const core::Policy& policy);

/// One round at a time. Where the policy has no such files nothing is done.
class CapacityWatch {
  public:
    using Tell = std::function<void(const host::CapacityReadings&)>;

    /// `tell` runs in the loop. The files thread must outlive the watch.
    [[nodiscard]] static Result<std::unique_ptr<CapacityWatch>>
    create(loop::Loop& loop, FilesThread& files, Tell tell);
    CapacityWatch(const CapacityWatch&) = delete;
    CapacityWatch& operator=(const CapacityWatch&) = delete;
    ~CapacityWatch() = default;

    /// Reads the files soon.
    void look(const core::Policy& policy);

    using Then = std::move_only_function<void()>;
    /// The same; `then` runs when what they say from now on was told, or after so long. At once
    /// where there are none.
    void look(const core::Policy& policy, std::chrono::nanoseconds at_most, Then then);

    /// Why files of the policy could not be read the last time, and what they are taken to say.
    [[nodiscard]] std::vector<std::string> problems(const core::Policy& policy) const;

  private:
    using Mail = loop::Mailbox<host::CapacityReadings>;

    CapacityWatch(FilesThread& files, std::shared_ptr<Mail> mail)
        : files_(files), mail_(std::move(mail)) {}
    void note(const host::CapacityReadings& readings);
    void begin(const core::Policy& policy);
    void arrive();
    void release_late();

    struct Waiting {
        Instant until;
        Then then;
        bool is_for_next = false; ///< the round under way had begun before
    };
    template <class Is>
    void release(Is is_released);

    FilesThread& files_;
    std::shared_ptr<Mail> mail_; ///< shared with a round under way
    std::optional<loop::Io> arrived_;
    std::optional<loop::Timer> patience_;
    std::vector<Waiting> waiting_;
    core::Policy policy_; ///< of the last look
    bool under_way_ = false;
    std::map<std::string, std::string> problems_; ///< by path
};

} // namespace virtguard::daemon
