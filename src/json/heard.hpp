// SPDX-License-Identifier: Apache-2.0
#pragma once
// The lines that `virtguardctl watch --json` prints, each an object.

#include <string>
#include <string_view>

#include "base/instant.hpp"
#include "core/heard.hpp"

namespace virtguard::json {

[[nodiscard]] std::string start_line(const core::HeardStart& start, WallTime heard);
[[nodiscard]] std::string host_line(const core::HeardHost& host, WallTime heard);
/// virtguardd is not to be heard, and why.
[[nodiscard]] std::string absent_line(std::string_view why, WallTime heard);

} // namespace virtguard::json
