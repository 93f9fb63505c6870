// SPDX-License-Identifier: Apache-2.0
//
// In whatever order things happen, what is held is the sum of who holds it.
#include <algorithm>
#include <array>
#include <chrono>
#include <ostream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <rapidcheck.h>

#include "core/guard.hpp"
#include "guests.hpp"
#include "model/placement.hpp"

using namespace virtguard;
using namespace virtguard::core;
using namespace std::chrono_literals;

namespace {

const Resource cpu = Resource::cpu();
const Resource memory = Resource::memory();

Topology property_topology(bool grown) {
    Topology topology = equal_nodes(grown ? 3 : 2, 4, (grown ? 16 : 12) * gib);
    add_pages(topology, 0, page_2m, grown ? 1024 : 512);
    add_pages(topology, 1, page_2m, 512);
    return topology;
}

Policy property_policy(int number) {
    static constexpr std::array ratios{"1", "1.5", "0.75", "3"};
    Policy policy = plain_policy();
    set_ratio(policy, cpu, ratios[static_cast<std::size_t>(number % 4)]);
    set_ratio(policy, memory, ratios[static_cast<std::size_t>(number / 4 % 4)]);
    if (number % 3 == 0)
        policy.reserve.cpus = {0};
    if (number % 5 == 0)
        policy.memory.overhead = Overhead{};
    policy.cpu.pinning_exclusive = number % 7 != 0;
    policy.claim.return_hold = number % 2 == 0 ? 0s : 10s;
    return policy;
}

/// One of some shapes of guests, by a number.
Domain property_guest(int number, int shape) {
    Domain domain = guest(number, (1 + shape % 5) * gib);
    domain.name = fmt::format("guest-{}", number / 2); // two of each name
    if (shape % 3 == 0)
        domain.memory[0].bound_to = IdSet{shape % 4};
    if (shape % 5 == 0)
        domain.memory.push_back(ram((1 + shape % 7) * page_2m * 40, DefaultHugepages{}));
    if (shape % 4 == 0)
        domain.vcpus.push_back(on_pus(1, {shape % 8}));
    if (shape % 7 < 4)
        domain.vcpus.push_back(floating(1 + shape % 3));
    domain.locked = shape % 11 == 0;
    for (const int match : {0, 1})
        domain.facts[match == 0 ? "reservation.match a" : "reservation.match b"].value =
            (shape + number + match) % 3 == 0 ? 1 : 0;
    return domain;
}

/// Half the time its name, else its UUID or nobody.
std::optional<std::string> booked_for(const Domain& domain, int shape) {
    if (shape % 2 == 0)
        return domain.name;
    return shape % 4 == 1 ? std::optional(identity_of(domain)) : std::nullopt;
}

/// For all of the default scheduler's guests, or for one.
Booking booking_like(const Domain& domain, int shape, Instant made) {
    Booking booking{.domain = domain};
    if (shape % 3 == 0)
        booking = {
            .amounts = {{{memory, shape % 2}, (1 + shape % 5) * gib}, {{cpu, {}}, 1 + shape % 4}}};
    if (shape % 4 == 0)
        booking.uuids = {*domain.uuid};
    if (shape % 4 == 2)
        booking.match = shape % 8 == 2 ? "a" : "b";
    booking.made = made;
    return booking;
}

ReservationId booking_id(int shape) {
    return {"default-scheduler", fmt::format("for-{}", shape % 4)};
}

struct Event {
    int kind = 0;
    int guest = 0;
    int shape = 0;
};

/// For what rapidcheck tells of a failure.
std::ostream& operator<<(std::ostream& out, const Event& event) {
    return out << '{' << event.kind << ", " << event.guest << ", " << event.shape << '}';
}

void happen(Guard& guard, const Event& event, Instant now) {
    const Domain domain = property_guest(event.guest, event.shape);
    switch (event.kind) {
    case 0:
    case 1:
        (void)admit(guard, domain, now);
        break;
    case 2:
        guard.running(domain, now);
        break;
    case 3:
        guard.released(identity_of(domain), now);
        break;
    case 4:
        guard.apply(property_policy(event.shape));
        break;
    case 5:
        guard.apply(property_topology(event.shape % 2 == 0));
        break;
    case 6:
        guard.reserve(fmt::format("for-{}", event.shape % 3),
                      {.pieces = make_demand(domain, guard.host(), guard.policy()).pieces,
                       .guest = booked_for(domain, event.shape)});
        break;
    case 7:
        guard.set_page_use({{0, page_2m, event.shape * page_2m}, {1, page_2m, 5 * page_2m}});
        break;
    case 8:
        guard.set_residency({{identity_of(domain),
                              {{memory, {{event.shape % 3, event.shape * gib / 16}, {1, gib}}},
                               {Resource::hugepages(page_2m), {{0, 7 * page_2m}}}}}},
                            now);
        break;
    case 9:
        (void)guard.reserve(
            booking_id(event.shape),
            booking_like(domain, event.shape, event.shape % 3 == 0 ? Instant{} : now),
            event.shape % 5 == 0 ? Guard::IfShort::book : Guard::IfShort::refuse);
        break;
    case 10:
        guard.cancel(booking_id(event.shape));
        break;
    default:
        guard.reconcile({.began = now, .active = {domain}});
    }
}

rc::Gen<std::vector<Event>> events(int kinds) {
    return rc::gen::container<std::vector<Event>>(
        rc::gen::build<Event>(rc::gen::set(&Event::kind, rc::gen::inRange(0, kinds)),
                              rc::gen::set(&Event::guest, rc::gen::inRange(0, 6)),
                              rc::gen::set(&Event::shape, rc::gen::inRange(0, 60))));
}

bool is_listed(const Reservation& reservation, const Guest& guest) {
    return reservation.booking && reservation.booking->uuids.contains(guest.domain.uuid.value());
}

bool may_draw(const Reservation& reservation, const Guest& guest) {
    if (const auto& booking = reservation.booking)
        return is_listed(reservation, guest) ||
               (guest.claimed >= booking->made &&
                (booking->match.empty() ? booking->uuids.empty()
                                        : guest.domain.fact(reservation.match_key).value != 0));
    return reservation.guest == guest.domain.name || reservation.guest == identity_of(guest.domain);
}

std::int64_t spent_of(const Guest& guest, const Piece& piece) {
    const auto spent = std::ranges::find_if(
        guest.spent, [&](const Piece& each) { return key_of(each) == key_of(piece); });
    return spent == guest.spent.end() ? 0 : spent->amount;
}

/// What a guest drew from ended reservations is all of pieces that it holds still.
bool spent_what_it_holds(const Guest& guest) {
    return std::ranges::all_of(guest.spent, [&](const Piece& each) {
        return std::ranges::any_of(guest.demand.pieces, [&](const Piece& piece) {
            return key_of(each) == key_of(piece) && each.amount <= piece.amount;
        });
    });
}

/// Whether all that can be drawn from what is booked is drawn, by a flow made for it alone.
bool as_much_as_can_be_is_drawn(const Ledger& ledger) {
    for (const auto& [identity, guest] : ledger.guests())
        if (!spent_what_it_holds(guest))
            return true; // what of its pieces may draw is not said
    for (const auto& [resource, pool] : make_host(property_topology(true), {}).pools) {
        std::vector<std::pair<const Reservation*, const Piece*>> booked;
        std::map<int, Int128> room;
        Int128 left = 0;
        for (const auto& [name, reservation] : ledger.reservations())
            for (const Piece& piece : reservation.pieces)
                if (piece.resource == resource) {
                    room[static_cast<int>(booked.size())] = piece.amount;
                    left += piece.amount;
                    booked.emplace_back(&reservation, &piece);
                }
        std::vector<IdSet> sets;
        std::vector<Int128> amounts;
        for (const auto& [identity, guest] : ledger.guests())
            for (const Piece& piece : guest.demand.pieces) {
                if (piece.resource != resource)
                    continue;
                const std::int64_t spent = spent_of(guest, piece);
                for (const bool of_ended : {false, true}) {
                    IdSet& set = sets.emplace_back();
                    amounts.push_back(of_ended ? spent : piece.amount - spent);
                    for (int i = 0; const auto& [reservation, there] : booked) {
                        if (may_draw(*reservation, guest) &&
                            (!of_ended || is_listed(*reservation, guest)) &&
                            there->places.intersects(piece.places))
                            set.insert(i);
                        ++i;
                    }
                }
            }
        model::Placement drawn(room, sets);
        for (std::size_t i = 0; i < sets.size(); ++i)
            left -= amounts[i] - drawn.missing(drawn.add(sets[i], amounts[i]));
        for (const auto& [piece_class, share] : ledger.holdings().of(resource))
            left -= share.booked;
        if (left != 0)
            return false;
    }
    return true;
}

/// The same ledger, worked out anew.
Guard from_scratch(const Guard& guard) {
    Guard anew = guard;
    anew.apply(Policy(guard.policy()));
    return anew;
}

/// Some guest has spent what it may draw again, from those that list it.
bool has_spent_and_is_listed(const Ledger& ledger) {
    return std::ranges::any_of(ledger.guests(), [&](const auto& guest) {
        return !guest.second.spent.empty() &&
               std::ranges::any_of(ledger.reservations(), [&](const auto& reservation) {
                   return is_listed(reservation.second, guest.second);
               });
    });
}

/// What all others have left when one ends.
std::map<Resource, Int128> booked_but(const Ledger& ledger, const ReservationId& id) {
    std::map<Resource, Int128> sums;
    for (const auto& [other, reservation] : ledger.reservations())
        if (other != id)
            for (const Piece& piece : ledger.booked(other))
                sums[piece.resource] += piece.amount;
    return sums;
}

/// Whether all that is held can lie somewhere, by a placement made for it alone.
bool all_is_carried(const Guard& guard) {
    for (const auto& [resource, classes] : guard.ledger().holdings().by_resource()) {
        const Pool* pool = guard.host().pool(resource);
        if (pool == nullptr)
            return false;
        const Weights weights = weights_of(resource, pool->ratio);
        std::map<int, Int128> room;
        for (const auto& [place_id, place] : pool->places)
            room[place_id] = Int128{place.allocatable()} * weights.room;
        std::vector<IdSet> sets;
        for (const auto& [piece_class, share] : classes)
            sets.push_back(piece_class.places);
        model::Placement placement(room, sets);
        for (const auto& [piece_class, share] : classes) {
            const auto demand = placement.add(piece_class.places,
                                              Int128{share.sum()} * weights.of(piece_class.whole));
            if (placement.missing(demand) != 0)
                return false;
        }
    }
    return true;
}

} // namespace

