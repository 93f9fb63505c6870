// SPDX-License-Identifier: Apache-2.0
#include "core/ledger.hpp"

#include <algorithm>
#include <functional>
#include <tuple>

#include "base/checked.hpp"
#include "core/admission.hpp"

namespace virtguard::core {

namespace {

/// Takes as much of what is wanted from what is there as can be taken at all: a flow whose places
/// are the pieces that are there. Whether that was all of it.
bool take(std::vector<Piece>& there, const std::vector<Piece>& wanted,
          const std::function<bool(std::size_t want, std::size_t from)>& may_take) {
    std::map<int, std::int64_t> room;
    std::map<Resource, std::vector<int>> of_resource;
    for (const Piece& piece : there) {
        of_resource[piece.resource].push_back(static_cast<int>(room.size()));
        room[static_cast<int>(room.size())] = piece.amount;
    }
    Occupancy taken(room, {});
    bool is_all = true;
    for (std::size_t want = 0; want < wanted.size(); ++want) {
        const std::vector<int>& of = of_resource[wanted[want].resource];
        if (std::ranges::none_of(of, [&](int from) { return taken.room_on(from) > 0; })) {
            is_all = is_all && wanted[want].amount == 0;
            continue;
        }
        IdSet sources;
        for (const int from : of)
            if (may_take(want, static_cast<std::size_t>(from)))
                sources.insert(from);
        taken.hold(sources, /*whole=*/false, wanted[want].amount);
    }
    for (int from = 0; Piece & piece : there)
        piece.amount = taken.room_on(from++);
    return is_all && !taken.is_over();
}

bool lists(const Reservation& reservation, const Domain& domain) {
    return reservation.booking && domain.uuid && reservation.booking->uuids.contains(*domain.uuid);
}

/// Guests that were there before it did without it.
bool is_for(const Reservation& reservation, const Domain& domain, Instant claimed) {
    if (const auto& booking = reservation.booking) {
        if (lists(reservation, domain))
            return true;
        if (claimed < booking->made)
            return false;
        return booking->match.empty() ? booking->uuids.empty()
                                      : domain.fact(reservation.match_key).value != 0;
    }
    return reservation.guest && (*reservation.guest == domain.name ||
                                 (domain.uuid && *reservation.guest == domain.uuid->text()));
}

/// What of the pieces is left without others, first those alike, then any of the resource; and what
/// is not.
std::pair<std::vector<Piece>, std::vector<Piece>> split(std::vector<Piece> pieces,
                                                        std::vector<Piece> without) {
    std::vector<Piece> gone;
    for (const bool alike : {true, false})
        for (Piece& each : without)
            for (Piece& piece : pieces) {
                if (piece.resource != each.resource || (alike && key_of(piece) != key_of(each)))
                    continue;
                const std::int64_t amount = std::min(piece.amount, each.amount);
                piece.amount -= amount;
                each.amount -= amount;
                gone.push_back({piece.resource, piece.places, piece.whole, amount});
            }
    return {std::move(pieces), std::move(gone)};
}

/// Pieces that are taken from bit by bit.
class Store {
  public:
    explicit Store(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
        std::map<int, std::int64_t> room;
        for (const Piece& piece : pieces_)
            room[static_cast<int>(room.size())] = piece.amount;
        taken_ = Occupancy(room, {});
    }

    /// As much as can be taken of what is wanted, in its places, whatever was taken before.
    std::int64_t take(const Piece& wanted) {
        IdSet sources;
        for (int from = 0; const Piece& piece : pieces_) {
            if (piece.resource == wanted.resource && piece.places.intersects(wanted.places))
                sources.insert(from);
            ++from;
        }
        if (sources.empty() || wanted.amount == 0)
            return 0;
        const Int128 before = left();
        taken_.hold(sources, /*whole=*/false, wanted.amount);
        return saturate(before - left());
    }

  private:
    [[nodiscard]] Int128 left() const {
        Int128 sum = 0;
        for (int from = 0; from < static_cast<int>(pieces_.size()); ++from)
            sum += taken_.room_on(from);
        return sum;
    }

