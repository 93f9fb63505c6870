// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

#include "core/run_time.hpp"

using namespace virtguard;
using namespace virtguard::core;
using namespace std::chrono_literals;

namespace {

const Setter root{.time = WallTime(1796042532s), .uid = 0, .user = "root"};
const Setter nameless{.time = WallTime(1796042533s), .uid = 1000, .user = ""};

Order order(Result<Order> read) {
    REQUIRE(read.has_value());
    return *read;
}

std::string error(const Result<Order>& read) {
    return read ? "" : read.error().what;
}

} // namespace

TEST_CASE("a ratio set at run time holds in place of the files', and says who set it") {
    Policy files;
    files.overcommit[Resource::cpu()] = Ratio::parse("3").value();
    files.origins["overcommit.cpu"] = "file:2";
    const RunTime set = carried_out({}, order(read_set_overcommit("cpu", "1.50")), root);
    const Policy policy = in_force(files, set);
    CHECK(policy.ratio_of(Resource::cpu()).text() == "1.5");
    CHECK(policy.ratio_of(Resource::memory()).is_one());
    CHECK(policy.origins.at("overcommit.cpu") == "run time by root at 2026-11-30 12:42:12 UTC");
    CHECK(in_force(files, carried_out(set, ResetOvercommit{Resource::cpu()}, root)) == files);
}

TEST_CASE("the last who set a ratio has set it, by uid where there is no name") {
    const RunTime first = carried_out({}, order(read_set_overcommit("memory", "2")), root);
    const RunTime last = carried_out(first, order(read_set_overcommit("memory", "1")), nameless);
    CHECK(last.overcommit.at(Resource::memory()).ratio.is_one());
    CHECK(origin_text(last.overcommit.at(Resource::memory()).by) ==
          "run time by uid 1000 at 2026-11-30 12:42:13 UTC");
}

TEST_CASE("a reset is of one resource, or of all") {
    RunTime set = carried_out({}, order(read_set_overcommit("memory", "2")), root);
    set = carried_out(set, order(read_set_overcommit("cpu", "2")), root);
    const RunTime without_cpu = carried_out(set, order(read_reset_overcommit("cpu")), root);
    CHECK(without_cpu.overcommit.size() == 1);
    CHECK(without_cpu.overcommit.contains(Resource::memory()));
    CHECK(carried_out(set, order(read_reset_overcommit("")), root) == RunTime{});
}

TEST_CASE("an order that is impossible says what was expected") {
    CHECK(error(read_set_overcommit("mem roy", "2")) == Resource::parse("mem roy").error().what);
    CHECK(error(read_set_overcommit("cpu", "0")) == "cpu: " + Ratio::parse("0").error().what);
    CHECK(error(read_set_overcommit("hugepages-2Mi", "1.5")) ==
          "hugepages-2Mi: hugepages take no ratio");
    // As in a file, where 1 is no error and no setting.
    CHECK(carried_out({}, order(read_set_overcommit("hugepages-2Mi", "1.0")), root) == RunTime{});
    const std::string no_page =
        "hugepages-3Mi: no page has that size: expected a power of two from 4Ki to 16Gi";
    CHECK(error(read_set_overcommit("hugepages-3Mi", "1")) == no_page);
    CHECK(error(read_reset_overcommit("hugepages-3Mi")) == no_page);
    CHECK(error(read_reset_overcommit("/x")) == Resource::parse("/x").error().what);
}

TEST_CASE("a mode set at run time holds in place of the files', until it is reset") {
    Policy files;
    files.mode = Mode::observe;
    const RunTime set = carried_out({}, order(read_set_mode("enforce", "")), root);
    CHECK(in_force(files, set).mode == Mode::enforce);
    CHECK_FALSE(in_force(files, set).maintenance.has_value());
    CHECK(in_force(files, set).origins.at("mode") == "run time by root at 2026-11-30 12:42:12 UTC");
    const RunTime maintained = carried_out(set, order(read_set_mode("maintenance", "why")), root);
    CHECK(in_force(files, maintained).mode == Mode::observe);
    CHECK(in_force(files, maintained).maintenance == "why");
    CHECK(in_force(files, carried_out(maintained, order(read_set_mode("reset", "")), root)) ==
          files);
}

