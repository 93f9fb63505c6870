// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "base/text.hpp"
#include "host/topology.hpp"
#include "tree.hpp"

using namespace virtguard;
using core::PagePool;
using core::Topology;

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t gib = std::int64_t{1} << 30;

core::Node node(int id, const std::string& kind, const IdSet& pus, std::int64_t memory,
                const std::vector<PagePool>& pools = {}) {
    return {id, kind, pus, memory, pools};
}

std::vector<int> node_ids(const Topology& topology) {
    std::vector<int> ids;
    for (const core::Node& node : topology.nodes)
        ids.push_back(node.id);
    return ids;
}

void check_invariants(const Topology& topology) {
    IdSet in_cores;
    for (const IdSet& core : topology.cores) {
        CHECK_FALSE(core.empty());
        CHECK_FALSE(core.intersects(in_cores));
        in_cores |= core;
    }
    CHECK(in_cores == topology.online);
    CHECK_FALSE(topology.online.intersects(topology.offline));
    CHECK(topology.allowed.is_subset_of(topology.online));
    REQUIRE_FALSE(topology.nodes.empty());
    for (const core::Node& node : topology.nodes)
        CHECK(node.pus.is_subset_of(topology.online));
}

Topology synthetic(const std::string& description) {
    const auto topology = host::topology_from(description);
    REQUIRE(topology.has_value());
    check_invariants(*topology);
    return *topology;
}

// Two nodes share the cpuset of PUs 0-3, of which 2 and 3 are outside every core; 4 and 5 are
// offline.
const std::string odd = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" gp_index="1" cpuset="0xf" complete_cpuset="0x3f" allowed_cpuset="0xf" nodeset="0x101" complete_nodeset="0x101" allowed_nodeset="0x101">
    <object type="NUMANode" os_index="8" gp_index="2" cpuset="0xf" complete_cpuset="0x3f" nodeset="0x100" complete_nodeset="0x100" local_memory="0" subtype="MCDRAM">
      <page_type size="65536" count="0"/>
      <page_type size="2097152" count="3"/>
    </object>
    <object type="NUMANode" os_index="0" gp_index="3" cpuset="0xf" complete_cpuset="0x3f" nodeset="0x1" complete_nodeset="0x1" local_memory="1073741824">
      <page_type size="65536" count="16384"/>
      <page_type size="16777216" count="0"/>
      <page_type size="2097152" count="0"/>
    </object>
    <object type="Core" os_index="0" gp_index="4" cpuset="0x3" complete_cpuset="0x3" nodeset="0x101" complete_nodeset="0x101">
      <object type="PU" os_index="0" gp_index="5" cpuset="0x1" complete_cpuset="0x1" nodeset="0x101" complete_nodeset="0x101"/>
      <object type="PU" os_index="1" gp_index="6" cpuset="0x2" complete_cpuset="0x2" nodeset="0x101" complete_nodeset="0x101"/>
    </object>
    <object type="PU" os_index="2" gp_index="7" cpuset="0x4" complete_cpuset="0x4" nodeset="0x101" complete_nodeset="0x101"/>
    <object type="PU" os_index="3" gp_index="8" cpuset="0x8" complete_cpuset="0x8" nodeset="0x101" complete_nodeset="0x101"/>
  </object>
</topology>
)";

