// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <string>
#include <utility>

#include <unistd.h>

#include "base/text.hpp"

namespace virtguard {

void log_line(Level level, std::string_view line) {
    const std::string text = fmt::format("<{}>{}\n", std::to_underlying(level), one_line(line));
    // One write, so that lines of two threads do not mix. Nobody is left to tell when it fails.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

} // namespace virtguard