// Properties ------------------------------------------------------------------------------------

TEST_CASE("whatever happens in whatever order, what is held is the sum of who holds it") {
    CHECK(rc::check([] {
        Guard guard(property_topology(false), property_policy(1));
        int second = 0;
        for (const Event& event : *events(12)) {
            happen(guard, event, at(std::chrono::seconds(++second)));
            RC_ASSERT(broken_invariant(guard.ledger()) == "");
            RC_ASSERT(as_much_as_can_be_is_drawn(guard.ledger()));
            RC_ASSERT(guard.ledger().holdings().is_over() || guard.report().over_capacity.empty());
        }
        const Report report = guard.report();
        guard.apply(Policy(guard.policy())); // works all out anew
        RC_ASSERT(guard.report() == report);
    }));
}

TEST_CASE("when a reservation ends, others have left what they had, and no more is drawn on them") {
    CHECK(rc::check([] {
        Guard guard(property_topology(false), property_policy(1));
        int second = 0;
        for (const Event& event : *events(12)) {
            const ReservationId id = booking_id(event.shape);
            const auto before = booked_but(guard.ledger(), id);
            happen(guard, event, at(std::chrono::seconds(++second)));
            if (event.kind != 10)
                continue;
            const auto after = booked_but(guard.ledger(), id);
            const bool draws_again = has_spent_and_is_listed(guard.ledger());
            for (const auto& [resource, amount] : after)
                RC_ASSERT(amount == before.at(resource) ||
                          (draws_again && amount < before.at(resource)));
            RC_ASSERT(from_scratch(guard).ledger().holdings() == guard.ledger().holdings());
        }
    }));
}

