// SPDX-License-Identifier: Apache-2.0
#pragma once
// virtguardctl mode: the host's mode, and setting it at run time.

#include <string>

#include "ctl/screen.hpp"

namespace virtguard::ctl {

struct ModeOptions {
    std::string socket;
    std::string mode;    ///< "": to be shown
    std::string message; ///< of maintenance
    bool json = false;
    ColourWish colour = ColourWish::automatic;
};

/// Shows the mode, or sets it.
[[nodiscard]] int mode(const ModeOptions& options);

} // namespace virtguard::ctl
