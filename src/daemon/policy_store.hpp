// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the policy comes from: the operator's files, and when those are bad the last good ones.

#include <expected>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "core/policy.hpp"
#include "core/topology.hpp"

namespace virtguard::daemon {

using CheckedPolicy = std::expected<core::Policy, std::vector<std::string>>;

/// The policy of a folder, if it is well written and possible on this host; else all errors.
[[nodiscard]] CheckedPolicy load_checked(const std::filesystem::path& folder,
                                         const core::Topology& topology);

struct StartPolicy {
    core::Policy policy;
    std::vector<std::string> errors; ///< of the operator's files; empty when those are in force
    std::string in_force;            ///< what is in force, for messages
    bool only_observes = false;      ///< the built-in defaults, for want of any good policy
};

/// The operator's policy; where it is bad, the copy of the last good one in the state folder; where
/// there is none, the built-in defaults, which only observe.
[[nodiscard]] StartPolicy policy_at_start(const std::filesystem::path& folder,
                                          const std::filesystem::path& state_folder,
                                          const core::Topology& topology);

/// Copies the files of the policy in force to the state folder, all or nothing, durably; where they
/// give another policy by now, nothing is changed. It waits for the disk.
[[nodiscard]] Result<> keep_as_last_good(const std::filesystem::path& folder,
                                         const std::filesystem::path& state_folder,
                                         const core::Policy& policy);

} // namespace virtguard::daemon
