// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is set at run time, as one daemon keeps it for the next, and orders as virtguardctl sends
// them.

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "core/run_time.hpp"

namespace virtguard::json {

/// `boot` tells this boot of the host, whose clock some of it is by, from others.
[[nodiscard]] std::string run_time_document(const core::RunTime& run_time, std::string_view boot);

struct ReadRunTime {
    core::RunTime values{};
    std::vector<std::string> dropped{}; ///< reservations that cannot be, and why, a line each
};
/// Errors: invalid.
[[nodiscard]] Result<ReadRunTime> parse_run_time(std::string_view document, std::string_view boot);

[[nodiscard]] std::string order_document(const core::Order& order);
/// Errors: invalid, with what was expected.
[[nodiscard]] Result<core::Order> parse_order(std::string_view document);

} // namespace virtguard::json