TEST_CASE("a mode that is none, and a message that is none, are told") {
    CHECK(error(read_set_mode("on", "")) ==
          "mode: \"on\": expected enforce, observe, off, maintenance or reset");
    CHECK(error(read_set_mode("off", "why")) == "message: expected none but for maintenance");
    CHECK(error(read_set_mode("maintenance", "two\nlines")) ==
          "message: expected one line without control characters");
    CHECK(error(read_set_mode("maintenance", std::string(501, 'x'))) ==
          "message: longer than 500 bytes");
    CHECK(error(read_set_mode("maintenance", "größer " + std::string(490, 'x'))) == "");
}

TEST_CASE("an order is told in words of the policy") {
    CHECK(order_text(order(read_set_overcommit("cpu", "1.50"))) == "overcommit.cpu = 1.5");
    CHECK(order_text(order(read_reset_overcommit("cpu"))) == "overcommit.cpu as in the files");
    CHECK(order_text(order(read_reset_overcommit(""))) == "overcommit as in the files");
    CHECK(order_text(order(read_set_mode("off", ""))) == "mode = off");
    CHECK(order_text(order(read_set_mode("maintenance", "why"))) == "mode = maintenance: why");
    CHECK(order_text(order(read_set_mode("reset", ""))) == "mode as in the files");
}

namespace {

const ReservationId spot{"cortex", "spot"};

ReserveWords words() {
    return {.id = spot, .amounts = {{"memory", 1024}}};
}

std::vector<std::string> uuids(std::size_t count) {
    std::vector<std::string> result;
    for (std::size_t i = 0; i < count; ++i)
        result.push_back(fmt::format("00000000-0000-4000-8000-{:012x}", i));
    return result;
}

std::map<std::string, std::int64_t> amounts(int nodes) {
    std::map<std::string, std::int64_t> result;
    for (int node = 0; node < nodes; ++node)
        result[fmt::format("memory@{}", node)] = 1;
    return result;
}

/// Each match is another one.
RunTime with_reservations(std::size_t count, const std::optional<std::string>& match) {
    RunTime run_time;
    for (std::size_t i = 0; i < count; ++i) {
        ReserveWords each = words();
        each.id.name = fmt::format("r{}", i);
        if (match)
            each.match = *match + std::string(i, ' ');
        run_time = carried_out(run_time, order(read_reserve(each)), root);
    }
    return run_time;
}

} // namespace

TEST_CASE("a reservation lasts a quarter of an hour, or as long as is asked, or for ever") {
    struct Row {
        Expiry expiry;
        std::optional<WallTime> end;
    };
    const auto row = GENERATE(values<Row>({
        {default_lifetime, root.time + 15min},
        {std::chrono::microseconds(7), root.time + 7us},
        {WallTime(9us), WallTime(9us)},
        {Never{}, std::nullopt},
    }));
    ReserveWords asked = words();
    asked.expiry = row.expiry;
    const RunTime set = carried_out({}, order(read_reserve(asked)), root);
    CHECK(set.reservations.at(spot).expiry == row.end);
    CHECK(set.reservations.at(spot).by == root);
    CHECK(time_to_expiry(set, {.boot = {}}).has_value() == row.end.has_value());
    const Setter later{.time = root.time + 1h, .uid = 1, .user = "x"};
    const RunTime renewed = carried_out(set, order(read_renew(spot, default_lifetime)), later);
    CHECK(renewed.reservations.at(spot).expiry == root.time + 75min);
    CHECK(renewed.reservations.at(spot).by == root);
    CHECK(carried_out(renewed, order(read_cancel(spot)), later) == RunTime{});
}

