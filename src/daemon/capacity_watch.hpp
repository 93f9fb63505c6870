// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads the files that capacities of custom resources come from, on the files thread: a read may
// hang.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
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

    /// Why files of the policy could not be read the last time, and what they are taken to say.
    [[nodiscard]] std::vector<std::string> problems(const core::Policy& policy) const;

  private:
    using Mail = loop::Mailbox<host::CapacityReadings>;

    CapacityWatch(FilesThread& files, std::shared_ptr<Mail> mail)
        : files_(files), mail_(std::move(mail)) {}
    void note(const host::CapacityReadings& readings);

    FilesThread& files_;
    std::shared_ptr<Mail> mail_; ///< shared with a round under way
    std::optional<loop::Io> arrived_;
    bool under_way_ = false;
    std::map<std::string, std::string> problems_; ///< by path
};

} // namespace virtguard::daemon
