// SPDX-License-Identifier: Apache-2.0
#pragma once
// <vcpu>, <vcpus>, <cputune><vcpupin> and I/O threads.

#include <vector>

#include "core/domain.hpp"
#include "domxml/document.hpp"

namespace virtguard::domxml {

/// The vCPUs of a domain (root is <domain>), grouped by where they may run; groups in the order of
/// their lowest vCPU.
[[nodiscard]] Result<std::vector<core::VcpuGroup>> read_vcpus(Element root);

/// <vcpu placement='auto'>: numad will place it.
[[nodiscard]] Result<bool> has_automatic_placement(Element root);

/// The larger of <iothreads> and the entries of <iothreadids>.
[[nodiscard]] Result<std::int64_t> read_iothreads(Element root);

} // namespace virtguard::domxml
