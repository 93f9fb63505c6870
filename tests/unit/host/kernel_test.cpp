// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "host/kernel.hpp"
#include "host/topology.hpp"
#include "tree.hpp"

using namespace virtguard;
using core::PagePool;
using core::Topology;

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;
const std::string cpu = "sys/devices/system/cpu/";
const std::string cgroup = "sys/fs/cgroup/";

Topology eight_pus() {
    auto topology = host::topology_from_synthetic("numa:2(memory=8GiB) core:2 pu:2");
    REQUIRE(topology.has_value());
    return *topology;
}

} // namespace

TEST_CASE("where the kernel says nothing all online PUs are allowed and none is isolated") {
    Topology topology = eight_pus();
    const Tree tree{};
    REQUIRE(host::apply_kernel_files(topology, tree.root()));
    CHECK(topology == eight_pus());
}

TEST_CASE("offline, isolated and allowed PUs are those of the kernel's files") {
    const auto file = GENERATE(
        as<std::string>{}, "machine.slice/cpuset.cpus.effective", "machine/cpuset.cpus.effective",
        "cpuset/machine.slice/cpuset.effective_cpus", "cpuset/machine/cpuset.effective_cpus");
    CAPTURE(file);
    Topology topology = eight_pus();
    const Tree tree{
        {cpu + "present", "0-9\n"}, {cpu + "isolated", "6-7\n"}, {cgroup + file, "2-7,9\n"}};
    REQUIRE(host::apply_kernel_files(topology, tree.root()));
    CHECK(topology.online == IdSet::range(0, 7));
    CHECK(topology.offline == IdSet{8, 9});
    CHECK(topology.isolated == IdSet{6, 7});
    CHECK(topology.allowed == IdSet::range(2, 7));
}

TEST_CASE("cgroup v2 wins over v1, and an empty cpuset is no limit") {
    Topology topology = eight_pus();
    const Tree tree{{cgroup + "machine.slice/cpuset.cpus.effective", "\n"},
                    {cgroup + "cpuset/machine.slice/cpuset.effective_cpus", "1\n"},
                    {cpu + "isolated", "\n"}};
    REQUIRE(host::apply_kernel_files(topology, tree.root()));
    CHECK(topology.allowed == IdSet{1});
    CHECK(topology.isolated.empty());
    tree.write(cgroup + "machine.slice/cpuset.cpus.effective", "3\n");
    REQUIRE(host::apply_kernel_files(topology, tree.root()));
    CHECK(topology.allowed == IdSet{3});
}

TEST_CASE("hugepages are those of sysfs, of the nodes there are") {
    Topology topology = eight_pus();
    topology.nodes[0].pools = {{65536, 5}};
    topology.nodes[1].pools = {{65536, 5}};
    const std::string pool = "/hugepages/hugepages-2048kB/";
    const std::string nodes = "sys/devices/system/node/node";
    const Tree tree{{nodes + "0" + pool + "nr_hugepages", "10\n"},
                    {nodes + "0" + pool + "free_hugepages", "10\n"},
                    {nodes + "0" + pool + "surplus_hugepages", "3\n"},
                    {nodes + "252" + pool + "nr_hugepages", "0\n"},
                    {"proc/meminfo", "MemTotal: 1 kB\nHugePages_Total: 10\n"
                                     "Hugepagesize:       2048 kB\nHugetlb: 0 kB\n"}};
    REQUIRE(host::apply_kernel_files(topology, tree.root()));
    CHECK(topology.nodes[0].pools == std::vector<PagePool>{{2 * mib, 7}});
    CHECK(topology.nodes[1].pools.empty());
    CHECK(topology.default_hugepage == 2 * mib);
}

TEST_CASE("the marks of hotplug change with CPUs, nodes and memory, and with nothing else") {
    const Tree tree{{cpu + "online", "0-3\n"},
                    {"sys/devices/system/node/online", "0-1\n"},
                    {cgroup + "machine.slice/cpuset.cpus.effective", "0-3\n"},
                    {"proc/meminfo", "MemTotal: 8000 kB\nMemFree: 1000 kB\n"}};
    const std::string before = host::hotplug_marks(tree.root());
    tree.write("proc/meminfo", "MemTotal: 8000 kB\nMemFree: 999 kB\n");
    CHECK(host::hotplug_marks(tree.root()) == before);
    const auto [file, text] = GENERATE(table<std::string, std::string>({
        {cpu + "online", "0-2\n"},
        {"sys/devices/system/node/online", "0\n"},
        {cgroup + "machine.slice/cpuset.cpus.effective", "0-1\n"},
        {"proc/meminfo", "MemTotal: 9000 kB\nMemFree: 1000 kB\n"},
        {"proc/meminfo", ""},
    }));
    CAPTURE(file);
    tree.write(file, text);
    CHECK(host::hotplug_marks(tree.root()) != before);
}

TEST_CASE("a kernel file that cannot be understood changes nothing and is named") {
    const auto [file, text, why] = GENERATE(table<std::string, std::string, std::string>({
        {cpu + "present", "0-x\n",
         "\"0-x\\x0a\" is not a list of ids: expected such as \"0-3,8\", each below 16384"},
        {cpu + "isolated", "16384\n",
         "\"16384\\x0a\" is not a list of ids: expected such as \"0-3,8\", each below 16384"},
        {cgroup + "machine.slice/cpuset.cpus.effective", "?",
         "\"?\" is not a list of ids: expected such as \"0-3,8\", each below 16384"},
        {"proc/meminfo", "\nHugepagesize: 2 MB\n", "Hugepagesize \"2 MB\" is not a size in kB"},
        {"proc/meminfo", "\nHugepagesize:", "Hugepagesize \"\" is not a size in kB"},
    }));
    CAPTURE(file, text);
    Topology topology = eight_pus();
    const Tree tree{{cpu + "isolated", "1\n"}};
    tree.write(file, text);
    const auto applied = host::apply_kernel_files(topology, tree.root());
    REQUIRE_FALSE(applied.has_value());
    CHECK(applied.error().what == (tree.root() / file).native() + ": " + why);
    CHECK(topology == eight_pus());
}
