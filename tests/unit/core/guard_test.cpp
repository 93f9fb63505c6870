// SPDX-License-Identifier: Apache-2.0
//
// What messages and looks do, in whatever order they arrive.
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "core/guard.hpp"
#include "guests.hpp"

using namespace virtguard;
using namespace virtguard::core;
using namespace std::chrono_literals;

namespace {

const Resource memory = Resource::memory();
const Resource pages_2m = Resource::hugepages(page_2m);

/// "guest-1 pending 7" of each guest: its name, its state, and since when.
std::string states(const Guard& guard) {
    std::string text;
    const Ledger::Guests& guests = guard.ledger().guests();
    for (const auto& [identity, entry] : std::map(guests.begin(), guests.end()))
        text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", entry.domain.name,
                            state_name(entry.state), entry.changed.time_since_epoch() / 1s);
    return text;
}

/// Guests of 16 GiB on a host of 32: one runs, another did a moment ago.
Guard with_a_kept_place() {
    Policy policy = bare_policy();
    policy.claim.return_hold = 1s;
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    guard.running(guest(1, 16 * gib), at(10s));
    guard.running(guest(2, 16 * gib), at(10s));
    guard.released(id(1), at(20s));
    return guard;
}

/// What a look at all guests tells.
void see_all(Guard& guard, const std::map<std::string, Residency>& guests, Instant when,
             std::int64_t in_use) {
    guard.set_memory_use(guests, in_use);
    guard.set_residency(guests, when);
}

} // namespace

