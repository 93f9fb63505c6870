// SPDX-License-Identifier: Apache-2.0
#pragma once
// virtguardd: owns the guard and turns what the adapters report into its events. Everything here
// runs on the main thread and waits for nothing but local kernel files.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "core/guard.hpp"
#include "core/history.hpp"
#include "core/report.hpp"
#include "daemon/current_policy.hpp"
#include "daemon/files_thread.hpp"
#include "daemon/guest_store.hpp"
#include "daemon/hugepage_pools.hpp"
#include "daemon/libvirt_watch.hpp"
#include "daemon/machine_watch.hpp"
#include "daemon/metrics_file.hpp"
#include "daemon/read_domain.hpp"
#include "daemon/reservations.hpp"
#include "daemon/run_time_store.hpp"
#include "daemon/start_answerer.hpp"
#include "daemon/storage_watch.hpp"
#include "loop/loop.hpp"
#include "virt/message.hpp"
#include "wire/server.hpp"

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
    std::optional<StorageReader> storage = std::nullopt; ///< of tests: in place of the root's
    Reservations::ClockIsRight clock_is_right = loop::is_wall_time_synchronised;
};

class Service {
  public:
    using Reply = StartAnswerer::Reply;

    [[nodiscard]] static Result<std::unique_ptr<Service>>
    create(ServiceOptions options, core::Topology topology, StartPolicy policy, FilesThread& files,
           loop::Loop& loop);
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;
    ~Service() = default;

    /// Answers one request from the socket: at once, but for a start that fits only in a place kept
    /// for a returning guest, which waits for the end of that, and for one whose images are yet to
    /// be read, as those of a check. The bytes are empty where no reply is due.
    void handle(const wire::Request& request, Reply reply);

    /// What the libvirt thread saw.
    void handle(virt::Message message);

    /// Who is to look at a domain soon, from when on libvirt can be asked.
    using AskForLook = std::function<void(const Uuid&)>;
    void set_ask_for_look(AskForLook ask) { ask_for_look_ = std::move(ask); }

    /// Runs when domains are to be asked anew: reservations may ask something else of their XML
    /// now.
    void set_on_questions(std::function<void()> ask) { on_questions_ = std::move(ask); }

    /// What would fit of a domain that is checked is dear to work out.
    enum class Fits { left_out, told };
    /// What a start with this XML would be answered, by what is known already of its images: who
    /// asks may be somebody for whom no file is to be read. Errors: syntax, limit.
    [[nodiscard]] Result<core::Outcome> check(const ReadDomain& read, Fits fits);
    /// What a start of a guest would be answered that is known by this name or UUID, with its own
    /// place counted as free. Error: not_found.
    [[nodiscard]] Result<core::Outcome> explain(std::string_view guest);
    /// The guest that is known by this name or UUID, until something changes; else nothing.
    [[nodiscard]] const core::Guest* find(std::string_view guest) const;

    [[nodiscard]] CurrentPolicy& policy() { return policy_; }
    [[nodiscard]] const CurrentPolicy& policy() const { return policy_; }

    /// Has an order carried out at once; done runs when it is on the disk, too, or with why it is
    /// not. A reservation may be refused. The user is who gave it.
    void carry_out(const core::Order& order, std::uint32_t user, RunTimeStore::Kept done);

    /// Writes all guests to the run folder, which is a new one.
    void keep_guests_anew() { store_.save_anew(guard_); }

    /// What runs whenever status() may have changed: after that, so it must be short, and may be
    /// called for nothing.
    void set_on_change(std::function<void()> changed) { on_change_ = std::move(changed); }

    [[nodiscard]] const core::RunTime& run_time() const { return policy_.run_time().values(); }
    [[nodiscard]] const core::Guard& guard() const { return guard_; }
    [[nodiscard]] core::Status status() const;
    [[nodiscard]] const core::History& history() const { return history_; }
    /// One line for systemd.
    [[nodiscard]] std::string status_line() const;

    /// Ends the threads that read storage. False: some hang, and nothing but the end of the process
    /// is left.
    [[nodiscard]] bool stop_storage(std::chrono::milliseconds patience) {
        return storage_ == nullptr || storage_->stop(patience);
    }

  private:
    Service(ServiceOptions options, core::Topology topology, StartPolicy policy,
            FilesThread& files);
    [[nodiscard]] Result<> watch(loop::Loop& loop);
    void status_file_written(std::string_view name);
    void told(const wire::Request& request);
    void check(std::string_view xml, Reply reply);
    [[nodiscard]] std::string check_reply(const ReadDomain& read);
    [[nodiscard]] core::Outcome check(const core::Domain& domain);
    void apply_policy();
    void carry_out(const wire::Request& request, Reply reply);
    void reservations_changed();
    void look(virt::Look seen);
    void look(const virt::DomainLook& seen);
    void note_over_capacity();
    void save();
    void note_change() const;
    [[nodiscard]] std::vector<std::string> problems() const;

    ServiceOptions options_;
    std::string boot_; ///< tells this boot of the host from others
    FilesThread& files_;
    CurrentPolicy policy_;
    core::Guard guard_;
    HugepagePools pages_;
    GuestStore store_;
    core::History history_;
    StartAnswerer starts_;
    std::unique_ptr<LibvirtWatch> libvirt_;
    std::unique_ptr<Reservations> reservations_;
    std::vector<core::Resource> over_capacity_;
    std::unique_ptr<StorageWatch> storage_; ///< nothing without a live topology
    std::unique_ptr<MachineWatch> machine_; ///< the same
    AskForLook ask_for_look_;
    std::function<void()> on_questions_;
    std::function<void()> on_change_;
    std::optional<WallTime> snapshot_; ///< the beginning of the last complete look
    std::unique_ptr<MetricsFile> metrics_;
};

} // namespace virtguard::daemon
