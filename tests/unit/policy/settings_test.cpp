// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <catch2/catch.hpp>

#include "policy/keys.hpp"
#include "policy/load.hpp"
#include "policy/settings.hpp"

using namespace virtguard;
using core::Setting;

namespace {

/// Every key, none at its default.
constexpr std::string_view everything = R"(
mode = "observe"
[overcommit]
cpu = 3.5
memory = 1.15
"a.org/gpu" = 2
[resource-mode]
hugepages-1Gi = "off"
[memory]
count = "current"
virtio-mem = "requested"
file = "storage"
foreign = "charge"
nodes = "0-1"
[memory.overhead]
base = 1
per-vcpu = 1025
per-iothread = "3MiB"
per-gib = "4KiB"
video = false
per-vfio = "1GiB"
sev = 6
tpm = 7
[cpu]
count = "cores"
pinning = "shared"
vcpus = "maximum"
dedicated = "4-15"
shared = "2,3"
[hook]
timeout = "1500ms"
unavailable = "deny"
[claim]
lease = "90s"
return = "0s"
[reserve]
cpus = "0-1"
memory = "4GiB"
[reserve.node.1]
memory = 12345
hugepages = { "2Mi" = "128MiB" }
[storage]
paths = ["/srv/a", '/srv/"b"']
unknown = "refuse"
[scheduler]
default = 'a "b" \c'
accept-default = false
accept-any = true
[scheduler.accept."x.y \"z\""]
match = "*\\"
mode = "observe"
quota = { cpu = 48, memory = "12.5%", hugepages-2Mi = "64MiB", "a.org/gpu" = 3 }
[scheduler.recognise."x.y"]
namespaces = { n = "urn:\"n\"" }
match = "/a/n:b = '\\'"
[rule.r]
priority = -7
namespaces = { n = "urn:n" }
match = "/a"
action = "exempt"
message = "say \"so\""
[resource."a.org/gpu"]
capacity = 4
unit = "GPUs \"x\""
namespaces = { n = "urn:n" }
demand = "/a"
[resource.licences]
capacity = { file = "/x" }
demand = "1"
[resource.functions]
capacity = { node = { 0 = 2, 1 = { file = "/y" } } }
demand = "1"
[metrics]
textfile-folder = "/srv/metrics"
)";

core::Policy loaded(std::string_view text) {
    const std::array texts{policy::PolicyText{"file", std::string(text)}};
    auto policy = policy::load(texts);
    if (!policy)
        FAIL(policy.error().front());
    return *std::move(policy);
}

std::string file_of(const core::Policy& policy) {
    std::string text;
    for (const Setting& setting : policy::settings(policy))
        text += fmt::format("{} = {}\n", setting.key, setting.value);
    return text;
}

core::Policy without_origins(core::Policy policy) {
    policy.origins.clear();
    return policy;
}

/// With what has a value also where nothing gives one.
core::Policy spelt_out(core::Policy policy) {
    using core::Resource;
    for (const Resource& resource : {Resource::cpu(), Resource::memory()})
        policy.overcommit.try_emplace(resource);
    if (!policy.storage.paths.empty())
        policy.overcommit.try_emplace(Resource::storage());
    for (const auto& [resource, custom] : policy.resources)
        policy.overcommit.try_emplace(resource);
    policy.reserve.memory = policy.reserve.memory.value_or(std::int64_t{512} << 20);
    return without_origins(std::move(policy));
}

/// Whether a key is one of a path with placeholders, by its fixed parts.
bool is_of(std::string_view key, std::string_view path) {
    const std::size_t placeholder = path.find('<');
    if (placeholder == std::string_view::npos)
        return key == path;
    const std::string_view end = path.substr(path.rfind('>') + 1);
    return key.starts_with(path.substr(0, placeholder)) && key.ends_with(end);
}

std::string origin_of(const core::Policy& policy, std::string_view key) {
    for (const Setting& setting : policy::settings(policy))
        if (setting.key == key)
            return setting.origin;
    return "absent";
}

} // namespace

TEST_CASE("the settings of a policy are a file that gives it") {
    const core::Policy policy =
        loaded(GENERATE(as<std::string_view>{}, "", everything, "memory.overhead = \"none\"",
                        "scheduler.accept.cortex = {}"));
    CHECK(without_origins(loaded(file_of(policy))) == spelt_out(policy));
}

TEST_CASE("the reserve of memory is what the nodes name where it is not named itself") {
    const core::Policy policy = loaded("[reserve.node.0]\nmemory = \"1GiB\"\n"
                                       "[reserve.node.2]\nmemory = \"512MiB\"\n");
    const auto settings = policy::settings(policy);
    const auto memory = std::ranges::find(settings, "reserve.memory", &Setting::key);
    CHECK(*memory == Setting{"reserve.memory", "\"1536Mi\"", "default"});
}

TEST_CASE("a key that was added was not among the settings") {
    auto settings = policy::settings(loaded(everything));
    // A word in the place of a table, so not together with what the table has.
    std::ranges::copy(policy::settings(loaded("memory.overhead = \"none\"")),
                      std::back_inserter(settings));
    for (const policy::Key& key : policy::keys()) {
        CAPTURE(key.path);
        CHECK(std::ranges::any_of(settings, [&](const Setting& setting) {
            return is_of(setting.key, key.path) && setting.origin != "default";
        }));
    }
}

TEST_CASE("a setting says who set it") {
    const core::Policy policy =
        loaded("mode = \"off\"\n[overcommit]\ncpu = 2\n[scheduler.accept.cortex]\n");
    CHECK(origin_of(policy, "mode") == "file:1");
    CHECK(origin_of(policy, "overcommit.cpu") == "file:3");
    CHECK(origin_of(policy, "scheduler.accept.cortex.match") == "file:4");
    CHECK(origin_of(policy, "hook.timeout") == "default");
    CHECK(origin_of(policy, "overcommit.memory") == "default");
}
