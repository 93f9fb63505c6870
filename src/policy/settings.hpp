// SPDX-License-Identifier: Apache-2.0
#pragma once
// A policy back as the keys of virtguard.toml(5).

#include <string>
#include <vector>

#include "core/policy.hpp"

namespace virtguard::policy {

/// Every key that has a value, in the order of virtguard.toml(5). "KEY = VALUE" of all of them is a
/// file that gives this policy, but for mode "maintenance", which no file has.
[[nodiscard]] std::vector<core::Setting> settings(const core::Policy& policy);

} // namespace virtguard::policy
