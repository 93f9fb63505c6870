// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is kept of a call until it is answered.

#include "bus/handles.hpp"

namespace virtguard::bus {

/// A call that is answered as this one, without what it brings: a bus lets that have many
/// megabytes. Nothing where memory is short.
[[nodiscard]] MessagePtr kept_call(sd_bus_message* call);

} // namespace virtguard::bus
