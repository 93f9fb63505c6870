// SPDX-License-Identifier: Apache-2.0
// What is shipped to operators agrees with the code: the sample file and the manual page.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "policy/keys.hpp"
#include "policy/load.hpp"

using namespace virtguard;
using namespace virtguard::core;
using namespace virtguard::policy;

namespace {

std::string contents(const std::string& path) {
    std::ifstream file(VIRTGUARD_SOURCE_ROOT "/" + path);
    CAPTURE(path);
    REQUIRE(file.good());
    return {std::istreambuf_iterator<char>(file), {}};
}

/// What is at the start of a line and commented out without a space ("#mode = ...") is a key; with
/// one it is prose.
std::string without_comment_marks(const std::string& text) {
    std::istringstream lines(text);
    std::string result;
    for (std::string line; std::getline(lines, line); result += line + '\n')
        if (line.size() > 1 && line[0] == '#' && line[1] != ' ')
            line.erase(0, 1);
    return result;
}

Policy values_of(const std::string& text) {
    auto loaded = load(std::vector{PolicyText{"virtguard.toml", text}});
    if (!loaded)
        for (const std::string& line : loaded.error())
            UNSCOPED_INFO(line);
    REQUIRE(loaded.has_value());
    return *loaded;
}

/// The names that the sample file uses for the parts in angle brackets.
std::string as_sampled(std::string path) {
    const std::pair<std::string, std::string> samples[] = {
        {"<custom>.capacity.file", "licences.capacity.file"},
        {"<custom>.capacity.node", "functions.capacity.node"},
        {"<custom>.unit", "licences.unit"},
        {"<custom>", "\"example.org/gpu\""},
        {"<node>.file", "1.file"},
        {"overcommit.<resource>", "overcommit.cpu"},
        {"<resource>", "memory"},
        {"<node>", "0"},
        {"<page-size>", "2Mi"},
        {"<scheduler>", "cortex"},
        {"<rule>", "maintenance"},
        {"<prefix>", "c"}};
    for (const auto& [placeholder, name] : samples)
        if (const std::size_t at = path.find(placeholder); at != std::string::npos)
            path.replace(at, placeholder.size(), name);
    return path;
}

} // namespace

TEST_CASE("the sample file as shipped sets nothing") {
    CHECK(values_of(contents("conf/virtguard.toml")) == Policy{});
}

TEST_CASE("the sample file shows each key, at its default where it has one") {
    Policy policy = values_of(without_comment_marks(contents("conf/virtguard.toml")));
    for (const Key& key : keys()) {
        CAPTURE(key.path);
        const std::string path = as_sampled(std::string(key.path));
        const auto shows = [&path](const auto& origin) {
            return origin.first == path || origin.first.starts_with(path + "."); // a table
        };
        CHECK(std::ranges::any_of(policy.origins, shows));
    }

    Policy expected;
    expected.overcommit = {{Resource::cpu(), Ratio{}}, {Resource::memory(), Ratio{}}};
    // The examples, which have no default:
    const std::int64_t mib = std::int64_t{1} << 20;
    const std::int64_t gib = std::int64_t{1} << 30;
    expected.resource_mode = {{Resource::memory(), Mode::enforce},
                              {Resource::hugepages(gib), Mode::observe}};
    expected.memory.nodes = IdSet{0, 1};
    expected.cpu.dedicated = IdSet::range(4, 15);
    expected.cpu.shared = IdSet{2, 3};
    expected.reserve.memory = 4 * gib;
    expected.reserve.nodes[0] = {gib, {{2 * mib, 128 * mib}}};
    expected.scheduler.accept["cortex"] = {
        "cortex*",
        Mode::enforce,
        {{Resource::cpu(), {.amount = 48}},
         {Resource::memory(), {.percent = Ratio::parse("75").value()}}}};
    expected.scheduler.recognise["cortex"] = {{{"c", "https://example.org/cortex"}},
                                              "/domain/metadata/c:machine"};
    expected.rules["maintenance"] = {.priority = 10,
                                     .namespaces = {{"c", "https://example.org/cortex"}},
                                     .match = "not(/domain/metadata/c:machine)",
                                     .action = Rule::Action::refuse,
                                     .message = "host is in maintenance"};
    const std::map<std::string, std::string> cortex{{"c", "https://example.org/cortex"}};
    expected.resources[Resource::custom("example.org/gpu")] = {
        .host = CustomCapacity{.amount = 4},
        .namespaces = cortex,
        .demand = "sum(/domain/metadata/c:machine/@gpus)"};
    expected.resources[Resource::custom("licences")] = {
        .host = CustomCapacity{.file = "/etc/acme/licences"},
        .namespaces = cortex,
        .demand = "count(/domain/metadata/c:machine)",
        .unit = "seats"};
    expected.resources[Resource::custom("functions")] = {
        .nodes = {{0, {.amount = 8}}, {1, {.file = "/sys/class/net/ens2f0/device/sriov_numvfs"}}},
        .demand = "count(/domain/devices/interface[@type='hostdev'])"};
    expected.metrics.textfile_folder = "/var/lib/prometheus/node-exporter";
    policy.origins.clear();
    CHECK(policy == expected);
}

TEST_CASE("the manual page has an entry for each key") {
    const std::string page = contents("docs/man/virtguard.toml.5.scd");
    for (const Key& key : keys()) {
        CAPTURE(key.path);
        CHECK(page.find("\n*" + std::string(key.path) + "*") != std::string::npos);
    }
}