TEST_CASE("reservations whose time is over are told, the next end too") {
    RunTime set;
    for (int i = 1; i <= 3; ++i) {
        ReserveWords each = words();
        each.id.name = fmt::format("r{}", i);
        each.expiry = i == 3 ? Expiry(Never{}) : Expiry(WallTime(std::chrono::seconds(i)));
        set = carried_out(set, order(read_reserve(each)), root);
    }
    const auto at = [](WallTime wall) { return Now{.boot = Instant::max(), .wall = wall}; };
    CHECK(expired(set, at(WallTime(999ms))).empty());
    CHECK(expired(set, at(WallTime(1s))) == std::vector<ReservationId>{{"cortex", "r1"}});
    CHECK(expired(set, at(root.time)).size() == 2);
    CHECK(expired(set, {.boot = Instant::max()}).empty());
    CHECK(time_to_expiry(set, at(WallTime(400ms))) == Span(600ms));
    CHECK(time_to_expiry(set, at(root.time)) == Span(0));
    CHECK(time_to_expiry({}, at(root.time)) == std::nullopt);
}

TEST_CASE("what lasts for a span ends by the clock of this boot until the wall clock is right") {
    const Instant made{10s};
    RunTime set = carried_out({}, order(read_reserve(words())), root, made);
    CHECK(expired(set, {.boot = made + 15min - 1ns, .wall = last_expiry}).empty());
    CHECK(expired(set, {.boot = made + 15min}).size() == 1);
    CHECK(time_to_expiry(set, {.boot = made + 5min}) == Span(10min));
    trust_wall_clock(set, made + 5min, root.time + 48h);
    CHECK(set.reservations.at(spot).expiry == root.time + 48h + 10min);
    CHECK(expired(set, {.boot = made + 15min}).empty());
    CHECK(expired(set, {.boot = made, .wall = root.time + 48h + 10min}).size() == 1);
}

TEST_CASE("two spellings of one part are not two parts") {
    ReserveWords asked = words();
    asked.amounts = {{"hugepages-2Mi", 1 << 21}, {"hugepages-2048Ki", 1 << 21}};
    CHECK(read_reserve(asked).error().what == "hugepages-2Mi is there twice");
}

TEST_CASE("what cannot be reserved by anybody is told") {
    const auto with = [](auto change) {
        ReserveWords changed = words();
        change(changed);
        return error(read_reserve(std::move(changed)));
    };
    const std::string either = "expected either amounts or the XML of a domain";
    CHECK(with([](ReserveWords&) {}) == "");
    CHECK(with([](ReserveWords& w) { w.id.name = "a b"; }).starts_with("name: \"a b\": expected"));
    CHECK(with([](ReserveWords& w) { w.amounts.clear(); }) == either);
    CHECK(with([](ReserveWords& w) { w.xml = "<domain/>"; }) == either);
    CHECK(with([](ReserveWords& w) {
              w.amounts = {{"mem roy", 1}};
          }) == Resource::parse("mem roy").error().what);
    CHECK(with([](ReserveWords& w) {
              w.amounts = {{"cpu@1", 0}};
          }) == "cpu@1: 0 is not possible: expected above 0, at most 4Pi");
    CHECK(with([](ReserveWords& w) { w.amounts = amounts(64); }) == "");
    CHECK(with([](ReserveWords& w) { w.amounts = amounts(65); }) == "more than 64 amounts");
    CHECK(with([](ReserveWords& w) { w.uuids = {"x"}; }) == "uuids: \"x\" is no UUID");
    CHECK(with([](ReserveWords& w) { w.uuids = uuids(64); }) == "");
    CHECK(with([](ReserveWords& w) { w.uuids = uuids(65); }) == "uuids: more than 64");
    CHECK(with([](ReserveWords& w) { w.match = std::string(256, ' '); }) == "");
    CHECK(with([](ReserveWords& w) { w.match = std::string(257, ' '); }) ==
          "match: longer than 256 bytes");
    CHECK(with([](ReserveWords& w) { w.match = "a\nb"; }) ==
          "match: expected one line without control characters");
    CHECK(with([](ReserveWords& w) { w.expiry = 0us; }) ==
          "expiry: expected above 0, at most a year, or never");
    CHECK(with([](ReserveWords& w) { w.expiry = std::chrono::days(367); }) ==
          "expiry: expected above 0, at most a year, or never");
    CHECK(with([](ReserveWords& w) {
              w.amounts.clear();
              w.xml = std::string(256 * 1024 + 1, 'x');
          }) == "xml: longer than 262144 bytes");
}

