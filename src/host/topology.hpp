// SPDX-License-Identifier: Apache-2.0
#pragma once
// Topologies: this machine's, or that of a file or a description for simulate. Files and
// descriptions are loaded in a child process (see apart.hpp), which has 10 s of CPU time: not for
// threaded processes.

#include <filesystem>
#include <string_view>

#include "base/error.hpp"
#include "core/topology.hpp"

namespace virtguard::host {

/// This machine: its CPUs and nodes as hwloc finds them, whatever the caller's own cpuset, and the
/// rest from the files under root ("/" but for tests; see kernel.hpp).
[[nodiscard]] Result<core::Topology> live_topology(const std::filesystem::path& root);

/// An hwloc XML file, of hwloc 1 or 2, in the view that hwloc and its tools show by default: what
/// it marks as disallowed is left out, its PUs among the offline ones. At most 32 MiB.
[[nodiscard]] Result<core::Topology> topology_from_xml(const std::filesystem::path& file);

/// hwloc's synthetic description, such as "numa:2(memory=64GiB) core:8 pu:2", of at most 4,096 PUs.
/// There are no hugepages in it: core::set_pages() adds them.
[[nodiscard]] Result<core::Topology> topology_from_synthetic(std::string_view description);

/// What simulate's --topology names: an existing file is XML, anything else a description.
[[nodiscard]] Result<core::Topology> topology_from(std::string_view file_or_description);

} // namespace virtguard::host
