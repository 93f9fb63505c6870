// SPDX-License-Identifier: Apache-2.0
#pragma once
// A point in time, counted from the boot of this host (CLOCK_BOOTTIME: goes on in suspend, never
// jumps, and is the same in every process). Only loop reads the clock, loop::now(), and for
// programs without a loop wire::now().

#include <chrono>

namespace virtguard {

/// Names the clock without a way to ask it, so that the layers below loop cannot.
struct BootClock {
    using duration = std::chrono::nanoseconds;
};

using Instant = std::chrono::time_point<BootClock>;
using Span = BootClock::duration;

/// A time of day (CLOCK_REALTIME), for people and for other machines: it jumps, so nothing is
/// decided by it. Read by loop::wall_time() only.
using WallTime = std::chrono::sys_time<std::chrono::microseconds>;

} // namespace virtguard
