// SPDX-License-Identifier: Apache-2.0
#include "core/ledger.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace virtguard::core {

namespace {

/// One step of drawing a demand from a booking: narrow pieces first, so that a piece that could lie
/// anywhere does not use up what a bound one needs.
void draw(std::vector<Piece>& booked, std::vector<Piece> wanted) {
    std::ranges::stable_sort(wanted, {}, [](const Piece& piece) { return piece.places.count(); });
    for (Piece& want : wanted)
        for (Piece& book : booked) {
            if (book.resource != want.resource || !book.places.intersects(want.places))
                continue;
            const std::int64_t taken = std::min(book.amount, want.amount);
            book.amount -= taken;
            want.amount -= taken;
        }
}

/// What a guest is counted as: a place that is kept counts as a start in flight.
std::int64_t Share::*column_of(GuestState state) {
    return state == GuestState::running ? &Share::allocated : &Share::pending;
}

} // namespace

void Holdings::add(const std::vector<Piece>& pieces, std::int64_t Share::*column, int sign) {
    for (const Piece& piece : pieces) {
        if (piece.amount == 0)
            continue;
        Classes& classes = classes_[piece.resource];
        const auto at = classes.try_emplace({piece.places, piece.whole}).first;
        at->second.*column = saturate(static_cast<Int128>(at->second.*column) +
                                      static_cast<Int128>(sign) * piece.amount);
        if (at->second == Share{})
            classes.erase(at);
        if (classes.empty())
            classes_.erase(piece.resource);
    }
}

const Classes& Holdings::of(const Resource& resource) const {
    static const Classes nothing;
    const auto found = classes_.find(resource);
    return found == classes_.end() ? nothing : found->second;
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
    std::vector<Piece> wanted = pieces;
    std::ranges::stable_sort(wanted, {}, [](const Piece& piece) { return piece.places.count(); });
    for (Piece& want : wanted) {
        for (Piece& had : before) {
            if (had.resource != want.resource || had.whole != want.whole ||
                !had.places.is_subset_of(want.places))
                continue;
            const std::int64_t covered = std::min(had.amount, want.amount);
            had.amount -= covered;
            want.amount -= covered;
        }
        if (want.amount > 0)
            return false;
    }
    return true;
}

const Guest* Ledger::find(const std::string& identity) const {
    const auto found = guests_.find(identity);
    return found == guests_.end() ? nullptr : &found->second;
}

void Ledger::account(const Guest& guest, int sign) {
    holdings_.add(guest.demand.pieces, column_of(guest.state), sign);
}

void Ledger::put(Guest guest) {
    book_all(-1);
    Guest& kept = guests_[identity_of(guest.domain)];
    account(kept, -1);
    kept = std::move(guest);
    account(kept, 1);
    book_all(1);
}

void Ledger::erase(const std::string& identity) {
    const auto found = guests_.find(identity);
    if (found == guests_.end())
        return;
    book_all(-1);
    account(found->second, -1);
    guests_.erase(found);
    book_all(1);
}

void Ledger::reserve(const std::string& name, Reservation reservation) {
    book_all(-1);
    merge_pieces(reservation.pieces);
    reservations_[name] = std::move(reservation);
    book_all(1);
}

void Ledger::set_foreign(std::vector<Piece> pieces) {
    holdings_.add(foreign_, &Share::foreign, -1);
    foreign_ = std::move(pieces);
    holdings_.add(foreign_, &Share::foreign, 1);
}

void Ledger::recompute(const Host& host, const Policy& policy) {
    book_all(-1);
    for (auto& [identity, guest] : guests_) {
        account(guest, -1);
        guest.demand = make_held_demand(guest.domain, host, policy);
        account(guest, 1);
    }
    book_all(1);
}

/// What a reservation still holds when its guest (or the newcomer in that guest's place) has taken
/// from it.
std::vector<Piece> Ledger::unclaimed(const Reservation& reservation, const Guest* newcomer) const {
    std::vector<Piece> left = reservation.pieces;
    const auto is_for = [&](const Guest& guest) {
        return reservation.guest &&
               (*reservation.guest == guest.domain.name ||
                (guest.domain.uuid && *reservation.guest == guest.domain.uuid->text()));
    };
    for (const auto& [identity, guest] : guests_)
        if (is_for(guest) && (newcomer == nullptr || identity != identity_of(newcomer->domain)))
            draw(left, guest.demand.pieces);
    if (newcomer != nullptr && is_for(*newcomer))
        draw(left, newcomer->demand.pieces);
    return left;
}

void Ledger::book_all(int sign) {
    for (const auto& [name, reservation] : reservations_)
        holdings_.add(unclaimed(reservation, nullptr), &Share::booked, sign);
}

Holdings Ledger::held_by_others(const Domain& domain, const Demand& demand,
                                bool with_returning) const {
    Holdings held = holdings_;
    const std::string newcomer_identity = identity_of(domain);
    for (const auto& [identity, guest] : guests_)
        if (identity == newcomer_identity ||
            (!with_returning && guest.state == GuestState::returning))
            held.add(guest.demand.pieces, column_of(guest.state), -1);
    const Guest newcomer{.domain = domain, .scheduler = {}, .demand = demand};
    for (const auto& [name, reservation] : reservations_) {
        held.add(unclaimed(reservation, nullptr), &Share::booked, -1);
        held.add(unclaimed(reservation, &newcomer), &Share::booked, 1);
    }
    return held;
}

} // namespace virtguard::core
