// SPDX-License-Identifier: Apache-2.0
#pragma once
// Questions to a connection. Internal, as handles.hpp.

#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/uuid.hpp"
#include "virt/handles.hpp"

namespace virtguard::virt {

[[nodiscard]] Uuid uuid_of(virDomainPtr domain);

/// The last call failed because there is no such domain any more.
[[nodiscard]] bool is_gone();

/// kinds: of VIR_CONNECT_LIST_DOMAINS_*.
[[nodiscard]] Result<std::vector<DomainPtr>> list_domains(virConnectPtr connect, unsigned kinds);

/// A domain's XML as it runs now; null where it is not active.
[[nodiscard]] Result<TextPtr> live_xml(virDomainPtr domain);

} // namespace virtguard::virt
