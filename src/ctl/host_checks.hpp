// SPDX-License-Identifier: Apache-2.0
#pragma once
// What doctor looks at in the files of the host. root is "/" but for tests.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "json/document.hpp"

namespace virtguard::ctl {

using json::Finding;

/// Whether libvirt's folder of hooks has ours, and can execute it, also by AppArmor's profile.
[[nodiscard]] std::vector<Finding> check_hook(const std::filesystem::path& root);

/// Whether libvirtd has looked for hooks since ours is there, which it does only when it starts or
/// reloads. That a start was decided is proof of it.
[[nodiscard]] Finding check_hook_is_seen(const std::filesystem::path& root, bool any_decided);

/// Whether virtguardd is on the bus, which is asked: that of DBUS_SYSTEM_BUS_ADDRESS or, where that
/// is not set, root's system bus, where there is one.
[[nodiscard]] Finding check_bus(const std::filesystem::path& root);

/// The operator's policy files.
[[nodiscard]] std::vector<Finding> check_policy(const std::filesystem::path& folder);

/// Each pool of hugepages, and whether QEMU can have its pages: by a mount of hugetlbfs, and by
/// AppArmor's rules for guests.
[[nodiscard]] std::vector<Finding> check_hugepages(const std::filesystem::path& root);

} // namespace virtguard::ctl
