// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <string>
#include <utility>

#include <unistd.h>

namespace virtguard {

void log_line(Level level, std::string_view line) {
    std::string text = fmt::format("<{}>", std::to_underlying(level));
    for (const char c : line) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7f)
            text += fmt::format("\\x{:02x}", byte);
        else
            text += c;
    }
    text += '\n';
    // One write, so that lines of two threads do not mix. Nobody is left to tell when it fails.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

} // namespace virtguard
