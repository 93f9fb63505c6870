// SPDX-License-Identifier: Apache-2.0
#include "core/report.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "core/occupancy.hpp"

namespace virtguard::core {

namespace {

/// The amounts of a part of a pool.
struct PartFigures {
    Place place;
    std::int64_t effective = 0;
    Share held; ///< what can lie nowhere else
    std::int64_t free = 0;
};

PartFigures figures_of(const Host& host, const Resource& resource, const IdSet& places,
                       const Holdings& holdings) {
    PartFigures figures;
    Int128 capacity = 0;
    Int128 reserved = 0;
    if (const Pool* pool = host.pool(resource))
        for (const auto& [id, place] : pool->places)
            if (places.contains(id)) {
                capacity += place.capacity;
                reserved += place.reserved;
            }
    figures.place = {.capacity = saturate(capacity), .reserved = saturate(reserved)};
    const Occupancy* occupancy = holdings.occupancy(resource);
    for (const auto& [piece_class, share] : holdings.of(resource))
        if (occupancy == nullptr || occupancy->is_bound_to(places, piece_class.places)) {
            figures.held.allocated += share.allocated;
            figures.held.pending += share.pending;
            figures.held.booked += share.booked;
            figures.held.foreign += share.foreign;
        }
    if (occupancy != nullptr)
        figures.effective = occupancy->state_of(places).effective;
    figures.free = saturate(figures.effective - figures.held.sum());
    return figures;
}

void fill(Figures& figures, const Resource& resource, const PartFigures& part) {
    figures.capacity[resource] = part.place.capacity;
    figures.reserved[resource] = part.place.reserved;
    figures.allocatable[resource] = part.place.allocatable();
    figures.effective[resource] = part.effective;
    figures.allocated[resource] = saturate(part.held.allocated);
    figures.pending[resource] = saturate(part.held.pending);
    figures.booked[resource] = saturate(part.held.booked);
    figures.foreign[resource] = saturate(part.held.foreign);
    figures.free[resource] = part.free;
}

/// Every resource the host has or somebody holds.
std::vector<Resource> resources_of(const Host& host, const Holdings& held) {
    std::vector<Resource> result;
    result.reserve(host.pools.size());
    for (const auto& [resource, pool] : host.pools)
        result.push_back(resource);
    for (const auto& [resource, classes] : held.by_resource())
        if (host.pool(resource) == nullptr)
            result.push_back(resource);
    std::ranges::sort(result);
    return result;
}

/// All there is of a resource, wherever it lies (and, after a change of the host, no longer lies).
IdSet everywhere(const Host& host, const Resource& resource, const Classes& classes) {
    const Pool* pool = host.pool(resource);
    IdSet places = pool == nullptr ? IdSet{} : pool->all();
    for (const auto& [piece_class, share] : classes)
        places |= piece_class.places;
    return places;
}

NodeReport report_node(const Host& host, int node, const std::vector<Resource>& resources,
                       const Holdings& held) {
    NodeReport report{.id = node, .cpus = host.node_pus.at(node)};
    for (const Resource& resource : resources) {
        const Pool* pool = host.pool(resource);
        const IdSet places = host.places_of(resource, node);
        if (pool == nullptr || !places.intersects(pool->all()))
            continue;
        PartFigures part = figures_of(host, resource, places, held);
        if (part.free >= 0) {
            const bool is_cpu = resource == Resource::cpu();
            const IdSet bound = is_cpu ? places & host.shared_cpus : places;
            part.free = bound.empty() ? 0 : held.occupancy(resource)->most_for(bound);
        }
        fill(report.figures, resource, part);
    }
    return report;
}

/// Empty where a piece may lie on any.
IdSet shown_nodes(const Host& host, const Piece& piece) {
    const Pool* pool = host.pool(piece.resource);
    const bool anywhere = pool == nullptr || piece.places == pool->unbound ||
                          std::ranges::all_of(pool->places, [&](const auto& place) {
                              return piece.places.contains(place.first);
                          });
    return anywhere ? IdSet{} : host.nodes_of(piece.resource, piece.places);
}

ShownAmounts shown_amounts(const Host& host, const std::vector<Piece>& pieces) {
    ShownAmounts amounts;
    for (const Piece& piece : pieces) {
        if (piece.amount == 0)
            continue;
        const IdSet nodes = shown_nodes(host, piece);
        std::int64_t& amount =
            amounts[nodes.empty() ? piece.resource.name()
                                  : fmt::format("{}@{}", piece.resource.name(), nodes.text())];
        amount = saturate(Int128{amount} + piece.amount);
    }
    return amounts;
}

} // namespace

Report make_report(const Host& host, const Holdings& held) {
    Report report;
    const std::vector<Resource> resources = resources_of(host, held);
    for (const Resource& resource : resources) {
        const Classes& classes = held.of(resource);
        const IdSet places = everywhere(host, resource, classes);
        fill(report.host, resource, figures_of(host, resource, places, held));
        const Pool* pool = host.pool(resource);
        if (pool == nullptr)
            continue;
        report.overcommit[resource] = pool->ratio;
        if (!pool->unit.empty())
            report.units[resource] = pool->unit;
    }
    for (const auto& [node, cpus] : host.node_cpus)
        report.nodes.push_back(report_node(host, node, resources, held));
    for (const Resource& resource : resources) {
        const auto is_over = [&](const Figures& figures) {
            const auto free = figures.free.find(resource);
            return free != figures.free.end() && free->second < 0;
        };
        if (is_over(report.host) ||
            std::ranges::any_of(report.nodes, is_over, &NodeReport::figures))
            report.over_capacity.push_back(resource);
    }
    return report;
}

std::vector<ShownPiece> shown_pieces(const Host& host, const Demand& demand) {
    std::vector<ShownPiece> result;
    result.reserve(demand.pieces.size());
    for (const Piece& piece : demand.pieces)
        result.push_back({piece.resource, piece.amount, shown_nodes(host, piece), piece.whole});
    return result;
}

std::vector<ReservationReport> reservation_reports(const RunTime& run_time, const Ledger& ledger,
                                                   const Host& host) {
    std::vector<ReservationReport> result;
    for (const auto& [id, made] : run_time.reservations) {
        const auto kept = ledger.reservations().find(id);
        if (kept == ledger.reservations().end())
            continue;
        ReservationReport report{.id = id,
                                 .uuids = made.booking.uuids,
                                 .match = made.booking.match,
                                 .expiry = made.expiry,
                                 .origin = origin_text(made.by)};
        for (const auto& [part, amount] : made.booking.amounts)
            report.asked[part.text()] = amount;
        if (made.booking.domain)
            report.asked = shown_amounts(host, kept->second.pieces);
        report.booked = shown_amounts(host, ledger.booked(id));
        result.push_back(std::move(report));
    }
    return result;
}

Outcome make_outcome(const Domain& domain, const Answer& answer, const Host& host,
                     const Policy& policy) {
    Outcome outcome{.name = domain.name,
                    .uuid = domain.uuid,
                    .scheduler = answer.scheduler,
                    .admitted = answer.decision.admitted(),
                    .mode = policy.mode,
                    .demand = answer.demand.total(),
                    .overhead = answer.demand.overhead,
                    .pieces = shown_pieces(host, answer.demand),
                    .reasons = answer.decision.reasons,
                    .notes = answer.demand.notes};
    if (!outcome.reasons.empty())
        outcome.mode = std::ranges::max(outcome.reasons, {}, &Reason::mode).mode;
    return outcome;
}

std::vector<GuestReport> guest_reports(const Ledger& ledger, const SchedulerPolicy& policy) {
    std::vector<GuestReport> guests;
    for (const auto& [identity, guest] : ledger.guests())
        guests.push_back({.name = guest.domain.name,
                          .uuid = guest.domain.uuid,
                          .scheduler = guest.scheduler,
                          .is_accepted = is_accepted(guest.scheduler, policy),
                          .state = guest.state,
                          .demand = guest.demand.total()});
    std::ranges::sort(guests, {},
                      [](const GuestReport& guest) { return std::tie(guest.uuid, guest.name); });
    return guests;
}

std::string_view mode_text(const Status& status) {
    return status.maintenance ? "maintenance" : mode_name(status.mode);
}

} // namespace virtguard::core
