// SPDX-License-Identifier: Apache-2.0
#include "ctl/show.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/text.hpp"
#include "ctl/table.hpp"

namespace virtguard::ctl {

namespace {

/// A quantity without its unit's name: "4", "3.5 GiB".
std::string amount(const core::Resource& resource, std::int64_t value) {
    if (resource.kind == core::Resource::Kind::cpu)
        return fmt::format("{}", value);
    return format_bytes(value, Rounding::down);
}

std::string demand_text(const core::Quantities& demand) {
    std::string result;
    for (const auto& [resource, value] : demand)
        result += fmt::format("{}{} {}", result.empty() ? "" : ", ", resource.name(),
                              amount(resource, value));
    return result.empty() ? "nothing" : result;
}

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

std::string cell(const core::Quantities& column, const core::Resource& resource) {
    const auto value = column.find(resource);
    return value == column.end() ? "-" : amount(resource, value->second);
}

std::vector<std::string> figures_row(std::string where, const core::Resource& resource,
                                     const core::Figures& figures, const core::Report& report) {
    const auto ratio = report.overcommit.find(resource);
    const auto free = figures.free.find(resource);
    const bool over = free != figures.free.end() && free->second < 0;
    return {std::move(where),
            resource.name(),
            cell(figures.capacity, resource),
            cell(figures.reserved, resource),
            ratio == report.overcommit.end() ? "1" : ratio->second.text(),
            cell(figures.effective, resource),
            cell(figures.allocated, resource),
            cell(figures.pending, resource),
            cell(figures.booked, resource),
            cell(figures.foreign, resource),
            over ? fmt::format("over by {}", amount(resource, -std::max(free->second, -INT64_MAX)))
                 : cell(figures.free, resource)};
}

std::string capacity_table(const core::Report& report) {
    Table table({{"WHERE"},
                 {"RESOURCE"},
                 {"CAPACITY", Align::right},
                 {"RESERVED", Align::right},
                 {"RATIO", Align::right},
                 {"EFFECTIVE", Align::right},
                 {"ALLOCATED", Align::right},
                 {"PENDING", Align::right},
                 {"BOOKED", Align::right},
                 {"FOREIGN", Align::right},
                 {"FREE", Align::right}});
    for (const auto& [resource, capacity] : report.host.capacity)
        table.add(figures_row("host", resource, report.host, report));
    if (report.nodes.size() > 1)
        for (const core::NodeReport& node : report.nodes)
            for (const auto& [resource, capacity] : node.figures.capacity)
                table.add(
                    figures_row(fmt::format("node {}", node.id), resource, node.figures, report));
    return table.text();
}

bool is_charged(const core::Status& status) {
    const auto charged = status.report.host.foreign.find(core::Resource::memory());
    return charged != status.report.host.foreign.end() && charged->second > 0;
}

/// By name, as operators look for them; the daemon lists them by UUID.
std::string guest_table(std::vector<core::GuestReport> guests) {
    std::ranges::stable_sort(guests, {}, &core::GuestReport::name);
    Table table({{"DOMAIN"}, {"STATE"}, {"SCHEDULER"}, {"HOLDS"}});
    for (const core::GuestReport& guest : guests)
        table.add({printable(guest.name), std::string(core::state_name(guest.state)),
                   printable(guest.scheduler), demand_text(guest.demand)});
    return table.text();
}

std::string notes_text(const core::Outcome& outcome) {
    std::string result;
    for (const std::string& note : outcome.notes)
        result += fmt::format("  note: {}\n", one_line(note));
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

} // namespace

void print(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
}

bool flush() {
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)
        return true;
    show_error(fmt::format("standard output: {}", std::strerror(errno)));
    return false;
}

void show_error(std::string_view error) {
    // Not fmt::print(), which throws where stderr is full or closed: nobody is left to tell then,
    // and the exit status says it all the same.
    const std::string line = fmt::format("virtguardctl: {}\n", one_line(error));
    std::fwrite(line.data(), 1, line.size(), stderr);
}

int failure(const Error& error) {
    show_error(error.what);
    return error.code == Errc::unavailable ? exit_unreachable : exit_bad_input;
}

std::string event_text(const json::Event& event) {
    return event_line(event) + "\n" + (event.outcome ? notes_text(*event.outcome) : "");
}

std::string outcome_text(const core::Outcome& outcome) {
    std::string result = fmt::format("{} {}{}\n", outcome.admitted ? "admit" : "refuse",
                                     name_text(outcome), asked_text(outcome, ": "));
    for (const core::Reason& reason : outcome.reasons)
        result += fmt::format("  {}{} ({})\n", one_line(reason.text),
                              reason.mode == core::Mode::enforce ? "" : ", only observed",
                              core::code_name(reason.code));
    for (const core::Fit& fit : outcome.fits) {
        const bool all =
            outcome.demand.contains(fit.resource) && fit.largest >= outcome.demand.at(fit.resource);
        std::string where = "no single node that it may use has room for all of it";
        if (!fit.nodes.empty())
            where = fmt::format("{} {} has room for all of it",
                                fit.nodes.count() == 1 ? "node" : "any of nodes", fit.nodes.text());
        result += fmt::format("  {}: {} would fit in this shape; {}\n", fit.resource.name(),
                              all ? "all" : amount(fit.resource, fit.largest), where);
    }
    return result + notes_text(outcome);
}

std::string status_text(const core::Status& status) {
    std::string result = fmt::format(
        "virtguardd {}: {}, mode {}; starts: {} admitted, {} refused, {} would have been refused\n",
        printable(status.version), printable(status.state), core::mode_name(status.mode),
        status.admitted, status.refused, status.would_refuse);
    for (const std::string& problem : status.problems)
        result += fmt::format("problem: {}\n", one_line(problem));
    for (const core::Resource& resource : status.report.over_capacity)
        result += fmt::format("over capacity: {}\n", resource.name());
    if (status.foreign_memory.value_or(0) > 0)
        result += fmt::format("foreign memory: {}, {}\n",
                              format_bytes(*status.foreign_memory, Rounding::up),
                              is_charged(status) ? "charged" : "not charged");
    result += "\n" + capacity_table(status.report);
    if (!status.guests.empty())
        result += "\n" + guest_table(status.guests);
    return result;
}

} // namespace virtguard::ctl
