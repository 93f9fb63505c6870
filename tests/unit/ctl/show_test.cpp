// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>

#include <catch2/catch.hpp>

#include "ctl/amounts.hpp"
#include "ctl/outcome_screen.hpp"
#include "ctl/reservation.hpp"
#include "ctl/status_screen.hpp"
#include "ctl/table.hpp"

using namespace virtguard;
using namespace virtguard::ctl;
using core::Resource;

namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

core::Outcome refused() {
    return {.name = "web\n3",
            .admitted = false,
            .demand = {{Resource::cpu(), 2}, {Resource::memory(), 3 * gib / 2}},
            .reasons = {{.code = core::Code::insufficient_capacity, .text = "cpu: no"},
                        {.code = core::Code::foreign_scheduler,
                         .mode = core::Mode::observe,
                         .text = "not\x1bours"}},
            .notes = {"PU 3 is offline"}};
}

core::Outcome admitted(std::vector<core::Reason> reasons = {}) {
    return {.name = "web",
            .admitted = true,
            .demand = {{Resource::cpu(), 2}},
            .reasons = std::move(reasons)};
}

} // namespace

TEST_CASE("what the host has nothing of is shown as what does not fit") {
    core::Outcome outcome{
        .name = "db",
        .admitted = false,
        .demand = {{Resource::cpu(), 2}, {Resource::hugepages(gib), 2 * gib}},
        .fits = {{.resource = Resource::cpu(), .largest = 2, .per_node = {{0, 2}}}}};
    const std::string sized = outcome_text(outcome);
    CHECK(sized.substr(sized.find("\n\n") + 2) == "                cpu hugepages-1Gi\n"
                                                  "needs             2         2 GiB\n"
                                                  "would fit         2             0\n"
                                                  "on node 0 alone   2             -\n");
    outcome.demand.erase(Resource::hugepages(gib));
    outcome.reasons = {{.code = core::Code::no_such_page_size, .requested = gib, .text = "none"}};
    const std::string of_any_size = outcome_text(outcome);
    CHECK(of_any_size.substr(of_any_size.find("\n\n") + 2) == "                cpu hugepages\n"
                                                              "needs             2     1 GiB\n"
                                                              "would fit         2         0\n"
                                                              "on node 0 alone   2         -\n");
}

TEST_CASE("a table is as wide as its cells, numbers to the right") {
    Table table({{"NAME"}, {"SIZE", Align::right}});
    table.add({"a", "1"});
    table.add({"long one", "1024"});
    CHECK(table.text() == "NAME     SIZE\n"
                          "a           1\n"
                          "long one 1024\n");
}

TEST_CASE("use is a percentage that never says all, nothing or over where it is not so") {
    const auto [effective, free, text] = GENERATE(table<std::int64_t, std::int64_t, std::string>({
        {4, 4, "0%"},
        {4, 1, "75%"},
        {4, 0, "100%"},
        {1000, 999, "<1%"},
        {1000, 10, "99%"},
        {1000, 9, ">99%"},
        {1000, -1, "101%"},
        {1000, -170, "117%"},
        {1, -9, ">999%"},
        {INT64_MAX, INT64_MIN, "201%"},
        {2, -2, "200%"},
        {0, 0, ""},
        {0, -1, "over"},
        {-4, -4, ""},
    }));
    CAPTURE(effective, free);
    CHECK(percent({.effective = effective, .free = free}) == text);
}

TEST_CASE("a bar has a cell of whatever is used, and of whatever is free") {
    const Screen screen{.width = 80};
    const auto [effective, running, free, text, ink] =
        GENERATE(table<std::int64_t, std::int64_t, std::int64_t, std::string, Ink>({
            {1000, 0, 1000, "..........   0%", Ink::good},
            {1000, 1, 999, "#.........  <1%", Ink::good},
            {1000, 1, 500, "#++++.....  50%", Ink::good},
            {1000, 0, 250, "+++++++...  75%", Ink::warning},
            {1000, 899, 1, "########+. >99%", Ink::bad},
            {1000, 999, 1, "#########. >99%", Ink::bad},
            {1000, 1000, 0, "########## 100%", Ink::bad},
            {1000, 0, -1, "++++++++++ 101%", Ink::bad},
            {0, 0, -1, "++++++++++ over", Ink::bad},
            {0, 0, 0, "-", Ink::plain},
        }));
    CAPTURE(effective, running, free);
    const Cell cell = use_cell(screen, {effective, running, free});
    CHECK(cell.text == text);
    CHECK((cell.ink == ink));
    CHECK(use_cell({}, {1000, 1, 500}).text == "50%");
}

