// SPDX-License-Identifier: Apache-2.0
#pragma once
// virtguardctl overcommit: the ratios, and setting them at run time.

#include <string>

#include "ctl/screen.hpp"
#include "json/document.hpp"

namespace virtguard::ctl {

struct OvercommitOptions {
    std::string socket;
    std::string resource;
    std::string ratio;
    bool json = false;
    ColourWish colour = ColourWish::automatic;
};

/// The ratio of each resource, who set it, and what the files say where that is something else.
[[nodiscard]] std::string overcommit_text(const json::PolicyInForce& policy, const Screen& screen);

[[nodiscard]] int show_overcommit(const OvercommitOptions& options);
[[nodiscard]] int set_overcommit(const OvercommitOptions& options);
/// Of the resource, "" for all.
[[nodiscard]] int reset_overcommit(const OvercommitOptions& options);

} // namespace virtguard::ctl
