// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include <catch2/catch.hpp>

#include "json/run_time.hpp"

using namespace virtguard;
using namespace std::chrono_literals;

namespace {

const core::Setter someone{.time = WallTime(1796042532s), .uid = 4294967295, .user = "ops"};

core::Order reserve() {
    return core::read_reserve(
               {.id = {"cortex", "spot"},
                .amounts = {{"memory@1", 1024}, {"cpu", 2}},
                .uuids = std::vector<std::string>{"00000000-0000-4000-8000-000000000001"},
                .match = "true()",
                .expiry = WallTime(7us),
                .force = true})
        .value();
}

core::Order reserve_xml() {
    return core::read_reserve({.id = {"cortex", "spot"}, .xml = "<domain/>"}).value();
}

core::RunTime run_time() {
    const core::RunTime ratio =
        carried_out({}, core::read_set_overcommit("cpu", "1.15").value(), someone);
    const core::RunTime mode =
        carried_out(ratio, core::read_set_mode("maintenance", "größe").value(), someone);
    core::Reserve of_domain{.id = {"größer", "xml"}, .expiry = core::Never{}};
    of_domain.booking.domain = core::Domain{.name = "web", .vcpus = {{IdSet{1, 3}, 2, 4}}};
    core::RunTime set = carried_out(carried_out(mode, reserve(), someone), of_domain, someone);
    core::RunTimeReservation& spot = set.reservations.at({"cortex", "spot"});
    spot.booking.made = Instant{3s};
    spot.end = Instant{5s};
    return set;
}

const std::string boot = "this";

core::RunTime read(const std::string& document) {
    return json::parse_run_time(document, boot).value().values;
}

/// The document with a part replaced.
std::string with(const std::string& part, const std::string& other) {
    std::string document = json::run_time_document(run_time(), boot);
    const std::size_t at = document.find(part);
    REQUIRE(at != std::string::npos);
    return document.replace(at, part.size(), other);
}

} // namespace

TEST_CASE("what is set at run time is read as it was written") {
    CHECK(read(json::run_time_document(run_time(), boot)) == run_time());
    CHECK(read(json::run_time_document({}, boot)) == core::RunTime{});
}

TEST_CASE("what was made in another boot was made before all guests of this one") {
    const auto read_then = json::parse_run_time(json::run_time_document(run_time(), "last"), boot);
    core::RunTime expected = run_time();
    expected.reservations.at({"cortex", "spot"}).booking.made = {};
    expected.reservations.at({"cortex", "spot"}).end = Instant{2s};
    CHECK(read_then.value().values == expected);
}

TEST_CASE("what was to last for a span lasted for ever after a reboot without a clock") {
    core::RunTime then = run_time();
    const core::RunTime now =
        json::parse_run_time(json::run_time_document(then, "last"), boot).value().values;
    CHECK(core::expired(now, {.boot = Instant{1999ms}}).empty());
    CHECK(core::expired(now, {.boot = Instant{2s}}).size() == 1);
    then.reservations.at({"cortex", "spot"}).end.reset(); // it is known at what time it ends
    CHECK(core::expired(
              json::parse_run_time(json::run_time_document(then, "last"), boot).value().values,
              {.boot = Instant{1h}})
              .empty());
}

TEST_CASE("more reservations than there may be are left out and told") {
    core::RunTime many;
    core::Reserve order = std::get<core::Reserve>(reserve());
    for (std::size_t number = 0; number < core::max_reservations + 2; ++number) {
        order.id.name = std::to_string(number);
        order.booking.match = fmt::format("{} = 0", number % (core::max_matches + 1));
        many = carried_out(std::move(many), order, someone);
    }
    const auto left = json::parse_run_time(json::run_time_document(many, boot), boot).value();
    std::set<std::string> matches;
    for (const auto& [id, each] : left.values.reservations)
        matches.insert(each.booking.match);
    CHECK(matches.size() == core::max_matches);
    CHECK(left.values.reservations.size() + left.dropped.size() == core::max_reservations + 2);
    CHECK(left.values.reservations.size() <= core::max_reservations);
}

TEST_CASE("a reservation that cannot be is left out and told, and the others are read") {
    const auto [name, document] = GENERATE(table<std::string, std::string>({
        {"without a name", with("\"spot\"", "\"\"")},
        {"of nothing", with("1024", "0")},
        {"of pages that are none", with("memory@1", "hugepages-3Ki")},
        {"for a UUID that is none", with("-4000-", "-400-")},
        {"with an end before 1970", with("\"expires_us\": 7", "\"expires_us\": -7")},
    }));
    CAPTURE(name);
    const auto left = json::parse_run_time(document, boot);
    REQUIRE(left.has_value());
    core::RunTime expected = run_time();
    expected.reservations.erase({"cortex", "spot"});
    CHECK(left->values == expected);
    REQUIRE(left->dropped.size() == 1);
    CHECK(left->dropped.front().contains("of cortex: "));
}

TEST_CASE("what a daemon wrote that knew no reservations is read") {
    std::string document = json::run_time_document({}, boot);
    const std::string none = ",\n  \"reservations\": []";
    document.erase(document.find(none), none.size());
    CHECK(read(document) == core::RunTime{});
}

TEST_CASE("what nobody could have set at run time is not read") {
    const auto [name, document] = GENERATE(table<std::string, std::string>({
        {"no JSON", "{"},
        {"no object", "[]"},
        {"a ratio above all", with("1.15", "1001")},
        {"a resource that takes none", with("\"cpu\"", "\"hugepages-2Mi\"")},
        {"a uid that is none", with("4294967295", "4294967296")},
        {"a mode that is none", with("\"maintenance\"", "\"on\"")},
        {"nobody", with("\"uid\"", "\"x\"")},
        {"a time before 1970", with("1796042532000000", "-1")},
    }));
    CAPTURE(name);
    const auto not_read = json::parse_run_time(document, boot);
    REQUIRE_FALSE(not_read.has_value());
    CHECK(not_read.error().code == Errc::invalid);
}

TEST_CASE("an order is read as it was written") {
    const core::Order order =
        GENERATE(as<core::Order>{}, core::read_set_overcommit("memory", "0.5").value(),
                 core::SetMode{core::Mode::observe, ""}, core::SetMode{std::nullopt, "\"why\""},
                 core::ResetMode{}, reserve(), reserve_xml(),
                 core::RenewReservation{{"cortex", "spot"}, 15min},
                 core::RenewReservation{{"cortex", "spot"}, core::Never{}},
                 core::CancelReservation{{"cortex", "spot"}}, core::ResetOvercommit{},
                 core::ResetOvercommit{core::Resource::cpu()});
    CHECK(json::parse_order(json::order_document(order)).value() == order);
}

TEST_CASE("what is no order is not read") {
    for (const char* document : {"", "{}", "7", R"({"order": "dance"})",
                                 R"({"order": "set-overcommit", "resource": "cpu"})",
                                 R"({"order": "set-overcommit", "resource": "cpu", "ratio": 2})"}) {
        CAPTURE(document);
        CHECK_FALSE(json::parse_order(document).has_value());
    }
}
