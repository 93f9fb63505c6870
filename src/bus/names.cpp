// SPDX-License-Identifier: Apache-2.0
#include "bus/names.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

namespace virtguard::bus {

std::string node_path(int node) {
    return fmt::format("{}/{}", node_prefix, node);
}

std::string domain_path(const Uuid& uuid) {
    std::string text = uuid.text();
    std::ranges::replace(text, '-', '_');
    return fmt::format("{}/{}", domain_prefix, text);
}

std::string system_bus_address() {
    const char* address = ::secure_getenv("DBUS_SYSTEM_BUS_ADDRESS");
    return address != nullptr ? address : "unix:path=/run/dbus/system_bus_socket";
}

} // namespace virtguard::bus