TEST_CASE("sentences are broken between words, where there is a screen to end") {
    CHECK(folded({}, 2, "one two three") == "  one two three");
    CHECK(folded({.width = 20}, 2, "one two three") == "  one two three");
    CHECK(folded({.width = 9}, 2, "one two three") == "  one two\n    three");
    CHECK(folded({.width = 5}, 2, "one-two-three four") == "  one-two-three four");
}

TEST_CASE("a table shows what its screen has room for") {
    Table table({{"WHERE", Align::left, Shown::no_terminal},
                 {"NAME", Align::left, Shown::always, /*wraps=*/true},
                 {"FULL", Align::right, Shown::wide},
                 {"SHORT", Align::right, Shown::narrow}});
    table.begin_section("first");
    table.add({"a", "name", "all of it", "s"});
    table.begin_section("second");
    table.add({"b", "n", Cell("f", Ink::bad), "s"});
    CHECK(table.text() == "WHERE NAME      FULL\n"
                          "a     name all of it\n"
                          "b     n            f\n");
    CHECK(table.text({.width = 15}) == "NAME       FULL\n"
                                       "first\n"
                                       "name  all of it\n"
                                       "second\n"
                                       "n             f\n");
    CHECK(table.text({.width = 14}).starts_with("NAME      FULL\n"));
    CHECK(table.text({.width = 13}).starts_with("NAME  SHORT\n"));
    CHECK(table.text({.width = 15, .colour = true}).contains("\x1b[31m"));
    CHECK(Table({{"NAME"}}).text().empty());
}

TEST_CASE("an event is a line, and a line for each note") {
    const core::Reason observed{.mode = core::Mode::observe, .text = "cpu: no"};
    CHECK(event_text({.event = "a.xml", .outcome = admitted(), .decided = true}) ==
          "a.xml: admitted web (cpu 2)\n");
    CHECK(event_text({.event = "a.xml", .outcome = admitted({observed}), .decided = true}) ==
          "a.xml: admitted web (cpu 2), only observing: cpu: no\n");
    CHECK(event_text({.event = "a\n.xml", .outcome = refused(), .decided = true}) ==
          "a\\x0a.xml: refused web\\x0a3: cpu: no; not\\x1bours\n"
          "  note: PU 3 is offline\n");
    CHECK(event_text({.event = "running:a.xml", .outcome = refused()}) ==
          "running:a.xml: web\\x0a3 runs (cpu 2, memory 1.5 GiB)\n"
          "  note: PU 3 is offline\n");
    CHECK(event_text({.event = "stop:a"}) == "stop:a: done\n");
    CHECK(event_text({.event = "stop:a", .found_nothing = true}) ==
          "stop:a: nothing of that name runs\n");
    const core::Outcome nameless{
        .reasons = {{.code = core::Code::invalid_domain, .text = "invalid domain: x"}}};
    CHECK(event_text({.event = "a", .outcome = nameless, .decided = true}) ==
          "a: refused a domain: invalid domain: x\n");
}

TEST_CASE("check shows the verdict, each reason with its code, and notes") {
    CHECK(outcome_text(refused()) == "refuse web\\x0a3: cpu 2, memory 1.5 GiB\n"
                                     "  cpu: no (insufficient-capacity)\n"
                                     "  not\\x1bours, only observed (foreign-scheduler)\n"
                                     "  note: PU 3 is offline\n");
}