TEST_CASE("what was given and empty was not given, which opened a reservation to all guests") {
    const auto with = [](auto change) {
        ReserveWords changed = words();
        change(changed);
        return error(read_reserve(std::move(changed)));
    };
    CHECK(with([](ReserveWords& w) { w.match.emplace(); }) ==
          "match: empty: expected an XPath expression");
    CHECK(with([](ReserveWords& w) { w.uuids.emplace(); }) ==
          "uuids: empty: expected 1 to 64 UUIDs");
    CHECK(with([](ReserveWords& w) { w.xml.emplace(); }) ==
          "xml: empty: expected the XML of a domain");
}

TEST_CASE("an expiry is a time up to the year 9999, or never") {
    CHECK(read_expiry(0).value() == Expiry(Never{}));
    CHECK(read_expiry(5).value() == Expiry(WallTime(5us)));
    const auto last = static_cast<std::uint64_t>(last_expiry.time_since_epoch().count());
    CHECK(time_text(std::get<WallTime>(read_expiry(last).value())) == "9999-12-31 23:59:59 UTC");
    CHECK_FALSE(read_expiry(last + 1).has_value());
    CHECK_FALSE(read_expiry(UINT64_MAX).has_value());
}

TEST_CASE("what is not reserved is neither renewed nor cancelled") {
    const std::string text = "\"cortex\" has no reservation \"spot\"";
    for (const Order& each : {order(read_renew(spot, Never{})), order(read_cancel(spot))}) {
        const auto checked = check(RunTime{}, each);
        REQUIRE_FALSE(checked.has_value());
        CHECK(checked.error().code == Errc::not_found);
        CHECK(checked.error().what == text);
        CHECK(check(carried_out({}, order(read_reserve(words())), root), each).has_value());
    }
}

TEST_CASE("there are no more reservations, and different matches, than a start can ask") {
    RunTime full = with_reservations(max_reservations, std::nullopt);
    CHECK(check(full, order(read_reserve(words()))).error().what ==
          "there are 256 reservations, which is the most");
    ReserveWords same = words();
    same.id.name = "r0";
    CHECK(check(full, order(read_reserve(same))).has_value());
    full = with_reservations(max_matches, "true()");
    CHECK(check(full, order(read_reserve(words()))).has_value());
    ReserveWords matching = words();
    matching.match = "true() ";
    CHECK(check(full, order(read_reserve(matching))).has_value());
    matching.match = "false()";
    CHECK(check(full, order(read_reserve(matching))).error().what ==
          "there are 32 different matches, which is the most");
}

TEST_CASE("a domain of more parts than are kept is not booked") {
    Booking booking{.domain = Domain{.name = "x"}};
    booking.domain->memory.resize(64);
    CHECK(check(booking).has_value());
    booking.domain->vcpus.resize(1);
    CHECK(check(booking).error().what ==
          "xml: a domain of more than 64 kinds of vCPUs, cells and disks, or with long names");
    booking.domain->memory.clear();
    IdSet odd;
    for (int pu = 1; pu < 4000; pu += 2)
        odd.insert(pu);
    booking.domain->vcpus[0].cpus = odd;
    CHECK_FALSE(check(booking).has_value());
}

TEST_CASE("an order of a reservation is told in words") {
    ReserveWords asked = words();
    asked.amounts["cpu@1"] = 2;
    asked.force = true;
    CHECK(order_text(order(read_reserve(asked))) ==
          "reservation spot of cortex: cpu@1 = 2, memory = 1024 for 15min, by force");
    CHECK(order_text(order(read_renew(spot, Never{}))) == "reservation spot of cortex for ever");
    CHECK(order_text(order(read_renew(spot, WallTime(1796042532s)))) ==
          "reservation spot of cortex until 2026-11-30 12:42:12 UTC");
    CHECK(order_text(order(read_cancel(spot))) == "reservation spot of cortex cancelled");
}