// hwloc 1: memory in the CPU tree, a node without CPUs, no core, PUs 1 and 3 disallowed.
const std::string version_1 = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc.dtd">
<topology>
  <object type="Machine" os_index="0" cpuset="0xf" complete_cpuset="0xf" online_cpuset="0xf" allowed_cpuset="0x5" nodeset="0x10000001" complete_nodeset="0x10000001" allowed_nodeset="0x10000001">
    <object type="NUMANode" os_index="0" cpuset="0xf" complete_cpuset="0xf" online_cpuset="0xf" allowed_cpuset="0x5" nodeset="0x1" complete_nodeset="0x1" allowed_nodeset="0x1" local_memory="8589934592">
      <page_type size="4096" count="2097152"/>
      <page_type size="1073741824" count="0"/>
      <object type="Socket" os_index="0" cpuset="0xf" complete_cpuset="0xf" online_cpuset="0xf" allowed_cpuset="0x5" nodeset="0x1" complete_nodeset="0x1" allowed_nodeset="0x1">
        <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" online_cpuset="0x1" allowed_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" allowed_nodeset="0x1"/>
        <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" online_cpuset="0x2" allowed_cpuset="0x0" nodeset="0x1" complete_nodeset="0x1" allowed_nodeset="0x1"/>
        <object type="PU" os_index="2" cpuset="0x4" complete_cpuset="0x4" online_cpuset="0x4" allowed_cpuset="0x4" nodeset="0x1" complete_nodeset="0x1" allowed_nodeset="0x1"/>
        <object type="PU" os_index="3" cpuset="0x8" complete_cpuset="0x8" online_cpuset="0x8" allowed_cpuset="0x0" nodeset="0x1" complete_nodeset="0x1" allowed_nodeset="0x1"/>
      </object>
    </object>
    <object type="NUMANode" os_index="28" cpuset="0x0" complete_cpuset="0x0" online_cpuset="0x0" allowed_cpuset="0x0" nodeset="0x10000000" complete_nodeset="0x10000000" allowed_nodeset="0x10000000" local_memory="1073741824"/>
  </object>
</topology>
)";

std::string replaced(std::string text, const std::string& what, const std::string& with) {
    const std::size_t found = text.find(what);
    REQUIRE(found != std::string::npos);
    return text.replace(found, what.size(), with);
}

Result<Topology> from_xml(const std::string& xml) {
    const Tree tree{{"host.xml", xml}};
    auto topology = host::topology_from((tree.root() / "host.xml").native());
    if (!topology) // the folder has another name each time
        topology.error().what =
            replaced(topology.error().what, tree.root().native() + "/", std::string{});
    return topology;
}

} // namespace

TEST_CASE("a synthetic description gives nodes, cores and PUs, and no hugepages") {
    const Topology topology = synthetic("numa:2(memory=64GiB) core:4 pu:2");
    CHECK(topology.nodes == std::vector<core::Node>{node(0, "", IdSet::range(0, 7), 64 * gib),
                                                    node(1, "", IdSet::range(8, 15), 64 * gib)});
    CHECK(topology.cores.size() == 8);
    CHECK(topology.cores[7] == IdSet{14, 15});
    CHECK(topology.online == IdSet::range(0, 15));
    CHECK(topology.allowed == topology.online);
    CHECK(topology.offline.empty());
    CHECK(topology.isolated.empty());
    CHECK(topology.base_page == 4096);
    CHECK(topology.default_hugepage == std::nullopt);
}

TEST_CASE("node ids may have gaps, PUs any order, and there need be no core") {
    const Topology topology = synthetic("numa:3(indexes=72,0,33) pu:2(indexes=5,4,3,2,1,0)");
    CHECK(node_ids(topology) == std::vector<int>{0, 33, 72});
    CHECK(topology.nodes[2].pus == IdSet{4, 5});
    CHECK(topology.cores.size() == 6);
}

TEST_CASE("64 nodes and 4,096 PUs are read") {
    const Topology topology = synthetic("numa:64(memory=2TiB) core:32 pu:2");
    CHECK(topology.nodes.size() == 64);
    CHECK(topology.online == IdSet::range(0, 4095));
    CHECK(topology.cores.size() == 2048);
}