TEST_CASE("check shows what of each resource would fit, together and on each node alone") {
    const core::Outcome outcome{
        .name = "web",
        .demand = {{Resource::cpu(), 4}, {Resource::memory(), gib + 1}},
        .fits = {{Resource::cpu(), 4, {{0, 4}, {1, 2}}}, {Resource::memory(), gib, {{1, gib}}}}};
    CHECK(outcome_text(outcome) == "refuse web: cpu 4, memory 1.01 GiB\n"
                                   "\n"
                                   "                cpu   memory\n"
                                   "needs             4 1.01 GiB\n"
                                   "would fit         4    1 GiB\n"
                                   "on node 0 alone   4        -\n"
                                   "on node 1 alone   2    1 GiB\n");
}

TEST_CASE("an invalid domain was shown as one that asks for nothing") {
    const core::Outcome invalid{.name = "web",
                                .admitted = GENERATE(false, true),
                                .reasons = {{.code = core::Code::invalid_domain, .text = "no"}}};
    CHECK(outcome_text(invalid) ==
          fmt::format("{} web\n  no (invalid-domain)\n", invalid.admitted ? "admit" : "refuse"));
    CHECK(event_text({.event = "a", .outcome = invalid, .decided = true}) ==
          (invalid.admitted ? "a: admitted web, only observing: no\n" : "a: refused web: no\n"));
}

TEST_CASE("a status is a line, its problems, and tables") {
    core::Status status{.version = "0.1.0",
                        .state = "degraded",
                        .problems = {"libvirt: gone\n"},
                        .admitted = 3,
                        .refused = 2,
                        .would_refuse = 1};
    core::Figures& host = status.report.host;
    for (auto* column : {&host.capacity, &host.reserved, &host.allocatable, &host.effective,
                         &host.allocated, &host.pending, &host.booked, &host.foreign})
        *column = {{Resource::cpu(), 4}, {Resource::memory(), gib}};
    host.free = {{Resource::cpu(), INT64_MIN}, {Resource::memory(), -gib}};
    status.report.overcommit[Resource::cpu()] = Ratio::parse("1.5").value();
    status.report.over_capacity = {Resource::memory()};
    status.guests = {{.name = "b", .scheduler = "s", .state = core::GuestState::returning},
                     {.name = "web", .scheduler = "s", .demand = {{Resource::cpu(), 1}}}};
    CHECK(status_text(status) ==
          R"(virtguardd 0.1.0: degraded, mode enforce
starts: 3 admitted, 2 refused, 1 would have been refused
domains: 1 running, 1 returning
problem: libvirt: gone\x0a
over capacity: memory

WHERE RESOURCE USE   CAPACITY RESERVED RATIO EFFECTIVE ALLOCATED PENDING BOOKED FOREIGN                        FREE
host  cpu      >999%        4        4   1.5         4         4       4      4       4 over by 9223372036854775807
host  memory   200%     1 GiB    1 GiB     1     1 GiB     1 GiB   1 GiB  1 GiB   1 GiB               over by 1 GiB

DOMAIN STATE     SCHEDULER cpu
b      returning s           -
web    running   s           1
)");
}

TEST_CASE("status lists guests by name, not by UUID as the daemon does") {
    core::Status status;
    for (const char* name : {"web-2", "db", "web-1"})
        status.guests.push_back({.name = name, .scheduler = "s"});
    const std::string table = "DOMAIN STATE   SCHEDULER\n"
                              "db     running s\n"
                              "web-1  running s\n"
                              "web-2  running s\n";
    CHECK(status_text(status).ends_with(table));
    CHECK(domains_text(status) == table);
}

TEST_CASE("nodes have rows of their own where there are several") {
    core::Status status;
    status.report.host.capacity = {{Resource::cpu(), 4}};
    status.report.nodes = {{.id = 0, .figures = status.report.host}};
    CHECK_FALSE(status_text(status).contains("node 0"));
    status.report.nodes.push_back({.id = 5, .figures = status.report.host});
    CHECK(status_text(status).contains("node 0 cpu"));
    CHECK(status_text(status).contains("node 5 cpu"));
}

