// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whose signal it is. Anybody may send one to us alone, whatever we listen to, and sd-bus takes it
// for that of any well-known name that a match has for its sender.

#include <string_view>

#include <systemd/sd-bus.h>

namespace virtguard::bus {

/// The bus itself, as the sender of its signals.
inline constexpr const char* bus_name = "org.freedesktop.DBus";

/// Whether that is the sender: a unique name, or bus_name. The bus vouches for it.
[[nodiscard]] inline bool is_from(sd_bus_message* signal, std::string_view sender) {
    const char* found = sd_bus_message_get_sender(signal);
    return found != nullptr && found == sender;
}

} // namespace virtguard::bus
