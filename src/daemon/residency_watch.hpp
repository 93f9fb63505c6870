// SPDX-License-Identifier: Apache-2.0
#pragma once
// Keeps looking at what running guests occupy, on the files thread: the kernel may take its time.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "core/guard.hpp"
#include "core/residency.hpp"
#include "daemon/files_thread.hpp"
#include "loop/loop.hpp"
#include "loop/mailbox.hpp"

namespace virtguard::daemon {

/// What one round of looking found.
struct ResidencyRound {
    Instant began;
    std::map<std::string, core::Residency> guests; ///< by identity; those that could be read
    /// Of the host's ordinary memory, bytes that are not to be had. Only of a round over all
    /// guests, and only where it could be read.
    std::optional<std::int64_t> memory_in_use;
};

/// One round at a time: what is asked for while one is under way is looked at in the next.
class ResidencyWatch {
  public:
    using Tell = std::function<void(ResidencyRound)>;

    /// root: "/" but for tests. `tell` runs in the loop. The guard says who runs; it and the files
    /// thread must outlive the watch.
    [[nodiscard]] static Result<std::unique_ptr<ResidencyWatch>>
    create(loop::Loop& loop, FilesThread& files, const core::Guard& guard,
           std::filesystem::path root, Tell tell);
    ResidencyWatch(const ResidencyWatch&) = delete;
    ResidencyWatch& operator=(const ResidencyWatch&) = delete;
    ~ResidencyWatch() = default;

    /// Looks at one guest soon, where it runs then.
    void look_at(const std::string& identity);
    /// Looks soon at all guests that run, and at the host.
    void look_at_all();

  private:
    using Mail = loop::Mailbox<ResidencyRound>;

    ResidencyWatch(FilesThread& files, const core::Guard& guard, std::filesystem::path root,
                   std::shared_ptr<Mail> mail)
        : files_(files), guard_(guard), root_(std::move(root)), mail_(std::move(mail)) {}
    void start_round();

    FilesThread& files_;
    const core::Guard& guard_;
    std::filesystem::path root_;
    std::shared_ptr<Mail> mail_; ///< shared with the round under way
    std::optional<loop::Io> arrived_;
    std::set<std::string> wanted_; ///< identities for the next round
    bool all_wanted_ = false;
    bool under_way_ = false;
};

} // namespace virtguard::daemon