TEST_CASE("when all are gone, nothing is held") {
    CHECK(rc::check([] {
        Guard guard(property_topology(false), property_policy(1));
        int second = 0;
        for (const Event& event : *events(12))
            happen(guard, event, at(std::chrono::seconds(++second)));
        for (int number = 0; number < 6; ++number)
            guard.released(id(number), at(1h));
        guard.expire(at(2h));
        for (const auto& [name, reservation] : Reservations(guard.ledger().reservations()))
            guard.cancel(name);
        guard.set_page_use({{0, page_2m, 0}, {1, page_2m, 0}});
        RC_ASSERT(guard.ledger().guests().empty());
        RC_ASSERT(guard.ledger().holdings().by_resource().empty());
        RC_ASSERT(guard.report() == Guard(guard.topology(), guard.policy()).report());
    }));
}

TEST_CASE("the order in which guests come does not change what is held") {
    CHECK(rc::check([](const std::vector<int>& keys) {
        const Topology topology = property_topology(false);
        std::vector<int> numbers(std::min<std::size_t>(keys.size(), 12));
        for (std::size_t i = 0; i < numbers.size(); ++i)
            numbers[i] = static_cast<int>(i);
        Guard one(topology, property_policy(1));
        Guard other(topology, property_policy(1));
        for (Guard* guard : {&one, &other}) {
            for (const int number : numbers)
                guard->running(property_guest(number, number * 7), at(1s));
            guard->reserve("for-1",
                           {.pieces = {{memory, {0}, false, 3 * gib}}, .guest = "guest-1"});
            std::ranges::sort(numbers, {}, [&](int number) {
                return std::pair(keys[static_cast<std::size_t>(number)], number);
            });
        }
        RC_ASSERT(one.ledger().holdings() == other.ledger().holdings());
    }));
}

