// SPDX-License-Identifier: Apache-2.0
#include "bus/kept_call.hpp"

#include <cstdint>
#include <utility>

#include "bus/names.hpp"

namespace virtguard::bus {

// An answer has a call's number, and goes to who sent it.
MessagePtr kept_call(sd_bus_message* call) {
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_method_call(sd_bus_message_get_bus(call), &raw,
                                           /*destination=*/nullptr, manager_path, manager_interface,
                                           sd_bus_message_get_member(call));
    MessagePtr kept(raw);
    if (r >= 0)
        r = sd_bus_message_set_sender(raw, sd_bus_message_get_sender(call));
    if (r >= 0)
        r = sd_bus_message_set_expect_reply(raw, sd_bus_message_get_expect_reply(call));
    if (r >= 0)
        r = sd_bus_message_set_allow_interactive_authorization(
            raw, sd_bus_message_get_allow_interactive_authorization(call));
    std::uint64_t number = 0;
    if (r >= 0)
        r = sd_bus_message_get_cookie(call, &number);
    if (r >= 0)
        r = sd_bus_message_seal(raw, number, /*timeout_usec=*/0);
    return r < 0 ? MessagePtr() : std::move(kept);
}

} // namespace virtguard::bus
