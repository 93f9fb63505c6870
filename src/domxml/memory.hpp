// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of a guest, part by part.

#include <vector>

#include "core/domain.hpp"
#include "domxml/document.hpp"

namespace virtguard::domxml {

/// The members of core::Domain that are about memory.
struct Memory {
    std::vector<core::MemoryPart> parts; ///< cells by id (or the one part), then devices
    std::int64_t current = 0;
    bool locked = false;
    bool preallocated = false;
    bool file_backed = false;
};

[[nodiscard]] Result<Memory> read_memory(Element root);

} // namespace virtguard::domxml
