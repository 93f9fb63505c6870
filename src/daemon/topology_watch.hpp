// SPDX-License-Identifier: Apache-2.0
#pragma once
// Notices CPUs and memory that come or go while the daemon runs. On the files thread: hwloc takes
// its time.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "core/topology.hpp"
#include "daemon/files_thread.hpp"
#include "loop/loop.hpp"
#include "loop/mailbox.hpp"

namespace virtguard::daemon {

class TopologyWatch {
  public:
    using Tell = std::function<void(core::Topology)>;

    /// root: "/" but for tests. `tell` runs in the loop. What there is now is taken to be known.
    /// The files thread must outlive the watch.
    [[nodiscard]] static Result<std::unique_ptr<TopologyWatch>>
    create(loop::Loop& loop, FilesThread& files, std::filesystem::path root, Tell tell);
    TopologyWatch(const TopologyWatch&) = delete;
    TopologyWatch& operator=(const TopologyWatch&) = delete;
    ~TopologyWatch() = default;

    /// Compares with what was last told, and tells when that is no longer so.
    void look();

  private:
    using Mail = loop::Mailbox<Result<core::Topology>>;

    TopologyWatch(FilesThread& files, std::filesystem::path root, std::shared_ptr<Mail> mail);
    void note_problem(std::string problem);

    FilesThread& files_;
    std::filesystem::path root_;
    std::shared_ptr<Mail> mail_;         ///< shared with a look under way
    std::shared_ptr<std::string> known_; ///< the kernel's files; the files thread's alone
    std::optional<loop::Io> arrived_;
    std::string problem_; ///< why the last look had no topology, else ""
};

} // namespace virtguard::daemon