TEST_CASE("what is no usable description is refused, also where hwloc would take it") {
    const auto [text, why] = GENERATE(table<std::string, std::string>({
        {"foo.xml", " is neither a file nor a synthetic description of hwloc such as "
                    "\"numa:2(memory=64GiB) core:8 pu:2\""},
        {"", " is neither a file nor a synthetic description of hwloc such as "
             "\"numa:2(memory=64GiB) core:8 pu:2\""},
        {"numa:0 pu:2", " is neither a file nor a synthetic description of hwloc such as "
                        "\"numa:2(memory=64GiB) core:8 pu:2\""},
        {"numa:2(memory=64Gi) pu:2", " is neither a file nor a synthetic description of hwloc "
                                     "such as \"numa:2(memory=64GiB) core:8 pu:2\""},
        // hwloc wraps these two and takes its default of 1 GiB
        {"numa:2(memory=17179869184GiB) pu:1",
         ": \"17179869184GiB\" is not a size: expected a number of bytes such as \"512MiB\", "
         "\"4Gi\" or \"4GB\", below 8 EiB"},
        {"numa:2(memory=0) pu:1", ": a size of 0 is not possible: hwloc would take its default"},
        {"numa:2(memory=-1) pu:1", ": no number is negative"},
        {"pu:010", ": \"010\" begins with 0, which hwloc takes for octal"},
        {"numa:1(memory=010GiB) pu:2", ": \"010GiB\" begins with 0, which hwloc takes for octal"},
        {"pu:0x10", ": \"0x10\" is not a number"},
        // hwloc takes minutes for these, or all the memory there is
        {"pu:16384", ": more than 4096 PUs"},
        {"numa:1024 pu:1024", ": more than 4096 PUs"},
        {"pu:100000000", ": 100000000 is more than 16384"},
        {"pu:2(indexes=0,4000000000)", ": 4000000000 is more than 16384"},
        {"numa:8(memory=4EiB) pu:1", " is neither a file nor a synthetic description of hwloc "
                                     "such as \"numa:2(memory=64GiB) core:8 pu:2\""},
        {"numa:8(memory=4194304TiB) pu:1",
         ": the nodes' memory together is more than there can be"},
        {"pu:2(indexes=0,16384)", ": PU 16384: ids go up to 16383"},
    }));
    CAPTURE(text);
    const auto topology = host::topology_from(text);
    REQUIRE_FALSE(topology.has_value());
    CHECK(topology.error().what == quote(text) + why);
}

TEST_CASE("an XML file gives what it has: shared PUs, offline PUs, several page sizes") {
    const auto topology = from_xml(odd);
    REQUIRE(topology.has_value());
    check_invariants(*topology);
    const IdSet pus = IdSet::range(0, 3);
    CHECK(topology->nodes ==
          std::vector<core::Node>{node(0, "", pus, gib, {{2 * mib, 0}, {16 * mib, 0}}),
                                  node(8, "MCDRAM", pus, 0, {{2 * mib, 3}})});
    CHECK(topology->offline == IdSet{4, 5});
    CHECK(topology->cores == std::vector<IdSet>{{0, 1}, {2}, {3}});
    CHECK(topology->base_page == 65536);
    CHECK(topology->default_hugepage == 2 * mib);
}

TEST_CASE("an XML file of hwloc 1 is read, without what it disallows") {
    const auto topology = from_xml(version_1);
    REQUIRE(topology.has_value());
    check_invariants(*topology);
    CHECK(topology->nodes ==
          std::vector<core::Node>{node(0, "", {0, 2}, 8 * gib, {{gib, 0}}), node(28, "", {}, gib)});
    CHECK(topology->online == IdSet{0, 2});
    CHECK(topology->offline == IdSet{1, 3});
    CHECK(topology->default_hugepage == gib);
}

TEST_CASE("where only large pages are named the base page is the usual one") {
    auto xml = replaced(odd, R"(<page_type size="65536" count="0"/>)", "");
    xml = replaced(xml, R"(<page_type size="65536" count="16384"/>)", "");
    const auto topology = from_xml(xml);
    REQUIRE(topology.has_value());
    CHECK(topology->base_page == 4096);
    CHECK(topology->nodes[1].pools == std::vector<PagePool>{{2 * mib, 3}});
}

