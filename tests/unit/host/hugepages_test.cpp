// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "host/hugepages.hpp"
#include "tree.hpp"

using namespace virtguard;
using host::NodePages;

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t gib = std::int64_t{1} << 30;
const std::string nodes = "sys/devices/system/node/";
const std::string host_wide = "sys/kernel/mm/hugepages/";

void write_pool(const Tree& tree, const std::string& folder, const std::string& total,
                const std::string& free, const std::string& surplus) {
    tree.write(folder + "/nr_hugepages", total + "\n");
    tree.write(folder + "/free_hugepages", free + "\n");
    tree.write(folder + "/surplus_hugepages", surplus + "\n");
}

} // namespace

TEST_CASE("pools are read per node and size, surplus pages apart") {
    const Tree tree{{nodes + "possible", "0-255\n"}, {nodes + "has_cpu", "0\n"}};
    write_pool(tree, nodes + "node252/hugepages/hugepages-2048kB", "0", "0", "0");
    write_pool(tree, nodes + "node0/hugepages/hugepages-1048576kB", "4", "1", "0");
    write_pool(tree, nodes + "node0/hugepages/hugepages-2048kB", "100", "30", "20");
    tree.write(nodes + "node9/cpulist", "9\n"); // memory-less: the kernel gives it no pools
    tree.write(host_wide + "hugepages-2048kB/resv_hugepages", "7\n");
    tree.write(host_wide + "hugepages-1048576kB/resv_hugepages", "0\n");
    const auto pages = host::read_hugepages(tree.root());
    REQUIRE(pages.has_value());
    CHECK(pages->nodes == std::vector<NodePages>{{0, 2 * mib, 100, 30, 20},
                                                 {0, gib, 4, 1, 0},
                                                 {252, 2 * mib, 0, 0, 0}});
    CHECK(pages->nodes[0].pool() == 80);
    CHECK(pages->reserved == std::map<std::int64_t, std::int64_t>{{2 * mib, 7}, {gib, 0}});
}

TEST_CASE("a kernel without NUMA has its pages on node 0") {
    const Tree tree{{host_wide + "hugepages-65536kB/resv_hugepages", "2\n"}};
    write_pool(tree, host_wide + "hugepages-65536kB", "8", "5", "0");
    const auto pages = host::read_hugepages(tree.root());
    REQUIRE(pages.has_value());
    CHECK(pages->nodes == std::vector<NodePages>{{0, 64 * mib, 8, 5, 0}});
    CHECK(pages->reserved == std::map<std::int64_t, std::int64_t>{{64 * mib, 2}});
}

TEST_CASE("a kernel without hugepages has none") {
    const Tree tree{{nodes + "node0/cpulist", "0-3\n"}};
    const auto pages = host::read_hugepages(tree.root());
    REQUIRE(pages.has_value());
    CHECK(pages->nodes.empty());
    CHECK(pages->reserved.empty());
}

TEST_CASE("a pool that changes while it is read is never more free than large") {
    const Tree tree{};
    write_pool(tree, nodes + "node0/hugepages/hugepages-2048kB", "10", "12", "11");
    const auto pages = host::read_hugepages(tree.root());
    REQUIRE(pages.has_value());
    CHECK(pages->nodes == std::vector<NodePages>{{0, 2 * mib, 10, 10, 10}});
}

TEST_CASE("folders that are not a pool or a node are passed over") {
    const Tree tree{};
    for (const char* name : {"hugepages-kB", "hugepages-0kB", "hugepages-2048", "hugepages-x",
                             "hugepages-99999999999999999999kB", "hugepages-18014398509481984kB"})
        write_pool(tree, nodes + "node0/hugepages/" + name, "1", "1", "0");
    write_pool(tree, nodes + "node16384/hugepages/hugepages-2048kB", "1", "1", "0");
    const auto pages = host::read_hugepages(tree.root());
    REQUIRE(pages.has_value());
    CHECK(pages->nodes.empty());
}

TEST_CASE("a counter that is no number is an error that names its file") {
    const auto text = GENERATE(as<std::string>{}, "", "x", "-1", "9223372036854775808", "1\n2");
    const Tree tree{};
    const std::string folder = nodes + "node0/hugepages/hugepages-2048kB";
    write_pool(tree, folder, "10", text, "0");
    const auto pages = host::read_hugepages(tree.root());
    REQUIRE_FALSE(pages.has_value());
    const std::string shown = text == "1\n2" ? "1\\x0a2" : text;
    CHECK(pages.error().what == (tree.root() / folder / "free_hugepages").native() + ": \"" +
                                    shown + "\" is not a number below 2^63");
}
