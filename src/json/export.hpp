// SPDX-License-Identifier: Apache-2.0
#pragma once
// The status as the schedulers of the field read it. JSON, which is YAML, too.
//
// Each of them works out what is free from totals and from what it counts as held, so that figures
// of ours are put into its words such that its sum is our free; docs/json.md has the formulas.

#include <optional>
#include <string>
#include <string_view>

#include "core/report.hpp"

namespace virtguard::json {

enum class ExportFormat {
    machinepool, ///< a MachinePool of ironcore, with its status
    hypervisor,  ///< a Hypervisor of the OpenStack hypervisor operator
    placement,   ///< inventories of OpenStack Placement
};

/// The name is that of the object, which Placement's inventories have not.
[[nodiscard]] std::string export_document(ExportFormat format, const core::Report& report,
                                          std::string_view name);

} // namespace virtguard::json
