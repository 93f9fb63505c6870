// SPDX-License-Identifier: Apache-2.0
#include "core/guard.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.hpp"

namespace virtguard::core {

namespace {

bool has_only_grown(const Image& before, const Image& now) {
    return before.device == now.device && before.virtual_size == now.virtual_size &&
           before.allocated <= now.allocated;
}

} // namespace

Guard::Guard(Topology topology, Policy policy)
    : topology_(std::move(topology)), policy_(std::move(policy)),
      policy_questions_(policy_.questions()), questions_(policy_questions_),
      host_(make_host(topology_, policy_)), ledger_(host_) {}

Answer Guard::answer(const Domain& domain, Instant claimed, bool with_returning) {
    Answer answer;
    answer.demand = make_demand(domain, host_, policy_);
    const Standing standing = standing_of(domain, policy_);
    answer.scheduler = standing.owner.scheduler;
    if (std::string note = note_of(standing.ruling); !note.empty())
        answer.demand.notes.push_back(std::move(note));
    const Ledger::Others others(ledger_, domain, answer.scheduler, answer.demand, claimed,
                                with_returning);
    answer.decision = decide(domain, standing, answer.demand, ledger_.holdings(),
                             ledger_.held_by_scheduler(), host_, policy_);
    return answer;
}

Answer Guard::check(const Domain& domain) {
    return answer(domain, Instant::max(), /*with_returning=*/false);
}

std::vector<Fit> Guard::advise(const Domain& domain) {
    const Demand demand = make_demand(domain, host_, policy_);
    const std::string scheduler = ownership_of(domain, policy_.scheduler).scheduler;
    const Ledger::Others others(ledger_, domain, scheduler, demand, Instant::max(),
                                /*with_returning=*/false);
    return what_fits(demand, ledger_.holdings(), host_);
}

std::optional<Answer> Guard::admit(const Domain& domain, Instant when, IfKept if_kept) {
    Answer given = answer(domain, when, /*with_returning=*/true);
    if (has_its_place(domain, given.demand, when))
        given.decision.reasons.clear();
    else if (if_kept == IfKept::wait && !given.decision.admitted() && next_return_end() &&
             answer(domain, when, /*with_returning=*/false).decision.admitted())
        return std::nullopt;
    if (given.decision.admitted() && !is_older(identity_of(domain), when))
        record(domain, GuestState::pending, when, as_held(given.demand, host_));
    return given;
}

/// What its disks owe was let in when it was started, under whatever path: a revert to a snapshot
/// returns to another image.
bool Guard::has_its_place(const Domain& domain, const Demand& demand, Instant when) const {
    const std::string identity = identity_of(domain);
    if (!keeps_place_of(identity, when))
        return false;
    std::vector<Piece> pieces = demand.pieces;
    std::erase_if(pieces, [](const Piece& piece) { return piece.resource == Resource::storage(); });
    return is_covered(pieces, ledger_.find(identity)->demand.pieces);
}

bool Guard::has_its_place(const Domain& domain, Instant when) const {
    return has_its_place(domain, make_demand(domain, host_, policy_), when);
}

bool Guard::keeps_place_of(const std::string& identity, Instant when) const {
    const Guest* guest = ledger_.find(identity);
    if (guest == nullptr)
        return false;
    // Running: libvirt would not start it again, so it has ended and its release was lost.
    return guest->state == GuestState::running ||
           (guest->state == GuestState::returning &&
            when < guest->changed + policy_.claim.return_hold);
}

void Guard::expire(Instant now) {
    const std::set<std::string> returning = ledger_.returning();
    for (const std::string& identity : returning)
        if (const Instant left = ledger_.find(identity)->changed;
            left + policy_.claim.return_hold <= now)
            forget(identity, left);
}

std::optional<Instant> Guard::next_return_end() const {
    std::optional<Instant> next;
    for (const std::string& identity : ledger_.returning()) {
        const Instant end = ledger_.find(identity)->changed + policy_.claim.return_hold;
        next = next ? std::min(*next, end) : end;
    }
    return next;
}

Answer Guard::start_at_once(const Domain& domain) {
    Answer given = check(domain);
    if (given.decision.admitted())
        record(domain, GuestState::running, Instant{});
    return given;
}

void Guard::claim(const Domain& domain, Instant when) {
    if (!is_older(identity_of(domain), when))
        record(domain, GuestState::pending, when);
}

void Guard::started(const std::string& identity, Instant when) {
    const Guest* guest = ledger_.find(identity);
    if (guest != nullptr && guest->state == GuestState::pending)
        running(Domain(guest->domain), when);
}

void Guard::running(const Domain& domain, Instant when) {
    if (!is_older(identity_of(domain), when))
        record(domain, GuestState::running, when);
}

void Guard::released(const std::string& identity, Instant when) {
    if (is_older(identity, when))
        return;
    // Also where it changes nothing: messages that waited for us together come in any order, and
    // this one may be ahead of its own start's, which then must not hold a place.
    note_departure(identity, when);
    const Guest* guest = ledger_.find(identity);
    if (guest == nullptr || guest->state == GuestState::returning)
        return;
    if (guest->state == GuestState::running && policy_.claim.return_hold.count() > 0)
        record(Domain(guest->domain), GuestState::returning, when);
    else
        forget(identity, when);
}

void Guard::forget(const std::string& identity, Instant when) {
    ledger_.erase(identity);
    unasked_.erase(identity);
    note_departure(identity, when);
}

void Guard::note_departure(const std::string& identity, Instant when) {
    Instant& left = departed_[identity];
    left = std::max(left, when);
    if (departed_.size() < tidy_departed_at_)
        return;
    std::erase_if(departed_, [&](const auto& each) { return each.second + max_look_age < when; });
    tidy_departed_at_ = std::max<std::size_t>(1024, 2 * departed_.size());
}

void Guard::reconcile(const Look& look) {
    const Ledger::Batch batch(ledger_);
    std::set<std::string> seen(look.unreadable.begin(), look.unreadable.end());
    for (const Domain& domain : look.active) {
        seen.insert(identity_of(domain));
        running(domain, look.began);
    }
    if (!look.complete)
        return;
    std::vector<std::string> gone;
    for (const auto& [identity, guest] : ledger_.guests())
        if (!seen.contains(identity))
            gone.push_back(identity);
    const Instant last_look = std::exchange(last_look_, look.began).value_or(look.began);
    for (const std::string& identity : gone) {
        const Instant since = std::max(last_look, ledger_.find(identity)->changed);
        if (since < look.began)
            ledger_.add_absence(identity, std::min<Span>(look.began - since, look_interval));
        reconcile(identity, std::nullopt, look.began);
    }
}

void Guard::reconcile(const std::string& identity, const std::optional<Domain>& active,
                      Instant began) {
    if (active)
        return running(*active, began);
    const Guest* guest = ledger_.find(identity);
    if (guest == nullptr || is_older(identity, began) || guest->state == GuestState::returning)
        return;
    // A start in flight may not be active yet: its claim lasts until its release or its lease's
    // end.
    if (guest->state == GuestState::pending && guest->absent < policy_.claim.lease)
        return;
    forget(identity, began);
}

void Guard::set_residency(std::map<std::string, Residency> guests, Instant when) {
    ledger_.set_residency(std::move(guests), when, host_);
}

/// All that was seen counts, also of guests that are gone by now: it was in use at the same time.
void Guard::set_memory_use(const std::map<std::string, Residency>& guests, std::int64_t in_use) {
    const auto demanded_by = [](const Guest& guest) {
        Int128 sum = 0;
        for (const Piece& piece : guest.demand.pieces)
            sum += piece.resource == Resource::memory() ? piece.amount : 0;
        return sum;
    };
    Int128 unseen = 0;
    for (const auto& [identity, guest] : ledger_.guests())
        unseen += demanded_by(guest);
    Int128 resident = 0;
    for (const auto& [identity, residency] : guests) {
        const auto memory = residency.find(Resource::memory());
        if (memory == residency.end())
            continue;
        for (const auto& [node, bytes] : memory->second)
            resident += bytes;
        if (const Guest* guest = ledger_.find(identity))
            unseen -= demanded_by(*guest);
    }
    foreign_memory_.update(in_use, saturate(resident), saturate(unseen));
    account_foreign();
}

void Guard::set_file_systems(FileSystems file_systems) {
    const bool is_like = file_systems.is_like(host_.file_systems);
    host_.file_systems = std::move(file_systems);
    if (!is_like)
        return recompute();
    bool is_resized = false; // as one of ZFS or NFS is with all that others write
    for (const auto& [place, file_system] : host_.file_systems.read) {
        std::int64_t& capacity = host_.pools[Resource::storage()].places[place].capacity;
        is_resized |= std::exchange(capacity, file_system.capacity) != file_system.capacity;
    }
    if (is_resized)
        ledger_.holdings().resize(Resource::storage(), host_);
    account_foreign();
}

void Guard::set_images(const Images& images) {
    std::set<ImageName> changed;
    std::set<ImageName> to_keep; // a daemon that knows of an image from before it grew errs little
    for (const auto& [name, known] : images) {
        KnownImage& there = host_.images[name];
        there.problem = known.problem;
        if (!known.image || there.image == known.image)
            continue;
        if (!there.image || !has_only_grown(*there.image, *known.image))
            to_keep.insert(name);
        there.image = known.image;
        changed.insert(name);
    }
    ledger_.recompute_storage(changed, host_, policy_);
    if (!to_keep.empty())
        ledger_.note_change_of(to_keep);
    if (host_.images.size() > max_images)
        forget_images(images);
}

void Guard::forget_images(const Images& but) {
    std::set<ImageName> had;
    for (const auto& [identity, guest] : ledger_.guests())
        for (const Disk& disk : guest.domain.disks)
            had.insert(disk.image);
    std::erase_if(host_.images, [&](const auto& known) {
        return !had.contains(known.first) && !but.contains(known.first);
    });
}

void Guard::apply(Policy policy) {
    if (policy.storage.paths != policy_.storage.paths)
        ledger_.forget_written();
    policy_ = std::move(policy);
    policy_questions_ = policy_.questions();
    collect_questions();
    ledger_.drop_outdated(questions_);
    for (const auto& [identity, guest] : ledger_.guests())
        note_asked(identity, guest.domain);
    recompute();
}

void Guard::note_asked(const std::string& identity, const Domain& domain) {
    if (answer_all(domain.facts, policy_questions_))
        unasked_.erase(identity);
    else
        unasked_.insert(identity);
}

void Guard::apply(Topology topology) {
    topology_ = std::move(topology);
    recompute();
}

void Guard::set_page_use(const std::vector<PageUse>& use, ForeignPages::Seen seen) {
    foreign_hugepages_ = foreign_pages_.update(host_, ledger_.holdings(), use, seen);
    account_foreign();
}

Result<Decision> Guard::reserve(const ReservationId& id, Booking booking, IfShort if_short) {
    const bool is_of_one_guest = booking.domain.has_value();
    Demand demand = make_demand(booking, host_, policy_);
    Reservation reservation = Reservation::of(std::move(booking), host_, policy_);
    std::size_t pieces = reservation.pieces.size();
    for (const auto& [other, there] : ledger_.reservations())
        pieces += other == id ? 0 : there.pieces.size();
    if (pieces > max_pieces_of_reservations)
        return fail(Errc::limit, "all reservations together are in more than {} parts",
                    max_pieces_of_reservations);
    Ledger::Trial trial(ledger_, id, std::move(reservation));
    demand.pieces = trial.added();
    Decision decision = decide_reservation(id.owner, demand, is_of_one_guest, ledger_.holdings(),
                                           ledger_.held_by_scheduler(), host_, policy_);
    if (!decision.admitted() && if_short == IfShort::refuse)
        return decision;
    trial.keep();
    collect_questions();
    return decision;
}

void Guard::reserve(const std::map<ReservationId, Booking>& bookings) {
    Reservations reservations;
    for (const auto& [id, booking] : bookings)
        reservations.emplace(id, Reservation::of(booking, host_, policy_));
    ledger_.reserve(std::move(reservations));
    collect_questions();
}

void Guard::cancel(const ReservationId& id) {
    ledger_.cancel(id);
    collect_questions();
}

void Guard::reserve(const std::string& name, Reservation reservation) {
    ledger_.reserve({.owner = {}, .name = name}, std::move(reservation));
}

void Guard::collect_questions() {
    questions_ = policy_questions_;
    for (const auto& [id, reservation] : ledger_.reservations()) {
        const auto question =
            reservation.booking ? question_of(*reservation.booking) : std::nullopt;
        if (question && std::ranges::find(questions_, *question) == questions_.end())
            questions_.push_back(*question);
    }
}

void Guard::account_foreign() {
    std::vector<Piece> pieces = foreign_hugepages_;
    const std::int64_t memory = foreign_memory().value_or(0);
    if (policy_.memory.charge_foreign && memory > 0)
        pieces.push_back({Resource::memory(), host_.pool(Resource::memory())->all(),
                          /*whole=*/true, memory});
    for (const auto& [place, file_system] : host_.file_systems.read)
        if (file_system.used > 0)
            pieces.push_back({Resource::storage(), IdSet{place}, /*whole=*/true, file_system.used});
    ledger_.set_foreign(std::move(pieces));
}

void Guard::recompute() {
    Images images = std::move(host_.images);
    host_ = make_host(topology_, policy_, std::move(host_.file_systems));
    host_.images = std::move(images);
    ledger_.recompute(host_, policy_);
    account_foreign();
}

bool Guard::is_older(const std::string& identity, Instant when) const {
    const Guest* guest = ledger_.find(identity);
    const auto left = departed_.find(identity);
    return (guest != nullptr && when < guest->changed) ||
           (left != departed_.end() && when < left->second);
}

void Guard::record(const Domain& domain, GuestState state, Instant when,
                   std::optional<Demand> held) {
    // What a look finds each minute of each guest is mostly what is known.
    const std::string identity = identity_of(domain);
    const Guest* known = ledger_.find(identity);
    const bool is_known = known != nullptr && known->state == state &&
                          (known->keeps_claim() || known->claimed == when); // else another start
    if (is_known && known->domain == domain)
        return ledger_.confirm(identity, when);
    if (is_known && says_more(*known, domain))
        return ledger_.confirm(identity, when, domain.facts);
    Guest guest{.domain = domain, .state = state, .changed = when, .since = when, .claimed = when};
    if (known != nullptr && (state != GuestState::pending || known->keeps_claim())) {
        guest.claimed = known->claimed;
        guest.spent = known->spent;
        if (has_disks_of(domain, known->domain))
            guest.written = known->written;
    }
    if (known != nullptr && known->state == state)
        guest.since = known->since;
    if (known != nullptr && known->state == GuestState::running && state == GuestState::running)
        guest.residency = known->residency;
    put(std::move(guest), std::move(held));
}

/// The same domain, with other answers to what reservations ask: each guest is asked anew when one
/// of them asks more.
bool Guard::says_more(const Guest& known, const Domain& domain) const {
    if (!std::ranges::all_of(policy_questions_, [&](const Question& question) {
            return known.domain.fact(question.key) == domain.fact(question.key);
        }))
        return false;
    Domain as_known = domain;
    as_known.facts = known.domain.facts;
    return as_known == known.domain;
}

void Guard::put(Guest guest, std::optional<Demand> held) {
    drop_outdated(guest.domain.facts, questions_);
    note_asked(identity_of(guest.domain), guest.domain);
    guest.scheduler = ownership_of(guest.domain, policy_.scheduler).scheduler;
    guest.demand = held ? *std::move(held) : make_held_demand(guest.domain, host_, policy_);
    guest.bind(host_);
    ledger_.put(std::move(guest));
}

} // namespace virtguard::core
