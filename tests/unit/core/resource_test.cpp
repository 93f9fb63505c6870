// SPDX-License-Identifier: Apache-2.0
#include "core/resource.hpp"

#include <algorithm>
#include <vector>

#include <catch2/catch.hpp>

using namespace virtguard;
using namespace virtguard::core;

namespace {

std::string times(std::size_t count, std::string_view text) {
    std::string result;
    for (std::size_t i = 0; i < count; ++i)
        result += text;
    return result;
}

} // namespace

TEST_CASE("a resource is read back by the name it shows") {
    const Resource resource = GENERATE(
        Resource::cpu(), Resource::memory(), Resource::hugepages(2 << 20), Resource::storage(),
        Resource::custom("licences"), Resource::custom("example.org/gpu"));
    CHECK(Resource::parse(resource.name()) == resource);
}

TEST_CASE("custom resources are named as Kubernetes names its own") {
    const std::string label = times(63, "a");
    const std::string vendor = times(126, "a.") + "a"; // 253 bytes
    const auto [name, good] = GENERATE_COPY(table<std::string, bool>({
        {"gpu", true},
        {"GPU_v1.2-b", true},
        {"a", true},
        {"example.org/gpu", true},
        {"licence/acme", true},
        {"0.org/0", true},
        {label, true},
        {label + "a", false},
        {vendor + "/a", true},
        {"a." + vendor + "/a", false},
        {label + "a/a", false},
        {"", false},
        {"/gpu", false},
        {"example.org/", false},
        {"example.org/gpu/x", false},
        {"Example.org/gpu", false},
        {"example_x/gpu", false},
        {"-a/gpu", false},
        {"a..b/gpu", false},
        {"-gpu", false},
        {"gpu.", false},
        {"g pu", false},
        {"g\npu", false},
        {"gp\xc3\xbc", false},
        {"hugepages-", false},
        {"hugepages-x", false},
    }));
    CAPTURE(name);
    CHECK(Resource::parse(name).has_value() == good);
}

TEST_CASE("a name that nobody declared is none, and the nearest known one is suggested") {
    const std::vector<std::string> declared{"example.org/gpu", "licences"};
    const auto [name, nearest] = GENERATE(table<std::string, std::string>({
        {"example.org/gpus", "example.org/gpu"},
        {"license", "licences"},
        {"storage", "memory"},
        {"ephemral-storage", "ephemeral-storage"},
        {"cpus", "cpu"},
        {"", "cpu"},
    }));
    const auto resource = Resource::parse_known(name, declared);
    REQUIRE_FALSE(resource);
    CHECK(resource.error().what ==
          "\"" + name + "\" is not a resource; did you mean \"" + nearest + "\"?");
    CHECK(Resource::parse_known("licences", declared) == Resource::custom("licences"));
    CHECK(Resource::parse_known("ephemeral-storage") == Resource::storage());
}

TEST_CASE("resources are listed built-in ones first, then custom ones by name") {
    const std::vector<Resource> order{
        Resource::cpu(),         Resource::memory(),    Resource::hugepages(2),
        Resource::hugepages(10), Resource::storage(),   Resource::custom("a.org/b"),
        Resource::custom("ab"),  Resource::custom("b"),
    };
    CHECK(std::ranges::is_sorted(order));
}
