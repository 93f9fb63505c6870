// SPDX-License-Identifier: Apache-2.0
#pragma once
// The metrics of virtguardctl metrics and of the file for node_exporter, in Prometheus' text
// format. docs/metrics.md lists them; names only grow.

#include <string>
#include <string_view>

#include "core/history.hpp"
#include "core/report.hpp"

namespace virtguard::metrics {

/// What stands between the quotation marks of a label.
[[nodiscard]] std::string escape_label(std::string_view value);

[[nodiscard]] std::string text(const core::Status& status, const core::History& history);

} // namespace virtguard::metrics
