// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files that the operator names.

#include <cstddef>
#include <string>

#include "base/error.hpp"

namespace virtguard::ctl {

/// The whole file ("-": standard input); Errc::limit when it is longer than the limit in bytes.
[[nodiscard]] Result<std::string> read_input(const std::string& path, std::size_t limit);

} // namespace virtguard::ctl
