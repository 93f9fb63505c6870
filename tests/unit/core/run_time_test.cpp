// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>

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
