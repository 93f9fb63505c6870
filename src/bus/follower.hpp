// SPDX-License-Identifier: Apache-2.0
#pragma once
// A client of org.virtguard1 that hears what changes. It asks once whenever a virtguardd comes to
// the bus, and nothing more.

#include <functional>
#include <string>

#include "base/error.hpp"
#include "core/heard.hpp"

namespace virtguard::bus {

/// Whether to connect to a bus that is there, or to wait until one is.
enum class Bus { that_is_there, that_comes };

/// Run in turn, in the order things happened; where one returns false, no more is followed.
struct FollowHandlers {
    /// virtguardd is there; and whenever this has changed since.
    std::function<bool(const core::HeardHost& host)> host;
    std::function<bool(const core::HeardStart& start)> start;
    /// virtguardd is not there, or no longer.
    std::function<bool()> absent;
};

/// Follows until a handler returns false. Error: unavailable where there is no bus, its connection
/// has ended, or what virtguardd says cannot be understood; one may try again.
[[nodiscard]] Result<> follow(const std::string& address, Bus bus, FollowHandlers handlers);

} // namespace virtguard::bus
