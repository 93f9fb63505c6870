// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics_file.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/file.hpp"
#include "base/log.hpp"

namespace virtguard::daemon {

Result<std::unique_ptr<MetricsFile>> MetricsFile::create(loop::Loop& loop, FilesThread& files,
                                                         Text text, Span pause) {
    std::unique_ptr<MetricsFile> made(new MetricsFile(files, std::move(text), pause));
    auto timer = loop.timer(
        "metrics", [raw = made.get()] { raw->write(); }, loop::Priority::idle);
    if (!timer)
        return std::unexpected(timer.error());
    made->timer_ = *std::move(timer);
    return made;
}

void MetricsFile::set_folder(const std::string& folder) {
    const std::filesystem::path file =
        folder.empty() ? std::filesystem::path() : std::filesystem::path(folder) / "virtguard.prom";
    const std::filesystem::path before = std::exchange(file_, file);
    if (before == file)
        return;
    if (!before.empty() && !files_.run([before] {
            std::error_code error;
            std::filesystem::remove(before, error);
        }))
        log(Level::warning, "metrics: {} stays, as it could not be removed", before.native());
    timer_->disarm();
    armed_ = false;
    note_change();
}

void MetricsFile::note_change() {
    if (file_.empty() || armed_)
        return;
    timer_->arm(std::max(next_, loop::now()));
    armed_ = true;
}

/// While storage hangs nothing is added to what waits for it; the next change asks again.
void MetricsFile::write() {
    armed_ = false;
    next_ = loop::now() + pause_;
    if (writing_->busy.exchange(true))
        return;
    const bool taken = files_.run([writing = writing_, file = file_, text = text_()] {
        const auto written = replace_file(file, text, Durability::volatile_, 0644);
        const std::string problem = written ? "" : written.error().what;
        if (!written && problem != writing->problem)
            log(Level::warning, "metrics: {}; what it says gets old", problem);
        if (written && !writing->problem.empty())
            log(Level::notice, "metrics: {}: written again", file.native());
        writing->problem = problem;
        writing->busy = false;
    });
    if (!taken)
        writing_->busy = false;
}

} // namespace virtguard::daemon
