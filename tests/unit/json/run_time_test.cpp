// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <catch2/catch.hpp>

#include "json/run_time.hpp"

using namespace virtguard;
using namespace std::chrono_literals;

namespace {

const core::Setter someone{.time = WallTime(1796042532s), .uid = 4294967295, .user = "ops"};

core::Order reserve() {
    return core::read_reserve({.id = {"cortex", "spot"},
                               .amounts = {{"memory@1", 1024}, {"cpu", 2}},
                               .uuids = {"00000000-0000-4000-8000-000000000001"},
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
    return carried_out(carried_out(mode, reserve(), someone), of_domain, someone);
}

/// The document with a part replaced.
std::string with(const std::string& part, const std::string& other) {
    std::string document = json::run_time_document(run_time());
    const std::size_t at = document.find(part);
    REQUIRE(at != std::string::npos);
    return document.replace(at, part.size(), other);
}

} // namespace

TEST_CASE("what is set at run time is read as it was written") {
    CHECK(json::parse_run_time(json::run_time_document(run_time())).value() == run_time());
    CHECK(json::parse_run_time(json::run_time_document({})).value() == core::RunTime{});
}

TEST_CASE("what a daemon wrote that knew no reservations is read") {
    std::string document = json::run_time_document({});
    const std::string none = ",\n  \"reservations\": []";
    document.erase(document.find(none), none.size());
    CHECK(json::parse_run_time(document).value() == core::RunTime{});
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
        {"a reservation without a name", with("\"spot\"", "\"\"")},
        {"a reservation of nothing", with("1024", "0")},
        {"a UUID that is none", with("-4000-", "-400-")},
        {"an expiry before 1970", with("\"expires_us\": 7", "\"expires_us\": -7")},
        {"a time before 1970", with("1796042532000000", "-1")},
    }));
    CAPTURE(name);
    const auto read = json::parse_run_time(document);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().code == Errc::invalid);
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
