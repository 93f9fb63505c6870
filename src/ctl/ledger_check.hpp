// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether virtguardd counts what there is: its ledger against libvirt and the kernel.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/uuid.hpp"
#include "core/report.hpp"
#include "json/document.hpp"

namespace virtguard::ctl {

/// A guest that libvirt runs, and what virtguardd says its domain, as it is now, asks for.
struct LiveGuest {
    std::string name;
    core::Quantities demand;
};

/// What each of the three says.
struct LedgerViews {
    core::Status ledger;
    std::map<Uuid, LiveGuest> libvirt;
    std::set<Uuid> processes;                       ///< guests whose QEMU runs
    std::map<std::int64_t, std::int64_t> hugepages; ///< by page size: bytes in use
};

/// Starts in flight and places kept for a return need not be known to libvirt.
[[nodiscard]] std::set<json::Difference> differences(const LedgerViews& views);

struct LedgerCheckOptions {
    std::string socket;
    std::string libvirt_uri = "qemu:///system";
    std::string root = "/"; ///< where proc/ and sys/ are
    bool json = false;
};

/// Looks until nothing differs, three times at most, and shows what differed each time: what comes
/// and goes while it looks is no difference. The exit status.
[[nodiscard]] int check_ledger(const LedgerCheckOptions& options);

} // namespace virtguard::ctl
