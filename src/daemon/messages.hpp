// SPDX-License-Identifier: Apache-2.0
#pragma once
// The lines of virtguardd that have fields in the journal. conf/virtguard.catalog explains each
// MESSAGE_ID to `journalctl -x`, and virtguardd(8) lists the fields; both only grow.

#include <string>
#include <string_view>
#include <vector>

#include "core/domain.hpp"
#include "core/history.hpp"
#include "core/resource.hpp"

namespace virtguard::daemon {

/// A start was refused, or would have been; nothing where all is well.
void log_start(const core::DecidedStart& start);

/// A start went on, or did not, without our answer: "web-1 was let in by its hook, ...".
void log_undecided(const core::Domain& domain, std::string_view what);

/// Guests hold more of a resource than there is.
void log_over_capacity(const core::Resource& resource);

} // namespace virtguard::daemon
