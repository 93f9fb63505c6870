// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <tuple>

#include <catch2/catch.hpp>

#include "json/document.hpp"

using namespace virtguard;
using core::Resource;

namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;
const Uuid uuid = Uuid::parse("6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b11").value();

core::Figures figures(std::int64_t free) {
    const auto both = [](std::int64_t cpu, std::int64_t pages) {
        return core::Quantities{{Resource::cpu(), cpu}, {Resource::hugepages(2 << 20), pages}};
    };
    return {.capacity = both(8, 4 * gib),
            .reserved = both(1, 0),
            .allocatable = both(7, 4 * gib),
            .effective = both(10, 4 * gib),
            .allocated = both(10 - free, 0),
            .pending = both(0, gib),
            .booked = both(0, 0),
            .foreign = both(0, 1),
            .free = both(free, INT64_MIN)};
}

core::Outcome outcome() {
    return {
        .name = "a \"b\"\n\xc3\xbc",
        .uuid = uuid,
        .scheduler = "cortex",
        .admitted = false,
        .mode = core::Mode::enforce,
        .demand = {{Resource::cpu(), 2}, {Resource::memory(), 3 * gib}},
        .overhead = gib,
        .pieces = {{Resource::cpu(), 2, {}, false}, {Resource::memory(), 3 * gib, {0, 3}, true}},
        .reasons = {{.code = core::Code::foreign_scheduler, .text = "not ours"},
                    {.code = core::Code::insufficient_node_capacity,
                     .resource = Resource::memory(),
                     .nodes = {0, 3},
                     .requested = 3 * gib,
                     .free = -1,
                     .effective = gib,
                     .mode = core::Mode::observe,
                     .text = "too much"}},
        .notes = {"PU 3 is offline"},
        .fits = {{.resource = core::Resource::memory(),
                  .largest = 1 << 30,
                  .per_node = {{0, 5}, {1, 1 << 30}}}}};
}

core::Status status() {
    core::Status result{.version = "0.1.0",
                        .state = "degraded",
                        .problems = {"libvirt: gone"},
                        .mode = core::Mode::observe,
                        .admitted = 1,
                        .refused = INT64_MAX,
                        .would_refuse = 0};
    result.report.host = figures(-3);
    result.report.nodes = {{.id = 0, .cpus = {0, 1, 7}, .figures = figures(2)},
                           {.id = 16383, .cpus = {}, .figures = {}}};
    result.report.overcommit[Resource::cpu()] = Ratio::parse("1.15").value();
    result.report.overcommit[Resource::custom("a.org/b")] = Ratio::parse("2").value();
    result.report.units[Resource::custom("a.org/b")] = "seats";
    result.report.over_capacity = {Resource::cpu()};
    for (const auto state :
         {core::GuestState::pending, core::GuestState::running, core::GuestState::returning})
        result.guests.push_back(
            {.name = "g",
             .uuid = state == core::GuestState::pending ? std::nullopt : std::optional(uuid),
             .scheduler = "default-scheduler",
             .state = state,
             .demand = {{Resource::cpu(), 1}}});
    result.reservations = {{.id = {"cortex", "a"},
                            .asked = {{"memory@0-1", gib}, {"cpu", 4}},
                            .booked = {{"cpu", 3}},
                            .uuids = {uuid},
                            .match = "true()",
                            .expiry = WallTime(std::chrono::microseconds(7)),
                            .origin = "run time by root at noon"},
                           {.id = {"cortex", "b"}, .asked = {{"cpu", 1}}}};
    return result;
}

/// The document with one text replaced by another; it must be there.
std::string with(std::string document, std::string_view from, std::string_view to) {
    const std::size_t at = document.find(from);
    CAPTURE(from);
    REQUIRE(at != std::string::npos);
    return document.replace(at, from.size(), to);
}

} // namespace

TEST_CASE("an outcome is read as it was written") {
    const auto read = json::parse_outcome(json::outcome_document(outcome()));
    REQUIRE(read.has_value());
    CHECK(*read == outcome());
    core::Outcome least{.admitted = true};
    const auto again = json::parse_outcome(json::outcome_document(least));
    REQUIRE(again.has_value());
    CHECK(*again == least);
}

