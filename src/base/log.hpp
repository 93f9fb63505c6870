// SPDX-License-Identifier: Apache-2.0
#pragma once
// Lines on stderr; where that is the journal's, with the level systemd reads ("<4>"). Called by
// programs and by the thread that talks to libvirt; nothing else logs.

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/journal.hpp"

namespace virtguard {

/// syslog's numbers. error: we failed someone; warning: ignored, and says so; notice: the state
/// changed; info: start and stop; debug: the rest.
enum class Level { error = 3, warning = 4, notice = 5, info = 6, debug = 7 };

/// One line; control characters in it are shown as \xNN. Never waits: where whoever reads stderr is
/// behind, the line is lost, and the next one that gets through says how many were.
void log_line(Level level, std::string_view line);

/// From now on lines with fields go there where stderr is the journal's. To be called before there
/// are other threads.
inline constexpr const char* journal_socket_path = "/run/systemd/journal/socket";
void set_journal_socket(const std::string& path);

/// The same line with fields; elsewhere than in the journal, and where its socket does not take it,
/// without them.
void log_line(Level level, std::string_view line, const LogFields& fields);

template <class... Args>
void log(Level level, fmt::format_string<Args...> text, Args&&... args) {
    log_line(level, fmt::format(text, std::forward<Args>(args)...));
}

} // namespace virtguard
