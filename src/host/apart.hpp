// SPDX-License-Identifier: Apache-2.0
#pragma once
// hwloc 2.9 crashes on some malformed files (fuzzing finds one in a minute), complains of others on
// stderr, and can take minutes for a small text. So what others wrote is loaded in a child process.

#include <chrono>
#include <functional>
#include <string>

#include "base/error.hpp"

namespace virtguard::host {

/// Thirty times what hwloc takes for 64 nodes and 4,096 PUs.
inline constexpr std::chrono::seconds cpu_time_for_hwloc{10};

/// What work returns in a child of this process, which is a copy of it. Errors: invalid where the
/// child dies or writes to stderr, limit where it takes more CPU time than that. It forks: not for
/// a process with several threads.
[[nodiscard]] Result<std::string> run_apart(const std::function<std::string()>& work,
                                            std::chrono::seconds cpu_time = cpu_time_for_hwloc);

} // namespace virtguard::host
