// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a daemon knows before libvirt can be talked to: at boot and whenever libvirtd starts, hooks
// ask while libvirtd serves nobody.

#include <filesystem>

#include "core/guard.hpp"
#include "daemon/guest_store.hpp"

namespace virtguard::daemon {

/// Takes up the guests that the daemon before this one kept, and then, for what it did not see,
/// those that libvirt's own status files (run/libvirt/qemu in root) say run. The files of a
/// libvirtd that was killed may tell of guests that have ended since; libvirt's first answer
/// corrects that.
void restore(core::Guard& guard, GuestStore& store, const std::filesystem::path& root);

} // namespace virtguard::daemon
