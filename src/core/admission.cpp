// SPDX-License-Identifier: Apache-2.0
//
// For each resource two questions are asked of Placement. Alone: would the start's pieces fit an
// empty host at ratio 1? Together: do they fit on top of all that is held? Where the answer is no,
// the tight places of the pieces that do not fit, joined where they overlap, are the reasons.
//
// A pool's ratio n/d enters as weights, so that everything stays in integers: a place of A bytes
// has room A·n; a pageable byte takes d of it and a whole byte n (memory below ratio 1: both take
// d; a dedicated CPU takes its place's room, whatever the ratio).
#include "core/admission.hpp"

#include <algorithm>
#include <tuple>

#include "base/text.hpp"
#include "core/placement.hpp"
#include "core/wording.hpp"

namespace virtguard::core {

namespace {

using Pieces = std::vector<const Piece*>;

/// The room of a pool's places; those that pieces name and the pool lacks have none.
std::map<int, Int128> room_of(const Pool& pool, std::int64_t weight, const Pieces& pieces) {
    std::map<int, Int128> room;
    for (const auto& [id, place] : pool.places)
        if (place.allocatable() > 0)
            room[id] = static_cast<Int128>(place.allocatable()) * weight;
    for (const Piece* piece : pieces)
        for (const int id : piece->places.ids())
            room.try_emplace(id, 0);
    return room;
}

/// A Placement with all that is held in it. What is bound to a single place is a constant there.
Placement place_held(std::map<int, Int128> room, const Weights& weights, const Classes& held,
                     std::vector<IdSet> sets) {
    for (const auto& [piece_class, share] : held) {
        if (piece_class.places.count() > 1) {
            sets.push_back(piece_class.places);
            continue;
        }
        const auto place = room.find(piece_class.places.first());
        if (place != room.end())
            place->second = std::max<Int128>(0, place->second - static_cast<Int128>(share.sum()) *
                                                                    weights.of(piece_class.whole));
    }
    Placement placement(room, sets);
    for (const auto& [piece_class, share] : held)
        if (piece_class.places.count() > 1)
            placement.add(piece_class.places,
                          static_cast<Int128>(share.sum()) * weights.of(piece_class.whole));
    return placement;
}

std::vector<IdSet> sets_of(const Pieces& pieces) {
    std::vector<IdSet> sets;
    for (const Piece* piece : pieces)
        sets.push_back(piece->places);
    return sets;
}

/// Adds the pieces and returns why they do not fit: the tight parts, disjoint; none when they fit.
std::vector<IdSet> short_parts(Placement& placement, const Weights& weights, const Pieces& pieces) {
    std::vector<IdSet> parts;
    for (const Piece* piece : pieces) {
        const auto demand = placement.add(piece->places, static_cast<Int128>(piece->amount) *
                                                             weights.of(piece->whole));
        if (placement.missing(demand) == 0)
            continue;
        IdSet part = placement.tight_places(demand);
        std::erase_if(parts, [&](const IdSet& other) {
            const bool joined = other.intersects(part);
            if (joined)
                part |= other;
            return joined;
        });
        parts.push_back(std::move(part));
    }
    std::ranges::sort(parts, {}, &IdSet::first);
    return parts;
}

Shortage shortage_in(const Host& host, const Resource& resource, const Pool& pool,
                     const IdSet& places, const Pieces& pieces, const Classes& held) {
    const PartFigures figures = figures_of(host, resource, places, held);
    const Weights weights = weights_of(resource, pool.ratio);
    Int128 needed = 0;
    Shortage shortage{.resource = resource, .places = places};
    for (const Piece* piece : pieces)
        if (piece->places.is_subset_of(places)) {
            shortage.requested += piece->amount;
            needed += static_cast<Int128>(piece->amount) * weights.of(piece->whole);
        }
    shortage.is_all = true;
    for (const auto& [id, place] : pool.places)
        if (place.allocatable() > 0 && !places.contains(id))
            shortage.is_all = false;
    // The part of the request, its kinds in proportion, that would still fit.
    shortage.free = saturate(multiply_divide(figures.slack, shortage.requested, needed));
    shortage.effective = figures.effective;
    shortage.allocatable = figures.allocatable;
    return shortage;
}

/// Why the pieces of one resource do not fit.
void check_pool(const Host& host, const Resource& resource, const Pieces& pieces,
                const Classes& held, std::vector<Reason>& reasons) {
    const Pool& pool = *host.pool(resource);
    const Weights weights = weights_of(resource, pool.ratio);

    Placement empty(room_of(pool, 1, pieces), sets_of(pieces));
    const std::vector<IdSet> alone = short_parts(empty, Weights{}, pieces);
    Placement full =
        place_held(room_of(pool, weights.room, pieces), weights, held, sets_of(pieces));
    std::vector<IdSet> together = short_parts(full, weights, pieces);
    // A part that is too small even when empty needs no second reason.
    std::erase_if(together, [&](const IdSet& part) {
        return std::ranges::any_of(alone,
                                   [&](const IdSet& other) { return other.intersects(part); });
    });

    for (const IdSet& part : alone) {
        Shortage shortage = shortage_in(host, resource, pool, part, pieces, held);
        shortage.alone = true;
        reasons.push_back(shortage_reason(host, shortage));
    }
    for (const IdSet& part : together)
        reasons.push_back(
            shortage_reason(host, shortage_in(host, resource, pool, part, pieces, held)));
}

Reason foreign_scheduler(const std::string& scheduler, const SchedulerPolicy& policy) {
    std::string accepted = policy.accept_default ? printable(policy.default_name) : "";
    for (const auto& [name, entry] : policy.accept)
        accepted += fmt::format("{}{}", accepted.empty() ? "" : ", ", printable(entry.match));
    return {.code = Code::foreign_scheduler,
            .text = fmt::format("it belongs to scheduler {}, and this host serves {}",
                                quote(scheduler), accepted.empty() ? "none" : accepted)};
}

Mode mode_for(const Reason& reason, const Ownership& owner, const Policy& policy) {
    if (owner.mode)
        return *owner.mode;
    if (reason.resource) {
        const auto own = policy.resource_mode.find(*reason.resource);
        if (own != policy.resource_mode.end())
            return own->second;
    }
    return policy.mode;
}

} // namespace

Ownership ownership_of(const Domain& domain, const SchedulerPolicy& policy) {
    Ownership owner{.scheduler = domain.scheduler.empty() ? policy.default_name : domain.scheduler};
    owner.accepted =
        policy.accept_any || (policy.accept_default && owner.scheduler == policy.default_name);
    for (const auto& [name, entry] : policy.accept)
        if (glob_matches(entry.match, owner.scheduler)) {
            owner.accepted = true;
            owner.mode = entry.mode;
            break;
        }
    return owner;
}

Decision decide(const Domain& domain, const Demand& demand, const Holdings& others,
                const Host& host, const Policy& policy) {
    Decision decision;
    std::vector<Reason>& reasons = decision.reasons;
    const Ownership owner = ownership_of(domain, policy.scheduler);
    if (!owner.accepted)
        reasons.push_back(foreign_scheduler(owner.scheduler, policy.scheduler));
    reasons.insert(reasons.end(), demand.impossible.begin(), demand.impossible.end());

    std::map<Resource, Pieces> pieces;
    for (const Piece& piece : demand.pieces)
        if (!piece.places.empty())
            pieces[piece.resource].push_back(&piece);
    for (const auto& [resource, of_resource] : pieces)
        check_pool(host, resource, of_resource, others.of(resource), reasons);

    for (Reason& reason : reasons)
        reason.mode = mode_for(reason, owner, policy);
    std::erase_if(reasons, [](const Reason& reason) { return reason.mode == Mode::off; });
    std::ranges::stable_sort(reasons, {}, [](const Reason& reason) {
        return std::make_tuple(reason.code, reason.resource, reason.nodes.first());
    });
    return decision;
}

Decision refuse_invalid(const Error& error, const Policy& policy) {
    Decision decision;
    if (policy.mode != Mode::off)
        decision.reasons.push_back({.code = Code::invalid_domain,
                                    .mode = policy.mode,
                                    .text = fmt::format("invalid domain: {}", error.what)});
    return decision;
}

Weights weights_of(const Resource& resource, const Ratio& ratio) {
    const bool whole_is_stretched = resource == Resource::memory() && ratio.is_below_one();
    return {.room = ratio.numerator(),
            .pageable = ratio.denominator(),
            .whole = whole_is_stretched ? ratio.denominator() : ratio.numerator()};
}

namespace {

IdSet places_with_room(const Pool& pool) {
    IdSet result;
    for (const auto& [id, place] : pool.places)
        if (place.allocatable() > 0)
            result.insert(id);
    return result;
}

/// Whether what may lie on the places can lie nowhere but in the part. A place without room (a node
/// with no pages of this size) is no way out.
bool is_bound_to(const IdSet& part, const IdSet& places, const IdSet& with_room) {
    if (places.is_subset_of(part))
        return true;
    const IdSet usable = places & with_room;
    return !usable.empty() && usable.is_subset_of(part);
}

} // namespace

PartFigures figures_of(const Host& host, const Resource& resource, const IdSet& places,
                       const Classes& held) {
    PartFigures figures;
    const Pool* pool = host.pool(resource);
    const Weights weights = weights_of(resource, pool == nullptr ? Ratio{} : pool->ratio);
    Int128 capacity = 0;
    Int128 reserved = 0;
    for (int id = places.first(); pool != nullptr && id >= 0; id = places.next(id))
        if (const auto place = pool->places.find(id); place != pool->places.end()) {
            capacity += place->second.capacity;
            reserved += place->second.reserved;
        }
    const Int128 allocatable = capacity - reserved;
    figures.slack = allocatable * weights.room;
    Int128 whole = 0;
    const IdSet with_room = pool == nullptr ? IdSet{} : places_with_room(*pool);
    IdSet dedicated = host.cpus_are_split ? host.dedicated_cpus & places : IdSet{};
    for (const auto& [piece_class, share] : held) {
        if (!is_bound_to(places, piece_class.places, with_room))
            continue;
        figures.held.allocated += share.allocated;
        figures.held.pending += share.pending;
        figures.held.booked += share.booked;
        figures.held.foreign += share.foreign;
        figures.slack -= static_cast<Int128>(share.sum()) * weights.of(piece_class.whole);
        if (piece_class.whole)
            whole += share.sum();
        if (piece_class.whole && resource == Resource::cpu())
            dedicated |= piece_class.places;
    }
    if (resource == Resource::cpu())
        whole = dedicated.count();
    if (weights.whole == weights.pageable) // below ratio 1 memory of either kind weighs the same
        whole = 0;
    figures.capacity = saturate(capacity);
    figures.reserved = saturate(reserved);
    figures.allocatable = saturate(allocatable);
    figures.effective =
        saturate(floor_divide((allocatable - whole) * weights.room, weights.pageable) + whole);
    figures.free = saturate(static_cast<Int128>(figures.effective) - figures.held.sum());
    return figures;
}

std::int64_t most_for(const Host& host, const Resource& resource, const IdSet& places,
                      const Classes& held) {
    const Pool* pool = host.pool(resource);
    if (pool == nullptr)
        return 0;
    const Weights weights = weights_of(resource, pool->ratio);
    const Placement placement =
        place_held(room_of(*pool, weights.room, {}), weights, held, {places});
    const Int128 most = placement.carriable(places);
    return saturate(floor_divide(most, weights.pageable));
}

} // namespace virtguard::core
