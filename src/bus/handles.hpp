// SPDX-License-Identifier: Apache-2.0
#pragma once
// Owners of what sd-bus hands out, and its errors as ours.

#include <cstring>
#include <string_view>

#include <systemd/sd-bus.h>

#include "base/error.hpp"
#include "base/unique.hpp"

namespace virtguard::bus {

/// Closing does not wait for what is unsent.
using BusPtr = CPtr<sd_bus, sd_bus_close_unref>;
using SlotPtr = CPtr<sd_bus_slot, sd_bus_slot_unref>;
using MessagePtr = CPtr<sd_bus_message, sd_bus_message_unref>;

[[nodiscard]] inline std::unexpected<Error> failed(std::string_view what, int negative_errno) {
    return fail(Errc::io, "bus: {}: {}", what, std::strerror(-negative_errno));
}

} // namespace virtguard::bus
