// SPDX-License-Identifier: Apache-2.0
#pragma once
// virtguardctl recent: what the last starts were answered.

#include <string>
#include <vector>

#include "core/history.hpp"
#include "ctl/screen.hpp"

namespace virtguard::ctl {

/// In this machine's zone.
[[nodiscard]] std::string time_text(WallTime time);

[[nodiscard]] Ink ink_of(core::Verdict verdict);

/// A row for each start, in the order given, with times of this machine's zone.
[[nodiscard]] std::string recent_text(const std::vector<core::DecidedStart>& starts,
                                      const Screen& screen);

/// Asks the daemon on that socket, and prints the latest last, as a journal does; with json the
/// daemon's document, where the latest comes first. The exit status.
[[nodiscard]] int recent(const std::string& socket, bool json, const Screen& screen);

} // namespace virtguard::ctl