TEST_CASE("a fit names the nodes that have room for all that is asked for") {
    core::Outcome asked{.demand = {{Resource::cpu(), 4}},
                        .fits = {{Resource::cpu(), 4, {{0, 3}, {1, 4}}}}};
    CHECK(json::outcome_document(asked).contains(R"("nodes": [
        1
      ])"));
}

TEST_CASE("nodes and domains are those of the status") {
    const std::string all = json::status_document(status());
    for (const std::string& part :
         {json::nodes_document(status()), json::domains_document(status())})
        CHECK(all.contains(part.substr(2, part.size() - 4))); // without its braces
}

TEST_CASE("a status is read as it was written") {
    core::Status written = status();
    written.foreign_memory = GENERATE(as<std::optional<std::int64_t>>{}, std::nullopt, 0, gib);
    if (written.foreign_memory)
        written.snapshot = WallTime(std::chrono::microseconds(1'796'000'000'123'456));
    const auto read = json::parse_status(json::status_document(written));
    REQUIRE(read.has_value());
    CHECK(read->snapshot == written.snapshot);
    CHECK(read->report.host == written.report.host);
    CHECK(read->report.nodes == written.report.nodes);
    CHECK(read->report.overcommit == written.report.overcommit);
    CHECK(read->report.units == written.report.units);
    CHECK(read->report.over_capacity == written.report.over_capacity);
    CHECK(read->guests == written.guests);
    CHECK(read->reservations == written.reservations);
    CHECK(read->foreign_memory == written.foreign_memory);
    CHECK(json::status_document(*read) == json::status_document(written));
}

TEST_CASE("the last starts are read as they were written") {
    std::vector<core::DecidedStart> written{
        {.time = WallTime(std::chrono::microseconds(1'796'000'000'123'456)),
         .name = "a \"b\"",
         .uuid = uuid,
         .scheduler = "cortex",
         .verdict = core::Verdict::would_refuse,
         .reasons = outcome().reasons},
        {.verdict = core::Verdict::refuse},
        {}};
    const auto read = json::parse_history(json::history_document(written));
    REQUIRE(read.has_value());
    CHECK(*read == written);
    CHECK_FALSE(json::parse_history(with(json::history_document(written), "\"refuse\"", "1")));
}

TEST_CASE("zeros are left out of a demand only") {
    core::Outcome some{.admitted = true, .demand = {{Resource::cpu(), 0}, {Resource::memory(), 1}}};
    CHECK(json::parse_outcome(json::outcome_document(some))->demand ==
          core::Quantities{{Resource::memory(), 1}});
    CHECK(json::parse_status(json::status_document(status()))->report.host.booked.size() == 2);
}

TEST_CASE("bytes that are no UTF-8 do not break a document") {
    core::Outcome odd{.name = "a\xff\xc3", .admitted = true};
    CHECK(json::parse_outcome(json::outcome_document(odd))->name == "a\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_CASE("a simulation has verdict and reasons for starts, and only the argument for others") {
    core::Outcome least{.name = "a", .scheduler = "s", .admitted = true};
    const std::string text =
        json::simulation_document({{.event = "a.xml", .outcome = least, .decided = true},
                                   {.event = "running:a.xml", .outcome = least},
                                   {.event = "stop:b", .found_nothing = true}},
                                  {});
    CHECK(text == R"({
  "events": [
    {
      "event": "a.xml",
      "domain": "a",
      "uuid": "",
      "verdict": "admit",
      "mode": "enforce",
      "scheduler": "s",
      "demand": {},
      "overhead": 0,
      "pieces": [],
      "reasons": []
    },
    {
      "event": "running:a.xml",
      "domain": "a",
      "uuid": "",
      "mode": "enforce",
      "scheduler": "s",
      "demand": {},
      "overhead": 0,
      "pieces": []
    },
    {
      "event": "stop:b"
    }
  ],
  "host": {
    "capacity": {},
    "reserved": {},
    "allocatable": {},
    "effective": {},
    "allocated": {},
    "pending": {},
    "booked": {},
    "foreign": {},
    "free": {}
  },
  "nodes": []
})");
}

TEST_CASE("an outcome with a field that is wrong is an error") {
    const auto [name, from, to] = GENERATE(table<std::string, std::string, std::string>({
        {"a key is missing", "\"overhead\"", "\"overhaed\""},
        {"a verdict of no meaning", "\"refuse\"", "\"perhaps\""},
        {"a verdict that is no text", "\"refuse\"", "null"},
        {"a mode of no meaning", "\"mode\": \"enforce\"", "\"mode\": \"strict\""},
        {"a code of no meaning", "foreign-scheduler", "foreign"},
        {"a UUID that is none", uuid.text(), "6f1c"},
        {"a float", "\"overhead\": 1073741824", "\"overhead\": 1e300"},
        {"a number above 2^63", "\"overhead\": 1073741824", "\"overhead\": 9223372036854775808"},
        {"a text for a number", "\"overhead\": 1073741824", "\"overhead\": \"1\""},
        {"a resource of no name", "\"memory\": 3221225472", "\"g pu\": 1"},
        {"an id below 0", "3\n      ]", "-1\n ]"},
        {"an id too high", "3\n      ]", "16384\n ]"},
        {"an id that is a truth", "3\n      ]", "true\n ]"},
        {"pieces that are no list", "\"pieces\": [", "\"pieces\": null, \"x\": ["},
        {"reasons that are no list", "\"reasons\": [", "\"reasons\": {}, \"x\": ["},
        {"a demand that is no object", "\"demand\": {", "\"demand\": null, \"x\": {"},
        {"not JSON any more", "\"domain\"", "domain"},
    }));
    CAPTURE(name);
    const auto read = json::parse_outcome(with(json::outcome_document(outcome()), from, to));
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().code == Errc::invalid);
    CHECK(read.error().what.starts_with("virtguardd's document: "));
}

TEST_CASE("a status with a field that is wrong is an error") {
    const auto [name, from, to] = GENERATE(table<std::string, std::string, std::string>({
        {"a negative count", "\"admitted\": 1", "\"admitted\": -1"},
        {"a ratio that is none", "1.15", "1e9"},
        {"PUs that are none", "0-1,7", "0-1,x"},
        {"a node's id that is none", "16383", "16384"},
        {"a state of no meaning", "\"returning\"", "\"gone\""},
        {"domains that are no list", "\"domains\": [", "\"domains\": 1, \"x\": ["},
        {"problems that are no texts", "\"libvirt: gone\"", "1"},
        {"a column that is missing", "\"booked\"", "\"taken\""},
        {"an overcommit that is no object", "\"overcommit\": {", "\"overcommit\": [1], \"x\": {"},
        {"decisions that are no object", "\"decisions\": {", "\"decisions\": 1, \"x\": {"},
    }));
    CAPTURE(name);
    CHECK_FALSE(json::parse_status(with(json::status_document(status()), from, to)).has_value());
}

TEST_CASE("what is no document at all is an error") {
    const auto text =
        GENERATE(as<std::string>(), "", "null", "1", "[]", "{}", "\"x\"", "{\"a\":", "\xff",
                 std::string(100'000, '['), std::string("{}\0{}", 5));
    CHECK_FALSE(json::parse_status(text).has_value());
    CHECK_FALSE(json::parse_outcome(text).has_value());
}

TEST_CASE("a document cut anywhere is an error") {
    const std::string whole = json::status_document(status());
    for (std::size_t size = 0; size < whole.size(); size += 7)
        CHECK_FALSE(json::parse_status(whole.substr(0, size)).has_value());
}

TEST_CASE("an error about a document says what was wrong") {
    const std::string document = json::outcome_document(outcome());
    CHECK(json::parse_outcome(with(document, "\"refuse\"", "\"perhaps\"")).error().what ==
          "virtguardd's document: [json.exception.other_error.0] \"perhaps\" is neither admit nor "
          "refuse");
}
