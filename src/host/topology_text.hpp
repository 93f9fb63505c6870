// SPDX-License-Identifier: Apache-2.0
#pragma once
// A topology, or why there is none, as text: from a child process to its parent.

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "core/topology.hpp"

namespace virtguard::host {

[[nodiscard]] std::string topology_to_text(const Result<core::Topology>& topology);

/// What it was made from. The text is not trusted: what is none of the above is an error.
[[nodiscard]] Result<core::Topology> topology_from_text(std::string_view text);

} // namespace virtguard::host
