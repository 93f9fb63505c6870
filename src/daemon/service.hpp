// SPDX-License-Identifier: Apache-2.0
#pragma once
// virtguardd: owns the guard and turns what the adapters report into its events. Everything here
// runs on the main thread and waits for nothing but local kernel files.

#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "core/guard.hpp"
#include "core/history.hpp"
#include "core/report.hpp"
#include "daemon/files_thread.hpp"
#include "daemon/guest_store.hpp"
#include "daemon/libvirt_watch.hpp"
#include "daemon/metrics_file.hpp"
#include "daemon/policy_store.hpp"
#include "daemon/read_domain.hpp"
#include "daemon/residency_watch.hpp"
#include "daemon/run_time_store.hpp"
#include "daemon/status_watch.hpp"
#include "daemon/topology_watch.hpp"
#include "loop/loop.hpp"
#include "loop/mailbox.hpp"
#include "virt/message.hpp"
#include "wire/server.hpp"
#include "json/document.hpp"

namespace virtguard::daemon {

struct ServiceOptions {
    std::filesystem::path policy_folder;
    std::filesystem::path state_folder;
    std::filesystem::path run_folder; ///< of a file system that is in memory
    std::filesystem::path root;       ///< where /sys, /proc, /run are found: "/" but for tests
    bool live_topology = true; ///< the topology is this machine's: its pools are read anew, and
                               ///< what guests occupy
    /// Between looks at this machine. A little more than between libvirt's, which bring one along
    /// as long as they come.
    std::chrono::nanoseconds machine_interval = std::chrono::seconds(65);
};

class Service {
  public:
    using Reply = std::move_only_function<void(std::string)>;

    [[nodiscard]] static Result<std::unique_ptr<Service>>
    create(ServiceOptions options, core::Topology topology, StartPolicy policy, FilesThread& files,
           loop::Loop& loop);
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;
    ~Service() = default;

    /// Answers one request from the socket: at once, but for a start that fits only in a place kept
    /// for a returning guest, which waits for the end of that. The bytes are empty where no reply
    /// is due.
    void handle(const wire::Request& request, Reply reply);

    /// What the libvirt thread saw.
    void handle(virt::Message message);

    /// Who is to look at a domain soon, from when on libvirt can be asked.
    using AskForLook = std::function<void(const Uuid&)>;
    void set_ask_for_look(AskForLook ask) { ask_for_look_ = std::move(ask); }

    /// What would fit of a domain that is checked is dear to work out.
    enum class Fits { left_out, told };
    /// What a start with this XML would be answered. Errors: syntax, limit.
    [[nodiscard]] Result<core::Outcome> check(const ReadDomain& read, Fits fits);
    /// What a start of a guest would be answered that is known by this name or UUID, with its own
    /// place counted as free. Error: not_found.
    [[nodiscard]] Result<core::Outcome> explain(std::string_view guest);

    /// Runs when a policy is in force, or with what is wrong with it, or (unavailable) at once
    /// where the files thread is too busy.
    using Reloaded = std::move_only_function<void(Result<>)>;
    /// Loads the policy anew on the files thread, which posts it to `loaded`.
    void reload(loop::Mailbox<CheckedPolicy>& loaded, Reloaded done);
    /// Puts a reloaded policy in force, or says what is wrong with it and keeps the old one.
    void apply(CheckedPolicy loaded);

    /// Has an order carried out at once; done runs when it is on the disk, too, or with why it is
    /// not. The user is who gave it.
    void carry_out(const core::Order& order, std::uint32_t user, RunTimeStore::Kept done);

    /// The policy of the files, without what is set at run time.
    [[nodiscard]] const core::Policy& files_policy() const { return files_policy_; }

    /// Writes all guests to the run folder, which is a new one.
    void keep_guests_anew() { store_.save_anew(guard_); }

    /// What runs whenever status() may have changed: after that, so it must be short, and may be
    /// called for nothing.
    void set_on_change(std::function<void()> changed) { on_change_ = std::move(changed); }

    [[nodiscard]] const core::Guard& guard() const { return guard_; }
    [[nodiscard]] core::Status status() const;
    [[nodiscard]] const core::History& history() const { return history_; }
    /// One line for systemd.
    [[nodiscard]] std::string status_line() const;

  private:
    /// A start that waits for a kept place.
    struct Parked {
        core::Domain domain;
        wire::RequestHeader header;
        Reply reply;
    };

    Service(ServiceOptions options, core::Topology topology, StartPolicy policy,
            FilesThread& files);
    [[nodiscard]] Result<> watch(loop::Loop& loop);
    [[nodiscard]] Result<> watch_machine(loop::Loop& loop);
    void prepare(const wire::Request& request, Reply reply);
    void decide(Parked start);
    void answer(const core::Domain& domain, const core::Answer& answer, Instant exec, Reply& reply);
    void end_returns();
    void status_file_written(std::string_view name);
    void arm_timer();
    void told(const wire::Request& request);
    [[nodiscard]] std::string check_reply(std::string_view xml);
    [[nodiscard]] core::Outcome check(const core::Domain& domain);
    void put_in_force(core::Policy policy);
    void apply_policy();
    [[nodiscard]] json::PolicyInForce policy_in_force() const;
    void carry_out(const wire::Request& request, Reply reply);
    void look(virt::Look seen);
    void look(const virt::DomainLook& seen);
    void look_at_machine();
    void apply(core::Topology topology);
    void note(const core::Domain& domain, const core::Answer& answer, Instant exec);
    void refresh_hugepages(core::ForeignPages::Seen seen = core::ForeignPages::Seen::before);
    void note_residency(ResidencyRound round);
    void take_in_residency();
    void note_over_capacity();
    void save();
    void note_change() const;
    void after_policy_change();

    ServiceOptions options_;
    FilesThread& files_;
    core::Policy files_policy_;
    RunTimeStore run_time_;
    core::Guard guard_;
    GuestStore store_;
    std::vector<std::string>
        policy_errors_;         ///< of the operator's files, when they are not in force
    std::string pages_problem_; ///< why the hugepage pools could not be read, else ""
    std::unique_ptr<LibvirtWatch> libvirt_;
    std::vector<core::Resource> over_capacity_;
    std::list<Parked> parked_;
    std::unique_ptr<ResidencyWatch> residency_; ///< nothing without a live topology
    std::list<ResidencyRound> rounds_;          ///< seen, and not all in the guard
    std::optional<loop::Deferred> taking_in_;
    std::unique_ptr<TopologyWatch> topology_;   ///< as residency_
    std::unique_ptr<StatusWatch> status_files_; ///< the same
    std::unique_ptr<loop::Timer> machine_;      ///< the same: the next look at this machine
    Instant machine_seen_{};                    ///< when the last one began
    std::deque<Reloaded> reloads_; ///< whom to tell of what the files thread posts, in its order
    AskForLook ask_for_look_;
    std::function<void()> on_change_;
    std::optional<WallTime> snapshot_; ///< the beginning of the last complete look
    std::unique_ptr<MetricsFile> metrics_;
    std::unique_ptr<loop::Timer> timer_; ///< the end of a kept place, or of a wait for one
    core::History history_;
};

} // namespace virtguard::daemon
