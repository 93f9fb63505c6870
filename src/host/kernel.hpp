// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the kernel says of this host in /sys and /proc, and hwloc does not.

#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "core/topology.hpp"

namespace virtguard::host {

/// Puts into a topology what the files under root ("/" but for tests) say: the PUs that guests may
/// use, those offline, those isolated, the default hugepage and every hugepage pool. What has no
/// file stays: all online PUs are allowed, none is isolated. On an error the topology is unchanged.
[[nodiscard]] Result<> apply_kernel_files(core::Topology& topology,
                                          const std::filesystem::path& root);

/// Texts of the kernel that change when CPUs or memory come or go, or other CPUs are for guests;
/// cheap next to asking for the topology. What cannot be read is left out.
[[nodiscard]] std::string hotplug_marks(const std::filesystem::path& root);

} // namespace virtguard::host
