// SPDX-License-Identifier: Apache-2.0
#pragma once
// virtguardctl policy: the operator's files, and what of them is in force.

#include <string>

#include "ctl/screen.hpp"

namespace virtguard::ctl {

struct PolicyOptions {
    std::string socket;
    std::string path = "/etc/virtguard"; ///< a folder as virtguardd reads it, or one file
    bool json = false;
    ColourWish colour = ColourWish::automatic;
};

/// Whether the files are well written and possible on this host; all that is wrong goes to stderr,
/// or into the document. The exit status: 1 where something is. Asks nobody.
[[nodiscard]] int check_policy_files(const PolicyOptions& options);

/// What is in force, as virtguardd says.
[[nodiscard]] int show_policy(const PolicyOptions& options);

/// What the files say otherwise than what is in force: what a reload would change. The exit status:
/// 1 where there is something.
[[nodiscard]] int compare_policies(const PolicyOptions& options);

} // namespace virtguard::ctl