TEST_CASE("no set of admitted guests is more than the host can carry") {
    CHECK(rc::check([] {
        const int policy = *rc::gen::inRange(0, 60);
        Guard guard(property_topology(false), property_policy(policy));
        int second = 0;
        for (const Event& event : *rc::gen::resize(40, events(4))) {
            if (event.kind == 2)
                continue; // runs unasked
            happen(guard, event, at(std::chrono::seconds(++second)));
            RC_ASSERT(all_is_carried(guard));
        }
    }));
}

TEST_CASE("no set of admitted guests and of what is reserved is more than the host can carry") {
    CHECK(rc::check([] {
        Guard guard(property_topology(false), property_policy(*rc::gen::inRange(0, 60)));
        int second = 0;
        for (Event event : *rc::gen::resize(40, events(2))) {
            if (event.shape % 5 != 0) // that would be by force
                event.kind *= 9;
            happen(guard, event, at(std::chrono::seconds(++second)));
            RC_ASSERT(all_is_carried(guard));
        }
    }));
}

TEST_CASE("what is refused to be reserved leaves no trace, and what is there is not booked again") {
    CHECK(rc::check([] {
        Guard guard(property_topology(false), property_policy(1));
        int second = 0;
        for (const Event& event : *events(12))
            happen(guard, event, at(std::chrono::seconds(++second)));
        const int shape = *rc::gen::inRange(0, 60);
        const Holdings before = guard.ledger().holdings();
        const Booking booking = booking_like(property_guest(3, shape), shape, Instant{});
        const bool admitted =
            guard.reserve(booking_id(shape), booking, Guard::IfShort::refuse)->admitted();
        RC_ASSERT(admitted || guard.ledger().holdings() == before);
        RC_ASSERT(broken_invariant(guard.ledger()) == "");
        const Holdings once = guard.ledger().holdings();
        RC_ASSERT(guard.reserve(booking_id(shape), booking, Guard::IfShort::refuse)->admitted() ==
                  admitted);
        RC_ASSERT(guard.ledger().holdings() == once);
    }));
}

