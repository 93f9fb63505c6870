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
    return reservation.guest && (*reservation.guest == domain.name ||
                                 (domain.uuid && *reservation.guest == domain.uuid->text()));
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

  private:
    void add(const Piece& piece, Int128 amount) {
        if (amount != 0)
            sums_[piece.resource][{piece.places, piece.whole}] += amount;
    }

    std::map<Resource, std::map<PieceClass, Int128>> sums_;
};

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

void Ledger::account(const Guest& guest, int sign) {
    holdings_.add(guest.held(), column_of(guest.state), sign);
    if (guest.bound)
        holdings_.add(guest.bound->untouched, &Share::untouched, sign);
    count_for_scheduler(guest, sign);
}

void Ledger::count_for_scheduler(const Guest& guest, int sign) {
    if (guest.demand.pieces.empty())
        return;
    const auto owner = held_by_scheduler_.try_emplace(guest.scheduler).first;
    for (const Piece& piece : guest.demand.pieces) {
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
    std::set<std::string> names = reserved_for(guest.domain);
    Guest& kept = guests_[identity];
    names.merge(reserved_for(kept.domain)); // it may have had another name
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
    rebook(reserved_for(gone.domain));
}

void Ledger::reserve(const std::string& name, Reservation reservation) {
    merge_pieces(reservation.pieces);
    std::set<std::string> names = connected({name}, claimants()).names;
    reservations_[name] = std::move(reservation);
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
    booked_.clear();
    std::set<std::string> names;
    for (const auto& [name, reservation] : reservations_)
        names.insert(name);
    rebook(std::move(names));
}

void Ledger::recompute_storage(const std::set<ImageName>& images, const Host& host,
                               const Policy& policy) {
    Exchange running;
    Exchange others;
    std::set<std::string> names;
    for (auto& [identity, guest] : guests_) {
        if (std::ranges::none_of(guest.domain.disks,
                                 [&](const Disk& disk) { return images.contains(disk.image); }))
            continue;
        const std::vector<Piece> before = guest.held();
        count_for_scheduler(guest, -1);
        replace_storage(guest.demand.pieces, guest.domain, host, policy);
        if (guest.bound)
            replace_storage(guest.bound->pieces, guest.domain, host, policy);
        count_for_scheduler(guest, 1);
        (guest.state == GuestState::running ? running : others).replace(before, guest.held());
        names.merge(reserved_for(guest.domain));
    }
    running.apply_to(holdings_, column_of(GuestState::running));
    others.apply_to(holdings_, column_of(GuestState::pending));
    rebook(std::move(names));
}

std::set<std::string> Ledger::reserved_for(const Domain& domain) const {
    std::set<std::string> names;
    for (const auto& [name, reservation] : reservations_)
        if (is_for(reservation, domain))
            names.insert(name);
    return names;
}

std::vector<Ledger::Claimant> Ledger::claimants(const std::set<std::string>& without) const {
    std::vector<Claimant> result;
    for (const auto& [identity, guest] : guests_)
        if (!without.contains(identity))
            result.push_back({&guest.domain, &guest.demand.pieces});
    return result;
}

Ledger::Connected Ledger::connected(std::set<std::string> names,
                                    std::vector<Claimant> claimants) const {
    Connected result{.names = std::move(names), .claimants = {}};
    const auto may_draw = [&](const Claimant& claimant) {
        return std::ranges::any_of(result.names, [&](const std::string& name) {
            const auto found = reservations_.find(name);
            return found != reservations_.end() && is_for(found->second, *claimant.domain);
        });
    };
    for (bool grown = !result.names.empty(); grown;) {
        const auto more = std::ranges::stable_partition(claimants, std::not_fn(may_draw));
        grown = !more.empty();
        for (const Claimant& claimant : more)
            result.names.merge(reserved_for(*claimant.domain));
        result.claimants.insert(result.claimants.end(), more.begin(), more.end());
        claimants.erase(more.begin(), more.end());
    }
    return result;
}

Ledger::Booked Ledger::unclaimed(const Connected& connected) const {
    Booked left;
    std::vector<std::pair<const std::string*, Piece>> sources;
    for (const std::string& name : connected.names) {
        left[name];
        for (const Piece& piece : reservations_.at(name).pieces)
            sources.emplace_back(&name, piece);
    }
    // A flow fills its places in their order: what is left may lie in as many places as possible.
    std::ranges::stable_sort(sources, {},
                             [](const auto& source) { return source.second.places.count(); });
    std::vector<Piece> there;
    there.reserve(sources.size());
    for (const auto& [name, piece] : sources)
        there.push_back(piece);
    std::vector<Piece> wanted;
    std::vector<const Domain*> by;
    for (const Claimant& claimant : connected.claimants) {
        wanted.insert(wanted.end(), claimant.pieces->begin(), claimant.pieces->end());
        by.resize(wanted.size(), claimant.domain);
    }
    // What they cannot draw they take from what is free.
    (void)take(there, wanted, [&](std::size_t want, std::size_t from) {
        return is_for(reservations_.at(*sources[from].first), *by[want]) &&
               there[from].places.intersects(wanted[want].places);
    });
    for (std::size_t i = 0; i < there.size(); ++i)
        left.at(*sources[i].first).push_back(std::move(there[i]));
    return left;
}

void Ledger::rebook(std::set<std::string> names) {
    if (names.empty())
        return;
    for (auto& [name, left] : unclaimed(connected(std::move(names), claimants()))) {
        std::vector<Piece>& booked = booked_[name];
        holdings_.add(booked, &Share::booked, -1);
        booked = std::move(left);
        holdings_.add(booked, &Share::booked, 1);
    }
}

Ledger::Others::Others(Ledger& ledger, const Domain& domain, const Demand& demand,
                       bool with_returning)
    : ledger_(ledger) {
    std::set<std::string> gone{identity_of(domain)};
    if (!with_returning)
        gone.insert(ledger.returning_.begin(), ledger.returning_.end());
    std::set<std::string> names = ledger.reserved_for(domain);
    for (const std::string& identity : gone)
        if (const Guest* guest = ledger.find(identity)) {
            take_away(*guest);
            names.merge(ledger.reserved_for(guest->domain));
        }
    if (!names.empty())
        draw_anew(std::move(names), {&domain, &demand.pieces}, gone);
    for (const Change& change : changes_)
        ledger.holdings_.add(change.pieces, change.column, change.sign);
}

Ledger::Others::~Others() {
    for (auto change = changes_.rbegin(); change != changes_.rend(); ++change)
        ledger_.holdings_.add(change->pieces, change->column, -change->sign);
    for (const Guest* guest : gone_)
        ledger_.count_for_scheduler(*guest, 1);
}

void Ledger::Others::take_away(const Guest& guest) {
    gone_.push_back(&guest);
    ledger_.count_for_scheduler(guest, -1);
    changes_.push_back({guest.held(), column_of(guest.state), -1});
    if (guest.bound)
        changes_.push_back({guest.bound->untouched, &Share::untouched, -1});
}

void Ledger::Others::draw_anew(std::set<std::string> names, const Claimant& start,
                               const std::set<std::string>& gone) {
    std::vector<Claimant> claimants = ledger_.claimants(gone);
    claimants.push_back(start);
    for (auto& [name, left] :
         ledger_.unclaimed(ledger_.connected(std::move(names), std::move(claimants)))) {
        changes_.push_back({ledger_.booked_.at(name), &Share::booked, -1});
        changes_.push_back({std::move(left), &Share::booked, 1});
    }
}

} // namespace virtguard::core
