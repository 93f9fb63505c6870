// SPDX-License-Identifier: Apache-2.0
#pragma once
// Amounts of resources, and how much of them is used, as people read them.

#include <cstdint>
#include <string>

#include "base/text.hpp"
#include "core/resource.hpp"
#include "ctl/screen.hpp"
#include "ctl/table.hpp"

namespace virtguard::ctl {

/// A quantity without its unit's name: "4", "3.5 GiB".
[[nodiscard]] std::string amount(const core::Resource& resource, std::int64_t value,
                                 Rounding rounding = Rounding::down);

/// 0 where there is none of it.
[[nodiscard]] std::int64_t amount_of(const core::Quantities& quantities,
                                     const core::Resource& resource);

/// "cpu 4, memory 3.5 GiB", "nothing"
[[nodiscard]] std::string demand_text(const core::Quantities& demand);

/// What of something is used, and by whom.
struct Use {
    std::int64_t effective = 0;
    std::int64_t running = 0; ///< by running guests
    std::int64_t free = 0;    ///< negative when over
};

/// effective - free, which is more than what running guests hold.
[[nodiscard]] std::int64_t used(const Use& use);

/// "52%"; "<1%" and ">99%" where it is not nothing and not all; "" where there is nothing of it.
[[nodiscard]] std::string percent(const Use& use);

/// How full it is: good below 75 %, a warning below 90 %, bad above.
[[nodiscard]] Ink ink_of(const Use& use);

/// "███████▒··  78%", where the screen is a terminal; else the percentage alone. What running
/// guests hold is drawn full, what others do shaded. Something used is at least one cell,
/// something free, too.
[[nodiscard]] Cell use_cell(const Screen& screen, const Use& use);

/// "17", or "over by 4".
[[nodiscard]] Cell free_cell(const core::Resource& resource, std::int64_t free);

} // namespace virtguard::ctl