TEST_CASE("a start that was refused leaves no trace, and asking leaves none either") {
    CHECK(rc::check([] {
        Guard guard(property_topology(false), property_policy(1));
        int second = 0;
        for (const Event& event : *events(12))
            happen(guard, event, at(std::chrono::seconds(++second)));
        guard.expire(at(1h)); // check counts kept places as free
        const Domain domain = property_guest(7, *rc::gen::inRange(0, 60));
        const Holdings before = guard.ledger().holdings();
        const bool fits = guard.check(domain).decision.admitted();
        RC_ASSERT(guard.ledger().holdings() == before);
        RC_ASSERT(admit(guard, domain, at(1h)) == fits);
        if (!fits) {
            RC_ASSERT(guard.ledger().holdings() == before);
            RC_ASSERT(guard.ledger().find(identity_of(domain)) == nullptr);
        }
    }));
}

// The ledger ------------------------------------------------------------------------------------

TEST_CASE("a guest put again replaces itself") {
    Ledger ledger{Host{}};
    const Policy policy = bare_policy();
    const Host host = make_host(equal_nodes(1, 2, 8 * gib), policy);
    const auto put = [&](const Domain& domain, GuestState state) {
        ledger.put({.domain = domain,
                    .scheduler = {},
                    .state = state,
                    .demand = make_held_demand(domain, host, policy)});
        CHECK(broken_invariant(ledger) == "");
    };
    put(guest(1, 2 * gib), GuestState::pending);
    put(guest(1, 3 * gib), GuestState::running);
    CHECK(ledger.guests().size() == 1);
    CHECK(ledger.holdings().of(memory) == Classes{{{{0}, false}, {.allocated = 3 * gib}}});
    ledger.erase("somebody else");
    ledger.erase(id(1));
    CHECK(ledger.holdings().by_resource().empty());
    CHECK(ledger.find(id(1)) == nullptr);
}

TEST_CASE("a guest draws from what was booked for it, by name or UUID, and gives it back") {
    for (const std::string& booked_for : {std::string("guest-1"), id(1)}) {
        Guard guard = plain_guard();
        guard.reserve("r", {.pieces = {{memory, {0, 1}, false, 4 * gib}}, .guest = booked_for});
        const auto figures = [&] {
            const Figures host = guard.report().host;
            return std::array{host.allocated.at(memory) / gib, host.booked.at(memory) / gib};
        };
        CHECK(figures() == std::array<std::int64_t, 2>{0, 4});
        guard.running(guest(2, 20 * gib), at(1s));
        CHECK(figures() == std::array<std::int64_t, 2>{20, 4});
        CHECK_FALSE(guard.check(guest(3, 10 * gib)).decision.admitted());
        CHECK(guard.check(guest(1, 12 * gib)).decision.admitted());
        CHECK_FALSE(guard.check(guest(1, 13 * gib)).decision.admitted());
        guard.running(guest(1, 3 * gib), at(2s));
        CHECK(figures() == std::array<std::int64_t, 2>{23, 1});
        CHECK(broken_invariant(guard.ledger()) == "");
        guard.released(id(1), at(3s));
        CHECK(figures() == std::array<std::int64_t, 2>{20, 4});
        CHECK(broken_invariant(guard.ledger()) == "");
    }
}

