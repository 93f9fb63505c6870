// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the kernel says of this host in /sys and /proc, and hwloc does not.

#include <filesystem>

#include "base/error.hpp"
#include "core/topology.hpp"

namespace virtguard::host {

/// Puts into a topology what the files under root ("/" but for tests) say: the PUs that guests may
/// use, those offline, those isolated, the default hugepage and every hugepage pool. What has no
/// file stays: all online PUs are allowed, none is isolated. On an error the topology is unchanged.
[[nodiscard]] Result<> apply_kernel_files(core::Topology& topology,
                                          const std::filesystem::path& root);

} // namespace virtguard::host
