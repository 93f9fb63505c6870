// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "host/capacity.hpp"
#include "tree.hpp"

using namespace virtguard;
using namespace virtguard::host;

TEST_CASE("a capacity is the whole number in a file") {
    const auto [text, amount] = GENERATE(table<std::string, std::int64_t>({
        {"4\n", 4},
        {"0", 0},
        {"4503599627370496 \t\r\n\n", 4503599627370496},
    }));
    const Tree tree{{"count", text}};
    CHECK(read_capacity(tree.root() / "count") == amount);
}

TEST_CASE("a file that says no capacity is told with its name and what it has") {
    const auto [text, what] = GENERATE(table<std::string, std::string>({
        {"", "\"\" is no capacity"},
        {"many\n", "\"many\" is no capacity"},
        {"-1", "\"-1\" is no capacity"},
        {"1.5", "\"1.5\" is no capacity"},
        {"1 2", "\"1 2\" is no capacity"},
        {"4503599627370497", "\"4503599627370497\" is no capacity"},
    }));
    const Tree tree{{"count", text}};
    const std::string file = tree.root() / "count";
    const auto read = read_capacity(file);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().what ==
          file + ": " + what + ": expected a whole number, at most 4503599627370496");
}

TEST_CASE("what is no file of a few bytes is not read") {
    const Tree tree{{"long", std::string(4097, '1')}};
    const std::string pipe = tree.root() / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(read_capacity(pipe).error().what == pipe + ": not a regular file");
    CHECK(read_capacity("/dev/zero").error().what == "/dev/zero: not a regular file");
    CHECK(read_capacity(tree.root()).error().what == tree.root().string() + ": not a regular file");
    CHECK(read_capacity(tree.root() / "long").error().code == Errc::limit);
    CHECK(read_capacity(tree.root() / "absent").error().what ==
          (tree.root() / "absent").string() + ": No such file or directory");
}

TEST_CASE("of what a policy reads from files the last known stays where it cannot be read") {
    const Tree tree{{"a", "3"}};
    const std::string a = tree.root() / "a";
    core::Policy policy;
    policy.resources[core::Resource::custom("a")].host = core::CustomCapacity{.file = a};
    policy.resources[core::Resource::custom("b")].nodes[0].file = tree.root() / "b";
    policy.resources[core::Resource::custom("c")].host = core::CustomCapacity{.amount = 1};
    CHECK(read_capacities(policy).size() == 2);
    CHECK(take_in(policy, read_capacities(policy)));
    CHECK(policy.readings == std::map<std::string, std::int64_t>{{a, 3}});
    CHECK_FALSE(take_in(policy, read_capacities(policy)));
    tree.write("a", "none");
    CHECK_FALSE(take_in(policy, read_capacities(policy)));
    CHECK(policy.readings.at(a) == 3);
    CHECK_FALSE(take_in(policy, {{"/elsewhere", 1}}));
}
