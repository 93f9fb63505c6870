// SPDX-License-Identifier: Apache-2.0
#pragma once
// What running guests occupy, as the kernel counts it. Dear (numa_maps walks the page tables of all
// that a process has) and may block on a process that is in trouble: not for the answering thread.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/uuid.hpp"
#include "core/residency.hpp"

namespace virtguard::host {

/// Whose memory to look at.
struct RunningGuest {
    std::string name; ///< libvirt's; any bytes
    Uuid uuid;
    std::vector<std::int64_t> page_sizes; ///< bytes: the hugepages it has
};

/// What the guest's QEMU occupies on each node: memory that can go nowhere but to swap (anonymous
/// and shared memory, page tables; not the page cache), and hugepages of the sizes asked for. From
/// the guest's own cgroup (v2 or v1) where there is one and it counts them, else from numa_maps.
/// root: "/" but for tests. Errors: not_found where it does not run, or nothing tells; others where
/// what tells is none of the kernel's making.
[[nodiscard]] Result<core::Residency> read_residency(const std::filesystem::path& root,
                                                     const RunningGuest& guest);

/// The guests whose QEMU runs, started by a libvirtd, whichever.
[[nodiscard]] Result<std::set<Uuid>> read_qemus(const std::filesystem::path& root);

/// Bytes of ordinary memory that are not to be had: MemTotal without the hugepage pools and without
/// MemAvailable; never negative.
[[nodiscard]] Result<std::int64_t> read_memory_in_use(const std::filesystem::path& root);

} // namespace virtguard::host