TEST_CASE("as much as can be is drawn from what was booked, whatever the order of the pieces") {
    Topology topology = equal_nodes(3, 4, 16 * gib);
    Guard guard(topology, plain_policy());
    guard.reserve("r", {.pieces = {{memory, {0}, false, 4 * gib}, {memory, {1}, false, 4 * gib}},
                        .guest = "guest-1"});
    Domain domain = guest(1);
    domain.memory = {ram(4 * gib), ram(4 * gib)};
    domain.memory[0].bound_to = IdSet{0, 1};
    domain.memory[1].bound_to = IdSet{0, 2}; // can draw from the one that the first finds first
    for (int node = 0; node < 3; ++node) {
        Domain other = guest(10 + node, 12 * gib);
        other.memory[0].bound_to = IdSet{node};
        guard.running(other, at(1s));
    }
    Domain last = guest(20, 4 * gib);
    last.memory[0].bound_to = IdSet{2};
    guard.running(last, at(1s));
    CHECK(guard.check(domain).decision.admitted());
    guard.running(domain, at(2s));
    CHECK(guard.report().host.booked.at(memory) == 0);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("guests for whom the same is booked draw as much as they can together") {
    Guard guard = plain_guard();
    guard.reserve("r", {.pieces = {{memory, {0}, false, 4 * gib}, {memory, {1}, false, 4 * gib}},
                        .guest = "twin"});
    Domain floating = guest(1, 4 * gib);
    Domain bound = guest(2, 4 * gib);
    floating.name = bound.name = "twin";
    bound.memory[0].bound_to = IdSet{0};
    guard.running(floating, at(1s)); // alone it could as well draw what is on node 0
    guard.running(bound, at(1s));
    CHECK(guard.report().host.booked.at(memory) == 0);
    guard.released(id(1), at(2s));
    CHECK(guard.report().nodes.at(1).figures.booked.at(memory) == 4 * gib);
}

TEST_CASE("what a guest holds it draws once, whoever booked it") {
    Guard guard = plain_guard();
    const auto book = [&](const char* name, const std::string& for_guest) {
        guard.reserve(name, {.pieces = {{memory, {0, 1}, false, 4 * gib}}, .guest = for_guest});
    };
    const auto booked = [&] { return guard.report().host.booked.at(memory) / gib; };
    book("a", "guest-1");
    book("b", id(1));
    guard.running(guest(1, 5 * gib), at(1s));
    CHECK(booked() == 3);
    CHECK(guard.check(guest(2, 24 * gib)).decision.admitted());
    CHECK_FALSE(guard.check(guest(2, 25 * gib)).decision.admitted());
    CHECK(guard.check(guest(1, 32 * gib)).decision.admitted()); // all 8 are its own
    book("a", "guest-9");
    CHECK(booked() == 4); // it draws on b alone now
    guard.apply(plain_policy());
    CHECK(booked() == 4);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("a guest that runs under another name draws on what is booked for that name") {
    Guard guard = plain_guard();
    guard.reserve("r", {.pieces = {{memory, {0}, false, 4 * gib}}, .guest = "guest-1"});
    Domain renamed = guest(1, 4 * gib);
    guard.running(renamed, at(1s));
    CHECK(guard.report().host.booked.at(memory) == 0);
    renamed.name = "other";
    guard.running(renamed, at(2s));
    CHECK(guard.report().host.booked.at(memory) == 4 * gib);
}

TEST_CASE("of what is booked, that which may lie in fewer places is drawn first") {
    Guard guard = plain_guard();
    guard.reserve("r", {.pieces = {{memory, {0, 1}, false, 4 * gib}, {memory, {1}, false, 4 * gib}},
                        .guest = "guest-1"});
    Domain domain = guest(1, 4 * gib);
    domain.memory[0].bound_to = IdSet{1};
    guard.running(domain, at(1s));
    CHECK(guard.ledger().holdings().of(memory) ==
          Classes{{{{0, 1}, false}, {.booked = 4 * gib}}, {{{1}, false}, {.allocated = 4 * gib}}});
}

TEST_CASE("each piece is covered by what was there, if there is any way to cover all") {
    const std::vector<Piece> before{{memory, {0}, false, 4}, {memory, {1}, false, 4}};
    struct Row {
        std::string name;
        std::vector<Piece> pieces;
        bool covered;
    };
    const auto row = GENERATE_COPY(values<Row>({
        {"the same", before, true},
        {"in another way", {{memory, {0, 1}, false, 4}, {memory, {0, 2}, false, 4}}, true},
        {"all on both", {{memory, {0, 1}, false, 8}}, true},
        {"more", {{memory, {0, 1}, false, 9}}, false},
        {"elsewhere", {{memory, {0, 2}, false, 5}}, false},
        {"whole", {{memory, {0, 1}, true, 4}}, false},
        {"another resource", {{cpu, {0}, false, 4}}, false},
        {"on no place", {{memory, {}, false, 4}}, false},
        {"nothing", {}, true},
    }));
    CAPTURE(row.name);
    CHECK(is_covered(row.pieces, before) == row.covered);
}

TEST_CASE("a domain without a UUID is known by its name") {
    Guard guard = plain_guard();
    Domain domain = guest(1);
    domain.uuid.reset();
    CHECK(identity_of(domain) == "guest-1");
    guard.running(domain, at(1s));
    guard.released("guest-1", at(2s));
    CHECK(guard.ledger().guests().empty());
}
