// SPDX-License-Identifier: Apache-2.0
#pragma once
// <devices> other than memory: what pins memory, what makes QEMU larger, and disks that may grow.

#include <cstdint>
#include <vector>

#include "core/storage.hpp"
#include "domxml/document.hpp"

namespace virtguard::domxml {

/// The members of core::Domain that devices decide.
struct Devices {
    std::int64_t vfio = 0;
    std::int64_t video_ram = 0; ///< bytes
    bool tpm = false;
    std::vector<core::Disk> disks;
};

[[nodiscard]] Result<Devices> read_devices(Element root);

} // namespace virtguard::domxml
