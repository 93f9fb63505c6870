// SPDX-License-Identifier: Apache-2.0
#pragma once
// The policy in force: that of the operator's files, and over it what is set at run time.

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "core/policy.hpp"
#include "core/run_time.hpp"
#include "core/topology.hpp"
#include "daemon/capacity_watch.hpp"
#include "daemon/files_thread.hpp"
#include "daemon/policy_store.hpp"
#include "daemon/run_time_store.hpp"
#include "loop/loop.hpp"
#include "loop/mailbox.hpp"
#include "json/document.hpp"

namespace virtguard::daemon {

/// A bad policy changes nothing: the one before stays, and problems() says so. Whenever the files
/// have been read, hooks are told what concerns them, and a good policy is kept for a start with a
/// bad one.
class CurrentPolicy {
  public:
    struct Folders {
        std::filesystem::path policy; ///< the operator's
        std::filesystem::path state;
        std::string boot{}; ///< tells this boot of the host from others
    };

    /// Logs what is wrong with the policy it starts with, and reads what was set at run time and,
    /// not for long, the capacities that are in files, which is waited for. The files thread must
    /// outlive this.
    CurrentPolicy(Folders folders, StartPolicy start, FilesThread& files);
    CurrentPolicy(const CurrentPolicy&) = delete;
    CurrentPolicy& operator=(const CurrentPolicy&) = delete;
    ~CurrentPolicy() = default;

    struct Tell {
        std::function<void()> in_force; ///< it is another, and is to be applied
        std::function<void()> changed;  ///< problems(), or what settings() says, and nothing else
    };
    /// Nothing can be changed before.
    [[nodiscard]] Result<> watch(loop::Loop& loop, Tell tell);

    [[nodiscard]] core::Policy in_force() const;
    [[nodiscard]] const core::Policy& of_files() const { return of_files_; }
    [[nodiscard]] json::PolicyInForce settings() const;
    [[nodiscard]] const RunTimeStore& run_time() const { return run_time_; }
    [[nodiscard]] RunTimeStore& run_time() { return run_time_; }

    /// The operator's files have errors, and are not in force.
    [[nodiscard]] bool has_errors() const { return !errors_.empty(); }
    /// Those, why what is set at run time may be lost or has no effect, and which capacities could
    /// not be read; each with its subject.
    [[nodiscard]] std::vector<std::string> problems() const;

    /// Runs when a policy is in force, or with what is wrong with it, or (unavailable) at once
    /// where the files thread is too busy.
    using Reloaded = std::move_only_function<void(Result<>)>;
    /// Loads the policy anew for this host on the files thread, which posts it to `loaded`.
    void reload(core::Topology topology, loop::Mailbox<CheckedPolicy>& loaded, Reloaded done);
    /// Puts a reloaded policy in force, or says what is wrong with it and keeps the old one.
    void apply(CheckedPolicy loaded);

    /// Reads the capacities that are in files soon; what has changed of them is then in force.
    void read_capacities() { capacities_->look(of_files_); }
    /// The same; `then` runs when that is done, or after so long.
    void read_capacities(std::chrono::nanoseconds at_most, CapacityWatch::Then then) {
        capacities_->look(of_files_, at_most, std::move(then));
    }

    /// Has an order of the policy carried out at once; done runs when it is on the disk, too, or
    /// with why it is not. The user is who gave it. What the policy does not allow is not carried
    /// out.
    void carry_out(const core::Order& order, std::uint32_t user, RunTimeStore::Kept done);

  private:
    [[nodiscard]] Result<> check_known(const core::Order& order) const;
    void take_in(const host::CapacityReadings& readings);
    void write_what_others_read();
    /// The mode set at run time is one that the defaults in place of a policy must not have.
    [[nodiscard]] bool is_held_back() const;

    Folders folders_;
    FilesThread& files_;
    core::Policy of_files_;
    bool only_observes_ = false;      ///< of_files_ is the defaults, for want of any good policy
    std::vector<std::string> errors_; ///< of the operator's files, when they are not in force
    RunTimeStore run_time_;
    std::deque<Reloaded> reloads_; ///< whom to tell of what the files thread posts, in its order
    std::unique_ptr<CapacityWatch> capacities_;
    Tell tell_;
};

} // namespace virtguard::daemon
