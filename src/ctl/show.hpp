// SPDX-License-Identifier: Apache-2.0
#pragma once
// How virtguardctl prints and ends.

#include <string_view>

#include "base/error.hpp"

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
/// Shows the error; the exit status is that of something refused or unreachable, or else of bad
/// input.
int failure(const Error& error);

} // namespace virtguard::ctl
