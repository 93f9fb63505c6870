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
          const std::function<IdSet(std::size_t want)>& sources_of) {
    std::map<int, std::int64_t> room;
    for (const Piece& piece : there)
        room[static_cast<int>(room.size())] = piece.amount;
    Occupancy taken(room, {});
    IdSet closed; // full, as is all that what lies there could move to
    bool is_all = true;
    for (std::size_t want = 0; want < wanted.size(); ++want) {
        if (wanted[want].amount == 0)
            continue;
        const IdSet open = sources_of(want) - closed;
        const Int128 before = taken.uncarried();
        if (!open.empty())
            taken.hold(open, /*whole=*/false, wanted[want].amount);
        if (open.empty() || taken.uncarried() > before) {
            closed |= open;
            is_all = false;
        }
    }
    for (int from = 0; Piece & piece : there)
        piece.amount = taken.room_on(from++);
    return is_all;
}

/// The pieces of a resource that a predicate is true of.
template <class Predicate>
IdSet those_of(const std::vector<Piece>& pieces, const Resource& resource, Predicate predicate) {
    IdSet those;
    for (int at = 0; const Piece& piece : pieces) {
        if (piece.resource == resource && predicate(piece))
            those.insert(at);
        ++at;
    }
    return those;
}

/// What is there to draw from.
struct Source {
    const ReservationId* id;
    int rank; ///< of the reservation, by name
    const Piece* piece;
};

/// Which pieces of reservations guests may draw from that hold others.
class Drawable {
  public:
    /// The pieces must outlive it.
    Drawable(const std::vector<Piece>& pieces, std::vector<IdSet> of_rank)
        : pieces_(pieces), of_rank_(std::move(of_rank)) {}

    /// Of reservations of these ranks.
    IdSet by(const IdSet& ranks, const Piece& held) {
        if (ranks_ != ranks) { // mostly they are those of the last one
            ranks_ = ranks;
            own_ = {};
            for (int rank = ranks.first(); rank >= 0; rank = ranks.next(rank))
                own_ |= of_rank_[static_cast<std::size_t>(rank)];
        }
        const auto [at, is_new] = within_.try_emplace({held.resource, held.places});
        if (is_new)
            at->second = those_of(pieces_, held.resource, [&](const Piece& piece) {
                return piece.places.intersects(held.places);
            });
        return own_ & at->second;
    }

  private:
    const std::vector<Piece>& pieces_;
    std::vector<IdSet> of_rank_;
    IdSet ranks_;
    IdSet own_;
    std::map<std::pair<Resource, IdSet>, IdSet> within_;
};

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

/// Holds as much of an amount as can be carried, where all that is held is. How much that was.
std::int64_t hold_some(Occupancy& taken, const IdSet& sources, std::int64_t amount) {
    if (sources.empty())
        return 0;
    taken.hold(sources, /*whole=*/false, amount);
    const std::int64_t missing = saturate(taken.uncarried());
    if (missing > 0)
        taken.hold(sources, /*whole=*/false, -missing);
    return amount - missing;
}

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
void change(Amounts& amounts, const Resource& resource, const PieceClass& piece_class, Int128 by) {
    if (by == 0)
        return;
    auto& classes = amounts[resource];
    const auto at = classes.try_emplace(piece_class).first;
    at->second += by;
    if (at->second == 0)
        classes.erase(at);
    if (classes.empty())
        amounts.erase(resource);
}

void change(Amounts& amounts, const Piece& piece, Int128 by) {
    change(amounts, piece.resource, {piece.places, piece.whole}, by);
}

/// Of sets that are part of these, all or none, those with most first.
std::vector<const std::pair<const IdSet, Amounts>*>
widest_first(const std::map<IdSet, Amounts>& wanted, const IdSet& numbers) {
    std::vector<const std::pair<const IdSet, Amounts>*> order;
    for (const auto& each : wanted)
        if (each.first.is_subset_of(numbers))
            order.push_back(&each);
    std::ranges::stable_sort(order, std::greater{},
                             [](const auto* each) { return each->first.count(); });
    return order;
}

