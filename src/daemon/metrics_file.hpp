// SPDX-License-Identifier: Apache-2.0
#pragma once
// The metrics as a file for node_exporter's textfile collector, where the policy names a folder for
// it (metrics.textfile-folder).

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "daemon/files_thread.hpp"
#include "loop/loop.hpp"

namespace virtguard::daemon {

/// Writes FOLDER/virtguard.prom soon after something has changed, and then not again for a while.
/// Where nothing changes, or there is no folder, nothing wakes up.
class MetricsFile {
  public:
    /// As often as Prometheus asks node_exporter, mostly; working the text out is dear.
    static constexpr std::chrono::seconds interval{15};

    using Text = std::function<std::string()>; ///< of the metrics as they are now

    [[nodiscard]] static Result<std::unique_ptr<MetricsFile>>
    create(loop::Loop& loop, FilesThread& files, Text text, Span pause = interval);

    /// Where to write from now on; "": nowhere. What was written in another folder is removed:
    /// node_exporter would show it as if it were of now.
    void set_folder(const std::string& folder);

    void note_change();

  private:
    /// What the jobs share with the main thread and with each other.
    struct Writing {
        std::atomic<bool> busy = false; ///< a text is on its way, or storage hangs
        std::string problem;            ///< of the files thread: what it said last, else ""
    };

    MetricsFile(FilesThread& files, Text text, Span pause)
        : files_(files), text_(std::move(text)), pause_(pause) {}
    void write();

    FilesThread& files_;
    Text text_;
    Span pause_;
    std::filesystem::path file_; ///< empty: none
    std::optional<loop::Timer> timer_;
    bool armed_ = false;
    Instant next_{}; ///< not written again before
    std::shared_ptr<Writing> writing_ = std::make_shared<Writing>();
};

} // namespace virtguard::daemon
