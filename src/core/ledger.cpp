// SPDX-License-Identifier: Apache-2.0
#include "core/ledger.hpp"

#include <algorithm>
#include <functional>

#include "base/checked.hpp"
#include "core/admission.hpp"

namespace virtguard::core {

namespace {

/// Takes as much of what is wanted from what is there as can be taken at all: a flow whose places
/// are the pieces that are there. Whether that was all of it.
bool take(std::vector<Piece>& there, const std::vector<Piece>& wanted,
          const std::function<bool(std::size_t want, std::size_t from)>& may_take) {
    std::map<int, std::int64_t> room;
    for (const Piece& piece : there)
        room[static_cast<int>(room.size())] = piece.amount;
    Occupancy taken(room, {});
    for (std::size_t want = 0; want < wanted.size(); ++want) {
        IdSet sources;
        for (std::size_t from = 0; from < there.size(); ++from)
            if (there[from].resource == wanted[want].resource && may_take(want, from))
                sources.insert(static_cast<int>(from));
        taken.hold(sources, /*whole=*/false, wanted[want].amount);
    }
    for (int from = 0; Piece & piece : there)
        piece.amount = taken.room_on(from++);
    return !taken.is_over();
}

bool is_for(const Reservation& reservation, const Domain& domain) {
    if (const auto& booking = reservation.booking) {
        if (booking->uuids.empty() && booking->match.empty())
            return true;
        return (domain.uuid && booking->uuids.contains(*domain.uuid)) ||
               (!booking->match.empty() && domain.fact(reservation.match_key).value != 0);
    }
    return reservation.guest && (*reservation.guest == domain.name ||
                                 (domain.uuid && *reservation.guest == domain.uuid->text()));
}

std::vector<Piece> merged(std::vector<Piece> pieces) {
    merge_pieces(pieces);
    return pieces;
}

/// What changes in sum where pieces take the place of others, so that each class changes once,
/// however many guests do.
class Exchange {
  public:
    /// Both are canonical (see merge_pieces()).
    void replace(const std::vector<Piece>& before, const std::vector<Piece>& after) {
        auto old = before.begin();
        for (const Piece& piece : after) {
            for (; old != before.end() && key_of(*old) < key_of(piece); ++old)
                add(*old, -old->amount);
            const bool was_there = old != before.end() && key_of(*old) == key_of(piece);
            add(piece, Int128{piece.amount} - (was_there ? (old++)->amount : 0));
        }
        for (; old != before.end(); ++old)
            add(*old, -old->amount);
    }

    /// First what is less: then there is room for what is more.
    void apply_to(Holdings& holdings, Share::Column column) const {
        for (const int sign : {-1, 1})
            for (const auto& [resource, classes] : sums_)
                for (const auto& [piece_class, sum] : classes)
                    for (Int128 left = sign * sum; left > 0;) {
                        const Piece part{resource, piece_class.places, piece_class.whole,
                                         saturate(left)};
                        holdings.add({part}, column, sign);
                        left -= part.amount;
                    }
    }

    /// What became more, in canonical pieces.
    [[nodiscard]] std::vector<Piece> more() const {
        std::vector<Piece> pieces;
        for (const auto& [resource, classes] : sums_)
            for (const auto& [piece_class, sum] : classes)
                if (sum > 0)
                    pieces.push_back(
                        {resource, piece_class.places, piece_class.whole, saturate(sum)});
        return pieces;
    }

  private:
    void add(const Piece& piece, Int128 amount) {
        if (amount != 0)
            sums_[piece.resource][{piece.places, piece.whole}] += amount;
    }

