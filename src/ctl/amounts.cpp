// SPDX-License-Identifier: Apache-2.0
#include "ctl/amounts.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace virtguard::ctl {

namespace {

constexpr std::int64_t bar_cells = 10;

struct Marks {
    std::string_view running;
    std::string_view others;
    std::string_view free;
};
constexpr Marks blocks{"█", "▒", "·"};
constexpr Marks letters{"#", "+", "."};

std::string repeated(std::string_view mark, std::int64_t count) {
    std::string result;
    for (std::int64_t i = 0; i < count; ++i)
        result += mark;
    return result;
}

/// How many of the cells the part is: none only of nothing, all only of all.
std::int64_t cells_of(std::int64_t part, std::int64_t all) {
    if (part <= 0 || all <= 0)
        return part > 0 ? bar_cells : 0;
    const Int128 cells = Int128{part} * bar_cells / all;
    return part >= all ? bar_cells : static_cast<std::int64_t>(std::max<Int128>(cells, 1));
}

std::string bar(const Marks& marks, const Use& use) {
    const std::int64_t filled = cells_of(used(use), use.effective);
    const std::int64_t running = std::min(cells_of(use.running, use.effective), filled);
    return repeated(marks.running, running) + repeated(marks.others, filled - running) +
           repeated(marks.free, bar_cells - filled);
}

} // namespace

std::string amount(const core::Resource& resource, std::int64_t value, Rounding rounding) {
    return resource.is_bytes() ? format_bytes(value, rounding) : fmt::format("{}", value);
}

std::int64_t amount_of(const core::Quantities& quantities, const core::Resource& resource) {
    const auto found = quantities.find(resource);
    return found == quantities.end() ? 0 : found->second;
}

std::string demand_text(const core::Quantities& demand) {
    std::string result;
    for (const auto& [resource, value] : demand)
        result += fmt::format("{}{} {}", result.empty() ? "" : ", ", resource.name(),
                              amount(resource, value, Rounding::up));
    return result.empty() ? "nothing" : result;
}

std::int64_t used(const Use& use) {
    return saturate(Int128{use.effective} - use.free);
}

std::string percent(const Use& use) {
    const Int128 in_use = Int128{use.effective} - use.free;
    if (use.effective <= 0)
        return in_use > 0 ? "over" : "";
    if (in_use <= 0)
        return "0%";
    const Int128 hundredths = in_use * 100 / use.effective;
    const bool is_exact = hundredths * use.effective == in_use * 100;
    if (hundredths == 0)
        return "<1%";
    if (use.free < 0) // rounded up: 100 % is not over
        return hundredths > 998 ? ">999%"
                                : fmt::format("{}%", static_cast<int>(hundredths) + !is_exact);
    if (hundredths == 99 && !is_exact)
        return ">99%";
    return fmt::format("{}%", static_cast<int>(hundredths));
}

Ink ink_of(const Use& use) {
    const Int128 in_use = Int128{use.effective} - use.free;
    if (use.free < 0 || in_use * 100 >= Int128{use.effective} * 90)
        return in_use > 0 ? Ink::bad : Ink::plain;
    return in_use * 100 >= Int128{use.effective} * 75 ? Ink::warning : Ink::good;
}

Cell use_cell(const Screen& screen, const Use& use) {
    const std::string text = percent(use);
    if (screen.width == 0 || text.empty())
        return {text.empty() ? "-" : text, text.empty() ? Ink::plain : ink_of(use)};
    return {fmt::format("{} {:>4}", bar(screen.blocks ? blocks : letters, use), text), ink_of(use)};
}

Cell free_cell(const core::Resource& resource, std::int64_t free) {
    if (free >= 0)
        return amount(resource, free);
    return {fmt::format("over by {}", amount(resource, -std::max(free, -INT64_MAX), Rounding::up)),
            Ink::bad};
}

} // namespace virtguard::ctl