TEST_CASE("what the policy declares is a number, with what it counts") {
    const Resource seats = Resource::custom("licence/acme");
    core::Status status;
    status.report.host.capacity = {{seats, 2048}};
    status.report.host.effective = {{seats, 2048}};
    status.report.host.free = {{seats, -3}};
    status.report.units = {{seats, "seats"}};
    status.guests = {{.name = "web", .scheduler = "s", .demand = {{seats, 2051}}}};
    const std::string text = status_text(status);
    CHECK(text.contains("licence/acme (seats) "));
    CHECK(text.contains(" 2048 "));
    CHECK(text.contains("over by 3\n"));
    CHECK(demand_text(status.guests.front().demand) == "licence/acme 2051");
}

TEST_CASE("memory of nobody is shown, and whether it is charged") {
    const auto [seen, charged, line] =
        GENERATE(table<std::optional<std::int64_t>, std::int64_t, std::string>({
            {std::nullopt, 0, ""},
            {0, 0, ""},
            {gib, 0, "foreign memory: 1 GiB, not charged\n"},
            {gib, gib, "foreign memory: 1 GiB, charged\n"},
        }));
    core::Status status{.version = "1", .state = "ready"};
    const std::string before = status_text(status);
    status.foreign_memory = seen;
    status.report.host.foreign[Resource::memory()] = charged;
    CHECK(status_text(status) == before.substr(0, before.size() - 1) + line + "\n");
}

TEST_CASE("reservations are shown with what is left of them, when they end, and whose they are") {
    const Uuid uuid = Uuid::parse("00000000-0000-4000-8000-000000000001").value();
    const WallTime end(std::chrono::seconds(1796042532));
    CHECK(reservations_text({{.id = {"cortex", "a"},
                              .asked = {{"cpu", 4}, {"memory@1", 3 * gib / 2}},
                              .booked = {{"cpu", 1}},
                              .uuids = {uuid},
                              .match = "true()",
                              .expiry = end},
                             {.id = {"kube\n", "b"}, .asked = {{"hugepages-2Mi", gib}}}},
                            end - std::chrono::seconds(1), {}) ==
          "OWNER    NAME ASKED                   STILL BOOKED EXPIRES                 FOR\n"
          "cortex   a    cpu 4, memory@1 1.5 GiB cpu 1        2026-11-30 12:42:12 UTC "
          "00000000-0000-4000-8000-000000000001, true()\n"
          "kube\\x0a b    hugepages-2Mi 1 GiB     nothing      never                   "
          "any of its guests\n");
    CHECK(reservations_text({}, end, {}) == "");
    CHECK(reservations_text({}, end, {.width = 80}) == "no reservations\n");
}

TEST_CASE("a reservation that should have ended says so, and amounts are not less than they are") {
    const WallTime end(std::chrono::seconds(1796042532));
    CHECK(reservations_text(
              {{.id = {"cortex", "a"}, .asked = {{"memory", gib + 1}}, .expiry = end}}, end, {}) ==
          "OWNER  NAME ASKED           STILL BOOKED EXPIRES                        FOR\n"
          "cortex a    memory 1.01 GiB nothing      2026-11-30 12:42:12 UTC (past) any of its "
          "guests\n");
}

TEST_CASE("on a narrow terminal all of a reservation is shown, and no word is broken that fits") {
    const Uuid uuid = Uuid::parse("00000000-0000-4000-8000-000000000001").value();
    const WallTime end(std::chrono::seconds(1796042532));
    CHECK(reservations_text({{.id = {"cortex", "spot"},
                              .asked = {{"cpu", 4}, {"memory@1", gib}},
                              .booked = {{"cpu", 1}},
                              .uuids = {uuid},
                              .expiry = end}},
                            end - std::chrono::seconds(1), {.width = 70}) ==
          "OWNER  NAME ASKED    STILL BOOKED EXPIRES    FOR\n"
          "cortex spot cpu 4,   cpu 1        2026-11-30 00000000-0000-4000-8000-\n"
          "            memory@1              12:42:12   000000000001\n"
          "            1 GiB                 UTC        \n");
}
