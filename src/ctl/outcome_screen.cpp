// SPDX-License-Identifier: Apache-2.0
#include "ctl/outcome_screen.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "base/text.hpp"
#include "ctl/amounts.hpp"
#include "ctl/table.hpp"

namespace virtguard::ctl {

namespace {

/// What a domain asks for, behind its name and between the two; "" where that is nothing, as of a
/// domain that cannot be.
std::string asked_text(const core::Outcome& outcome, std::string_view before,
                       std::string_view behind = "") {
    return outcome.demand.empty()
               ? ""
               : fmt::format("{}{}{}", before, demand_text(outcome.demand), behind);
}

/// A domain that cannot be has no name that could be read.
std::string name_text(const core::Outcome& outcome) {
    return outcome.name.empty() ? "a domain" : printable(outcome.name);
}

std::string reasons_text(const core::Outcome& outcome) {
    std::string result;
    for (const core::Reason& reason : outcome.reasons)
        result += fmt::format("{}{}", result.empty() ? "" : "; ", one_line(reason.text));
    return result;
}

std::string notes_text(const core::Outcome& outcome, const Screen& screen = {}) {
    std::string result;
    for (const std::string& note : outcome.notes)
        result += folded(screen, 2, "note: " + one_line(note)) + "\n";
    return result;
}

std::string event_line(const json::Event& event) {
    const std::string head = one_line(event.event);
    if (!event.outcome)
        return head + (event.found_nothing ? ": nothing of that name runs" : ": done");
    const core::Outcome& outcome = *event.outcome;
    const std::string name = name_text(outcome);
    const std::string asked = asked_text(outcome, " (", ")");
    if (!event.decided)
        return fmt::format("{}: {} runs{}", head, name, asked);
    if (!outcome.admitted)
        return fmt::format("{}: refused {}: {}", head, name, reasons_text(outcome));
    if (!outcome.reasons.empty())
        return fmt::format("{}: admitted {}{}, only observing: {}", head, name, asked,
                           reasons_text(outcome));
    return fmt::format("{}: admitted {}{}", head, name, asked);
}

std::string reason_line(const core::Reason& reason, const Screen& screen) {
    const bool refuses = reason.mode == core::Mode::enforce;
    const std::string line =
        fmt::format("{}{} ({})", one_line(reason.text), refuses ? "" : ", only observed",
                    core::code_name(reason.code));
    return inked(screen, refuses ? Ink::bad : Ink::warning, folded(screen, 2, line)) + "\n";
}

/// All of it reads as what is needed, to the letter.
Cell fit_cell(const core::Resource& resource, std::int64_t largest, std::int64_t demand) {
    const bool all = largest >= demand;
    return {amount(resource, all ? demand : largest, all ? Rounding::up : Rounding::down),
            all ? Ink::good : Ink::bad};
}

/// Something that a domain needs, and how much of it would fit.
struct Column {
    std::string title;
    core::Resource resource;
    std::int64_t demand = 0;
    core::Fit fit{};
};

/// Of what the host has nothing of, nothing fits.
std::vector<Column> columns_of(const core::Outcome& outcome) {
    std::vector<Column> columns;
    for (const auto& [resource, demand] : outcome.demand) {
        const auto fit = std::ranges::find(outcome.fits, resource, &core::Fit::resource);
        columns.push_back(
            {resource.name(), resource, demand, fit == outcome.fits.end() ? core::Fit{} : *fit});
    }
    for (const core::Reason& reason : outcome.reasons) // pages of whatever size
        if (reason.code == core::Code::no_such_page_size && !reason.resource)
            columns.push_back({"hugepages", core::Resource::memory(), reason.requested});
    return columns;
}

/// A column for each resource; a row for each node where some of it may lie.
std::string fits_table(const core::Outcome& outcome, const Screen& screen) {
    const std::vector<Column> resources = columns_of(outcome);
    std::vector<TableColumn> columns{{""}};
    std::vector<Cell> needs{Cell("needs")};
    std::vector<Cell> fits{Cell("would fit")};
    std::set<int> nodes;
    for (const Column& each : resources) {
        columns.push_back({each.title, Align::right});
        needs.emplace_back(amount(each.resource, each.demand, Rounding::up));
        fits.push_back(fit_cell(each.resource, each.fit.largest, each.demand));
        for (const auto& [node, largest] : each.fit.per_node)
            nodes.insert(node);
    }
    Table table(std::move(columns));
    table.add(std::move(needs));
    table.add(std::move(fits));
    for (const int node : nodes) {
        std::vector<Cell> row{fmt::format("on node {} alone", node)};
        for (const Column& each : resources) {
            const auto there = each.fit.per_node.find(node);
            row.push_back(there == each.fit.per_node.end()
                              ? Cell("-", Ink::faint)
                              : fit_cell(each.resource, there->second, each.demand));
        }
        table.add(std::move(row));
    }
    return table.text(screen);
}

} // namespace

std::string event_text(const json::Event& event) {
    return event_line(event) + "\n" + (event.outcome ? notes_text(*event.outcome) : "");
}

std::string outcome_text(const core::Outcome& outcome, const Screen& screen) {
    const bool observed = outcome.admitted && !outcome.reasons.empty();
    std::string text = fmt::format("{} {}{}\n",
                                   inked(screen,
                                         !outcome.admitted ? Ink::bad
                                         : observed        ? Ink::warning
                                                           : Ink::good,
                                         outcome.admitted ? "admit" : "refuse"),
                                   name_text(outcome), asked_text(outcome, ": "));
    for (const core::Reason& reason : outcome.reasons)
        text += reason_line(reason, screen);
    text += notes_text(outcome, screen);
    if (!outcome.fits.empty())
        text += "\n" + fits_table(outcome, screen);
    return text;
}

} // namespace virtguard::ctl
