// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is set at run time, as one daemon keeps it for the next, and orders as virtguardctl sends
// them.

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "core/run_time.hpp"

namespace virtguard::json {

[[nodiscard]] std::string run_time_document(const core::RunTime& run_time);
/// Errors: invalid.
[[nodiscard]] Result<core::RunTime> parse_run_time(std::string_view document);

[[nodiscard]] std::string order_document(const core::Order& order);
/// Errors: invalid, with what was expected.
[[nodiscard]] Result<core::Order> parse_order(std::string_view document);

} // namespace virtguard::json
