// SPDX-License-Identifier: Apache-2.0
#pragma once
// The objects on the bus and their properties: /org/virtguard1 and, below it, an object for each
// node and each domain. docs/dbus.md says what they mean.

#include <string>
#include <vector>

#include "base/error.hpp"
#include "bus/handles.hpp"
#include "bus/picture.hpp"

namespace virtguard::bus {

/// Has the objects of a picture answer on a bus, as it is whenever they are asked, until the slots
/// are gone. Both must outlive the slots.
[[nodiscard]] Result<std::vector<SlotPtr>> add_tree(sd_bus* bus, Picture& picture);

/// Appends the next few objects behind a path to the array of GetManagedObjects, and makes it the
/// last one's: LongAnswers::Part. "" is before all.
[[nodiscard]] int append_objects(sd_bus_message* answer, const Picture& picture, std::string& path);

/// Signals on a bus what of a picture is no longer as it was told, and makes `told` what it is
/// then: so many messages, and one more, at most. False: there is more.
[[nodiscard]] Result<bool> tell_changes(sd_bus* bus, Picture& told, const Picture& now, int most);

} // namespace virtguard::bus
