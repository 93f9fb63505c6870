// SPDX-License-Identifier: Apache-2.0
#pragma once
// Capacities of custom resources that files say.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/error.hpp"
#include "core/policy.hpp"

namespace virtguard::host {

/// A regular file of one whole number, 0 to core::max_domain_bytes, that spaces and line ends may
/// follow. The error names the file.
[[nodiscard]] Result<std::int64_t> read_capacity(const std::filesystem::path& file);

/// By path.
using CapacityReadings = std::map<std::string, Result<std::int64_t>>;

/// All files that the policy reads capacities from. It waits for their file systems.
[[nodiscard]] CapacityReadings read_capacities(const core::Policy& policy);

/// Makes what was read that of the policy; what could not be read stays as it was. Whether that
/// changed the policy. Readings of files that it does not have are ignored.
bool take_in(core::Policy& policy, const CapacityReadings& readings);

} // namespace virtguard::host
