// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>
#include <tuple>

#include <catch2/catch.hpp>

#include "core/topology.hpp"

using namespace virtguard;
using core::PagePool;
using core::Topology;

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t gib = std::int64_t{1} << 30;

Topology two_nodes() {
    Topology topology;
    for (const int id : {0, 8}) {
        core::Node& node = topology.nodes.emplace_back();
        node.id = id;
        node.memory = 4 * gib;
    }
    return topology;
}

} // namespace

TEST_CASE("a setting of pages is read as the command line has it") {
    using Setting = core::PageSetting;
    const auto [text, setting] = GENERATE(table<std::string, Setting>({
        {"0:2Mi=512", {0, 2 * mib, 512}},
        {"8:1GiB=0", {8, gib, 0}},
        {"252:2097152=1000", {252, 2 * mib, 1000}},
    }));
    CAPTURE(text);
    const auto parsed = core::parse_page_setting(text);
    REQUIRE(parsed.has_value());
    CHECK(*parsed == setting);
}

TEST_CASE("what is not a setting of pages is refused with what was expected") {
    const auto [text, why] = GENERATE(table<std::string, std::string>({
        {"", "not a setting of pages"},
        {"0", "not a setting of pages"},
        {"0:2Mi", "not a setting of pages"},
        {"0=2Mi:5", "not a setting of pages"},
        {":2Mi=5", "no such node"},
        {"-1:2Mi=5", "no such node"},
        {"16384:2Mi=5", "no such node"},
        {"0:=5", "no such size"},
        {"0:2M i=5", "no such size"},
        {"0:2Mi=", "no such count"},
        {"0:2Mi=-1", "no such count"},
        {"0:2Mi=5=6", "no such count"},
        {"0:2Mi=99999999999999999999", "no such count"},
    }));
    CAPTURE(text);
    const auto parsed = core::parse_page_setting(text);
    REQUIRE_FALSE(parsed.has_value());
    CHECK(parsed.error().what ==
          "\"" + text + "\": " + why + ": expected NODE:SIZE=COUNT such as \"0:2Mi=512\"");
}

TEST_CASE("pages set on a node replace that size's pool and keep the others") {
    Topology topology = two_nodes();
    REQUIRE(core::set_pages(topology, {8, gib, 1}));
    CHECK(topology.default_hugepage == gib);
    REQUIRE(core::set_pages(topology, {8, 2 * mib, 512}));
    REQUIRE(core::set_pages(topology, {8, gib, 3}));
    CHECK(topology.nodes[1].pools == std::vector<PagePool>{{2 * mib, 512}, {gib, 3}});
    CHECK(topology.nodes[1].memory == 4 * gib);
    CHECK(topology.nodes[0].pools.empty());
    CHECK(topology.default_hugepage == 2 * mib);
}

TEST_CASE("an impossible setting of pages changes nothing and says why") {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    using Setting = core::PageSetting;
    const auto [setting, why] = GENERATE(table<Setting, std::string>({
        {{1, 2 * mib, 1}, "node 1: not there; the topology's nodes are 0,8"},
        {{0, 2000000, 1},
         "node 0: a hugepage of 2000000 bytes is not possible: expected a power of two above the "
         "base page of 4Ki"},
        {{0, 4096, 1},
         "node 0: a hugepage of 4096 bytes is not possible: expected a power of two above the "
         "base page of 4Ki"},
        {{0, 2 * mib, -1}, "node 0: -1 pages are not possible"},
        {{0, gib, 4}, "node 0: 5 GiB in hugepages are more than its 4 GiB of memory"},
        {{0, 2 * mib, 1537}, "node 0: 4.01 GiB in hugepages are more than its 4 GiB of memory"},
        {{0, gib, most}, "node 0: 8 EiB in hugepages are more than its 4 GiB of memory"},
    }));
    CAPTURE(why);
    Topology topology = two_nodes();
    REQUIRE(core::set_pages(topology, {0, 16 * mib, 64}));
    const Topology before = topology;
    const auto set = core::set_pages(topology, setting);
    REQUIRE_FALSE(set.has_value());
    CHECK(set.error().what == why);
    CHECK(topology == before);
}

TEST_CASE("the usual hugepage is 2 MiB, else the smallest there is") {
    Topology topology = two_nodes();
    CHECK(core::usual_hugepage(topology) == std::nullopt);
    topology.nodes[0].pools = {{gib, 0}};
    CHECK(core::usual_hugepage(topology) == gib);
    topology.nodes[1].pools = {{65536, 0}, {2 * mib, 0}};
    CHECK(core::usual_hugepage(topology) == 2 * mib);
    topology.nodes[1].pools = {{65536, 0}, {512 * mib, 0}};
    CHECK(core::usual_hugepage(topology) == 65536);
}
