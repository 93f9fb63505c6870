// SPDX-License-Identifier: Apache-2.0
//
// What schedulers book, and who draws on it.
#include <array>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "core/guard.hpp"
#include "core/reservation.hpp"
#include "guests.hpp"

using namespace virtguard;
using namespace virtguard::core;
using namespace std::chrono_literals;

namespace {

using IfShort = Guard::IfShort;
const Resource cpu = Resource::cpu();
const Resource memory = Resource::memory();
const Resource pages_2m = Resource::hugepages(page_2m);
const ReservationId spot{"cortex", "spot"};

Domain owned(int number, std::int64_t size, const std::string& scheduler = "cortex") {
    Domain domain = guest(number, size);
    domain.scheduler = scheduler;
    return domain;
}

Booking of_memory(std::int64_t amount, std::optional<int> node = std::nullopt) {
    return {.amounts = {{{memory, node}, amount}}};
}

Policy open_policy() {
    Policy policy = plain_policy();
    policy.scheduler.accept_any = true;
    return policy;
}

/// Two nodes of 16 GiB and 4 CPUs each.
Guard open_guard() {
    return {equal_nodes(2, 4, 16 * gib), open_policy()};
}

/// "" when it is made, else what refuses it.
std::string made(Guard& guard, const ReservationId& id, const Booking& booking,
                 IfShort if_short = IfShort::refuse) {
    const auto decision = guard.reserve(id, booking, if_short);
    CHECK(broken_invariant(guard.ledger()) == "");
    return decision ? refusing_text(*decision) : decision.error().what;
}

Booking made_at(std::chrono::seconds time, Booking booking) {
    booking.made = at(time);
    return booking;
}

/// GiB of memory that one has left.
std::int64_t left(const Guard& guard, const ReservationId& id) {
    std::int64_t sum = 0;
    for (const Piece& piece : guard.ledger().booked(id))
        sum += piece.amount;
    return sum / gib;
}

std::int64_t booked(const Guard& guard) {
    return guard.report().host.booked.at(memory) / gib;
}

bool fits(Guard& guard, const Domain& domain) {
    return guard.check(domain).decision.admitted();
}

} // namespace

