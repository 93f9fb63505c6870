// SPDX-License-Identifier: Apache-2.0
#pragma once
// The answers of check and explain, and the lines of simulate.

#include <string>

#include "core/report.hpp"
#include "ctl/screen.hpp"
#include "json/document.hpp"

namespace virtguard::ctl {

/// The verdict, a line per reason and note, and what of each resource would fit, together and on
/// each node alone.
[[nodiscard]] std::string outcome_text(const core::Outcome& outcome, const Screen& screen = {});

/// "start:web.xml: admitted web-1 (cpu 2, memory 4.1 GiB)", then a line per note, each ended.
[[nodiscard]] std::string event_text(const json::Event& event);

} // namespace virtguard::ctl