    std::map<Resource, std::map<PieceClass, Int128>> sums_;
};

bool has_any_of(const Domain& domain, const std::set<ImageName>& images) {
    return std::ranges::any_of(domain.disks,
                               [&](const Disk& disk) { return images.contains(disk.image); });
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

void Holdings::resize(const Resource& resource, const Host& host) {
    Occupancy& pool = occupancies_[resource] = Occupancy(host, resource);
    for (const auto& [piece_class, share] : of(resource))
        for (Int128 left = share.sum(); left > 0;) {
            const std::int64_t part = saturate(left);
            pool.hold(piece_class.places, piece_class.whole, part);
            left -= part;
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
    return take(before, pieces, [&](std::size_t want, std::size_t from) {
        return before[from].whole == pieces[want].whole &&
               before[from].places.is_subset_of(pieces[want].places);
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

Reservation Reservation::of(Booking booking, const Host& host, const Policy& policy) {
    Reservation reservation;
    if (const auto question = question_of(booking))
        reservation.match_key = question->key;
    reservation.booking = std::move(booking);
    reservation.place(host, policy);
    return reservation;
}

void Reservation::place(const Host& host, const Policy& policy) {
    if (booking)
        pieces = as_held(make_demand(*booking, host, policy), host).pieces;
}

void Ledger::account(const Guest& guest, int sign) {
    holdings_.add(guest.held(), column_of(guest.state), sign);
    if (guest.bound)
        holdings_.add(guest.bound->untouched, &Share::untouched, sign);
    count_for_scheduler(guest.scheduler, guest.demand.pieces, sign);
}

void Ledger::account_booked(const ReservationId& id, const std::vector<Piece>& pieces, int sign) {
    holdings_.add(pieces, &Share::booked, sign);
    if (!id.owner.empty())
        count_for_scheduler(id.owner, pieces, sign);
}

void Ledger::count_for_scheduler(const std::string& scheduler, const std::vector<Piece>& pieces,
                                 int sign) {
    if (pieces.empty())
        return;
    const auto owner = held_by_scheduler_.try_emplace(scheduler).first;
    for (const Piece& piece : pieces) {
        Int128& held = owner->second[piece.resource];
        held += Int128{sign} * piece.amount;
        if (held == 0)
            owner->second.erase(piece.resource);
    }
    if (owner->second.empty())
        held_by_scheduler_.erase(owner);
}

void Ledger::put(Guest guest) {
    const std::string identity = identity_of(guest.domain);
    Names names = reserved_for(guest);
    Guest& kept = guests_[identity];
    names.merge(reserved_for(kept)); // it may have had another name
    account(kept, -1);
    kept = std::move(guest);
    account(kept, 1);
    if (kept.state == GuestState::returning)
        returning_.insert(identity);
    else
        returning_.erase(identity);
    changed_.insert(identity);
    rebook(std::move(names));
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

// NOLINTNEXTLINE(performance-unnecessary-value-param): what is seen is moved from it
void Ledger::set_residency(std::map<std::string, Residency> seen, Instant when, const Host& host) {
    Exchange held;
    Exchange untouched;
    const BoundPieces nothing;
    for (auto& [identity, residency] : seen) {
        const auto at = guests_.find(identity);
        if (at == guests_.end())
            continue;
        Guest& guest = at->second;
        if (guest.state != GuestState::running || when < guest.changed ||
            guest.residency == residency)
            continue;
        const std::optional<BoundPieces> before = std::move(guest.bound);
        guest.residency = std::move(residency);
        guest.bind(host);
        held.replace(before ? before->pieces : guest.demand.pieces, guest.held());
        untouched.replace((before ? *before : nothing).untouched,
                          (guest.bound ? *guest.bound : nothing).untouched);
    }
    held.apply_to(holdings_, column_of(GuestState::running));
    untouched.apply_to(holdings_, &Share::untouched);
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
    rebook(reserved_for(gone));
}

void Ledger::reserve(const ReservationId& id, Reservation reservation) {
    merge_pieces(reservation.pieces);
    Names names = connected({id}, claimants()).names;
    reservations_[id] = std::move(reservation);
    rebook(std::move(names));
}

void Ledger::reserve(Reservations reservations) {
    for (const auto& [id, pieces] : booked_)
        account_booked(id, pieces, -1);
    booked_.clear();
    reservations_ = std::move(reservations);
    Names names;
    for (auto& [id, reservation] : reservations_) {
        merge_pieces(reservation.pieces);
        names.insert(id);
    }
    rebook(std::move(names));
}

void Ledger::cancel(const ReservationId& id) {
    if (!reservations_.contains(id))
        return;
    Names names = connected({id}, claimants()).names;
    account_booked(id, booked_.at(id), -1);
    booked_.erase(id);
    reservations_.erase(id);
    names.erase(id);
    rebook(std::move(names));
}

void Ledger::set_foreign(std::vector<Piece> pieces) {
    if (pieces == foreign_)
        return;
    holdings_.add(foreign_, &Share::foreign, -1);
    foreign_ = std::move(pieces);
    holdings_.add(foreign_, &Share::foreign, 1);
}

void Ledger::drop_outdated(const Questions& questions) {
    for (auto& [identity, guest] : guests_)
        core::drop_outdated(guest.domain.facts, questions);
}

void Ledger::recompute(const Host& host, const Policy& policy) {
    holdings_ = Holdings(host);
    held_by_scheduler_.clear();
    for (auto& [identity, guest] : guests_) {
        guest.scheduler = ownership_of(guest.domain, policy.scheduler).scheduler;
        guest.demand = make_held_demand(guest.domain, host, policy);
        guest.bind(host);
        account(guest, 1);
    }
    holdings_.add(foreign_, &Share::foreign, 1);
    booked_.clear(); // of what is held no more
    Reservations reservations = std::move(reservations_);
    for (auto& [id, reservation] : reservations)
        reservation.place(host, policy);
    reserve(std::move(reservations));
}

void Ledger::note_change_of(const std::set<ImageName>& images) {
    for (const auto& [identity, guest] : guests_)
        if (has_any_of(guest.domain, images))
            changed_.insert(identity);
}

void Ledger::recompute_storage(const std::set<ImageName>& images, const Host& host,
                               const Policy& policy) {
    Exchange running;
    Exchange others;
    Names names;
    for (auto& [identity, guest] : guests_) {
        if (!has_any_of(guest.domain, images))
            continue;
        const std::vector<Piece> before = guest.held();
        count_for_scheduler(guest.scheduler, guest.demand.pieces, -1);
        replace_storage(guest.demand.pieces, guest.domain, host, policy);
        if (guest.bound)
            replace_storage(guest.bound->pieces, guest.domain, host, policy);
        count_for_scheduler(guest.scheduler, guest.demand.pieces, 1);
        (guest.state == GuestState::running ? running : others).replace(before, guest.held());
        names.merge(reserved_for(guest));
    }
    running.apply_to(holdings_, column_of(GuestState::running));
    others.apply_to(holdings_, column_of(GuestState::pending));
    rebook(std::move(names));
}

bool Ledger::may_draw(const Claimant& claimant, const ReservationId& id) const {
    const auto found = reservations_.find(id);
    return found != reservations_.end() &&
           (!found->second.booking || id.owner == *claimant.scheduler) &&
           is_for(found->second, *claimant.domain);
}

Ledger::Names Ledger::reserved_for(const Claimant& claimant) const {
    Names names;
    for (const auto& [id, reservation] : reservations_)
        if (may_draw(claimant, id))
            names.insert(id);
    return names;
}

Ledger::Names Ledger::reserved_for(const Guest& guest) const {
    return reserved_for(Claimant{&guest.domain, &guest.scheduler, &guest.demand.pieces});
}

std::vector<Ledger::Claimant> Ledger::claimants(const std::set<std::string>& without) const {
    std::vector<Claimant> result;
    for (const auto& [identity, guest] : guests_)
        if (!without.contains(identity))
            result.push_back({&guest.domain, &guest.scheduler, &guest.demand.pieces});
    return result;
}

Ledger::Connected Ledger::connected(Names names, std::vector<Claimant> claimants) const {
    Connected result{.names = std::move(names), .claimants = {}};
    const auto draws = [&](const Claimant& claimant) {
        return std::ranges::any_of(result.names,
                                   [&](const ReservationId& id) { return may_draw(claimant, id); });
    };
    for (bool grown = !result.names.empty(); grown;) {
        const auto more = std::ranges::stable_partition(claimants, std::not_fn(draws));
        grown = !more.empty();
        for (const Claimant& claimant : more)
            result.names.merge(reserved_for(claimant));
        result.claimants.insert(result.claimants.end(), more.begin(), more.end());
        claimants.erase(more.begin(), more.end());
    }
    return result;
}

Ledger::Booked Ledger::unclaimed(const Connected& connected) const {
    Booked left;
    struct Source {
        const ReservationId* id;
        int number; ///< of the reservation
        const Piece* piece;
    };
    std::vector<Source> sources;
    for (int number = 0; const ReservationId& id : connected.names) {
        left[id];
        for (const Piece& piece : reservations_.at(id).pieces)
            sources.push_back({&id, number, &piece});
        ++number;
    }
    // A flow fills its places in their order: what is left may lie in as many places as possible.
    std::ranges::stable_sort(sources, {},
                             [](const Source& source) { return source.piece->places.count(); });
    std::vector<Piece> there;
    there.reserve(sources.size());
    for (const Source& source : sources)
        there.push_back(*source.piece);
    // Many guests are alike in what they draw on and hold.
    std::map<IdSet, std::vector<Piece>> by_reservations;
    for (const Claimant& claimant : connected.claimants) {
        IdSet drawn_on;
        for (int number = 0; const ReservationId& id : connected.names) {
            if (may_draw(claimant, id))
                drawn_on.insert(number);
            ++number;
        }
        std::vector<Piece>& pieces = by_reservations[std::move(drawn_on)];
        pieces.insert(pieces.end(), claimant.pieces->begin(), claimant.pieces->end());
    }
    std::vector<Piece> wanted;
    std::vector<const IdSet*> by;
    for (auto& [drawn_on, pieces] : by_reservations) {
        merge_pieces(pieces);
        wanted.insert(wanted.end(), pieces.begin(), pieces.end());
        by.resize(wanted.size(), &drawn_on);
    }
    // What they cannot draw they take from what is free.
    (void)take(there, wanted, [&](std::size_t want, std::size_t from) {
        return by[want]->contains(sources[from].number) &&
               there[from].places.intersects(wanted[want].places);
    });
    for (std::size_t i = 0; i < there.size(); ++i)
        left.at(*sources[i].id).push_back(std::move(there[i]));
    return left;
}

void Ledger::rebook(Names names) {
    if (names.empty())
        return;
    for (auto& [id, left] : unclaimed(connected(std::move(names), claimants()))) {
        std::vector<Piece>& booked = booked_[id];
        account_booked(id, booked, -1);
        booked = std::move(left);
        account_booked(id, booked, 1);
    }
}

Ledger::Others::Others(Ledger& ledger, const Domain& domain, const std::string& scheduler,
                       const Demand& demand, bool with_returning)
    : ledger_(ledger) {
    std::set<std::string> gone{identity_of(domain)};
    if (!with_returning)
        gone.insert(ledger.returning_.begin(), ledger.returning_.end());
    const Claimant start{&domain, &scheduler, &demand.pieces};
    Names names = ledger.reserved_for(start);
    for (const std::string& identity : gone)
        if (const Guest* guest = ledger.find(identity)) {
            gone_.push_back(guest);
            ledger.account(*guest, -1);
            names.merge(ledger.reserved_for(*guest));
        }
    if (!names.empty())
        draw_anew(std::move(names), start, gone);
}

Ledger::Others::~Others() {
    for (const auto& [id, pieces] : instead_)
        ledger_.account_booked(id, pieces, -1);
    for (const auto& [id, pieces] : before_)
        ledger_.account_booked(id, pieces, 1);
    for (const Guest* guest : gone_)
        ledger_.account(*guest, 1);
}

void Ledger::Others::draw_anew(Names names, const Claimant& start,
                               const std::set<std::string>& gone) {
    std::vector<Claimant> claimants = ledger_.claimants(gone);
    claimants.push_back(start);
    instead_ = ledger_.unclaimed(ledger_.connected(std::move(names), std::move(claimants)));
    for (const auto& [id, pieces] : instead_) {
        before_[id] = ledger_.booked_.at(id);
        ledger_.account_booked(id, before_[id], -1);
        ledger_.account_booked(id, pieces, 1);
    }
}

Ledger::Trial::Trial(Ledger& ledger, ReservationId id, Reservation reservation)
    : ledger_(ledger), id_(std::move(id)) {
    if (const auto found = ledger.reservations_.find(id_); found != ledger.reservations_.end())
        old_ = found->second;
    ledger.cancel(id_);
    const Booked before = ledger.booked_;
    ledger.reserve(id_, std::move(reservation));
    Exchange exchange;
    for (const auto& [each, pieces] : ledger.booked_) {
        const auto found = before.find(each);
        if (found == before.end() || found->second != pieces)
            exchange.replace(found == before.end() ? std::vector<Piece>{} : merged(found->second),
                             merged(pieces));
    }
    added_ = exchange.more();
    ledger.account_booked(id_, added_, -1);
}

Ledger::Trial::~Trial() {
    ledger_.account_booked(id_, added_, 1);
    if (is_kept_)
        return;
    if (old_)
        ledger_.reserve(id_, *std::move(old_));
    else
        ledger_.cancel(id_);
}

} // namespace virtguard::core
