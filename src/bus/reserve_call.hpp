// SPDX-License-Identifier: Apache-2.0
#pragma once
// The arguments of Reserve, which others than we wrote.

#include "base/error.hpp"
#include "core/run_time.hpp"

struct sd_bus_message;

namespace virtguard::bus {

/// Reads "ssa{sx}a{sv}" from a call. Errors say what was expected.
[[nodiscard]] Result<core::Order> read_reserve_call(sd_bus_message* call);

} // namespace virtguard::bus
