// SPDX-License-Identifier: Apache-2.0
#pragma once
// virtguardctl watch: what happens on the host, a line each, as virtguardd signals it on the bus.

#include <string>
#include <vector>

#include "core/heard.hpp"
#include "ctl/screen.hpp"

namespace virtguard::ctl {

struct WatchOptions {
    bool json = false;
    bool no_wait = false; ///< end where there is nobody to be heard
    ColourWish colour = ColourWish::automatic;
};

/// "refused web-3: memory: needs 8 GiB, 3 GiB free of 64 GiB"
[[nodiscard]] std::string start_text(const core::HeardStart& start, const Screen& screen);

/// A line for each thing that differs, and of a host that comes (before is nothing) how it is.
[[nodiscard]] std::vector<std::string> host_texts(const core::HeardHost* before,
                                                  const core::HeardHost& now, const Screen& screen);

/// Until it is killed, or without waiting until nobody is to be heard; the exit status.
int watch(const WatchOptions& options);

} // namespace virtguard::ctl
