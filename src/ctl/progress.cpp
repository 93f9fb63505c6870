// SPDX-License-Identifier: Apache-2.0
#include "ctl/progress.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <utility>

#include <unistd.h>

#include <fmt/format.h>

namespace virtguard::ctl {

namespace {

/// How many there are; all of them in the main thread.
int living = 0;

/// Who cannot be shown that it takes long is shown nothing.
void show(std::string_view text) {
    if (::write(STDERR_FILENO, text.data(), text.size()) < 0)
        return;
}

void run(const std::stop_token& stop, const std::string& what) {
    constexpr std::chrono::seconds patience{1};
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    const auto begin = std::chrono::steady_clock::now();
    const auto is_over = [&stop] { return stop.stop_requested(); };
    bool shown = false;
    while (!stopped.wait_for(lock, stop, patience, is_over)) {
        const auto waited = std::chrono::duration_cast<std::chrono::seconds>(
            std::chrono::steady_clock::now() - begin);
        show(fmt::format("\r\x1b[Kvirtguardctl: {} ({} s)", what, waited.count()));
        shown = true;
    }
    if (shown)
        show("\r\x1b[K");
}

} // namespace

Progress::Progress(std::string what) {
    if (living++ == 0 && ::isatty(STDERR_FILENO) == 1)
        thread_ = std::jthread(
            [what = std::move(what)](const std::stop_token& stop) { run(stop, what); });
}

Progress::~Progress() {
    --living;
} // the thread is told to stop, and waited for

} // namespace virtguard::ctl
