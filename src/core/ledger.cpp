// SPDX-License-Identifier: Apache-2.0
#include "core/ledger.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "core/admission.hpp"

namespace virtguard::core {

namespace {

/// Whether a piece can take from another's amount.
using MayTake = bool (*)(const Piece& want, const Piece& there);

/// Takes as much of what is wanted from what is there as can be taken at all: a flow whose places
/// are the pieces that are there. Both are sorted by resource. Whether that was all of it.
bool take(std::vector<Piece>& there, const std::vector<Piece>& wanted, MayTake may_take) {
    bool all = true;
    for (auto want = wanted.begin(); want != wanted.end();) {
        const auto from = std::ranges::equal_range(there, want->resource, {}, &Piece::resource);
        std::map<int, std::int64_t> room;
        for (const Piece& piece : from)
            room[static_cast<int>(room.size())] = piece.amount;
        Occupancy taken(room, {});
        for (const Resource resource = want->resource;
             want != wanted.end() && want->resource == resource; ++want) {
            IdSet sources;
            for (int i = 0; const Piece& piece : from) {
                if (may_take(*want, piece))
                    sources.insert(i);
                ++i;
            }
            taken.hold(sources, /*whole=*/false, want->amount);
        }
        all &= !taken.is_over();
        for (int i = 0; Piece & piece : from)
            piece.amount = taken.room_on(i++);
    }
    return all;
}

/// Draws a demand from what is booked; the rest of it takes from what is free.
void draw(std::vector<Piece>& booked, const std::vector<Piece>& wanted) {
    (void)take(booked, wanted, [](const Piece& want, const Piece& book) {
        return book.places.intersects(want.places);
    });
}

bool is_for(const Reservation& reservation, const Domain& domain) {
    return reservation.guest && (*reservation.guest == domain.name ||
                                 (domain.uuid && *reservation.guest == domain.uuid->text()));
}

/// What a guest is counted as: a place that is kept counts as a start in flight.
Share::Column column_of(GuestState state) {
    return state == GuestState::running ? &Share::allocated : &Share::pending;
}

} // namespace

Holdings::Holdings(const Host& host) {
    for (const auto& [resource, pool] : host.pools)
        occupancies_.emplace(resource, Occupancy(host, resource));
}

Occupancy* Holdings::occupancy(const Resource& resource) {
    const auto found = occupancies_.find(resource);
    return found == occupancies_.end() ? nullptr : &found->second;
}

const Occupancy* Holdings::occupancy(const Resource& resource) const {
    const auto found = occupancies_.find(resource);
    return found == occupancies_.end() ? nullptr : &found->second;
}

void Holdings::add(const std::vector<Piece>& pieces, Share::Column column, int sign) {
    for (const Piece& piece : pieces) {
        if (piece.amount == 0)
            continue;
        Classes& classes = classes_[piece.resource];
        const auto at = classes.try_emplace({piece.places, piece.whole}).first;
        at->second.*column += Int128{sign} * piece.amount;
        if (at->second == Share{})
            classes.erase(at);
        if (classes.empty())
            classes_.erase(piece.resource);
        if (Occupancy* pool = occupancy(piece.resource);
            pool != nullptr && column != &Share::untouched)
            pool->hold(piece.places, piece.whole, sign * piece.amount);
    }
}

const Classes& Holdings::of(const Resource& resource) const {
    static const Classes nothing;
    const auto found = classes_.find(resource);
    return found == classes_.end() ? nothing : found->second;
}

bool Holdings::is_over() const {
    return std::ranges::any_of(classes_, [this](const auto& held) {
        const Occupancy* pool = occupancy(held.first);
        return pool == nullptr || pool->is_over();
    });
}

std::string identity_of(const Domain& domain) {
    return domain.uuid ? domain.uuid->text() : domain.name;
}

std::string_view state_name(GuestState state) {
    switch (state) {
    case GuestState::pending:
        return "pending";
    case GuestState::running:
        return "running";
    case GuestState::returning:
        return "returning";
    }
    std::unreachable();
}

bool is_covered(const std::vector<Piece>& pieces, std::vector<Piece> before) {
    return take(before, pieces, [](const Piece& want, const Piece& had) {
        return had.whole == want.whole && had.places.is_subset_of(want.places);
    });
}

void Guest::bind(const Host& host) {
    if (residency.empty())
        bound.reset();
    else
        bound = bind_resident(demand.pieces, residency, host);
}

const Guest* Ledger::find(const std::string& identity) const {
    const auto found = guests_.find(identity);
    return found == guests_.end() ? nullptr : &found->second;
}

void Ledger::account(const Guest& guest, int sign) {
    holdings_.add(guest.held(), column_of(guest.state), sign);
    if (guest.bound)
        holdings_.add(guest.bound->untouched, &Share::untouched, sign);
}

void Ledger::put(Guest guest) {
    const std::string identity = identity_of(guest.domain);
    Guest& kept = guests_[identity];
    account(kept, -1);
    kept = std::move(guest);
    account(kept, 1);
    if (kept.state == GuestState::returning)
        returning_.insert(identity);
    else
        returning_.erase(identity);
    changed_.insert(identity);
    rebook(kept.domain);
}

void Ledger::confirm(const std::string& identity, Instant when) {
    const auto found = guests_.find(identity);
    if (found == guests_.end())
        return;
    found->second.changed = when;
    found->second.absent = {};
}

void Ledger::add_absence(const std::string& identity, Span span) {
    const auto found = guests_.find(identity);
    if (found == guests_.end())
        return;
    found->second.absent += span;
    changed_.insert(identity);
}

void Ledger::set_residency(const std::string& identity, Residency residency, const Host& host) {
    const auto found = guests_.find(identity);
    if (found == guests_.end() || found->second.residency == residency)
        return;
    Guest& guest = found->second;
    account(guest, -1);
    guest.residency = std::move(residency);
    guest.bind(host);
    account(guest, 1);
}

void Ledger::erase(const std::string& identity) {
    const auto found = guests_.find(identity);
    if (found == guests_.end())
        return;
    account(found->second, -1);
    returning_.erase(identity);
    changed_.insert(identity);
    const Guest gone = std::move(found->second);
    guests_.erase(found);
    rebook(gone.domain);
}

void Ledger::reserve(const std::string& name, Reservation reservation) {
    merge_pieces(reservation.pieces);
    std::vector<Piece>& booked = booked_[name];
    holdings_.add(booked, &Share::booked, -1);
    booked = unclaimed(reservation);
    holdings_.add(booked, &Share::booked, 1);
    reservations_[name] = std::move(reservation);
}

void Ledger::set_foreign(std::vector<Piece> pieces) {
    if (pieces == foreign_)
        return;
    holdings_.add(foreign_, &Share::foreign, -1);
    foreign_ = std::move(pieces);
    holdings_.add(foreign_, &Share::foreign, 1);
}

void Ledger::recompute(const Host& host, const Policy& policy) {
    holdings_ = Holdings(host);
    for (auto& [identity, guest] : guests_) {
        guest.scheduler = ownership_of(guest.domain, policy.scheduler).scheduler;
        guest.demand = make_held_demand(guest.domain, host, policy);
        guest.bind(host);
        account(guest, 1);
    }
    holdings_.add(foreign_, &Share::foreign, 1);
    for (auto& [name, booked] : booked_) {
        booked = unclaimed(reservations_.at(name));
        holdings_.add(booked, &Share::booked, 1);
    }
}

/// What a reservation still holds when its guest has taken from it.
std::vector<Piece> Ledger::unclaimed(const Reservation& reservation) const {
    std::vector<Piece> left = reservation.pieces;
    if (reservation.guest)
        for (const auto& [identity, guest] : guests_)
            if (is_for(reservation, guest.domain))
                draw(left, guest.demand.pieces);
    return left;
}

/// A guest came, changed or went: what is reserved for it changes too.
void Ledger::rebook(const Domain& domain) {
    for (const auto& [name, reservation] : reservations_) {
        if (!is_for(reservation, domain))
            continue;
        std::vector<Piece>& booked = booked_[name];
        holdings_.add(booked, &Share::booked, -1);
        booked = unclaimed(reservation);
        holdings_.add(booked, &Share::booked, 1);
    }
}

Ledger::Others::Others(Ledger& ledger, const Domain& domain, const Demand& demand,
                       bool with_returning)
    : ledger_(ledger) {
    const std::string own = identity_of(domain);
    take_away(own);
    if (!with_returning)
        for (const std::string& identity : ledger.returning_)
            if (identity != own)
                take_away(identity);
    for (const auto& [name, reservation] : ledger.reservations_) {
        if (!is_for(reservation, domain))
            continue;
        std::vector<Piece> left = reservation.pieces;
        for (const auto& [identity, guest] : ledger.guests_)
            if (identity != own && is_for(reservation, guest.domain))
                draw(left, guest.demand.pieces);
        draw(left, demand.pieces);
        changes_.push_back({ledger.booked_.at(name), &Share::booked, -1});
        changes_.push_back({std::move(left), &Share::booked, 1});
    }
    for (const Change& change : changes_)
        ledger.holdings_.add(change.pieces, change.column, change.sign);
}

Ledger::Others::~Others() {
    for (auto change = changes_.rbegin(); change != changes_.rend(); ++change)
        ledger_.holdings_.add(change->pieces, change->column, -change->sign);
}

void Ledger::Others::take_away(const std::string& identity) {
    const Guest* guest = ledger_.find(identity);
    if (guest == nullptr)
        return;
    changes_.push_back({guest->held(), column_of(guest->state), -1});
    if (guest->bound)
        changes_.push_back({guest->bound->untouched, &Share::untouched, -1});
}

} // namespace virtguard::core
