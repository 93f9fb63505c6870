// SPDX-License-Identifier: Apache-2.0
#pragma once
// What virtguardctl prints for people, and its exit statuses.

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "core/report.hpp"
#include "json/document.hpp"

namespace virtguard::ctl {

inline constexpr int exit_ok = 0;
inline constexpr int exit_refused = 1;
inline constexpr int exit_bad_input = 2;
inline constexpr int exit_unreachable = 3;

void print(std::string_view text);
/// False, with an error shown, when not all that was printed could be written.
[[nodiscard]] bool flush();
/// "virtguardctl: ..." on stderr.
void show_error(std::string_view error);
/// Shows the error; the exit status is that of something unreachable, or else of bad input.
int failure(const Error& error);

/// "start:web.xml: admitted web-1 (cpu 2, memory 4.1 GiB)", then a line per note, each ended.
[[nodiscard]] std::string event_text(const json::Event& event);

/// The answer of check: the verdict, then a line per reason and note.
[[nodiscard]] std::string outcome_text(const core::Outcome& outcome);

/// The tables of status: the host's resources, the nodes', the guests.
[[nodiscard]] std::string status_text(const core::Status& status);

} // namespace virtguard::ctl
