// SPDX-License-Identifier: Apache-2.0
#pragma once
// What libvirt runs, asked once.

#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/uuid.hpp"

namespace virtguard::virt {

struct LiveDomain {
    Uuid uuid;
    std::string name; ///< any bytes but NUL, '/' and line breaks
    std::string xml;  ///< as it runs now, without secrets
};

/// All active domains of a hypervisor (such as "qemu:///system"), on a read-only connection of its
/// own. Takes as long as libvirt takes, which may be for ever.
[[nodiscard]] Result<std::vector<LiveDomain>> live_domains(const std::string& uri);

} // namespace virtguard::virt
