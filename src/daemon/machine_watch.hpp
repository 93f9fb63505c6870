// SPDX-License-Identifier: Apache-2.0
#pragma once
// Keeps looking at this machine, and tells the guard: its CPUs and nodes, its hugepages, its
// storage, what running guests occupy, and libvirt's status files. It asks the kernel only, so it
// goes on while libvirt does not answer.

#include <chrono>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "core/guard.hpp"
#include "daemon/files_thread.hpp"
#include "daemon/hugepage_pools.hpp"
#include "daemon/residency_watch.hpp"
#include "daemon/status_watch.hpp"
#include "daemon/storage_watch.hpp"
#include "daemon/topology_watch.hpp"
#include "loop/loop.hpp"

namespace virtguard::daemon {

class MachineWatch {
  public:
    struct Tell {
        std::function<void()> changed; ///< what there is, or what is occupied of it
        std::function<void()> looked;  ///< whatever else is to be looked at now and then
        std::function<void(std::string_view guest)> status_file_written; ///< of that name
    };

    /// Looks for the first time when the loop runs, and at this interval from then on. root: "/"
    /// but for tests. Files thread, guard, pools and storage must outlive the watch.
    [[nodiscard]] static Result<std::unique_ptr<MachineWatch>>
    create(loop::Loop& loop, FilesThread& files, core::Guard& guard, HugepagePools& pools,
           StorageWatch& storage, const std::filesystem::path& root,
           std::chrono::nanoseconds interval, Tell tell);
    MachineWatch(const MachineWatch&) = delete;
    MachineWatch& operator=(const MachineWatch&) = delete;
    ~MachineWatch() = default;

    /// At what a guest occupies, and at its images, soon.
    void look_at(const std::string& identity);

    enum class Guests { known, some_new };
    /// libvirt has told of all guests. Who is awake already may as well look at the machine, so
    /// that both are one wake-up a minute.
    void libvirt_has_told(Guests guests);

  private:
    MachineWatch(core::Guard& guard, HugepagePools& pools, StorageWatch& storage,
                 std::chrono::nanoseconds interval, Tell tell)
        : guard_(guard), pools_(pools), storage_(storage), interval_(interval),
          tell_(std::move(tell)) {}
    void look();
    void apply(core::Topology topology);
    void note(ResidencyRound round);
    void take_in_residency();

    core::Guard& guard_;
    HugepagePools& pools_;
    StorageWatch& storage_;
    std::chrono::nanoseconds interval_;
    Tell tell_;
    std::unique_ptr<ResidencyWatch> residency_;
    std::list<ResidencyRound> rounds_; ///< seen, and not all in the guard
    std::optional<loop::Deferred> taking_in_;
    std::unique_ptr<TopologyWatch> topology_;
    std::unique_ptr<StatusWatch> status_files_;
    std::optional<loop::Timer> next_; ///< look
    Instant seen_{};                  ///< when the last look began
};

} // namespace virtguard::daemon
