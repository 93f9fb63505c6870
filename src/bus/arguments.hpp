// SPDX-License-Identifier: Apache-2.0
#pragma once
// Arguments of calls, which others than we wrote.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "core/run_time.hpp"

struct sd_bus_message;

namespace virtguard::bus {

/// Reads a text. Error: limit, where it is longer than so many bytes.
[[nodiscard]] Result<> read_text(sd_bus_message* call, std::string_view name, std::size_t most,
                                 std::string& target);

/// These read what the method of that name takes. Errors say what was expected; limit: something is
/// longer than it may be.
[[nodiscard]] Result<core::Order> read_set_overcommit(sd_bus_message* call);
[[nodiscard]] Result<core::Order> read_reset_overcommit(sd_bus_message* call);
[[nodiscard]] Result<core::Order> read_set_mode(sd_bus_message* call);
[[nodiscard]] Result<core::Order> read_reserve(sd_bus_message* call);
[[nodiscard]] Result<core::Order> read_renew(sd_bus_message* call);
[[nodiscard]] Result<core::Order> read_cancel(sd_bus_message* call);

} // namespace virtguard::bus
