// SPDX-License-Identifier: Apache-2.0
#pragma once
// virtguardctl doctor: is all in place for starts to be decided, and if not, what to do?

#include <string>

#include "ctl/screen.hpp"

namespace virtguard::ctl {

struct DoctorOptions {
    std::string socket;
    std::string libvirt_uri = "qemu:///system";
    std::string policy_folder = "/etc/virtguard";
    std::string root = "/"; ///< where etc/, proc/ and sys/ are
    bool json = false;
    ColourWish colour = ColourWish::automatic;
};

/// Shows a line for each thing, and what to do for each that is not well. The exit status: 1 where
/// there is one.
[[nodiscard]] int doctor(const DoctorOptions& options);

} // namespace virtguard::ctl
