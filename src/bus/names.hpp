// SPDX-License-Identifier: Apache-2.0
#pragma once
// What of ours has a name on the bus. Once released, names only grow.

#include <string>

#include "base/uuid.hpp"

namespace virtguard::bus {

inline constexpr const char* service_name = "org.virtguard1";

inline constexpr const char* manager_interface = "org.virtguard1.Manager";
inline constexpr const char* node_interface = "org.virtguard1.Node";
inline constexpr const char* domain_interface = "org.virtguard1.Domain";

/// polkit's name for changing anything.
inline constexpr const char* manage_action = "org.virtguard1.manage";

inline constexpr const char* manager_path = "/org/virtguard1";
inline constexpr const char* node_prefix = "/org/virtguard1/node";
inline constexpr const char* domain_prefix = "/org/virtguard1/domain";

[[nodiscard]] std::string node_path(int node);
/// A path has no hyphens: the UUID's are underscores in it.
[[nodiscard]] std::string domain_path(const Uuid& uuid);

/// Where the system's bus listens: DBUS_SYSTEM_BUS_ADDRESS, else as the D-Bus specification says.
[[nodiscard]] std::string system_bus_address();

} // namespace virtguard::bus