TEST_CASE("of starts that race for one place, one gets it") {
    Guard guard = plain_guard();
    int admitted = 0;
    for (int number = 0; number < 20; ++number)
        admitted += admit(guard, guest(number, 4 * gib), at(1s)) ? 1 : 0;
    CHECK(admitted == 8);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("a second start of the same guest replaces its claim") {
    Guard guard = plain_guard();
    CHECK(admit(guard, guest(1, 20 * gib), at(1s)));
    CHECK(admit(guard, guest(1, 30 * gib), at(2s)));
    CHECK(guard.report().host.pending.at(memory) == 30 * gib);
    CHECK_FALSE(admit(guard, guest(1, 33 * gib), at(3s)));
    CHECK(guard.report().host.pending.at(memory) == 30 * gib);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("a message that is older than what is known changes nothing") {
    struct Row {
        std::string name;
        void (*message)(Guard&, Instant);
        std::string when_older;
        std::string when_newer;
    };
    const auto row = GENERATE(values<Row>({
        {"running", [](Guard& g, Instant when) { g.running(guest(1), when); }, "guest-1 pending 10",
         "guest-1 running 11"},
        {"started", [](Guard& g, Instant when) { g.started(id(1), when); }, "guest-1 pending 10",
         "guest-1 running 11"},
        {"released", [](Guard& g, Instant when) { g.released(id(1), when); }, "guest-1 pending 10",
         ""},
        {"claimed", [](Guard& g, Instant when) { g.claim(guest(1), when); }, "guest-1 pending 10",
         "guest-1 pending 11"},
        {"admitted", [](Guard& g, Instant when) { (void)admit(g, guest(1), when); },
         "guest-1 pending 10", "guest-1 pending 11"},
        {"a look that finds it",
         [](Guard& g, Instant when) { g.reconcile({.began = when, .active = {guest(1)}}); },
         "guest-1 pending 10", "guest-1 running 11"},
        {"a look at it alone", [](Guard& g, Instant when) { g.reconcile(id(1), guest(1), when); },
         "guest-1 pending 10", "guest-1 running 11"},
    }));
    CAPTURE(row.name);
    Guard guard = plain_guard();
    REQUIRE(admit(guard, guest(1), at(10s)));
    row.message(guard, at(9s));
    CHECK(states(guard) == row.when_older);
    row.message(guard, at(11s));
    CHECK(states(guard) == row.when_newer);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("the release of an unknown guest, and the start of one, are nothing") {
    Guard guard = plain_guard();
    guard.released(id(1), at(1s));
    guard.started(id(1), at(1s));
    guard.reconcile(id(1), std::nullopt, at(1s));
    CHECK(guard.ledger().guests().empty());
    CHECK(admit(guard, guest(1), at(1s)));
}

TEST_CASE("a look drops running guests that are gone, and no others") {
    struct Row {
        std::string name;
        Look look;
        std::string left;
    };
    const auto row = GENERATE(values<Row>({
        {"all there",
         {.began = at(20s), .active = {guest(1), guest(2)}},
         "guest-1 running 20, guest-2 running 20"},
        {"one gone", {.began = at(20s), .active = {guest(2)}}, "guest-2 running 20"},
        {"one that cannot be read",
         {.began = at(20s), .active = {guest(2)}, .unreadable = {id(1)}},
         "guest-1 running 10, guest-2 running 20"},
        {"an incomplete look",
         {.began = at(20s), .complete = false, .active = {guest(2)}},
         "guest-1 running 10, guest-2 running 20"},
        {"begun before they ran", {.began = at(9s)}, "guest-1 running 10, guest-2 running 10"},
        {"a guest nobody told of",
         {.began = at(20s), .active = {guest(1), guest(2), guest(3)}},
         "guest-1 running 20, guest-2 running 20, guest-3 running 20"},
    }));
    CAPTURE(row.name);
    Guard guard = plain_guard();
    guard.running(guest(1), at(10s));
    guard.running(guest(2), at(10s));
    guard.reconcile(row.look);
    CHECK(states(guard) == row.left);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("a claim that no look confirms ends with its lease") {
    Guard guard = plain_guard();
    REQUIRE(guard.policy().claim.lease == 10min);
    guard.reconcile({.began = at(0s)});
    REQUIRE(admit(guard, guest(1), at(10s)));
    for (auto minute = 1min; minute <= 10min; ++minute)
        guard.reconcile({.began = at(minute)});
    CHECK(states(guard) == "guest-1 pending 10");
    guard.reconcile(id(1), std::nullopt, at(10min + 9s));
    guard.reconcile({.began = at(10min + 10s) - 1ns});
    CHECK(states(guard) == "guest-1 pending 10");
    guard.reconcile({.began = at(10min + 10s), .complete = false});
    CHECK(states(guard) == "guest-1 pending 10");
    guard.reconcile({.began = at(10min + 10s), .unreadable = {id(1)}});
    CHECK(states(guard) == "guest-1 pending 10");
    guard.reconcile({.began = at(10min + 11s)});
    CHECK(states(guard) == "");
    CHECK(guard.ledger().holdings().by_resource().empty());
}

TEST_CASE("a lease does not run while libvirt does not answer, and runs anew for a new start") {
    Guard guard = plain_guard();
    guard.reconcile({.began = at(0s)});
    REQUIRE(admit(guard, guest(1), at(1s)));
    REQUIRE(admit(guard, guest(2), at(1s)));
    for (int hour = 1; hour <= 9; ++hour)
        guard.reconcile({.began = at(hour * 1h)}); // a minute each
    CHECK(states(guard) == "guest-1 pending 1, guest-2 pending 1");
    REQUIRE(admit(guard, guest(2), at(9h + 1s)));
    guard.reconcile({.began = at(10h)});
    CHECK(states(guard) == "guest-2 pending 32401");
}

TEST_CASE("what comes late does not bring back a guest that left") {
    struct Row {
        std::string name;
        void (*message)(Guard&, Instant);
    };
    const auto row = GENERATE(values<Row>({
        {"running", [](Guard& g, Instant when) { g.running(guest(1), when); }},
        {"a look",
         [](Guard& g, Instant when) { g.reconcile({.began = when, .active = {guest(1)}}); }},
        {"a look at it alone", [](Guard& g, Instant when) { g.reconcile(id(1), guest(1), when); }},
    }));
    CAPTURE(row.name);
    Guard guard = plain_guard();
    guard.running(guest(1), at(10s));
    guard.released(id(1), at(20s));
    row.message(guard, at(19s));
    CHECK(states(guard) == "");
    row.message(guard, at(21s));
    CHECK(states(guard) == "guest-1 running 21");
}

TEST_CASE("a release that is ahead of its own start leaves nothing held") {
    const auto before = GENERATE(as<std::string>(), "unknown", "returning");
    CAPTURE(before);
    Policy policy = bare_policy();
    policy.claim.return_hold = 1s;
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    if (before == "returning") {
        guard.running(guest(1), at(5s));
        guard.released(id(1), at(8s));
    }
    const std::string known = states(guard);
    guard.released(id(1), at(12s));
    CHECK(admit(guard, guest(1), at(10s)));
    guard.claim(guest(1), at(10s));
    guard.running(guest(1), at(11s));
    CHECK(states(guard) == known);
    guard.expire(at(13s));
    guard.running(guest(1), at(11s));
    CHECK(states(guard) == "");
    CHECK(admit(guard, guest(1), at(13s)));
    CHECK(states(guard) == "guest-1 pending 13");
}

TEST_CASE("a guest that grew is counted as it is, however large") {
    Guard guard = plain_guard();
    guard.running(guest(1, 4 * gib), at(1s));
    guard.reconcile({.began = at(2s), .active = {guest(1, 40 * gib)}});
    CHECK(guard.report().host.free.at(memory) == -8 * gib);
    CHECK(guard.report().over_capacity == std::vector<Resource>{memory});
}

TEST_CASE("sums of absurd guests, which only observing lets in, are shown as the most there is") {
    Policy policy = plain_policy();
    policy.mode = Mode::observe;
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    for (int number = 0; number < 200; ++number)
        for (int name = 0; name < 12; ++name) {
            Domain domain = guest(number, max_domain_bytes);
            domain.uuid->bytes[0] = static_cast<std::uint8_t>(name);
            REQUIRE(admit(guard, domain, at(1s)));
        }
    CHECK(guard.report().host.pending.at(memory) == INT64_MAX);
    CHECK(guard.report().host.free.at(memory) == INT64_MIN);
    CHECK_FALSE(guard.check(guest(201)).decision.reasons.empty());
    for (const auto& [identity, entry] : Ledger::Guests(guard.ledger().guests()))
        guard.released(identity, at(2s));
    CHECK(guard.report().host.free.at(memory) == 32 * gib);
}

TEST_CASE("a start in flight is not foreign while it touches its pages") {
    Topology topology = equal_nodes(1, 2, 4 * gib);
    add_pages(topology, 0, page_2m, 100);
    Guard guard(topology, plain_policy());
    const auto pages = [](int used) { return std::vector<PageUse>{{0, page_2m, used * page_2m}}; };
    const auto free = [&] { return guard.report().host.free.at(pages_2m) / page_2m; };
    guard.set_page_use(pages(10));
    CHECK(free() == 90);
    Domain domain = guest(1);
    domain.memory = {ram(60 * page_2m, DefaultHugepages{})};
    REQUIRE(admit(guard, domain, at(1s)));
    for (const int touched : {0, 30, 60}) {
        guard.set_page_use(pages(10 + touched));
        CHECK(free() == 30);
    }
    guard.running(domain, at(2s));
    CHECK(free() == 30);
    guard.released(id(1), at(3s));
    guard.set_page_use(pages(10));
    CHECK(free() == 90);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE(
    "what is foreign is not forgotten while one start touches its pages and another has not") {
    Topology topology = equal_nodes(1, 2, 4 * gib);
    add_pages(topology, 0, page_2m, 100);
    Guard guard(topology, plain_policy());
    const auto read = [&](int used) { guard.set_page_use({{0, page_2m, used * page_2m}}); };
    const auto foreign = [&] { return guard.report().host.foreign.at(pages_2m) / page_2m; };
    const auto start = [](int number, int pages) {
        Domain domain = guest(number);
        domain.memory = {ram(pages * page_2m, DefaultHugepages{})};
        return domain;
    };
    read(10);
    REQUIRE(admit(guard, start(1, 60), at(1s)));
    read(10);
    REQUIRE(admit(guard, start(2, 20), at(2s)));
    guard.running(start(1, 60), at(3s)); // its pages are in use, which nobody has read yet
    CHECK(foreign() == 10);
    read(70);
    CHECK(foreign() == 10);
    guard.released(id(1), at(4s));
    CHECK(foreign() == 10);
    read(30); // the second has its pages now
    CHECK(foreign() == 10);
    guard.set_page_use({});
    CHECK(foreign() == 0);
}

// Returning guests ------------------------------------------------------------------------------

TEST_CASE("the place of a guest that ran is kept for it a moment, and counts as pending") {
    Guard guard = with_a_kept_place();
    CHECK(states(guard) == "guest-1 returning 20, guest-2 running 10");
    CHECK(guard.report().host.pending.at(memory) == 16 * gib);
    CHECK(guard.next_return_end() == at(21s));
    CHECK(broken_invariant(guard.ledger()) == "");
    guard.expire(at(21s) - 1ns);
    CHECK(guard.ledger().find(id(1)) != nullptr);
    guard.expire(at(21s));
    CHECK(states(guard) == "guest-2 running 10");
    CHECK_FALSE(guard.next_return_end().has_value());
}

TEST_CASE("a guest that returns in time is admitted, whatever else changed") {
    Guard guard = with_a_kept_place();
    guard.running(guest(3, 16 * gib), at(20s));
    Policy policy = guard.policy();
    policy.reserve.memory = 8 * gib;
    guard.apply(policy);
    CHECK(admit(guard, guest(1, 16 * gib), at(20s) + 999ms));
    CHECK(states(guard) == "guest-1 pending 20, guest-2 running 10, guest-3 running 20");
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("in maintenance new starts are refused, whatever the modes, and nothing else is") {
    Guard guard = with_a_kept_place();
    Policy policy = guard.policy();
    policy.mode = GENERATE(Mode::enforce, Mode::observe, Mode::off);
    policy.maintenance = GENERATE(as<std::string>{}, "", "new kernel at noon");
    guard.apply(policy);
    const Answer refused = guard.admit(guest(3, gib), at(20100ms), IfKept::wait).value();
    CHECK_FALSE(refused.decision.admitted());
    CHECK(refused.decision.reasons.front().code == Code::policy_rule);
    CHECK(refused.decision.reasons.front().text ==
          "the host is in maintenance" +
              (policy.maintenance->empty() ? "" : ": " + *policy.maintenance));
    CHECK_FALSE(guard.check(guest(1, 16 * gib)).decision.admitted());
    CHECK(admit(guard, guest(1, 16 * gib), at(20500ms))); // which returns
    guard.running(guest(4, gib), at(21s));                // which reconnects
    CHECK(states(guard) == "guest-1 pending 20, guest-2 running 10, guest-4 running 21");
    policy.maintenance.reset();
    guard.apply(policy);
    guard.released(id(2), at(30s));
    guard.expire(at(40s));
    CHECK(admit(guard, guest(3, gib), at(41s)));
}

TEST_CASE("in maintenance an invalid domain is refused also where the mode would let it in") {
    Policy policy = bare_policy();
    policy.mode = Mode::off;
    policy.maintenance = "";
    const Decision decision =
        answer_invalid({}, {.code = Errc::invalid, .what = "no memory"}, policy).decision;
    CHECK(refusal_line("x", decision) == "virtguard: refused x: the host is in maintenance");
}

TEST_CASE("what a guest was asked before answered another question after a reload") {
    Policy policy = bare_policy();
    policy.scheduler.recognise["nova"] = {.namespaces = {{"n", "urn:n"}},
                                          .match = "boolean(//n:a)"};
    Guard guard(equal_nodes(1, 2, 16 * gib), policy);
    const auto answered = [](Domain domain, const Questions& questions) {
        for (const Question& question : questions)
            domain.facts[question.key] = {.value = 1, .question = id_of(question)};
        return domain;
    };
    const Domain old = answered(guest(1, gib), guard.questions());
    guard.running(old, at(1s));
    const auto owner = [&] { return guard.ledger().find(id(1))->scheduler; };
    CHECK(owner() == "nova");
    CHECK(guard.unasked_guests() == 0);

    auto& nova = policy.scheduler.recognise["nova"];
    const bool is_other_namespace = GENERATE(true, false);
    (is_other_namespace ? nova.namespaces["n"] : nova.match) =
        is_other_namespace ? "urn:m" : "boolean(//n:b)";
    guard.apply(policy);
    CHECK(owner() == "default-scheduler");
    CHECK(guard.unasked_guests() == 1);
    guard.running(old, at(2s)); // read before the reload
    CHECK(owner() == "default-scheduler");
    CHECK(guard.unasked_guests() == 1);
    guard.running(answered(guest(1, gib), guard.questions()), at(3s));
    CHECK(owner() == "nova");
    CHECK(guard.unasked_guests() == 0);

    policy.rules["new"] = {.action = Rule::Action::refuse};
    guard.apply(policy);
    CHECK(owner() == "nova");
    CHECK(guard.unasked_guests() == 1);
    guard.reconcile(id(1), std::nullopt, at(4s));
    CHECK(guard.unasked_guests() == 0);
}

TEST_CASE("a guest whose release was lost returns to the place that it still has") {
    Guard guard(equal_nodes(2, 4, 16 * gib), plain_policy());
    guard.running(guest(1, 16 * gib), at(10s));
    Policy policy = guard.policy();
    policy.reserve.memory = 20 * gib;
    guard.apply(policy);
    CHECK_FALSE(admit(guard, guest(1, 17 * gib), at(20s)));
    CHECK(admit(guard, guest(1, 16 * gib), at(20s)));
    CHECK(states(guard) == "guest-1 pending 20");
    CHECK_FALSE(admit(guard, guest(1, 16 * gib), at(21s))); // a claim is no place it has had
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("a guest that returns late, larger or bound is decided like any other") {
    struct Row {
        std::string name;
        Domain domain;
        Instant when;
        bool admitted;
    };
    Domain bound = guest(1, 16 * gib);
    bound.memory[0].bound_to = IdSet{0};
    Domain whole = guest(1, 16 * gib);
    whole.locked = true;
    const auto row = GENERATE_COPY(values<Row>({
        {"the same", guest(1, 16 * gib), at(20s) + 500ms, true},
        {"smaller", guest(1, 8 * gib), at(20s) + 500ms, true},
        {"late", guest(1, 16 * gib), at(21s), false},
        {"larger", guest(1, 17 * gib), at(20s) + 500ms, false},
        {"bound", bound, at(20s) + 500ms, false},
        {"whole", whole, at(20s) + 500ms, false},
    }));
    CAPTURE(row.name);
    Guard guard = with_a_kept_place();
    guard.running(guest(3, 16 * gib), at(20s)); // there is no other room
    CHECK(admit(guard, row.domain, row.when) == row.admitted);
}

TEST_CASE("a start that would fit only in a kept place waits for its end, and is then decided") {
    Guard guard = with_a_kept_place();
    const Domain other = guest(4, 16 * gib);
    CHECK(guard.check(other).decision.admitted());
    CHECK_FALSE(guard.admit(other, at(20s) + 500ms, IfKept::wait).has_value());
    CHECK_FALSE(admit(guard, other, at(20s) + 500ms));
    const auto larger = guard.admit(guest(4, 17 * gib), at(20s) + 500ms, IfKept::wait);
    REQUIRE(larger.has_value()); // waiting would not help it
    CHECK_FALSE(larger->decision.admitted());
    guard.expire(at(21s));
    CHECK(admit(guard, other, at(20s) + 500ms));
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("a kept place that is booked for its guest is booked when it ends, and not free") {
    Policy policy = bare_policy();
    policy.claim.return_hold = 10s;
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    guard.reserve("r", {.pieces = {{memory, {0, 1}, false, 8 * gib}}, .guest = "guest-1"});
    guard.running(guest(1, 8 * gib), at(1s));
    guard.running(guest(2, 24 * gib), at(1s));
    guard.released(id(1), at(2s));
    CHECK(guard.report().host.booked.at(memory) == 0);
    CHECK_FALSE(guard.check(guest(3, gib)).decision.admitted());
    CHECK(guard.admit(guest(3, gib), at(3s), IfKept::wait).has_value()); // nothing to wait for
    guard.expire(at(12s));
    CHECK(guard.report().host.booked.at(memory) == 8 * gib);
    CHECK_FALSE(guard.check(guest(3, gib)).decision.admitted());
}

TEST_CASE("a claim that is released, and a guest that a look finds gone, leave no place kept") {
    Guard guard = with_a_kept_place();
    guard.expire(at(21s));
    REQUIRE(admit(guard, guest(5), at(22s)));
    guard.released(id(5), at(23s));
    guard.reconcile({.began = at(24s)});
    CHECK(states(guard) == "");
}

TEST_CASE("a look that finds what is known makes that true for later, and changes nothing held") {
    Guard guard = plain_guard();
    guard.running(guest(1), at(1s));
    const Holdings before = guard.ledger().holdings();
    guard.reconcile({.began = at(10s), .active = {guest(1)}});
    CHECK(guard.ledger().holdings() == before);
    guard.released(id(1), at(5s)); // from before the look
    CHECK(guard.ledger().find(id(1)) != nullptr);
    guard.released(id(1), at(11s));
    CHECK(guard.ledger().find(id(1)) == nullptr);
}

TEST_CASE("since when a guest runs is not changed by looks at it, nor by its growing") {
    Guard guard = plain_guard();
    const auto since = [&] { return guard.ledger().find(id(1))->since; };
    (void)guard.admit(guest(1), at(1s), IfKept::refuse);
    CHECK(since() == at(1s));
    guard.started(id(1), at(2s));
    CHECK(since() == at(2s));
    guard.reconcile({.began = at(60s), .active = {guest(1)}});
    guard.reconcile({.began = at(120s), .active = {guest(1, 2 * gib)}});
    CHECK(since() == at(2s));
}

TEST_CASE("a new policy's default scheduler owns the guests that name none") {
    Guard guard = plain_guard();
    guard.running(guest(1), at(1s));
    Policy policy = plain_policy();
    policy.scheduler.default_name = "cortex";
    guard.apply(policy);
    CHECK(guard.ledger().find(id(1))->scheduler == "cortex");
}

// Residency -------------------------------------------------------------------------------------

TEST_CASE("where a running guest lies, a start for that node alone has no room") {
    Guard guard = plain_guard(); // two nodes of 16 GiB
    guard.running(guest(1, 12 * gib), at(10s));
    Domain bound = guest(2, 10 * gib);
    bound.memory[0].bound_to = IdSet{0};
    CHECK(guard.check(bound).decision.admitted()); // on paper the first one moves to node 1
    guard.set_residency({{id(1), {{memory, {{0, 9 * gib}}}}}}, at(11s));
    CHECK(refusal_line("guest-2", guard.check(bound).decision) ==
          "virtguard: refused guest-2: memory on node 0: needs 10 GiB, 7 GiB free of 16 GiB");
    const Report report = guard.report();
    CHECK(report.nodes[0].figures.allocated.at(memory) == 9 * gib);
    CHECK(report.nodes[1].figures.allocated.at(memory) == 0);
    CHECK(report.host.allocated.at(memory) == 12 * gib);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("what many guests occupy has the same effect told at once and one by one") {
    Topology topology = equal_nodes(3, 4, 16 * gib);
    add_pages(topology, 1, page_2m, 400);
    Guard at_once(topology, plain_policy());
    Guard one_by_one(topology, plain_policy());
    std::map<std::string, Residency> seen{{"nobody", {{memory, {{0, gib}}}}}};
    for (int i = 1; i <= 40; ++i) {
        Domain domain = guest(i, (1 + i % 3) * gib); // together more than there is
        if (i % 4 == 0)
            domain.memory.push_back(ram(10 * page_2m, PagesOf{page_2m}));
        if (i % 5 == 0)
            domain.locked = true;
        if (i % 7 == 0)
            domain.memory[0].bound_to = IdSet{i % 3};
        const Instant when = i == 30 ? at(20s) : at(10s); // one has changed since the look
        for (Guard* guard : {&at_once, &one_by_one})
            guard->running(domain, when);
        if (i % 6 == 0)
            continue; // could not be read
        seen[id(i)] = {{memory, {{i % 3, gib / 2}, {(i + 1) % 3, i * gib / 64}}},
                       {pages_2m, {{1, i % 8 * page_2m}}}};
    }
    for (const Instant when : {at(11s), at(12s)}) { // the second time something is known
        at_once.set_residency(seen, when);
        for (const auto& [identity, residency] : seen)
            one_by_one.set_residency({{identity, residency}}, when);
        CHECK(broken_invariant(at_once.ledger()) == "");
        CHECK(at_once.ledger().holdings() == one_by_one.ledger().holdings());
        for (std::size_t node = 0; node < 3; ++node)
            CHECK(at_once.report().nodes[node].figures.free ==
                  one_by_one.report().nodes[node].figures.free);
        for (auto& [identity, residency] : seen)
            residency[memory][2] += gib / 16;
    }
}

TEST_CASE("what is known of where a guest lies lasts as long as it runs") {
    struct Row {
        std::string name;
        void (*message)(Guard&);
        std::int64_t on_node_0; ///< GiB
    };
    const auto row = GENERATE(values<Row>({
        {"nothing", [](Guard&) {}, 5},
        {"a look that finds it as it was",
         [](Guard& g) { g.reconcile({.began = at(20s), .active = {guest(1, 8 * gib)}}); }, 5},
        {"a look that finds it changed",
         [](Guard& g) { g.reconcile({.began = at(20s), .active = {guest(1, 4 * gib)}}); }, 4},
        {"another policy", [](Guard& g) { g.apply(plain_policy()); }, 5},
        {"another topology", [](Guard& g) { g.apply(equal_nodes(3, 4, 16 * gib)); }, 5},
        {"a newer residency",
         [](Guard& g) {
             g.set_residency({{id(1), {{memory, {{0, gib}}}}}}, at(20s));
         },
         1},
        {"one that could not be read",
         [](Guard& g) {
             g.set_residency({{id(1), {}}}, at(20s));
         },
         0},
        {"one of before it changed",
         [](Guard& g) {
             g.set_residency({{id(1), {{memory, {{0, gib}}}}}}, at(9s));
         },
         5},
        {"one of somebody else",
         [](Guard& g) {
             g.set_residency({{id(2), {{memory, {{0, gib}}}}}}, at(20s));
         },
         5},
        {"another start",
         [](Guard& g) {
             g.released(id(1), at(20s));
             (void)admit(g, guest(1, 8 * gib), at(21s));
             g.started(id(1), at(22s));
         },
         0},
        {"a start that another one has replaced",
         [](Guard& g) {
             (void)admit(g, guest(1, 8 * gib), at(21s));
             g.set_residency({{id(1), {{memory, {{0, gib}}}}}}, at(22s));
         },
         0},
    }));
    CAPTURE(row.name);
    Guard guard = plain_guard();
    guard.running(guest(1, 8 * gib), at(10s));
    guard.set_residency({{id(1), {{memory, {{0, 5 * gib}}}}}}, at(10s));
    row.message(guard);
    CHECK(guard.report().nodes[0].figures.allocated.at(memory) == row.on_node_0 * gib);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("a guest that returns may lie anywhere again, and so may the place kept for it") {
    Guard guard = with_a_kept_place();
    guard.set_residency({{id(2), {{memory, {{0, 16 * gib}}}}}}, at(20s));
    guard.set_residency({{id(1), {{memory, {{1, 16 * gib}}}}}}, at(20s)); // not running
    const Report report = guard.report();
    CHECK(report.nodes[0].figures.allocated.at(memory) == 16 * gib);
    CHECK(report.nodes[1].figures.pending.at(memory) == 0);
    CHECK(admit(guard, guest(1, 16 * gib), at(20s)));
}

TEST_CASE("foreign memory is charged where the policy says so, on any node") {
    const bool charged = GENERATE(false, true);
    Policy policy = plain_policy();
    policy.memory.charge_foreign = charged;
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    guard.running(guest(1, 8 * gib), at(10s));
    guard.running(guest(2, 8 * gib), at(10s));
    CHECK(guard.foreign_memory() == std::nullopt);
    guard.set_residency({{id(1), {{memory, {{0, 4 * gib}, {1, gib}}}}}}, at(10s));
    CHECK(guard.foreign_memory() == std::nullopt); // of one guest alone nothing follows
    const std::map<std::string, Residency> all{{id(1), {{memory, {{0, 4 * gib}, {1, gib}}}}},
                                               {id(2), {{memory, {{1, 3 * gib}}}}},
                                               {id(3), {{memory, {{1, gib}}}}}}; // gone since
    see_all(guard, all, at(10s), 15 * gib);
    CHECK(guard.foreign_memory() == 6 * gib);
    const auto host = [&] { return guard.report().host; };
    CHECK(host().foreign.at(memory) == (charged ? 6 * gib : 0));
    CHECK(host().free.at(memory) == (charged ? 10 : 16) * gib);
    CHECK(guard.report().nodes[0].figures.foreign.at(memory) == 0);
    policy.memory.charge_foreign = !charged;
    policy.reserve.memory = gib;
    guard.apply(policy);
    CHECK(guard.foreign_memory() == 5 * gib);
    CHECK(host().foreign.at(memory) == (charged ? 0 : 5 * gib));
    see_all(guard, all, at(11s), 9 * gib);
    CHECK(host().foreign.at(memory) == 0);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("a start in flight is not taken for foreign memory, nor a guest of which nothing tells") {
    Guard guard = plain_guard();
    see_all(guard, {}, at(10s), gib);
    REQUIRE(admit(guard, guest(1, 8 * gib), at(11s)));
    guard.running(guest(2, 8 * gib), at(11s));
    see_all(guard, {}, at(12s), 15 * gib);
    CHECK(guard.foreign_memory() == gib);
    see_all(guard, {{id(2), {{pages_2m, {}}}}}, at(12s), 18 * gib);
    CHECK(guard.foreign_memory() == 2 * gib);
}

TEST_CASE("right after all guests were seen, foreign hugepages are told by node") {
    Topology topology = equal_nodes(2, 4, 16 * gib);
    add_pages(topology, 0, page_2m, 100);
    add_pages(topology, 1, page_2m, 100);
    Guard guard(topology, plain_policy());
    Domain floating = guest(1);
    floating.memory = {ram(60 * page_2m, DefaultHugepages{})};
    guard.running(floating, at(10s));
    using Seen = ForeignPages::Seen;
    const auto use = [&](std::int64_t on_0, std::int64_t on_1, Seen just_seen = Seen::before) {
        guard.set_page_use({{0, page_2m, on_0 * page_2m}, {1, page_2m, on_1 * page_2m}}, just_seen);
        const Report report = guard.report();
        return std::array{report.nodes[0].figures.foreign.at(pages_2m) / page_2m,
                          report.nodes[1].figures.foreign.at(pages_2m) / page_2m,
                          report.host.foreign.at(pages_2m) / page_2m};
    };
    using Three = std::array<std::int64_t, 3>;
    CHECK(use(30, 35) == Three{0, 0, 5});
    const Residency seen{{pages_2m, {{0, 30 * page_2m}, {1, 10 * page_2m}}}};
    guard.set_residency({{id(1), seen}}, at(10s));
    CHECK(use(30, 35, Seen::now) == Three{0, 25, 25});
    CHECK(broken_invariant(guard.ledger()) == "");
    CHECK(use(40, 35) == Three{0, 25, 25}); // it may have touched ten more
    guard.set_residency({{id(1), seen}}, at(10s));
    CHECK(use(40, 35, Seen::now) == Three{10, 25, 35});
    guard.released(id(1), at(11s));
    CHECK(guard.ledger().holdings().of(pages_2m).size() == 2); // of what is foreign alone
}
