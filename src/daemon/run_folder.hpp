// SPDX-License-Identifier: Apache-2.0
#pragma once
// The daemon's folder in /run. Whoever may write there may delete what is in it (so do cleaners of
// old files, and people), and a daemon whose socket is gone would be deaf for ever.
//
// Two daemons would each admit what fits only once. The one that owns the folder is the one that
// holds the lock of the file "lock" that is there now. When that file is not there any more, its
// daemon makes a new one; if another has done so first, it has the folder.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <sys/types.h>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "base/unique.hpp"
#include "loop/loop.hpp"

namespace virtguard::daemon {

/// Makes a listening socket at a path, in place of what a dead daemon left there; only root can
/// connect to it.
[[nodiscard]] Result<UniqueFd> listen_at(const std::string& path);

class RunFolder {
  public:
    /// What happens to the folder, told in the loop.
    struct Handlers {
        std::function<void(UniqueFd)> on_socket; ///< the socket was made anew
        std::function<void()> on_emptied;        ///< all that was kept in the folder may be gone
        std::function<void()> on_taken;          ///< another daemon has it, and this one must end
    };

    /// Makes the folder, where there is none, and takes it. Error: unavailable where another daemon
    /// has it.
    [[nodiscard]] static Result<std::unique_ptr<RunFolder>> take(std::string path);
    RunFolder(const RunFolder&) = delete;
    RunFolder& operator=(const RunFolder&) = delete;
    ~RunFolder() = default;

    /// Makes the socket, hook.sock; to be called once, before keep().
    [[nodiscard]] Result<UniqueFd> listen();

    /// From then on makes anew what is deleted or replaced: folder, lock and, where there was one,
    /// socket. The loop must outlive it.
    [[nodiscard]] Result<> keep(loop::Loop& loop, Handlers handlers);

  private:
    /// Which file it is. While a process has it open, or has a socket bound to it, no other file
    /// gets the same.
    struct FileId {
        dev_t device = 0;
        ino_t inode = 0;

        friend bool operator==(const FileId&, const FileId&) = default;
    };

    explicit RunFolder(std::string path) : path_(std::move(path)) {}
    [[nodiscard]] static std::optional<FileId> id_of(const std::string& path);
    [[nodiscard]] std::string lock_path() const { return path_ + "/lock"; }
    [[nodiscard]] std::string socket_path() const { return path_ + "/hook.sock"; }
    [[nodiscard]] Result<> make_and_lock();
    [[nodiscard]] Result<UniqueFd> try_lock();
    [[nodiscard]] Result<> watch();
    [[nodiscard]] Result<> repair();
    [[nodiscard]] bool has_lock() const;
    [[nodiscard]] bool has_socket() const;
    void check();

    std::string path_;
    UniqueFd lock_;
    bool listens_ = false;
    bool emptied_ = false;         ///< and nobody has been told
    std::optional<FileId> socket_; ///< of the file; nothing while there is none
    loop::Loop* loop_ = nullptr;
    Handlers handlers_;
    std::optional<loop::Watch> watch_;
    std::optional<loop::Timer> timer_;
    int repairs_ = 0; ///< tried in the interval of limited repairs that ends then
    Instant interval_end_;
    std::string problem_; ///< why the last one failed, else ""
};

} // namespace virtguard::daemon
