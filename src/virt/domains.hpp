// SPDX-License-Identifier: Apache-2.0
#pragma once
// What libvirt runs and knows, asked once.

#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/uuid.hpp"

namespace virtguard::virt {

struct DomainXml {
    Uuid uuid;
    std::string name; ///< any bytes but NUL, '/' and line breaks
    std::string xml;  ///< without secrets
};

/// All active domains of a hypervisor (such as "qemu:///system") as they run now, on a read-only
/// connection of its own. Takes as long as libvirt takes, which may be for ever.
[[nodiscard]] Result<std::vector<DomainXml>> live_domains(const std::string& uri);

/// Those that do not run and that libvirt starts at boot, as they are defined. As above.
[[nodiscard]] Result<std::vector<DomainXml>> autostart_domains(const std::string& uri);

/// The domain of that name or UUID: as it runs, or as it is defined where it does not. Takes as
/// long as libvirt takes. Errc::not_found where there is none.
[[nodiscard]] Result<DomainXml> find_domain(const std::string& uri,
                                            const std::string& name_or_uuid);

} // namespace virtguard::virt
