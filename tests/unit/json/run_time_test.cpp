// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <catch2/catch.hpp>

#include "json/run_time.hpp"

using namespace virtguard;
using namespace std::chrono_literals;

namespace {

const core::Setter someone{.time = WallTime(1796042532s), .uid = 4294967295, .user = "ops"};

core::RunTime run_time() {
    const core::RunTime ratio =
        carried_out({}, core::read_set_overcommit("cpu", "1.15").value(), someone);
    return carried_out(ratio, core::read_set_mode("maintenance", "größe").value(), someone);
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
    const auto read = json::parse_run_time(document);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().code == Errc::invalid);
}

TEST_CASE("an order is read as it was written") {
    const core::Order order = GENERATE(
        as<core::Order>{}, core::read_set_overcommit("memory", "0.5").value(),
        core::SetMode{core::Mode::observe, ""}, core::SetMode{std::nullopt, "\"why\""},
        core::ResetMode{}, core::ResetOvercommit{}, core::ResetOvercommit{core::Resource::cpu()});
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
