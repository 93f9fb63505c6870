// SPDX-License-Identifier: Apache-2.0
#pragma once
// hwloc 2.9 crashes on some malformed files (fuzzing finds one in a minute) and complains of others
// on stderr. So what others wrote is loaded in a child process first.

#include <functional>

#include "base/error.hpp"

namespace virtguard::host {

/// Runs attempt in a child of this process, which is a copy of it: where the attempt ends there,
/// with nothing written to stderr and within 60 s of CPU time, it is safe to make here. It forks:
/// not for a process with several threads.
[[nodiscard]] Result<> rehearse(const std::function<void()>& attempt);

} // namespace virtguard::host