    std::vector<Piece> pieces_;
    Occupancy taken_;
};

std::int64_t value_of(const Facts& facts, const std::string& key) {
    const auto fact = facts.find(key);
    return fact == facts.end() ? 0 : fact->second.value;
}

std::vector<Piece> merged(std::vector<Piece> pieces) {
    merge_pieces(pieces);
    return pieces;
}

/// What is wanted of reservations by who has this demand and has written that.
std::vector<Piece> wanted_by(const std::vector<Piece>& demand, const std::vector<Piece>& written) {
    std::vector<Piece> pieces = demand;
    pieces.insert(pieces.end(), written.begin(), written.end());
    return merged(std::move(pieces));
}

using Amounts = std::map<Resource, std::map<PieceClass, Int128>>;

/// Keeps nothing that is 0.
void change(Amounts& amounts, const Piece& piece, Int128 by) {
    if (by == 0)
        return;
    auto& classes = amounts[piece.resource];
    const auto at = classes.try_emplace({piece.places, piece.whole}).first;
    at->second += by;
    if (at->second == 0)
        classes.erase(at);
    if (classes.empty())
        amounts.erase(piece.resource);
}

/// What is above 0, in canonical pieces.
std::vector<Piece> pieces_of(const Amounts& amounts) {
    std::vector<Piece> pieces;
    for (const auto& [resource, classes] : amounts)
        for (const auto& [piece_class, sum] : classes)
            if (sum > 0)
                pieces.push_back({resource, piece_class.places, piece_class.whole, saturate(sum)});
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
    [[nodiscard]] std::vector<Piece> more() const { return pieces_of(sums_); }

  private:
    void add(const Piece& piece, Int128 amount) { change(sums_, piece, amount); }

    Amounts sums_;
};

bool has_any_of(const Domain& domain, const std::set<ImageName>& images) {
    return std::ranges::any_of(domain.disks,
                               [&](const Disk& disk) { return images.contains(disk.image); });
}

/// What of storage was wanted before, in the same places, and is not owed now.
std::vector<Piece> written_of(std::vector<Piece> before, const std::vector<Piece>& now) {
    for (const Piece& piece : now)
        for (Piece& each : before)
            if (key_of(each) == key_of(piece))
                each.amount -= piece.amount;
    std::erase_if(before, [](const Piece& piece) {
        return piece.resource != Resource::storage() || piece.amount <= 0;
    });
    return before;
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

bool has_disks_of(const Domain& domain, const Domain& before) {
    return std::ranges::all_of(before.disks, [&](const Disk& disk) {
        return std::ranges::find(domain.disks, disk) != domain.disks.end();
    });
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
    if (booking && booking->domain)
        drop_outdated(booking->domain->facts, policy.questions());
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
    guest.draws_on = drawable(claimant(guest));
    Guest& kept = guests_[identity];
    const bool draws_alike = kept.draws_on == guest.draws_on && kept.spent == guest.spent &&
                             kept.written == guest.written &&
                             kept.demand.pieces == guest.demand.pieces;
    const IdSet numbers = kept.draws_on | guest.draws_on; // it may have had another name
    want(kept, -1);
    account(kept, -1);
    kept = std::move(guest);
    account(kept, 1);
    want(kept, 1);
    if (kept.state == GuestState::returning)
        returning_.insert(identity);
    else
        returning_.erase(identity);
    changed_.insert(identity);
    if (!draws_alike)
        rebook(numbers);
}

void Ledger::confirm(const std::string& identity, Instant when) {
    const auto found = guests_.find(identity);
    if (found == guests_.end())
        return;
    found->second.changed = when;
    found->second.absent = {};
}

void Ledger::confirm(const std::string& identity, Instant when, Facts facts) {
    confirm(identity, when);
    const auto found = guests_.find(identity);
    if (found == guests_.end())
        return;
    Guest& guest = found->second;
    const Facts known = std::exchange(guest.domain.facts, std::move(facts));
    if (std::ranges::none_of(matches_, [&](const auto& match) {
            return value_of(known, match.first) != value_of(guest.domain.facts, match.first);
        }))
        return;
    const IdSet before = guest.draws_on;
    want(guest, -1);
    find_draws(guest);
    want(guest, 1);
    if (guest.draws_on == before)
        return;
    changed_.insert(identity);
    rebook(before | guest.draws_on);
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
    want(found->second, -1);
    account(found->second, -1);
    returning_.erase(identity);
    changed_.insert(identity);
    const IdSet numbers = found->second.draws_on;
    guests_.erase(found);
    rebook(numbers);
}

const std::vector<Piece>& Ledger::booked(const ReservationId& id) const {
    static const std::vector<Piece> nothing;
    const auto found = booked_.find(id);
    return found == booked_.end() ? nothing : found->second;
}

void Ledger::add(const ReservationId& id, Reservation reservation) {
    merge_pieces(reservation.pieces);
    reservation.number = 0;
    for (const auto& [number, other] : by_number_)
        if (number == reservation.number)
            ++reservation.number;
    by_number_.emplace(reservation.number, id);
    if (!reservation.match_key.empty())
        ++matches_[reservation.match_key];
    reservations_.emplace(id, std::move(reservation));
}

IdSet Ledger::remove(const ReservationId& id) {
    const auto found = reservations_.find(id);
    if (found == reservations_.end())
        return {};
    const int number = found->second.number;
    IdSet others = connected({number});
    others.erase(number);
    for (auto& [identity, guest] : guests_) {
        if (!guest.draws_on.contains(number))
            continue;
        want(guest, -1);
        guest.draws_on.erase(number);
        want(guest, 1);
    }
    account_booked(id, booked(id), -1);
    booked_.erase(id);
    by_number_.erase(number);
    if (const auto match = matches_.find(found->second.match_key);
        match != matches_.end() && --match->second == 0)
        matches_.erase(match);
    reservations_.erase(found);
    return others;
}

void Ledger::reserve(const ReservationId& id, Reservation reservation) {
    IdSet numbers = remove(id);
    add(id, std::move(reservation));
    const int number = reservations_.at(id).number;
    for (auto& [identity, guest] : guests_) {
        const Claimant each = claimant(guest);
        if (!may_draw(each, id))
            continue;
        want(guest, -1);
        guest.draws_on.insert(number);
        want(guest, 1);
    }
    numbers.insert(number);
    rebook(numbers);
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): each is moved from
void Ledger::reserve(Reservations reservations) {
    for (const auto& [id, pieces] : booked_)
        account_booked(id, pieces, -1);
    booked_.clear();
    reservations_.clear();
    by_number_.clear();
    matches_.clear();
    IdSet numbers;
    for (auto& [id, reservation] : reservations) {
        add(id, std::move(reservation));
        numbers.insert(reservations_.at(id).number);
    }
    wanted_.clear();
    for (auto& [identity, guest] : guests_) {
        find_draws(guest);
        want(guest, 1);
    }
    rebook(numbers);
}

void Ledger::cancel(const ReservationId& id) {
    const auto found = reservations_.find(id);
    if (found == reservations_.end())
        return;
    note_spent(found);
    rebook(remove(id));
}

/// Those first that could draw on least else, then the oldest: so that what others draw from other
/// reservations is neither more nor, as far as that is possible, less.
void Ledger::note_spent(Reservations::const_iterator ended) {
    const auto& [id, reservation] = *ended;
    Store drawn(split(reservation.pieces, booked(id)).first);
    std::vector<std::pair<const std::string, Guest>*> drawers;
    for (auto& each : guests_)
        if (each.second.draws_on.contains(reservation.number))
            drawers.push_back(&each);
    std::ranges::sort(drawers, {}, [](const auto* each) {
        return std::make_tuple(each->second.draws_on.count(), each->second.claimed, each->first);
    });
    for (auto* each : drawers) {
        Guest& guest = each->second;
        auto [draws, spent] = split(wanted_by(guest.demand.pieces, guest.written), guest.spent);
        if (lists(reservation, guest.domain))
            for (const Piece& piece : spent)
                (void)drawn.take(piece);
        std::vector<Piece> more = guest.spent;
        for (Piece& piece : draws)
            if (piece.amount = drawn.take(piece); piece.amount > 0)
                more.push_back(std::move(piece));
        if (more.size() == guest.spent.size())
            continue;
        merge_pieces(more);
        want(guest, -1);
        guest.spent = std::move(more);
        want(guest, 1);
        changed_.insert(each->first);
    }
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
    IdSet numbers;
    for (auto& [identity, guest] : guests_) {
        if (!has_any_of(guest.domain, images))
            continue;
        const std::vector<Piece> before = guest.held();
        want(guest, -1);
        count_for_scheduler(guest.scheduler, guest.demand.pieces, -1);
        std::vector<Piece> wanted = wanted_by(guest.demand.pieces, guest.written);
        replace_storage(guest.demand.pieces, guest.domain, host, policy);
        guest.written.clear();
        if (!guest.draws_on.empty())
            guest.written = written_of(std::move(wanted), guest.demand.pieces);
        if (guest.bound)
            replace_storage(guest.bound->pieces, guest.domain, host, policy);
        count_for_scheduler(guest.scheduler, guest.demand.pieces, 1);
        (guest.state == GuestState::running ? running : others).replace(before, guest.held());
        want(guest, 1);
        numbers |= guest.draws_on;
    }
    running.apply_to(holdings_, column_of(GuestState::running));
    others.apply_to(holdings_, column_of(GuestState::pending));
    rebook(numbers);
}

void Ledger::forget_written() {
    IdSet numbers;
    for (auto& [identity, guest] : guests_) {
        if (guest.written.empty())
            continue;
        want(guest, -1);
        guest.written.clear();
        want(guest, 1);
        numbers |= guest.draws_on;
    }
    rebook(numbers);
}

Ledger::Claimant Ledger::claimant(const Guest& guest) {
    return {.domain = &guest.domain,
            .scheduler = &guest.scheduler,
            .pieces = &guest.demand.pieces,
            .claimed = guest.claimed,
            .spent = &guest.spent,
            .written = &guest.written};
}

bool Ledger::may_draw(const Claimant& claimant, const ReservationId& id) const {
    const Reservation& reservation = reservations_.at(id);
    return (!reservation.booking || id.owner == *claimant.scheduler) &&
           is_for(reservation, *claimant.domain, claimant.claimed);
}

IdSet Ledger::drawable(const Claimant& claimant) const {
    IdSet numbers;
    const auto look_at = [&](const std::string& owner) {
        for (auto at = reservations_.lower_bound({.owner = owner, .name = {}});
             at != reservations_.end() && at->first.owner == owner; ++at)
            if (may_draw(claimant, at->first))
                numbers.insert(at->second.number);
    };
    look_at("");
    if (!claimant.scheduler->empty())
        look_at(*claimant.scheduler);
    return numbers;
}

void Ledger::find_draws(Guest& guest) {
    guest.draws_on = drawable(claimant(guest));
}

void Ledger::want(const Claimant& claimant, const IdSet& draws_on, int sign) {
    const auto count = [&](const IdSet& numbers, const std::vector<Piece>& pieces) {
        if (numbers.empty())
            return;
        Amounts& wanted = wanted_[numbers];
        for (const Piece& piece : pieces)
            change(wanted, piece, Int128{sign} * piece.amount);
        if (wanted.empty())
            wanted_.erase(numbers);
    };
    if (draws_on.empty())
        return;
    const std::vector<Piece> pieces = wanted_by(*claimant.pieces, *claimant.written);
    if (claimant.spent->empty())
        return count(draws_on, pieces);
    const auto [draws, spent] = split(pieces, *claimant.spent);
    count(draws_on, draws);
    IdSet listed;
    for (int number = draws_on.first(); number >= 0; number = draws_on.next(number))
        if (lists(reservations_.at(by_number_.at(number)), *claimant.domain))
            listed.insert(number);
    count(listed, spent);
}

IdSet Ledger::connected(IdSet numbers) const {
    for (bool grown = !numbers.empty(); grown;) {
        grown = false;
        for (const auto& [draws_on, wanted] : wanted_)
            if (draws_on.intersects(numbers) && !draws_on.is_subset_of(numbers)) {
                numbers |= draws_on;
                grown = true;
            }
    }
    return numbers;
}

Ledger::Wants Ledger::wants_of(const std::map<int, int>& rank) const {
    std::map<IdSet, const Amounts*> by_ranks;
    for (const auto& [draws_on, amounts] : wanted_) {
        if (!rank.contains(draws_on.first())) // of all or none
            continue;
        IdSet ranks;
        for (int number = draws_on.first(); number >= 0; number = draws_on.next(number))
            ranks.insert(rank.at(number));
        by_ranks.emplace(std::move(ranks), &amounts);
    }
    Wants wants;
    for (const auto& [ranks, amounts] : by_ranks) {
        for (Piece& piece : pieces_of(*amounts))
            wants.pieces.push_back(std::move(piece));
        wants.ranks.resize(wants.pieces.size(), ranks);
    }
    return wants;
}

Ledger::Booked Ledger::unclaimed(const IdSet& numbers) const {
    Booked left;
    struct Source {
        const ReservationId* id;
        int rank; ///< of the reservation, by name
        const Piece* piece;
    };
    std::vector<Source> sources;
    for (const int number : numbers.ids())
        left[by_number_.at(number)];
    std::map<int, int> rank; // by number, which another ledger of the same may give otherwise
    for (auto& [id, pieces] : left) {
        const Reservation& reservation = reservations_.at(id);
        rank.emplace(reservation.number, static_cast<int>(rank.size()));
        for (const Piece& piece : reservation.pieces)
            if (sources.size() < std::size_t{IdSet::limit})
                sources.push_back({&id, rank.at(reservation.number), &piece});
            else
                pieces.push_back(piece); // see max_pieces_of_reservations: nobody draws on it
    }
    // A flow fills its places in their order: what is left may lie in as many places as possible.
    std::ranges::stable_sort(sources, {},
                             [](const Source& source) { return source.piece->places.count(); });
    std::vector<Piece> there;
    there.reserve(sources.size());
    for (const Source& source : sources)
        there.push_back(*source.piece);
    const Wants wants = wants_of(rank);
    // What they cannot draw they take from what is free.
    (void)take(there, wants.pieces, [&](std::size_t want, std::size_t from) {
        return wants.ranks[want].contains(sources[from].rank) &&
               there[from].places.intersects(wants.pieces[want].places);
    });
    for (std::size_t i = 0; i < there.size(); ++i)
        left.at(*sources[i].id).push_back(std::move(there[i]));
    return left;
}

void Ledger::rebook(const IdSet& numbers) {
    if (batches_ > 0) {
        unbooked_ |= numbers;
        return;
    }
    if (numbers.empty())
        return;
    for (auto& [id, left] : unclaimed(connected(numbers))) {
        std::vector<Piece>& booked = booked_[id];
        if (booked == left)
            continue;
        account_booked(id, booked, -1);
        booked = std::move(left);
        account_booked(id, booked, 1);
    }
}

Ledger::Batch::~Batch() {
    if (--ledger_.batches_ == 0)
        ledger_.rebook(std::exchange(ledger_.unbooked_, {}));
}

Ledger::Others::Others(Ledger& ledger, const Domain& domain, const std::string& scheduler,
                       const Demand& demand, Instant claimed, bool with_returning)
    : ledger_(ledger) {
    std::set<std::string> gone{identity_of(domain)};
    if (!with_returning)
        gone.insert(ledger.returning_.begin(), ledger.returning_.end());
    for (const std::string& identity : gone)
        if (const Guest* guest = ledger.find(identity)) {
            gone_.push_back(guest);
            ledger.account(*guest, -1);
        }
    static const std::vector<Piece> nothing;
    Claimant start{.domain = &domain,
                   .scheduler = &scheduler,
                   .pieces = &demand.pieces,
                   .claimed = claimed,
                   .spent = &nothing,
                   .written = &nothing};
    const Guest* known = ledger.find(identity_of(domain));
    if (known != nullptr && known->keeps_claim()) {
        start.claimed = known->claimed;
        start.spent = &known->spent;
        if (has_disks_of(domain, known->domain))
            start.written = &known->written;
    }
    draw_anew(start);
}

Ledger::Others::~Others() {
    for (const auto& [id, pieces] : instead_)
        ledger_.account_booked(id, pieces, -1);
    for (const auto& [id, pieces] : before_)
        ledger_.account_booked(id, pieces, 1);
    for (const Guest* guest : gone_)
        ledger_.account(*guest, 1);
}

/// What guests want is as it was in the end: it is only asked here.
void Ledger::Others::draw_anew(const Claimant& start) {
    const IdSet own = ledger_.drawable(start);
    IdSet numbers = own;
    for (const Guest* guest : gone_)
        numbers |= guest->draws_on;
    if (numbers.empty())
        return;
    for (const Guest* guest : gone_)
        ledger_.want(*guest, -1);
    ledger_.want(start, own, 1);
    instead_ = ledger_.unclaimed(ledger_.connected(std::move(numbers)));
    ledger_.want(start, own, -1);
    for (const Guest* guest : gone_)
        ledger_.want(*guest, 1);
    std::erase_if(instead_,
                  [&](const auto& each) { return each.second == ledger_.booked(each.first); });
    for (const auto& [id, pieces] : instead_) {
        before_[id] = ledger_.booked(id);
        ledger_.account_booked(id, before_[id], -1);
        ledger_.account_booked(id, pieces, 1);
    }
}

Ledger::Trial::Trial(Ledger& ledger, ReservationId id, Reservation reservation)
    : ledger_(ledger), id_(std::move(id)) {
    if (const auto found = ledger.reservations_.find(id_); found != ledger.reservations_.end())
        old_ = found->second;
    ledger.rebook(ledger.remove(id_));
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
        ledger_.rebook(ledger_.remove(id_));
}

} // namespace virtguard::core