TEST_CASE("a file that is no topology, or an impossible one, is refused by name") {
    const auto [xml, why] = GENERATE(table<std::string, std::string>({
        {"", "not an XML topology of hwloc"},
        {"garbage", "not an XML topology of hwloc"},
        {odd.substr(0, 900), "not an XML topology of hwloc"},
        {"<domain/>", "not an XML topology of hwloc"},
        {replaced(odd, "version=\"2.0\"", "version=\"3.0\""),
         "hwloc XML of version 3.0 cannot be read: export it as version 2"},
        {replaced(odd, "local_memory=\"1073741824\"", "local_memory=\"18446744073709551615\""),
         "node 0: 18446744073709551615 bytes are more than there can be"},
        {replaced(odd, "count=\"3\"", "count=\"18446744073709551615\""),
         "node 8: 18446744073709551615 pages of 2Mi are more than there can be"},
        {replaced(odd, "count=\"3\"", "count=\"4398046511104\""),
         "node 8: 4398046511104 pages of 2Mi are more than there can be"},
        {replaced(odd, "size=\"2097152\" count=\"3\"", "size=\"2097153\" count=\"3\""),
         "node 8: a page of 2097153 bytes is not a power of two above 65536"},
        {replaced(odd, "size=\"16777216\"", "size=\"2097152\""),
         "node 0: pages of 2Mi are there twice"},
        {replaced(odd, "os_index=\"8\"", "os_index=\"16384\""), "node 16384: ids go up to 16383"},
        {replaced(odd, "type=\"PU\" os_index=\"3\"", "type=\"PU\" os_index=\"16384\""),
         "PU 16384: ids go up to 16383"},
    }));
    CAPTURE(xml);
    const auto topology = from_xml(xml);
    REQUIRE_FALSE(topology.has_value());
    CHECK(topology.error().what == "host.xml: " + why);
}

TEST_CASE("a file that hwloc crashes on or complains of is refused quietly") {
    const std::string no_pu = replaced(odd, "allowed_cpuset=\"0xf\"", "allowed_cpuset=\"0x0\"");
    const auto xml = GENERATE_COPY(
        as<std::string>{}, no_pu,                                                // complains
        replaced(no_pu, "allowed_nodeset=\"0x101\"", "allowed_nodeset=\"0x0\""), // both crash
        replaced(odd, "complete_nodeset=\"0x100\"", ""));
    CAPTURE(xml);
    const auto topology = from_xml(xml);
    REQUIRE_FALSE(topology.has_value());
    CHECK(topology.error().what == "host.xml: hwloc cannot make sense of it");
}

TEST_CASE("a folder or an endless file is not a topology") {
    CHECK(host::topology_from("/").error().what == "/: Is a directory");
    CHECK(host::topology_from("/dev/zero").error().what == "/dev/zero: longer than 32 MiB");
}

TEST_CASE("this machine is what hwloc finds, and files and descriptions are not changed by it") {
    const auto live = host::live_topology("/");
    REQUIRE(live.has_value());
    check_invariants(*live);
    CHECK(live->nodes[0].memory > 0);

    REQUIRE(::setenv("HWLOC_SYNTHETIC", "numa:3 pu:1", 1) == 0);
    const auto misled = host::live_topology("/");
    const Topology described = synthetic("numa:2 pu:2");
    const auto read = from_xml(odd);
    REQUIRE(::unsetenv("HWLOC_SYNTHETIC") == 0);
    REQUIRE_FALSE(misled.has_value());
    CHECK(misled.error().what == "hwloc shows another machine than this one: a variable such as "
                                 "HWLOC_XMLFILE is set in the environment");
    CHECK(described.nodes.size() == 2);
    REQUIRE(read.has_value());
    CHECK(read->nodes.size() == 2);
}
