// SPDX-License-Identifier: Apache-2.0
#include "ctl/status_screen.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/text.hpp"
#include "ctl/amounts.hpp"
#include "ctl/table.hpp"

namespace virtguard::ctl {

namespace {

using core::Figures;
using core::Resource;

// ------------------------------------------------------------------ resources

Use use_of(const Figures& figures, const Resource& resource) {
    return {.effective = amount_of(figures.effective, resource),
            .running = amount_of(figures.allocated, resource),
            .free = amount_of(figures.free, resource)};
}

/// "memory", "example.org/nic (functions)".
std::string name_of(const Resource& resource, const core::Report& report) {
    const auto unit = report.units.find(resource);
    return unit == report.units.end()
               ? resource.name()
               : fmt::format("{} ({})", resource.name(), printable(unit->second));
}

Table figures_table() {
    return Table({{"WHERE", Align::left, Shown::no_terminal},
                  {"RESOURCE"},
                  {"USE"},
                  {"CAPACITY", Align::right, Shown::wide},
                  {"RESERVED", Align::right, Shown::wide},
                  {"RATIO", Align::right},
                  {"EFFECTIVE", Align::right},
                  {"USED", Align::right, Shown::narrow},
                  {"ALLOCATED", Align::right, Shown::wide},
                  {"PENDING", Align::right, Shown::wide},
                  {"BOOKED", Align::right, Shown::wide},
                  {"FOREIGN", Align::right, Shown::wide},
                  {"FREE", Align::right}});
}

void add_rows(Table& table, const Screen& screen, const std::string& where, const Figures& figures,
              const core::Report& report) {
    const std::string_view indent = screen.width > 0 && where != "host" ? "  " : "";
    for (const auto& [resource, capacity] : figures.capacity) {
        const auto ratio = report.overcommit.find(resource);
        const Use use = use_of(figures, resource);
        const auto has = [&, &of = resource](const core::Quantities& column) {
            return amount(of, amount_of(column, of));
        };
        const auto takes = [&, &of = resource](const core::Quantities& column) {
            return amount(of, amount_of(column, of), Rounding::up);
        };
        table.add({where, fmt::format("{}{}", indent, name_of(resource, report)),
                   use_cell(screen, use), has(figures.capacity), takes(figures.reserved),
                   ratio == report.overcommit.end() ? "1" : ratio->second.text(),
                   has(figures.effective), amount(resource, used(use), Rounding::up),
                   takes(figures.allocated), takes(figures.pending), takes(figures.booked),
                   takes(figures.foreign), free_cell(resource, use.free)});
    }
}

void add_nodes(Table& table, const Screen& screen, const core::Report& report) {
    for (const core::NodeReport& node : report.nodes) {
        if (node.figures.capacity.empty())
            continue;
        table.begin_section(node.cpus.empty()
                                ? fmt::format("node {}, no CPUs", node.id)
                                : fmt::format("node {}, CPUs {}", node.id, node.cpus.text()));
        add_rows(table, screen, fmt::format("node {}", node.id), node.figures, report);
    }
}

/// A line for each node, on terminals, where each of its rows would be a screenful.
std::string node_overview(const Screen& screen, const core::Report& report) {
    std::vector<TableColumn> columns{{"NODE"}};
    for (const auto& [resource, capacity] : report.host.capacity)
        columns.push_back({resource.name()});
    Table table(columns);
    for (const core::NodeReport& node : report.nodes) {
        std::vector<Cell> row{Cell(std::to_string(node.id))};
        for (const auto& [resource, capacity] : report.host.capacity)
            row.push_back(node.figures.capacity.contains(resource)
                              ? use_cell(screen, use_of(node.figures, resource))
                              : Cell("-", Ink::faint));
        table.add(std::move(row));
    }
    return table.text(screen);
}

std::string capacity_tables(const core::Report& report, const Screen& screen) {
    Table table = figures_table();
    add_rows(table, screen, "host", report.host, report);
    if (report.nodes.size() > 1 && screen.width == 0)
        add_nodes(table, screen, report);
    std::string text = table.text(screen);
    if (report.nodes.size() > 1 && screen.width > 0)
        text += "\n" + node_overview(screen, report);
    return text;
}

// ------------------------------------------------------------------ guests

Ink ink_of(core::GuestState state) {
    return state == core::GuestState::running ? Ink::plain : Ink::warning;
}

/// By name, as operators look for them; the daemon lists them by UUID.
std::vector<core::GuestReport> by_name(std::vector<core::GuestReport> guests) {
    std::ranges::stable_sort(guests, {}, &core::GuestReport::name);
    return guests;
}

/// On a terminal with what is odd about it; in a pipe one word, since columns are taken apart
/// there.
Cell owner_cell(const core::GuestReport& guest, const Screen& screen) {
    if (guest.is_accepted || screen.width == 0)
        return printable(guest.scheduler);
    return {printable(guest.scheduler) + " (not accepted)", Ink::warning};
}

/// The columns are the resources that some guest holds, of all and not only of those shown.
std::string guest_table(const Screen& screen, std::span<const core::GuestReport> shown,
                        std::span<const core::GuestReport> all) {
    core::Quantities held;
    for (const core::GuestReport& guest : all)
        held.insert(guest.demand.begin(), guest.demand.end());
    std::vector<TableColumn> columns{{"DOMAIN", Align::left, Shown::always, /*wraps=*/true},
                                     {"STATE"},
                                     {"SCHEDULER", Align::left, Shown::wide}};
    for (const auto& [resource, amount] : held)
        columns.push_back({resource.name(), Align::right});
    Table table(columns);
    for (const core::GuestReport& guest : shown) {
        std::vector<Cell> row{printable(guest.name),
                              {std::string(core::state_name(guest.state)), ink_of(guest.state)},
                              owner_cell(guest, screen)};
        for (const auto& [resource, of_any] : held)
            row.push_back(guest.demand.contains(resource)
                              ? Cell(amount(resource, guest.demand.at(resource), Rounding::up))
                              : Cell("-", Ink::faint));
        table.add(std::move(row));
    }
    return table.text(screen);
}

/// "14 running, 1 pending; 3 of schedulers that are not accepted"
std::string guest_counts(const std::vector<core::GuestReport>& guests) {
    std::string result;
    for (const core::GuestState state :
         {core::GuestState::running, core::GuestState::pending, core::GuestState::returning})
        if (const auto count = std::ranges::count(guests, state, &core::GuestReport::state);
            count > 0)
            result +=
                fmt::format("{}{} {}", result.empty() ? "" : ", ", count, core::state_name(state));
    if (const auto count = std::ranges::count(guests, false, &core::GuestReport::is_accepted);
        count > 0)
        result += fmt::format("; {} of schedulers that are not accepted", count);
    return result.empty() ? "none" : result;
}

std::string guest_overview(const core::Status& status, const Screen& screen) {
    constexpr std::size_t most_on_terminal = 20;
    const std::vector<core::GuestReport> guests = by_name(status.guests);
    const std::size_t shown =
        screen.width == 0 ? guests.size() : std::min(guests.size(), most_on_terminal);
    std::string text = guest_table(screen, std::span(guests).first(shown), guests);
    if (shown < guests.size())
        text += inked(screen, Ink::faint,
                      fmt::format("and {} more: virtguardctl domains", guests.size() - shown)) +
                "\n";
    return text;
}

// ------------------------------------------------------------------ the daemon

bool is_charged(const core::Status& status) {
    return amount_of(status.report.host.foreign, Resource::memory()) > 0;
}

Ink ink_of_state(std::string_view state) {
    return state == "ready" ? Ink::good : state == "degraded" ? Ink::bad : Ink::warning;
}

std::string head(const core::Status& status, const Screen& screen) {
    const bool is_usual = status.mode == core::Mode::enforce && !status.maintenance;
    std::string text =
        fmt::format("virtguardd {}: {}, mode {}\n", printable(status.version),
                    inked(screen, ink_of_state(status.state), printable(status.state)),
                    inked(screen, is_usual ? Ink::plain : Ink::warning, core::mode_text(status)));
    if (!status.maintenance.value_or("").empty())
        text += inked(screen, Ink::warning,
                      folded(screen, 0, "maintenance: " + one_line(*status.maintenance))) +
                "\n";
    text += fmt::format("starts: {} admitted, {} refused, {} would have been refused\n",
                        status.admitted, status.refused, status.would_refuse);
    text += fmt::format("domains: {}\n", guest_counts(status.guests));
    for (const std::string& problem : status.problems)
        text += inked(screen, Ink::bad, folded(screen, 0, "problem: " + one_line(problem))) + "\n";
    for (const Resource& resource : status.report.over_capacity)
        text += inked(screen, Ink::bad, fmt::format("over capacity: {}", resource.name())) + "\n";
    if (status.foreign_memory.value_or(0) > 0)
        text += fmt::format("foreign memory: {}, {}\n",
                            format_bytes(*status.foreign_memory, Rounding::up),
                            is_charged(status) ? "charged" : "not charged");
    return text;
}

} // namespace

std::string status_text(const core::Status& status, const Screen& screen) {
    std::string text = head(status, screen) + "\n" + capacity_tables(status.report, screen);
    if (!status.guests.empty())
        text += "\n" + guest_overview(status, screen);
    return text;
}

std::string nodes_text(const core::Status& status, const Screen& screen) {
    Table table = figures_table();
    add_nodes(table, screen, status.report);
    return table.text(screen);
}

std::string domains_text(const core::Status& status, const Screen& screen) {
    const std::vector<core::GuestReport> guests = by_name(status.guests);
    if (guests.empty() && screen.width > 0)
        return "no guests\n";
    return guest_table(screen, guests, guests);
}

} // namespace virtguard::ctl
