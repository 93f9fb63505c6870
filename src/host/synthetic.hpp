// SPDX-License-Identifier: Apache-2.0
#pragma once
// hwloc's synthetic descriptions, such as "numa:2(memory=64GiB) core:8 pu:2".

#include <string_view>

#include "base/error.hpp"

namespace virtguard::host {

/// Finds what hwloc would take and get wrong: a memory size that wraps or is 0 (it silently takes
/// 1 GiB), a number that makes it ask for all the memory there is. Whether the rest is a
/// description is for hwloc to say.
[[nodiscard]] Result<> check_synthetic(std::string_view description);

} // namespace virtguard::host