Int128 amount_of(const Amounts& amounts, const Piece& piece) {
    const auto classes = amounts.find(piece.resource);
    if (classes == amounts.end())
        return 0;
    const auto found = classes->second.find({piece.places, piece.whole});
    return found == classes->second.end() ? 0 : found->second;
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
    return take(before, pieces, [&](std::size_t want) {
        return those_of(before, pieces[want].resource, [&](const Piece& piece) {
            return piece.whole == pieces[want].whole &&
                   piece.places.is_subset_of(pieces[want].places);
        });
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
    for (const Piece& piece : reservation.pieces)
        having_[piece.resource].insert(reservation.number);
    reservations_.emplace(id, std::move(reservation));
}

void Ledger::want_no_more(int number) {
    std::vector<Wanted::node_type> of_it;
    for (auto at = wanted_.begin(); at != wanted_.end();)
        if (const auto each = at++; each->first.contains(number))
            of_it.push_back(wanted_.extract(each));
    for (Wanted::node_type& each : of_it) {
        each.key().erase(number);
        if (each.key().empty())
            continue;
        const auto put = wanted_.insert(std::move(each));
        if (!put.inserted)
            for (const auto& [resource, classes] : put.node.mapped())
                for (const auto& [piece_class, sum] : classes)
                    change(put.position->second, resource, piece_class, sum);
    }
}

IdSet Ledger::remove(const ReservationId& id) {
    const auto found = reservations_.find(id);
    if (found == reservations_.end())
        return {};
    const int number = found->second.number;
    IdSet others = connected({number});
    others.erase(number);
    want_no_more(number);
    for (auto& [identity, guest] : guests_)
        guest.draws_on.erase(number);
    account_booked(id, booked(id), -1);
    booked_.erase(id);
    by_number_.erase(number);
    for (auto& [resource, numbers] : having_)
        numbers.erase(number);
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
    having_.clear();
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
    const int number = found->second.number;
    IdSet numbers = connected({number}); // before what guests spent of it parts them
    note_spent(number, spent_on(number, numbers));
    (void)remove(id);
    numbers.erase(number);
    rebook(numbers);
}

/// What guests want of a reservation and of those that are connected() to it; `taken` is how they
/// draw all that is drawn from them.
std::vector<Ledger::Drawing> Ledger::drawings(int number, const IdSet& numbers,
                                              Occupancy& taken) const {
    std::vector<Piece> drawn;
    std::vector<IdSet> of_number(static_cast<std::size_t>(by_number_.rbegin()->first) + 1);
    std::map<int, std::int64_t> room;
    for (const int each : numbers.ids()) {
        const ReservationId& id = by_number_.at(each);
        for (Piece& piece : split(reservations_.at(id).pieces, booked(id)).first)
            if (piece.amount > 0) {
                const auto at = static_cast<int>(drawn.size());
                of_number[static_cast<std::size_t>(each)].insert(at);
                room[at] = piece.amount;
                drawn.push_back(std::move(piece));
            }
    }
    const IdSet of_ended = of_number[static_cast<std::size_t>(number)];
    if (of_ended.empty())
        return {};
    Drawable drawable(drawn, std::move(of_number));
    taken = Occupancy(room, {});
    IdSet closed;
    std::vector<Drawing> drawings;
    // What a guest draws again it may draw from fewer: that is last, as it was spent before.
    for (const auto* each : widest_first(wanted_, numbers)) {
        const IdSet& draws_on = each->first;
        for (Piece& piece : pieces_of(each->second)) {
            const IdSet all = drawable.by(draws_on, piece);
            if (all.is_subset_of(closed))
                continue;
            const std::int64_t drawn_of_it = hold_some(taken, all, piece.amount);
            if (drawn_of_it < piece.amount)
                closed |= all; // nor is there more for others, as in take()
            piece.amount = drawn_of_it;
            if (piece.amount > 0 && all.intersects(of_ended))
                drawings.push_back({draws_on, std::move(piece), all & of_ended, all - of_ended});
        }
    }
    return drawings;
}

/// As much as can be is taken to be drawn from others, from which that is drawn still when it has
/// ended: so what they have left is neither more nor less.
Ledger::Wanted Ledger::spent_on(int number, const IdSet& numbers) const {
    Occupancy taken;
    Wanted spent;
    for (const Drawing& each : drawings(number, numbers, taken)) {
        taken.hold(each.own | each.others, /*whole=*/false, -each.piece.amount);
        const std::int64_t own =
            each.piece.amount - hold_some(taken, each.others, each.piece.amount);
        (void)hold_some(taken, each.own, own);
        if (own > 0)
            change(spent[each.draws_on], each.piece, own);
    }
    return spent;
}

/// Of guests that are alike the oldest have spent it. What they drew again, as one that lists them,
/// they draw again.
void Ledger::note_spent(int number, Wanted spent) {
    std::vector<std::pair<const std::string, Guest>*> drawers;
    for (auto& each : guests_)
        if (each.second.draws_on.contains(number))
            drawers.push_back(&each);
    const auto age = [](const auto* each) { return std::tie(each->second.claimed, each->first); };
    std::ranges::make_heap(drawers, std::greater{}, age);
    for (; !drawers.empty() && !spent.empty(); drawers.pop_back()) {
        std::ranges::pop_heap(drawers, std::greater{}, age);
        auto& [identity, guest] = *drawers.back();
        std::vector<Piece> more = guest.spent;
        for (Piece& piece :
             split(wanted_by(guest.demand.pieces, guest.written), guest.spent).first) {
            const auto left = spent.find(having(guest.draws_on, piece.resource));
            if (left == spent.end())
                continue;
            piece.amount = saturate(std::min<Int128>(piece.amount, amount_of(left->second, piece)));
            change(left->second, piece, -piece.amount);
            if (left->second.empty())
                spent.erase(left);
            if (piece.amount > 0)
                more.push_back(std::move(piece));
        }
        if (more.size() == guest.spent.size())
            continue;
        merge_pieces(more);
        want(guest, -1);
        guest.spent = std::move(more);
        want(guest, 1);
        changed_.insert(identity);
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

IdSet Ledger::having(const IdSet& numbers, const Resource& resource) const {
    const auto found = having_.find(resource);
    return found == having_.end() ? IdSet{} : numbers & found->second;
}

void Ledger::want(const Claimant& claimant, const IdSet& draws_on, int sign) {
    const auto count = [&](const IdSet& numbers, const std::vector<Piece>& pieces) {
        for (const Piece& piece : pieces) {
            const IdSet of = having(numbers, piece.resource);
            if (of.empty())
                continue;
            const auto wanted = wanted_.try_emplace(of).first;
            change(wanted->second, piece, Int128{sign} * piece.amount);
            if (wanted->second.empty())
                wanted_.erase(wanted);
        }
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
    Wants wants;
    for (const auto& [draws_on, amounts] : wanted_) {
        if (!rank.contains(draws_on.first())) // of all or none
            continue;
        IdSet ranks;
        for (int number = draws_on.first(); number >= 0; number = draws_on.next(number))
            ranks.insert(rank.at(number));
        wants.emplace(std::move(ranks), pieces_of(amounts));
    }
    return wants;
}

Ledger::Booked Ledger::unclaimed(const IdSet& numbers) const {
    Booked left;
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
    std::vector<IdSet> of_rank(rank.size());
    for (const Source& source : sources) {
        of_rank[static_cast<std::size_t>(source.rank)].insert(static_cast<int>(there.size()));
        there.push_back(*source.piece);
    }
    std::vector<Piece> wanted;
    std::vector<const IdSet*> ranks;
    const Wants wants = wants_of(rank);
    for (const auto& [of, pieces] : wants) {
        wanted.insert(wanted.end(), pieces.begin(), pieces.end());
        ranks.resize(wanted.size(), &of);
    }
    Drawable drawable(there, std::move(of_rank));
    // What they cannot draw they take from what is free.
    (void)take(there, wanted,
               [&](std::size_t want) { return drawable.by(*ranks[want], wanted[want]); });
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
