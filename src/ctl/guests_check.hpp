// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether the guests of a host fit on it: what to know before a guard begins to refuse.

#include <string>
#include <vector>

#include "core/guard.hpp"
#include "virt/domains.hpp"
#include "json/document.hpp"

namespace virtguard::ctl {

/// What each of the domains would be answered, were they all started one after another.
[[nodiscard]] std::vector<json::Event> start_all(core::Guard& guard,
                                                 const std::vector<virt::DomainXml>& domains);

struct GuestsCheckOptions {
    std::string libvirt_uri = "qemu:///system";
    std::string policy_folder = "/etc/virtguard";
    std::string root = "/"; ///< where proc/ and sys/ are
    bool json = false;
};

/// Starts, on this machine without any guest, those that libvirt runs and then those that it starts
/// at boot. Shows which would be refused, and why. Asks libvirt, not virtguardd. The exit status.
[[nodiscard]] int check_guests(const GuestsCheckOptions& options);

} // namespace virtguard::ctl