TEST_CASE("space taken before its guest is its scheduler's alone, and its again when it has gone") {
    Guard guard = open_guard();
    CHECK(made(guard, spot, of_memory(20 * gib)) == "");
    CHECK(booked(guard) == 20);
    CHECK(guard.report().host.free.at(memory) == 12 * gib);
    CHECK_FALSE(fits(guard, owned(9, 13 * gib, "other")));
    CHECK(fits(guard, owned(9, 12 * gib, "other")));
    CHECK(admit(guard, owned(1, 8 * gib), at(1s)));
    CHECK(admit(guard, owned(2, 14 * gib), at(1s))); // 12 of it are booked, 2 are free
    CHECK(booked(guard) == 0);
    CHECK(guard.report().host.free.at(memory) == 10 * gib);
    guard.released(id(1), at(2s));
    CHECK(booked(guard) == 6);
    CHECK_FALSE(fits(guard, owned(9, 13 * gib, "other")));
    CHECK(admit(guard, owned(1, 8 * gib), at(3s)));
    CHECK(booked(guard) == 0);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("of the owner's guests those draw that are named or match, without either all") {
    struct Row {
        std::string name;
        Booking booking;
        std::string scheduler;
        std::int64_t match;
        bool draws;
    };
    const Uuid own = *owned(1, gib).uuid;
    const Uuid another = *owned(2, gib).uuid;
    const auto row = GENERATE_COPY(values<Row>({
        {"all", {}, "cortex", 0, true},
        {"another scheduler's", {}, "cortex-2", 1, false},
        {"named", {.uuids = {own, another}}, "cortex", 0, true},
        {"not named", {.uuids = {another}}, "cortex", 1, false},
        {"named, of another scheduler", {.uuids = {own}}, "other", 1, false},
        {"matches", {.match = "true()"}, "cortex", 1, true},
        {"does not match", {.match = "true()"}, "cortex", 0, false},
        {"named, and does not match", {.uuids = {own}, .match = "true()"}, "cortex", 0, true},
        {"matches, and is not named", {.uuids = {another}, .match = "true()"}, "cortex", 1, true},
        {"was asked another match", {.match = "false()"}, "cortex", 1, false},
    }));
    INFO(row.name);
    Guard guard = open_guard();
    Booking booking = row.booking;
    booking.amounts = {{{memory, std::nullopt}, 24 * gib}};
    CHECK(made(guard, spot, booking) == "");
    Domain domain = owned(1, 10 * gib, row.scheduler);
    domain.facts["reservation.match true()"] = {.value = row.match};
    CHECK(admit(guard, domain, at(1s)) == row.draws);
    CHECK(booked(guard) == (row.draws ? 14 : 24));
}

TEST_CASE("what a match asks is asked of each domain once, as long as it is booked") {
    Guard guard = open_guard();
    Booking booking = of_memory(gib);
    booking.match = "boolean(/domain/title)";
    CHECK(made(guard, spot, booking) == "");
    CHECK(made(guard, {"other", "too"}, booking) == "");
    REQUIRE(guard.questions().size() == 1);
    CHECK(guard.questions()[0].xpath == "boolean(/domain/title)");
    CHECK(guard.questions()[0].namespaces.empty());
    guard.cancel(spot);
    CHECK(guard.questions().size() == 1);
    guard.apply(open_policy());
    CHECK(guard.questions().size() == 1);
    guard.cancel({"other", "too"});
    CHECK(guard.questions().empty());
}

TEST_CASE("booking again replaces, decided without the old, which stays where that is refused") {
    Guard guard = open_guard();
    CHECK(made(guard, spot, of_memory(20 * gib)) == "");
    CHECK(made(guard, spot, of_memory(20 * gib)) == "");
    CHECK(booked(guard) == 20);
    CHECK(made(guard, spot, of_memory(33 * gib)) == "memory: needs 33 GiB, 32 GiB free of 32 GiB");
    CHECK(booked(guard) == 20);
    CHECK(made(guard, spot, of_memory(32 * gib)) == "");
    CHECK(booked(guard) == 32);
    CHECK(made(guard, {"cortex", "more"}, of_memory(gib)) ==
          "memory: needs 1 GiB, 0 free of 32 GiB");
    CHECK(guard.ledger().reservations().size() == 1);
    CHECK(made(guard, spot, of_memory(gib)) == "");
    CHECK(booked(guard) == 1);
    guard.cancel(spot);
    guard.cancel(spot); // is nothing
    CHECK(booked(guard) == 0);
    CHECK(guard.ledger().holdings().by_resource().empty());
}

TEST_CASE("a guest that is there draws at once, so that booking again books nothing twice") {
    Guard guard = open_guard();
    CHECK(made(guard, spot, of_memory(20 * gib)) == "");
    CHECK(admit(guard, owned(1, 18 * gib), at(1s)));
    CHECK(booked(guard) == 2);
    CHECK(made(guard, spot, of_memory(20 * gib)) == "");
    CHECK(booked(guard) == 2);
    CHECK(made(guard, spot, of_memory(32 * gib)) == "");
    CHECK(booked(guard) == 14);
    CHECK(made(guard, spot, of_memory(33 * gib)) == "memory: needs 15 GiB, 14 GiB free of 32 GiB");
}

TEST_CASE("a reservation held nothing where its owner had guests already") {
    Guard guard(equal_nodes(2, 64, 64 * gib), open_policy());
    for (int number = 1; number <= 50; ++number)
        CHECK(admit(guard, owned(number, gib, "nova"), at(1s)));
    const ReservationId web_7{"nova", "web-7"};
    CHECK(made(guard, web_7, made_at(2s, of_memory(8 * gib))) == "");
    CHECK(left(guard, web_7) == 8);
    CHECK(guard.report().host.free.at(memory) == (128 - 50 - 8) * gib);
    CHECK(admit(guard, owned(51, 8 * gib, "nova"), at(3s)));
    CHECK(left(guard, web_7) == 0);
    guard.started(id(51), at(4s)); // it has started when it did
    guard.reconcile({.began = at(5s), .active = {owned(51, 8 * gib, "nova")}});
    CHECK(made(guard, web_7, made_at(2s, of_memory(8 * gib))) == "");
    CHECK(left(guard, web_7) == 0);
}

TEST_CASE("a guest that was there draws on what lists its UUID") {
    Guard guard = open_guard();
    guard.running(owned(1, 3 * gib), at(1s));
    Booking booking = made_at(2s, of_memory(8 * gib));
    booking.uuids = {*owned(1, gib).uuid};
    CHECK(made(guard, spot, booking) == "");
    CHECK(left(guard, spot) == 5);
    booking.uuids.clear();
    booking.match = "true()";
    CHECK(made(guard, spot, booking) == "");
    Domain asked = owned(1, 3 * gib);
    asked.facts["reservation.match true()"] = {.value = 1};
    guard.running(asked, at(3s));
    CHECK(left(guard, spot) == 8);
}

TEST_CASE("a guest whose reservation had ended ate another one") {
    const bool expires_first = GENERATE(true, false); // the one that a guest draws on by its name
    Guard guard = open_guard();
    const ReservationId web_7{"cortex", "web-7"};
    const ReservationId web_8{"cortex", "web-8"};
    CHECK(made(guard, web_7, of_memory(8 * gib)) == "");
    CHECK(made(guard, web_8, of_memory(8 * gib)) == "");
    CHECK(admit(guard, owned(1, 8 * gib), at(1s)));
    const std::int64_t of_7 = left(guard, web_7);
    CHECK(of_7 + left(guard, web_8) == 8);
    const ReservationId& ended = expires_first == (of_7 == 0) ? web_7 : web_8;
    const ReservationId& other = ended == web_7 ? web_8 : web_7;
    const std::int64_t kept = left(guard, other);
    guard.cancel(ended);
    CHECK(broken_invariant(guard.ledger()) == "");
    CHECK(left(guard, other) == kept);
    CHECK(booked(guard) == kept);
    guard.started(id(1), at(2s));
    guard.apply(open_policy());
    CHECK(left(guard, other) == kept);
    CHECK(admit(guard, owned(2, kept * gib + gib), at(3s))); // its own guest draws on it
    CHECK(booked(guard) == 0);
    guard.released(id(1), at(4s));
    guard.released(id(2), at(4s));
    CHECK(booked(guard) == 8);
    CHECK(admit(guard, owned(1, 8 * gib), at(5s))); // another start
    CHECK(booked(guard) == 0);
}

TEST_CASE("when one ends, those keep what they draw on others that did not draw on it") {
    Guard guard = open_guard();
    Booking of_one = of_memory(8 * gib);
    of_one.uuids = {*owned(2, gib).uuid};
    CHECK(made(guard, {"cortex", "a"}, of_one) == "");
    CHECK(made(guard, {"cortex", "b"}, of_memory(8 * gib)) == "");
    Booking of_both = of_memory(8 * gib);
    of_both.uuids = {*owned(1, gib).uuid, *owned(2, gib).uuid};
    CHECK(made(guard, {"cortex", "c"}, of_both) == "");
    CHECK(admit(guard, owned(1, 12 * gib), at(1s))); // on b and c
    CHECK(admit(guard, owned(2, 12 * gib), at(1s))); // on all three
    CHECK(booked(guard) == 0);
    guard.cancel({"cortex", "a"});
    CHECK(booked(guard) == 0);
    guard.cancel({"cortex", "c"});
    CHECK(booked(guard) == 0);
    guard.cancel({"cortex", "b"});
    CHECK(made(guard, spot, made_at(1s, of_memory(2 * gib))) == "");
    CHECK(left(guard, spot) == 2); // no part of either is left to draw with
}

TEST_CASE("the end of a reservation booked more, as who drew on others had spent what it had") {
    Guard guard = open_guard();
    const ReservationId of_node_0{"cortex", "of-node-0"};
    CHECK(made(guard, spot, of_memory(8 * gib)) == "");
    CHECK(made(guard, of_node_0, of_memory(8 * gib, 0)) == "");
    for (const int node : {0, 1}) {
        Domain domain = owned(node + 1, 8 * gib);
        domain.memory[0].bound_to = IdSet{node};
        CHECK(admit(guard, domain, at(1s + std::chrono::seconds(node))));
    }
    CHECK(booked(guard) == 0);
    guard.cancel(spot);
    CHECK(booked(guard) == 0);
    CHECK(guard.ledger().find(id(1))->spent.empty()); // the older, which draws on the other
    CHECK(guard.ledger().find(id(2))->spent.size() == 1);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("a second start of a guest drew as the first, which was older than the reservation") {
    Guard guard = open_guard();
    CHECK(made(guard, {"cortex", "a"}, of_memory(4 * gib)) == "");
    CHECK(admit(guard, owned(1, 4 * gib), at(1s)));
    guard.cancel({"cortex", "a"});
    CHECK(made(guard, spot, made_at(2s, of_memory(8 * gib))) == "");
    CHECK(left(guard, spot) == 8);
    CHECK(admit(guard, owned(1, 4 * gib), at(1s))); // the same hook's
    CHECK(left(guard, spot) == 8);
    CHECK(admit(guard, owned(1, 4 * gib), at(3s)));
    CHECK(left(guard, spot) == 4);
    CHECK(guard.ledger().find(id(1))->claimed == at(3s));
    CHECK(guard.ledger().find(id(1))->spent.empty());
}

TEST_CASE("a guest that returns to its place draws as it did") {
    Policy policy = open_policy();
    policy.claim.return_hold = 1s;
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    CHECK(made(guard, {"cortex", "a"}, of_memory(8 * gib)) == "");
    CHECK(made(guard, {"cortex", "b"}, of_memory(8 * gib)) == "");
    CHECK(admit(guard, owned(1, 8 * gib), at(1s)));
    guard.cancel({"cortex", left(guard, {"cortex", "a"}) == 0 ? "a" : "b"});
    guard.started(id(1), at(2s));
    guard.released(id(1), at(3s));
    CHECK(admit(guard, owned(1, 8 * gib), at(3s)));
    CHECK(booked(guard) == 8);
}

TEST_CASE("a start that waited is as old as its hook, also when it is recorded") {
    Guard guard = open_guard();
    CHECK(made(guard, spot, made_at(5s, of_memory(20 * gib))) == "");
    CHECK_FALSE(admit(guard, owned(1, 14 * gib), at(4s)));
    CHECK(admit(guard, owned(1, 14 * gib), at(5s)));
    CHECK(booked(guard) == 6);
}

TEST_CASE("a look at many guests works out once what they draw, as one by one") {
    Guard guard = open_guard();
    CHECK(made(guard, spot, of_memory(20 * gib)) == "");
    guard.running(owned(4, 2 * gib), at(1s));
    guard.reconcile({.began = at(2s), .active = {owned(1, gib), owned(2, gib), owned(3, gib)}});
    CHECK(broken_invariant(guard.ledger()) == "");
    CHECK(booked(guard) == 17);
    guard.reconcile({.began = at(3s), .active = {owned(2, 5 * gib)}});
    CHECK(broken_invariant(guard.ledger()) == "");
    CHECK(booked(guard) == 15);
}

TEST_CASE("what a guest says of a match is no change, unless it draws by it") {
    Guard guard = open_guard();
    Booking booking = of_memory(8 * gib);
    booking.match = "true()";
    CHECK(made(guard, spot, booking) == "");
    guard.running(owned(1, 3 * gib), at(1s));
    CHECK(guard.take_changed() == std::set<std::string>{id(1)});
    Domain asked = owned(1, 3 * gib);
    asked.facts["reservation.match true()"] = {.value = 0};
    guard.running(asked, at(2s));
    CHECK(guard.take_changed().empty());
    CHECK(guard.ledger().find(id(1))->domain == asked);
    asked.facts["reservation.match true()"] = {.value = 1};
    guard.running(asked, at(3s));
    CHECK(guard.take_changed() == std::set<std::string>{id(1)});
    CHECK(left(guard, spot) == 5);
}

TEST_CASE("what is asked of a reservation that is not there is nothing") {
    CHECK(open_guard().ledger().booked(spot).empty());
}

TEST_CASE("all reservations together are in so many parts at most") {
    Guard guard(equal_nodes(200, 1, gib), open_policy());
    Booking booking;
    for (int node = 0; node < 64; ++node)
        booking.amounts[{memory, node}] = mib;
    for (int number = 0; number < 128; ++number)
        REQUIRE(
            guard.reserve({"cortex", std::to_string(number)}, booking, IfShort::book).has_value());
    CHECK(made(guard, spot, of_memory(gib), IfShort::book) ==
          "all reservations together are in more than 8192 parts");
    CHECK(made(guard, {"cortex", "7"}, booking, IfShort::book).empty());
}

TEST_CASE("what is not known of a planned domain refuses nothing") {
    Policy policy = open_policy();
    policy.hook.unavailable_denies = true;
    policy.resources[Resource::custom("gpu")] = {.host = CustomCapacity{.amount = 1},
                                                 .demand = "1"};
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    CHECK(made(guard, spot, {.domain = owned(1, gib)}) == ""); // was not asked how many
    CHECK(booked(guard) == 1);
}

TEST_CASE("what is not known of the host was booked where the policy refuses it") {
    const Resource gpu = Resource::custom("gpu");
    Policy policy = open_policy();
    policy.hook.unavailable_denies = GENERATE(true, false);
    policy.resources[gpu] = {.host = CustomCapacity{.file = "/x"}, .demand = "1"};
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    CHECK(
        made(guard, spot, {.amounts = {{{gpu, {}}, 3}}}) ==
        (policy.hook.unavailable_denies ? "resource.gpu.capacity.file could not be read yet" : ""));
}

TEST_CASE("what a policy does not declare any more is booked no more, until it does again") {
    const Resource gpu = Resource::custom("gpu");
    Policy declaring = open_policy();
    declaring.resources[gpu] = {.host = CustomCapacity{.amount = 4}, .demand = "1"};
    Guard guard(equal_nodes(2, 4, 16 * gib), declaring);
    CHECK(made(guard, spot, {.amounts = {{{memory, {}}, gib}, {{gpu, {}}, 3}}}) == "");
    CHECK(guard.report().host.booked.at(gpu) == 3);
    guard.apply(open_policy());
    CHECK(guard.ledger().holdings().of(gpu).empty());
    CHECK_FALSE(guard.ledger().holdings().is_over());
    CHECK(booked(guard) == 1);
    guard.apply(declaring);
    CHECK(guard.report().host.booked.at(gpu) == 3);
}

TEST_CASE("a guest that draws on one booking less for the sake of another makes no room") {
    Guard guard = open_guard();
    CHECK(made(guard, spot, of_memory(12 * gib)) == "");
    guard.running(owned(1, 12 * gib), at(1s));
    guard.running(owned(2, 20 * gib, "other"), at(1s));
    CHECK(guard.report().host.free.at(memory) == 0);
    CHECK(made(guard, {"cortex", "b"}, of_memory(4 * gib)) ==
          "memory: needs 4 GiB, 0 free of 32 GiB");
    CHECK(made(guard, {"cortex", "a"}, of_memory(4 * gib, 0)) ==
          "memory: needs 4 GiB, 0 free of 32 GiB");
    CHECK(booked(guard) == 0);
}

TEST_CASE("a reservation is refused as a start would be, and by force it is made all the same") {
    struct Row {
        std::string name;
        ReservationId id;
        Booking booking;
        std::string text;
        std::int64_t booked; ///< of memory, by force
    };
    const Booking of_domain{.domain = with_vcpus("x", {on_pus(1, {9})})};
    const auto row = GENERATE_COPY(values<Row>({
        {"too much", spot, of_memory(33 * gib), "memory: needs 33 GiB, 32 GiB free of 32 GiB", 33},
        {"too much on a node", spot, of_memory(17 * gib, 1),
         "memory on node 1: needs 17 GiB, 16 GiB free of 16 GiB", 17},
        {"an absent node", spot, of_memory(gib, 7), "memory on node 7: host has no such node", 1},
        {"absent pages",
         spot,
         {.amounts = {{{pages_2m, {}}, gib}}},
         "hugepages-2Mi: needs 1 GiB, host has none",
         0},
        {"a PU that is not there", spot, of_domain,
         "cpu: 1 vCPU pinned to PU 9, which guests may not use: 9 (absent)", 0},
        {"vCPUs",
         spot,
         {.amounts = {{{cpu, 0}, 5}}},
         "cpu on PUs 0-3 (node 0): needs 5 vCPUs, 4 "
         "free of 4",
         0},
        {"another's host",
         {"kube", "x"},
         of_memory(gib),
         "it belongs to scheduler \"kube\", and this host serves default-scheduler, cortex",
         1},
        {"more than the quota",
         {"cortex", "x"},
         {.amounts = {{{cpu, {}}, 7}}},
         "cpu: needs 7 vCPUs, 6 left of the quota of 6 of scheduler.accept.cortex",
         0},
    }));
    INFO(row.name);
    Policy policy = plain_policy();
    policy.scheduler.accept["cortex"] = {.match = "cortex", .quota = {{cpu, {.amount = 6}}}};
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    CHECK(made(guard, row.id, row.booking) == row.text);
    CHECK(guard.ledger().reservations().empty());
    CHECK(booked(guard) == 0);
    CHECK(made(guard, row.id, row.booking, IfShort::book) == row.text);
    CHECK(guard.ledger().reservations().size() == 1);
    CHECK(booked(guard) == row.booked);
    CHECK(guard.report().host.free.at(memory) == (32 - row.booked) * gib);
}

TEST_CASE("in maintenance nothing can be reserved, and where all is observed anything can") {
    Policy policy = open_policy();
    policy.maintenance = "disks";
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    CHECK(made(guard, spot, of_memory(gib)) == "the host is in maintenance: disks");
    policy.maintenance.reset();
    policy.mode = Mode::observe;
    guard.apply(policy);
    CHECK(made(guard, spot, of_memory(40 * gib)) == "");
    CHECK(guard.report().host.free.at(memory) == -8 * gib);
}

TEST_CASE("what is for many guests may be more than one guest can have, a domain may not") {
    Policy policy = open_policy();
    set_ratio(policy, cpu, "3");
    Guard guard(equal_nodes(1, 4, 16 * gib), policy);
    CHECK(made(guard, spot, {.amounts = {{{cpu, {}}, 12}}}) == "");
    CHECK(made(guard, spot, {.domain = with_vcpus("x", {floating(5)})}) ==
          "cpu: needs 5 vCPUs, more than the 4 vCPUs that one guest can have");
    CHECK(made(guard, spot, {.domain = with_vcpus("x", {floating(4)})}) == "");
    CHECK(guard.report().host.booked.at(cpu) == 4);
}

TEST_CASE("a quota counts what its scheduler has booked, and what a guest draws of it only once") {
    Policy policy = plain_policy();
    policy.scheduler.accept["cortex"] = {.match = "cortex",
                                         .quota = {{memory, {.amount = 10 * gib}}}};
    policy.scheduler.accept_any = true;
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    CHECK(made(guard, spot, of_memory(6 * gib)) == "");
    CHECK(made(guard, {"cortex", "b"}, of_memory(5 * gib)) ==
          "memory: needs 5 GiB, 4 GiB left of the quota of 10 GiB of scheduler.accept.cortex");
    CHECK(fits(guard, owned(1, 10 * gib)));
    CHECK_FALSE(fits(guard, owned(1, 11 * gib)));
    CHECK(admit(guard, owned(1, 7 * gib), at(1s)));
    CHECK(fits(guard, owned(2, 3 * gib)));
    CHECK_FALSE(fits(guard, owned(2, 4 * gib)));
    CHECK(made(guard, spot, of_memory(10 * gib)) == "");
    CHECK(made(guard, spot, of_memory(11 * gib)) ==
          "memory: needs 4 GiB, 3 GiB left of the quota of 10 GiB of scheduler.accept.cortex");
    CHECK(fits(guard, owned(3, 16 * gib, "other"))); // its quota is nobody else's
}

TEST_CASE("what a start in flight drew stays its own when the reservation ends") {
    Guard guard = open_guard();
    CHECK(made(guard, spot, of_memory(20 * gib)) == "");
    CHECK(admit(guard, owned(1, 18 * gib), at(1s)));
    guard.cancel(spot);
    CHECK(booked(guard) == 0);
    CHECK(guard.report().host.pending.at(memory) == 18 * gib);
    CHECK_FALSE(fits(guard, owned(2, 15 * gib, "other")));
    guard.started(id(1), at(2s));
    CHECK(guard.report().host.allocated.at(memory) == 18 * gib);
    guard.released(id(1), at(3s));
    CHECK(guard.ledger().holdings().by_resource().empty());
}

TEST_CASE("what is booked follows the host and the policy") {
    Topology topology = equal_nodes(2, 4, 16 * gib);
    add_pages(topology, 1, page_2m, 1024);
    Guard guard(topology, open_policy());
    Booking booking = of_memory(12 * gib, 1);
    booking.amounts[{pages_2m, 1}] = 2 * gib;
    booking.amounts[{cpu, 1}] = 3;
    CHECK(made(guard, spot, booking) == "");
    CHECK(guard.report().nodes[1].figures.booked.at(memory) == 12 * gib);

    guard.apply(equal_nodes(1, 4, 8 * gib)); // the node is gone, and so are its pages
    CHECK(broken_invariant(guard.ledger()) == "");
    CHECK(booked(guard) == 12);
    CHECK(guard.report().host.free.at(memory) == -4 * gib);
    CHECK(guard.report().over_capacity == std::vector<Resource>{memory, pages_2m});
    CHECK_FALSE(fits(guard, owned(1, gib, "other")));
    guard.cancel(spot);
    CHECK(guard.report().over_capacity.empty());
    CHECK(made(guard, spot, of_memory(4 * gib)) == "");

    Policy other_default = open_policy();
    other_default.scheduler.default_name = "cortex";
    guard.running(owned(1, 3 * gib, ""), at(1s));
    CHECK(booked(guard) == 4);
    guard.apply(other_default); // who names nobody is the owner's now
    CHECK(booked(guard) == 1);
}

TEST_CASE("all that was booked before is taken up at once, whatever it is too much for") {
    Guard guard = open_guard();
    guard.running(owned(1, 4 * gib), at(1s));
    guard.reserve({{spot, of_memory(20 * gib)}, {{"other", "x"}, of_memory(20 * gib)}});
    CHECK(booked(guard) == 36);
    CHECK(guard.report().host.free.at(memory) == -8 * gib);
    guard.reserve({{spot, of_memory(5 * gib)}});
    CHECK(booked(guard) == 1);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("what a domain of XML would hold is booked with its overhead, where it may lie") {
    Policy policy = open_policy();
    policy.memory.overhead = Overhead{};
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    Domain domain = owned(1, 4 * gib, "");
    domain.memory[0].bound_to = IdSet{1};
    CHECK(made(guard, spot, {.domain = domain}) == "");
    const std::int64_t overhead = make_demand(domain, guard.host(), policy).overhead;
    CHECK(overhead > 0);
    CHECK(guard.report().nodes[1].figures.booked.at(memory) == 4 * gib + overhead);
}

TEST_CASE("a part is a resource, or a resource of a node") {
    struct Row {
        std::string text;
        std::string read; ///< as it is written then, or what is wrong
    };
    const auto row = GENERATE(values<Row>({
        {"memory", "memory"},
        {"memory@1", "memory@1"},
        {"hugepages-2MiB@0", "hugepages-2Mi@0"},
        {"memory@", "\"\" is not a node: expected a number"},
        {"memory@-1", "\"-1\" is not a node: expected a number"},
        {"memory@16384", "\"16384\" is not a node: expected a number"},
        {"example.org/gpu@1", "example.org/gpu@1"},
        {"mem roy@1", Resource::parse("mem roy").error().what},
    }));
    const auto part = ReservedPart::parse(row.text);
    CHECK((part ? part->text() : part.error().what) == row.read);
}

TEST_CASE("an amount is above 0, at most a domain's, and whole pages") {
    CHECK(reserved_amount(memory, 1).value() == 1);
    CHECK(reserved_amount(pages_2m, page_2m + 1).value() == 2 * page_2m);
    CHECK(reserved_amount(memory, max_domain_bytes).value() == max_domain_bytes);
    for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{-1}, max_domain_bytes + 1})
        CHECK_FALSE(reserved_amount(memory, wrong).has_value());
    CHECK_FALSE(reserved_amount(Resource::hugepages(3 * mib), gib).has_value());
    CHECK(reserved_amount(pages_2m, max_domain_bytes).value() == max_domain_bytes);
    CHECK_FALSE(reserved_amount(pages_2m, INT64_MAX).has_value());
}

TEST_CASE("a reservation is named by its owner, a scheduler, and by letters") {
    CHECK(check(spot).has_value());
    CHECK(check(ReservationId{"größer", "a-Z_0.9:+"}).has_value());
    const std::string letters = "expected 1 to 64 letters, digits and characters of \"-_.:+\"";
    CHECK(check(ReservationId{"a", ""}).error().what == "name: \"\": " + letters);
    CHECK(check(ReservationId{"a", "b c"}).error().what == "name: \"b c\": " + letters);
    CHECK(check(ReservationId{"a", std::string(64, 'x')}).has_value());
    CHECK_FALSE(check(ReservationId{"a", std::string(65, 'x')}).has_value());
    CHECK_FALSE(check(ReservationId{"", "a"}).has_value());
    CHECK_FALSE(check(ReservationId{"a\n", "a"}).has_value());
    CHECK_FALSE(check(ReservationId{std::string(256, 'x'), "a"}).has_value());
}
