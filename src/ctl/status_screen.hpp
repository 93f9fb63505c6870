// SPDX-License-Identifier: Apache-2.0
#pragma once
// The answers of status, nodes and domains.

#include <string>

#include "core/report.hpp"
#include "ctl/screen.hpp"

namespace virtguard::ctl {

/// How virtguardd is, the host's resources, the use of its nodes, its guests: on a terminal at most
/// as many of them as one looks through.
[[nodiscard]] std::string status_text(const core::Status& status, const Screen& screen = {});

/// Each node's resources.
[[nodiscard]] std::string nodes_text(const core::Status& status, const Screen& screen = {});

/// All guests by name, and what each holds.
[[nodiscard]] std::string domains_text(const core::Status& status, const Screen& screen = {});

} // namespace virtguard::ctl
