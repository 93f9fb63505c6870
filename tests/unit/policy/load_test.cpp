// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "core/domain.hpp"
#include "policy/load.hpp"

using namespace virtguard;
using namespace virtguard::core;
using namespace virtguard::policy;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t gib = std::int64_t{1} << 30;

using Lines = std::vector<std::string>;
using Texts = std::vector<PolicyText>;

Ratio ratio(const char* text) {
    return *Ratio::parse(text);
}

/// What texts give; its origins apart, which have tests of their own.
Policy values_of(const Texts& texts) {
    auto loaded = load(texts);
    if (!loaded)
        for (const std::string& line : loaded.error())
            UNSCOPED_INFO(line);
    REQUIRE(loaded.has_value());
    loaded->origins.clear();
    return *loaded;
}

Policy values_of(const std::string& text) {
    return values_of(Texts{{"p", text}});
}

Lines errors_of(const Texts& texts) {
    const auto loaded = load(texts);
    return loaded ? Lines{} : loaded.error();
}

Lines errors_of(const std::string& text) {
    return errors_of(Texts{{"p", text}});
}

std::string repeated(const std::string& piece, int times) {
    std::string result;
    for (int i = 0; i < times; ++i)
        result += piece;
    return result;
}

/// A policy, changed from the defaults.
using Change = void (*)(Policy&);

} // namespace

TEST_CASE("no file and an empty file are the defaults") {
    CHECK(load(std::span<const PolicyText>{}) == Policy{});
    CHECK(values_of("") == Policy{});
    CHECK(values_of("# nothing\n[memory]\n[memory.overhead]\n[reserve.node.0]\n") == Policy{});
}

TEST_CASE("the defaults are those of the documentation") {
    const Policy policy = values_of("");
    CHECK(policy.mode == Mode::enforce);
    CHECK(policy.overcommit.empty());
    CHECK(policy.resource_mode.empty());
    CHECK_FALSE(policy.memory.count_current);
    CHECK_FALSE(policy.memory.virtio_mem_requested);
    CHECK_FALSE(policy.memory.file_is_storage);
    CHECK_FALSE(policy.memory.charge_foreign);
    CHECK_FALSE(policy.memory.nodes.has_value());
    CHECK(policy.memory.overhead == Overhead{.base = 64 * mib,
                                             .per_vcpu = 8 * mib,
                                             .per_iothread = 8 * mib,
                                             .per_gib = 2 * mib,
                                             .video = true,
                                             .per_vfio = 0,
                                             .sev = 0,
                                             .tpm = 0});
    CHECK_FALSE(policy.cpu.count_cores);
    CHECK(policy.cpu.pinning_exclusive);
    CHECK_FALSE(policy.cpu.vcpus_maximum);
    CHECK_FALSE(policy.cpu.dedicated.has_value());
    CHECK_FALSE(policy.cpu.shared.has_value());
    CHECK(policy.hook.timeout == 2s);
    CHECK_FALSE(policy.hook.unavailable_denies);
    CHECK(policy.claim.lease == 10min);
    CHECK(policy.claim.return_hold == 1s);
    CHECK(policy.reserve == ReservePolicy{});
    CHECK(policy.scheduler.default_name == "default-scheduler");
    CHECK(policy.scheduler.accept_default);
    CHECK_FALSE(policy.scheduler.accept_any);
    CHECK(policy.scheduler.accept.empty());
}

TEST_CASE("a key changes what it names and nothing else") {
    const auto [text, change] =
        GENERATE(
            table<std::string, Change>(
                {
                    {"mode = 'enforce'", [](Policy&) {}},
                    {"mode = 'observe'", [](Policy& p) { p.mode = Mode::observe; }},
                    {"mode = 'off'", [](Policy& p) { p.mode = Mode::off; }},
                    {"overcommit.cpu = 3",
                     [](Policy& p) { p.overcommit[Resource::cpu()] = ratio("3"); }},
                    {"overcommit.cpu = '2.5'",
                     [](Policy& p) { p.overcommit[Resource::cpu()] = ratio("2.5"); }},
                    {"overcommit.memory = 1.25",
                     [](Policy& p) { p.overcommit[Resource::memory()] = ratio("1.25"); }},
                    {"overcommit.hugepages-2Mi = 1", [](Policy&) {}},
                    {"overcommit.hugepages-2Mi = 1.0", [](Policy&) {}},
                    {"resource-mode.cpu = 'observe'",
                     [](Policy& p) { p.resource_mode[Resource::cpu()] = Mode::observe; }},
                    {"resource-mode.hugepages-1GiB = 'off'",
                     [](Policy& p) { p.resource_mode[Resource::hugepages(gib)] = Mode::off; }},
                    {"memory.count = 'maximum'", [](Policy&) {}},
                    {"memory.count = 'current'", [](Policy& p) { p.memory.count_current = true; }},
                    {"memory.virtio-mem = 'size'", [](Policy&) {}},
                    {"memory.virtio-mem = 'requested'",
                     [](Policy& p) { p.memory.virtio_mem_requested = true; }},
                    {"memory.file = 'memory'", [](Policy&) {}},
                    {"memory.file = 'storage'", [](Policy& p) { p.memory.file_is_storage = true; }},
                    {"memory.foreign = 'show'", [](Policy&) {}},
                    {"memory.foreign = 'charge'",
                     [](Policy& p) { p.memory.charge_foreign = true; }},
                    {"memory.nodes = '0-1'",
                     [](Policy& p) { p.memory.nodes = IdSet::range(0, 1); }},
                    {"memory.overhead = 'none'", [](Policy& p) { p.memory.overhead.reset(); }},
                    {"memory.overhead = {}", [](Policy&) {}},
                    {"memory.overhead = { base = '1GiB' }",
                     [](Policy& p) { p.memory.overhead->base = gib; }},
                    {"memory.overhead.per-vcpu = '1Mi'",
                     [](Policy& p) { p.memory.overhead->per_vcpu = mib; }},
                    {"memory.overhead.per-iothread = 0",
                     [](Policy& p) { p.memory.overhead->per_iothread = 0; }},
                    {"memory.overhead.per-gib = '16MiB'",
                     [](Policy& p) { p.memory.overhead->per_gib = 16 * mib; }},
                    {"memory.overhead.video = false",
                     [](Policy& p) { p.memory.overhead->video = false; }},
                    {"memory.overhead.per-vfio = '1GiB'",
                     [](Policy& p) { p.memory.overhead->per_vfio = gib; }},
                    {"memory.overhead.sev = 1048576",
                     [](Policy& p) { p.memory.overhead->sev = mib; }},
                    {"memory.overhead.tpm = '8Mi'",
                     [](Policy& p) { p.memory.overhead->tpm = 8 * mib; }},
                    {"cpu.count = 'threads'", [](Policy&) {}},
                    {"cpu.count = 'cores'", [](Policy& p) { p.cpu.count_cores = true; }},
                    {"cpu.pinning = 'exclusive'", [](Policy&) {}},
                    {"cpu.pinning = 'shared'", [](Policy& p) { p.cpu.pinning_exclusive = false; }},
                    {"cpu.vcpus = 'current'", [](Policy&) {}},
                    {"cpu.vcpus = 'maximum'", [](Policy& p) { p.cpu.vcpus_maximum = true; }},
                    {"cpu.dedicated = '4-15'",
                     [](Policy& p) { p.cpu.dedicated = IdSet::range(4, 15); }},
                    {"cpu.shared = '0-7,^3'",
                     [](Policy& p) { p.cpu.shared = IdSet::range(0, 7) - IdSet{3}; }},
                    {"hook.timeout = '1ms'", [](Policy& p) { p.hook.timeout = 1ms; }},
                    {"hook.timeout = '1min'", [](Policy& p) { p.hook.timeout = 60s; }},
                    {"hook.unavailable = 'allow'", [](Policy&) {}},
                    {"hook.unavailable = 'deny'",
                     [](Policy& p) { p.hook.unavailable_denies = true; }},
                    {"claim.lease = '1h'", [](Policy& p) { p.claim.lease = 1h; }},
                    {"claim.return = '0s'", [](Policy& p) { p.claim.return_hold = 0ms; }},
                    {"reserve.cpus = '0-1'", [](Policy& p) { p.reserve.cpus = {0, 1}; }},
                    {"reserve.cpus = ''", [](Policy&) {}},
                    {"reserve.memory = '4GiB'", [](Policy& p) { p.reserve.memory = 4 * gib; }},
                    {"reserve.memory = 0", [](Policy& p) { p.reserve.memory = 0; }},
                    {"[reserve.node.0]\nmemory = '1GiB'",
                     [](Policy& p) { p.reserve.nodes[0].memory = gib; }},
                    {"[reserve.node.12]\nhugepages = { '2Mi' = '128MiB', '1GiB' = 0 }",
                     [](Policy& p) {
                         p.reserve.nodes[12].hugepages = {{2 * mib, 128 * mib}, {gib, 0}};
                     }},
                    {"scheduler.default = 'nova'",
                     [](Policy& p) { p.scheduler.default_name = "nova"; }},
                    {"scheduler.accept-default = false",
                     [](Policy& p) { p.scheduler.accept_default = false; }},
                    {"scheduler.accept-any = true",
                     [](Policy& p) { p.scheduler.accept_any = true; }},
                    {"[scheduler.accept.cortex]",
                     [](Policy& p) { p.scheduler.accept["cortex"] = {"cortex", {}}; }},
                    {"scheduler.accept.a.quota = {cpu = 4, memory = '64GiB', hugepages-1Gi = "
                     "'33.3%'}",
                     [](Policy& p) {
                         p.scheduler.accept["a"] = {
                             .match = "a",
                             .quota = {{Resource::cpu(), {.amount = 4}},
                                       {Resource::memory(), {.amount = 64 * gib}},
                                       {Resource::hugepages(gib), {.percent = ratio("33.3")}}}};
                     }},
                    {"[rule.'a b']\naction = 'observe'",
                     [](Policy& p) { p.rules["a b"].action = Rule::Action::observe; }},
                    {"[rule.a]\naction = 'refuse'\npriority = -1\nmessage = 'no'\nmatch = '/a'",
                     [](Policy& p) {
                         p.rules["a"] = {.priority = -1,
                                         .match = "/a",
                                         .action = Rule::Action::refuse,
                                         .message = "no"};
                     }},
                    {"[scheduler.recognise.nova]\nmatch = \"a\\n and b\"\nnamespaces.n = 'urn:n'",
                     [](Policy& p) {
                         p.scheduler.recognise["nova"] = {{{"n", "urn:n"}}, "a  and b"};
                     }},
                    {"[scheduler.accept.cortex]\nmatch = 'cortex*'",
                     [](Policy& p) { p.scheduler.accept["cortex"] = {"cortex*", {}}; }},
                    {"[scheduler.accept.'a b*']\nmode = 'observe'",
                     [](Policy& p) { p.scheduler.accept["a b*"] = {"a b*", Mode::observe}; }},
                    {"storage.paths = ['/srv/a b', \"/srv/c\"]",
                     [](Policy& p) { p.storage.paths = {"/srv/a b", "/srv/c"}; }},
                    {"storage.paths = []", [](Policy& p) { p.storage.paths.clear(); }},
                    {"storage.unknown = 'admit'", [](Policy&) {}},
                    {"storage.unknown = 'refuse'",
                     [](Policy& p) { p.storage.unknown_refuses = true; }},
                    {"metrics.textfile-folder = '/srv/a b'",
                     [](Policy& p) { p.metrics.textfile_folder = "/srv/a b"; }},
                }));
    CAPTURE(text);
    Policy expected;
    change(expected);
    CHECK(values_of(text) == expected);
}

TEST_CASE("a ratio is the decimal that the file shows") {
    const auto [written, exact] = GENERATE(table<std::string, std::string>({
        {"1.15", "1.15"},
        {"\"1.15\"", "1.15"},
        {"0.1", "0.1"},
        {"0.000001", "0.000001"},
        {"999.999999", "999.999999"},
        {"1000", "1000"},
        {"1e2", "100"},
        {"+3", "3"},
        {"1.50", "1.5"},
    }));
    CAPTURE(written);
    const Policy policy = values_of("overcommit.cpu = " + written);
    CHECK(policy.ratio_of(Resource::cpu()).text() == exact);
}

TEST_CASE("an impossible ratio is refused") {
    const auto [written, shown] = GENERATE(table<std::string, std::string>({
        {"0", "0"},
        {"0.0", "0"},
        {"-1", "-1"},
        {"-0.5", "-0.5"},
        {"\"abc\"", "abc"},
        {"\"\"", ""},
        {"1e9", "1000000000"},
        {"1001", "1001"},
        {"1000.000001", "1000.000001"},
        {"1.0000001", "1.0000001"},
        {"\"1.00000000000000000001\"", "1.00000000000000000001"},
        {"nan", "nan"},
        {"inf", "inf"},
        {"-inf", "-inf"},
        {"9223372036854775807", "9223372036854775807"},
    }));
    CAPTURE(written);
    CHECK(errors_of("[overcommit]\ncpu = " + written) ==
          Lines{"p:2:7: overcommit.cpu: \"" + shown +
                "\" is not a ratio: expected a decimal above 0 and at most 1000 with at most 6 "
                "decimals, such as 1.5"});
}

TEST_CASE("a wrong value is an error that says what was expected") {
    const auto [text, expected] = GENERATE(table<std::string, std::string>({
        {"mode = 'on'", "p:1:8: mode: \"on\" is not one of its values: expected \"enforce\", "
                        "\"observe\" or \"off\""},
        {"mode = true", "p:1:8: mode: true is a boolean: expected \"enforce\", \"observe\" or "
                        "\"off\""},
        {"[mode]", "p:1:1: mode: this is a table: expected \"enforce\", \"observe\" or \"off\""},
        {"overcommit.cpu = true", "p:1:18: overcommit.cpu: true is a boolean: expected a number, "
                                  "or a string such as \"1.5\""},
        {"overcommit.hugepages-2Mi = 1.5", "p:1:28: overcommit.hugepages-2Mi: hugepages take no "
                                           "ratio: expected 1, or no such key"},
        {"overcommit = 2", "p:1:14: overcommit: 2 is an integer: expected a table"},
        {"resource-mode.cpu = 2.5", "p:1:21: resource-mode.cpu: 2.5 is a float: expected "
                                    "\"enforce\", \"observe\" or \"off\""},
        {"memory.count = 'max'", "p:1:16: memory.count: \"max\" is not one of its values: "
                                 "expected \"maximum\" or \"current\""},
        {"memory.virtio-mem = []", "p:1:21: memory.virtio-mem: this is an array: expected "
                                   "\"size\" or \"requested\""},
        {"memory.file = 'disk'", "p:1:15: memory.file: \"disk\" is not one of its values: "
                                 "expected \"memory\" or \"storage\""},
        {"memory.foreign = ''", "p:1:18: memory.foreign: \"\" is not one of its values: expected "
                                "\"show\" or \"charge\""},
        {"memory.nodes = 0", "p:1:16: memory.nodes: 0 is an integer: expected a string such as "
                             "\"0-3,8\""},
        {"memory.nodes = ''", "p:1:16: memory.nodes: this is the empty set: expected at least "
                              "one, or no such key"},
        {"memory.nodes = '3-1'", "p:1:16: memory.nodes: \"3-1\" is not a list of ids: expected "
                                 "such as \"0-3,8\", each below 16384"},
        {"memory.overhead = 'some'", "p:1:19: memory.overhead: \"some\" is not one of its values: "
                                     "expected \"none\" or a table"},
        {"memory.overhead = 0",
         "p:1:19: memory.overhead: 0 is an integer: expected \"none\" or a table"},
        {"memory.overhead.base = -1", "p:1:24: memory.overhead.base: \"-1\" is not a size: "
                                      "expected a number of bytes such as \"512MiB\", \"4Gi\" or "
                                      "\"4GB\", below 8 EiB"},
        {"memory.overhead.base = 1.5", "p:1:24: memory.overhead.base: 1.5 is a float: expected a "
                                       "string such as \"4GiB\", or a number of bytes"},
        {"memory.overhead.video = 'yes'", "p:1:25: memory.overhead.video: \"yes\" is a string: "
                                          "expected true or false"},
        {"[[memory]]", "p:1:1: memory: this is an array: expected a table"},
        {"cpu.count = 'core'", "p:1:13: cpu.count: \"core\" is not one of its values: expected "
                               "\"threads\" or \"cores\""},
        {"cpu.pinning = 'none'", "p:1:15: cpu.pinning: \"none\" is not one of its values: "
                                 "expected \"exclusive\" or \"shared\""},
        {"cpu.vcpus = 1", "p:1:13: cpu.vcpus: 1 is an integer: expected \"current\" or "
                          "\"maximum\""},
        {"cpu.dedicated = ''", "p:1:17: cpu.dedicated: this is the empty set: expected at least "
                               "one, or no such key"},
        {"cpu.shared = '16384'", "p:1:14: cpu.shared: \"16384\" is not a list of ids: expected "
                                 "such as \"0-3,8\", each below 16384"},
        {"hook.timeout = '0s'", "p:1:16: hook.timeout: 0s is no time to wait for: expected above "
                                "0 and at most 60s"},
        {"hook.timeout = '61s'", "p:1:16: hook.timeout: 61s is no time to wait for: expected "
                                 "above 0 and at most 60s"},
        {"hook.timeout = 2", "p:1:16: hook.timeout: 2 is an integer: expected a string such as "
                             "\"2s\""},
        {"hook.timeout = 07:32:00", "p:1:16: hook.timeout: this is a date or time: expected a "
                                    "string such as \"2s\""},
        {"hook.timeout = '2'", "p:1:16: hook.timeout: \"2\" is not a duration: expected a number "
                               "and ms, s, min, h or d, such as \"2s\", at most a year"},
        {"hook.unavailable = 'refuse'", "p:1:20: hook.unavailable: \"refuse\" is not one of its "
                                        "values: expected \"allow\" or \"deny\""},
        {"claim.lease = '0s'", "p:1:15: claim.lease: 0s is no lease: expected above 0"},
        {"claim.return = '-1s'", "p:1:16: claim.return: \"-1s\" is not a duration: expected a "
                                 "number and ms, s, min, h or d, such as \"2s\", at most a year"},
        {"reserve.cpus = [0]", "p:1:16: reserve.cpus: this is an array: expected a string such as "
                               "\"0-3,8\""},
        {"reserve.memory = '8EiB'", "p:1:18: reserve.memory: \"8EiB\" is not a size: expected a "
                                    "number of bytes such as \"512MiB\", \"4Gi\" or \"4GB\", "
                                    "below 8 EiB"},
        {"reserve.node.0.memory = 'all'", "p:1:25: reserve.node.0.memory: \"all\" is not a size: "
                                          "expected a number of bytes such as \"512MiB\", \"4Gi\" "
                                          "or \"4GB\", below 8 EiB"},
        {"reserve.node.0.hugepages.2Mi = '3MiB'",
         "p:1:32: reserve.node.0.hugepages.2Mi: 3Mi is no whole number of pages: expected a "
         "multiple of 2Mi"},
        {"reserve.node.0.hugepages = '2MiB'",
         "p:1:28: reserve.node.0.hugepages: \"2MiB\" is a string: expected a table"},
        {"storage.paths = '/srv'", "p:1:17: storage.paths: \"/srv\" is a string: expected an array "
                                   "of strings such as [\"/srv/images\"]"},
        {"storage.paths = ['/srv', 1]", "p:1:17: storage.paths: this is an array: expected an "
                                        "array of strings such as [\"/srv/images\"]"},
        {"storage.paths = ['images']",
         "p:1:17: storage.paths: \"images\" is not a folder: expected "
         "an absolute path"},
        {"storage.paths = ['/','/','/','/','/','/','/','/','/','/','/','/','/','/','/','/','/']",
         "p:1:17: storage.paths: these are 17 folders: expected at most 16"},
        {"storage.unknown = true", "p:1:19: storage.unknown: true is a boolean: expected \"admit\" "
                                   "or \"refuse\""},
        {"scheduler.default = ''", "p:1:21: scheduler.default: \"\" is not a name: expected 1 to "
                                   "255 bytes without control characters"},
        {"scheduler.default = 7", "p:1:21: scheduler.default: 7 is an integer: expected a string"},
        {"scheduler.accept-default = 1",
         "p:1:28: scheduler.accept-default: 1 is an integer: expected true or false"},
        {"scheduler.accept-any = 'no'",
         "p:1:24: scheduler.accept-any: \"no\" is a string: expected true or false"},
        {"metrics.textfile-folder = true", "p:1:27: metrics.textfile-folder: true is a boolean: "
                                           "expected a string such as \"/srv/metrics\""},
        {"metrics.textfile-folder = 'srv'", "p:1:27: metrics.textfile-folder: \"srv\" is not a "
                                            "folder: expected an absolute path"},
        {"metrics.textfile-folder = \"/a\\n\"", "p:1:27: metrics.textfile-folder: \"/a\\x0a\" is "
                                                "not a folder: expected an absolute path"},
        {"scheduler.accept.'x y'.match = \"a\\u0007b\"",
         "p:1:32: scheduler.accept.\"x y\".match: \"a\\x07b\" is not a name: expected 1 to 255 "
         "bytes without control characters"},
        {"[scheduler.recognise.nova]",
         "p:1:22: scheduler.recognise.nova.match: missing: expected an XPath expression"},
        {"scheduler.recognise.nova.match = true",
         "p:1:34: scheduler.recognise.nova.match: true is a boolean: expected a string with an "
         "XPath expression"},
        {"scheduler.recognise.nova.match = ''",
         "p:1:34: scheduler.recognise.nova.match: \"\" is no XPath: expected 1 to 4096 bytes "
         "without control characters"},
        {"scheduler.recognise.nova = {match = 'a', namespaces.'a:b' = 'urn:x'}",
         "p:1:53: scheduler.recognise.nova.namespaces.\"a:b\": \"a:b\" is not a prefix: expected "
         "such as \"nova\""},
        {"scheduler.recognise.nova = {match = 'a', namespaces.a = ''}",
         "p:1:57: scheduler.recognise.nova.namespaces.a: \"\" is not a name: expected 1 to 255 "
         "bytes without control characters"},
        {"scheduler.accept.nova.quota.cpu = '101%'",
         "p:1:35: scheduler.accept.nova.quota.cpu: \"101%\" is no part: expected above 0% and at "
         "most 100%, with up to 6 decimals"},
        {"scheduler.accept.nova.quota.cpu = 1.5",
         "p:1:35: scheduler.accept.nova.quota.cpu: 1.5 is a float: expected a number of vCPUs, or "
         "a string such as \"75%\""},
        {"scheduler.accept.nova.quota.memory = true",
         "p:1:38: scheduler.accept.nova.quota.memory: true is a boolean: expected a string such as "
         "\"4GiB\", or a number of bytes"},
        {"[rule.a]",
         "p:1:7: rule.a.action: missing: expected \"refuse\", \"exempt\" or \"observe\""},
        {"rule.a.action = 'deny'", "p:1:17: rule.a.action: \"deny\" is not one of its values: "
                                   "expected \"refuse\", \"exempt\" or \"observe\""},
        {"rule.a = {action = 'refuse', priority = 1.5}",
         "p:1:41: rule.a.priority: 1.5 is a float: expected a whole number"},
        {"rule.a = {action = 'refuse', priority = 1000000001}",
         "p:1:41: rule.a.priority: 1000000001 is no priority: expected -1000000000 to 1000000000"},
        {"rule.a = {action = 'refuse', message = \"a\\nb\"}",
         "p:1:40: rule.a.message: \"a\\x0ab\" is no message: expected 1 to 500 bytes without "
         "control "
         "characters"},
        {"rule.a = {action = 'refuse', match = 1}",
         "p:1:38: rule.a.match: 1 is an integer: expected a string with an XPath expression"},
        {"[resource.memory]", "p:1:11: resource.memory: \"memory\" is built in: expected a name of "
                              "your own"},
        {"[resource.hugepages-2Mi]", "p:1:11: resource.hugepages-2Mi: \"hugepages-2Mi\" is built "
                                     "in: expected a name of your own"},
        {"[resource.'a b']",
         "p:1:11: resource.\"a b\": \"a b\" is not a name of a resource: expected such as "
         "\"licences\" or \"example.org/gpu\", in each part 1 to 63 letters, digits and, between "
         "them, -, _ or ."},
        {"[resource.'a.org/gpu']\ndemand = '1'",
         "p:1:11: resource.\"a.org/gpu\".capacity: missing: expected a number, a file or nodes"},
        {"[resource.gpu]\ncapacity = 1",
         "p:1:11: resource.gpu.demand: missing: expected an XPath expression"},
        {"resource.gpu = {demand = '1', capacity = -1}",
         "p:1:42: resource.gpu.capacity: \"-1\" is not a count: expected a whole number such as "
         "48"},
        {"resource.gpu = {demand = '1', capacity = 1.5}",
         "p:1:42: resource.gpu.capacity: 1.5 is a float: expected a whole number such as 4"},
        {"resource.gpu = {demand = '1', capacity = 4503599627370497}",
         "p:1:42: resource.gpu.capacity: 4503599627370497 is too large: expected at most "
         "4503599627370496"},
        {"resource.gpu = {demand = '1', capacity = {file = 'x'}}",
         "p:1:50: resource.gpu.capacity.file: \"x\" is not a file: expected an absolute path"},
        {"resource.gpu = {demand = '1', capacity = {}}",
         "p:1:10: resource.gpu.capacity: missing: expected a number, a file or nodes"},
        {"resource.gpu = {demand = '1', capacity = {node = {0 = 1}, file = '/x'}}",
         "p:1:59: resource.gpu.capacity.file: resource.gpu.capacity.node is set, too: expected one "
         "of them"},
        {"resource.gpu = {demand = '1', capacity = {node = {0 = 1, a = 1}}}",
         "p:1:58: resource.gpu.capacity.node.a: \"a\" is not a node: expected its number, such as "
         "0"},
        {"resource.gpu = {demand = 1, capacity = 1}",
         "p:1:26: resource.gpu.demand: 1 is an integer: expected a string with an XPath "
         "expression"},
        {"resource.gpu = {demand = '1', capacity = 1, unit = ''}",
         "p:1:52: resource.gpu.unit: \"\" is no unit: expected 1 to 63 bytes without control "
         "characters"},
        {"rule.'' = {action = 'refuse'}", "p:1:6: rule.\"\": \"\" is not a name: expected 1 to 255 "
                                          "bytes without control characters"},
        {"scheduler.accept.nova.mode = 'accept'",
         "p:1:30: scheduler.accept.nova.mode: \"accept\" is not one of its values: expected "
         "\"enforce\", \"observe\" or \"off\""},
    }));
    CAPTURE(text);
    CHECK(errors_of(text) == Lines{expected});
}

TEST_CASE("an unknown key is an error that helps to find the right one") {
    const auto [text, expected] = GENERATE(table<std::string, std::string>({
        {"[memroy]\ncount = 1", "p:1:2: memroy: unknown key; did you mean \"memory\"?"},
        {"[memory]\ncuont = 1", "p:2:1: memory.cuont: unknown key; did you mean \"count\"?"},
        {"[memory]\nvirtio_mem = 1",
         "p:2:1: memory.virtio_mem: unknown key; did you mean \"virtio-mem\"?"},
        {"timeout = '2s'", "p:1:1: timeout: unknown key: expected one of mode, overcommit, "
                           "resource-mode, memory, cpu, hook, claim, reserve, storage, scheduler, "
                           "rule, resource, metrics"},
        {"claim.'' = 1", "p:1:7: claim.\"\": unknown key: expected one of lease, return"},
        {"'memory.count' = 'current'",
         "p:1:1: \"memory.count\": unknown key: expected one of mode, overcommit, resource-mode, "
         "memory, cpu, hook, claim, reserve, storage, scheduler, rule, resource, metrics"},
        {"[scheduler.accept.a]\nshare = {}",
         "p:2:1: scheduler.accept.a.share: unknown key: expected one of match, mode, quota"},
        {"[disks]\npaths = []", "p:1:2: disks: unknown key: expected one of mode, overcommit, "
                                "resource-mode, memory, cpu, hook, claim, reserve, storage, "
                                "scheduler, rule, resource, metrics"},
        {"[rules.maintenance]\npriority = 10", "p:1:2: rules: unknown key; did you mean \"rule\"?"},
        {"overcommit.cpus = 2",
         "p:1:12: overcommit.cpus: \"cpus\" is not a resource; did you mean \"cpu\"?"},
        {"resource.gpu = {capacity = 1, demand = '1'}\novercommit.gpus = 2",
         "p:2:12: overcommit.gpus: \"gpus\" is not a resource; did you mean \"gpu\"?"},
        {"resource-mode.'a.org/x' = 'off'",
         "p:1:15: resource-mode.\"a.org/x\": \"a.org/x\" is not a resource; did you mean "
         "\"memory\"?"},
        {"scheduler.accept.x.quota.gpu = 2",
         "p:1:26: scheduler.accept.x.quota.gpu: \"gpu\" is not a resource; did you mean \"cpu\"?"},
        {"overcommit.'<resource>' = 2",
         "p:1:12: overcommit.\"<resource>\": \"<resource>\" is not a resource; did you mean "
         "\"memory\"?"},
        {"overcommit.hugepages-2X = 1",
         "p:1:12: overcommit.hugepages-2X: \"hugepages-2X\" does not name a page size: expected "
         "such as \"hugepages-2Mi\""},
        {"[reserve.node.01]\nmemory = 1", "p:1:15: reserve.node.01: \"01\" is not a node: "
                                          "expected its number, such as 0"},
        {"[reserve.node.16384]\nmemory = 1", "p:1:15: reserve.node.16384: \"16384\" is not a "
                                             "node: expected its number, such as 0"},
        {"reserve.node.0.hugepages.big = 0", "p:1:26: reserve.node.0.hugepages.big: \"big\" is not "
                                             "a page size: expected a power of two "
                                             "from 4Ki to 16Gi, such as \"2Mi\""},
        {"[scheduler.accept.\"a\\nb\"]",
         "p:1:19: scheduler.accept.\"a\\x0ab\": \"a\\x0ab\" is not a name: expected 1 to 255 "
         "bytes without control characters"},
    }));
    CAPTURE(text);
    CHECK(errors_of(text) == Lines{expected});
}

TEST_CASE("a size that pages have nowhere was taken for one that this host lacks") {
    const auto size = GENERATE(as<std::string>(), "0", "1", "2Ki", "3Mi", "32Gi", "4Ei");
    const std::string wrong = "\"" + size +
                              "\" is not a page size: expected a power of two from 4Ki to 16Gi, "
                              "such as \"2Mi\"";
    CHECK(errors_of("reserve.node.0.hugepages." + size + " = 0") ==
          Lines{"p:1:26: reserve.node.0.hugepages." + size + ": " + wrong});
    if (size == "0") // which is no name of a resource, wherever one stands
        return;
    CHECK(errors_of("resource-mode.hugepages-" + size + " = 'off'") ==
          Lines{"p:1:15: resource-mode.hugepages-" + size + ": " + wrong});
    CHECK(errors_of("overcommit.hugepages-" + size + " = 1") ==
          Lines{"p:1:12: overcommit.hugepages-" + size + ": " + wrong});
}

TEST_CASE("each size that some architecture has may be named") {
    const auto size = GENERATE(as<std::string>(), "4Ki", "16Ki", "64Ki", "512Ki", "1Mi", "2Mi",
                               "4Mi", "16Mi", "32Mi", "512Mi", "1Gi", "2Gi", "16Gi");
    CHECK(errors_of("resource-mode.hugepages-" + size + " = 'off'") == Lines{});
    CHECK(errors_of("overcommit.hugepages-" + size + " = 1") == Lines{});
    CHECK(errors_of("reserve.node.0.hugepages." + size + " = 0") == Lines{});
}

TEST_CASE("a policy names schedulers as long as a domain can, and no longer") {
    const std::string longest = repeated("s", max_scheduler_bytes);
    CHECK(values_of("scheduler.default = '" + longest + "'").scheduler.default_name == longest);
    CHECK(errors_of("scheduler.default = '" + longest + "s'").size() == 1);
}

TEST_CASE("one thing must not be set twice in a file under two spellings") {
    CHECK(errors_of("[reserve.node.0.hugepages]\n2Mi = 0\n2048Ki = 0\n") ==
          Lines{"p:2:1: reserve.node.0.hugepages.2Mi: set twice: line 3 spells it differently"});
    CHECK(errors_of("[resource-mode]\nhugepages-1Gi = 'off'\nhugepages-1024Mi = 'observe'\n") ==
          Lines{"p:2:1: resource-mode.hugepages-1Gi: set twice: line 3 spells it differently"});
    CHECK(values_of({{"a", "reserve.node.0.hugepages.2Mi = '2MiB'"},
                     {"b", "reserve.node.0.hugepages.2048Ki = '4MiB'"}})
              .reserve.nodes[0]
              .hugepages == std::map<std::int64_t, std::int64_t>{{2 * mib, 4 * mib}});
}

TEST_CASE("a CPU has one use") {
    CHECK(errors_of("[cpu]\ndedicated = '2-7'\nshared = '0-3'\n") ==
          Lines{"p:3:1: cpu.shared: CPU 2-3 is also in cpu.dedicated: expected no CPU in both"});
    CHECK(errors_of({{"a", "[reserve]\ncpus = '0-1'\n"}, {"b", "\ncpu.dedicated = '1-3'\n"}}) ==
          Lines{"b:2:5: cpu.dedicated: CPU 1 is also in reserve.cpus: expected no CPU in both"});
    // Guests with shared vCPUs use what of them is not reserved.
    CHECK(errors_of("reserve.cpus = '0-1'\ncpu.shared = '0-3'\n") == Lines{});
}

TEST_CASE("what is not TOML is an error with its position") {
    const auto [text, expected] = GENERATE(table<std::string, std::string>({
        {"mode = enforce", "p:1:8: Error while parsing value: could not determine value type"},
        {"mode = 'off'\nmode = 'off'", "p:2:8: Error while parsing key-value pair: cannot "
                                       "redefine existing string 'mode'"},
        {"[cpu]\n[cpu]\n",
         "p:2:1: Error while parsing table header: cannot redefine existing table 'cpu'"},
        {"[overcommit]\ncpu = 99999999999999999999",
         "p:2:27: Error while parsing decimal integer: '99999999999999999999' is not "
         "representable in 64 bits"},
        {"mode = 'a\xff'", "p:1:9: Encountered invalid utf-8 sequence"},
        {std::string("mo\0de = 1", 9),
         "p:1:3: Error while parsing key-value pair: expected '=', saw '\\u0000'"},
    }));
    CAPTURE(text);
    CHECK(errors_of(text) == Lines{expected});
}

TEST_CASE("later files win, value by value") {
    const Policy policy = values_of({
        {"virtguard.toml", "mode = 'off'\n"
                           "[memory]\ncount = 'current'\nforeign = 'charge'\n"
                           "[overcommit]\ncpu = 3\nmemory = 1.5\n"
                           "[reserve.node.0]\nmemory = '1GiB'\nhugepages = { 2Mi = '2MiB' }\n"
                           "[scheduler.accept.cortex]\nmatch = 'cortex*'\n"},
        {"conf.d/10-a.toml", "[overcommit]\ncpu = 4\n"
                             "[reserve.node.0]\nhugepages = { 1Gi = '1GiB' }\n"
                             "[scheduler.accept.cortex]\nmode = 'observe'\n"
                             "[scheduler.accept.nova]\n"},
        {"conf.d/20-b.toml", "mode = 'observe'\n[memory]\ncount = 'maximum'\n"},
    });
    Policy expected;
    expected.mode = Mode::observe;
    expected.memory.charge_foreign = true;
    expected.overcommit = {{Resource::cpu(), ratio("4")}, {Resource::memory(), ratio("1.5")}};
    expected.reserve.nodes[0] = {gib, {{2 * mib, 2 * mib}, {gib, gib}}};
    expected.scheduler.accept = {{"cortex", {"cortex*", Mode::observe}}, {"nova", {"nova", {}}}};
    CHECK(policy == expected);
}

TEST_CASE("an overhead of none and one of parts replace each other") {
    const Texts parts_then_none{{"a", "memory.overhead = { base = 0, video = false }"},
                                {"b", "memory.overhead = 'none'"}};
    CHECK(values_of(parts_then_none).memory.overhead == std::nullopt);
    CHECK(load(parts_then_none)->origins ==
          std::map<std::string, std::string>{{"memory.overhead", "b:1"}});

    Texts and_parts_again = parts_then_none;
    and_parts_again.push_back({"c", "\n[memory]\noverhead = { tpm = 5 }"});
    CHECK(values_of(and_parts_again).memory.overhead == Overhead{.tpm = 5});
    CHECK(load(and_parts_again)->origins ==
          std::map<std::string, std::string>{{"memory.overhead", "c:3"},
                                             {"memory.overhead.tpm", "c:3"}});
}

TEST_CASE("every key that is set knows where") {
    const auto loaded = load(Texts{
        {"/etc/virtguard/virtguard.toml", "mode = 'off'\n"
                                          "[overcommit]\n"
                                          "cpu = 3\n"
                                          "memory = 1\n"
                                          "[reserve.node.0]\n"
                                          "hugepages = { \"2048KiB\" = '128MiB' }\n"
                                          "[scheduler.accept.\"a b\"]\n"
                                          "mode = 'off'\n"},
        {"/etc/virtguard/conf.d/x.toml", "\n\novercommit.cpu = 4\n[scheduler.accept.nova]\n"},
    });
    REQUIRE(loaded.has_value());
    const std::string first = "/etc/virtguard/virtguard.toml";
    const std::string second = "/etc/virtguard/conf.d/x.toml";
    CHECK(loaded->origins == std::map<std::string, std::string>{
                                 {"mode", first + ":1"},
                                 {"overcommit.cpu", second + ":3"},
                                 {"overcommit.memory", first + ":4"},
                                 {"reserve.node.0.hugepages.2Mi", first + ":6"},
                                 {"scheduler.accept.\"a b\"", first + ":7"},
                                 {"scheduler.accept.\"a b\".mode", first + ":8"},
                                 {"scheduler.accept.nova", second + ":4"},
                             });
}

TEST_CASE("all errors are told at once, in the order of the files and their lines") {
    CHECK(errors_of({
              {"a", "zeal = 1\nmode = 'on'\n[memory]\nnodes = '9-1'\ncount = 1\n"},
              {"b", "mode = \n"},
              {"c", "[hook]\ntimeout = '0s'\n"},
          }) ==
          Lines{"a:1:1: zeal: unknown key: expected one of mode, overcommit, resource-mode, "
                "memory, cpu, hook, claim, reserve, storage, scheduler, rule, resource, metrics",
                "a:2:8: mode: \"on\" is not one of its values: expected \"enforce\", \"observe\" "
                "or \"off\"",
                "a:4:9: memory.nodes: \"9-1\" is not a list of ids: expected such as \"0-3,8\", "
                "each below 16384",
                "a:5:9: memory.count: 1 is an integer: expected \"maximum\" or \"current\"",
                "b:1:8: Error while parsing key-value pair: expected value, saw '\\n'",
                "c:2:11: hook.timeout: 0s is no time to wait for: expected above 0 and at most "
                "60s"});
}

TEST_CASE("a value that a later file replaces must be right all the same") {
    CHECK(errors_of({{"a", "mode = 1"}, {"b", "mode = 'off'"}}) ==
          Lines{"a:1:8: mode: 1 is an integer: expected \"enforce\", \"observe\" or \"off\""});
}

TEST_CASE("of very many errors the first fifty are told and the rest counted") {
    std::string text = "[memory]\n";
    for (int i = 0; i < 20000; ++i)
        text += fmt::format("key-{} = 1\n", i);
    const Lines lines = errors_of(text);
    REQUIRE(lines.size() == 51);
    CHECK(lines.front() == "p:2:1: memory.key-0: unknown key: expected one of count, virtio-mem, "
                           "file, foreign, nodes, overhead");
    CHECK(lines.back() == "and 19950 more");
}

TEST_CASE("errors of many files are bounded too") {
    const PolicyText bad{"p", "x = 1\nmode = 1\ncpu = 1\n"};
    const Lines lines = errors_of(Texts(50, bad));
    REQUIRE(lines.size() == 51);
    CHECK(lines.back() == "and 100 more");
}

TEST_CASE("hostile text is an error of bounded lines without control characters") {
    const int many = 200'000;
    const auto text = GENERATE_COPY(values<std::string>({
        "a = " + repeated("[", many),
        "a = " + repeated("{a=", many),
        repeated("a.", many) + "a = 1",
        "[" + repeated("a.", many) + "a]",
        "x = [\"\"\"\n#\"\"\", {" + repeated("a.", many) + "a = 1}]",
        "#\r" + repeated("a.", many) + "a = 1",
        "#\v" + repeated("a.", many) + "a = 1",
        "#\xe2\x80\xa8" + repeated("a.", many) + "a = 1",
        repeated("[[a]]\n", 1000) + repeated("[a", 1),
        "x = " + repeated("[\n{" + repeated("a.", 64) + "a = ", 127) + "1" + repeated("}]", 127),
        repeated("x", many) + " = 1",
        "\"\\u001b[2J\\u0085\" = 1",
        "mode = '" + repeated("x", many) + "'",
        "mode = '''\n" + repeated("\n", many) + "'''",
        "memory.nodes = '" + repeated("0-9,", many) + "'",
        "scheduler.default = '" + repeated("x", many) + "'",
        "scheduler.accept." + repeated("x", many) + ".mode = 1",
        "overcommit." + repeated("x", many) + " = 1",
        "overcommit.cpu = '" + repeated("9", many) + "'",
        "overcommit.cpu = " + repeated("9", many),
        "overcommit.cpu = 1." + repeated("9", many),
        "overcommit.cpu = 1e308",
        "overcommit.cpu = 5e-324",
        "reserve.memory = " + repeated("9", many),
        repeated("#", static_cast<int>(max_file_bytes) + 1),
        std::string(1000, '\0'),
        std::string(1000, '\xff'),
        "\xef\xbb\xbf\xef\xbb\xbf = 1",
    }));
    CAPTURE(text.substr(0, 40));
    const Lines lines = errors_of(text);
    REQUIRE_FALSE(lines.empty());
    for (const std::string& line : lines) {
        CHECK(line.size() < 3000);
        CHECK(std::ranges::none_of(line, [](unsigned char c) { return c < 0x20 || c == 0x7f; }));
    }
}

TEST_CASE("limits say so") {
    CHECK(errors_of(std::string(max_file_bytes + 1, '#')) == Lines{"p: larger than 1 MiB"});
    CHECK(errors_of("\na" + repeated(".a", 65) + " = 1") ==
          Lines{"p:2:1: more than 64 dots in a line"});
    CHECK(errors_of("#" + repeated(".", 1000) + "\nmode = 'off' # ......") == Lines{});
}

TEST_CASE("text as editors on other systems write it is read") {
    const Policy policy = values_of("\xef\xbb\xbfmode = \"off\"\r\n[reserve]\r\ncpus = \"0\"\r\n");
    CHECK(policy.mode == Mode::off);
    CHECK(policy.reserve.cpus == IdSet{0});
}

TEST_CASE("what is wrong with an expression is told at its key") {
    const auto check = [](const Question& question) -> Result<> {
        CHECK(question.namespaces.at("n") == "urn:n");
        if (question.xpath == "good")
            return {};
        return fail(Errc::invalid, "is bad");
    };
    const Texts texts{{"a", "[scheduler.recognise.nova]\nnamespaces.n = 'urn:n'\nmatch = 'good'"},
                      {"b", "scheduler.recognise.ovirt.namespaces.n = 'urn:n'"},
                      {"c", "[scheduler.recognise.ovirt]\n  match = 'bad'"}};
    const auto loaded = load(texts, check);
    REQUIRE_FALSE(loaded.has_value());
    CHECK(loaded.error() == Lines{"c:2:3: scheduler.recognise.ovirt.match: \"bad\" is bad"});
}

TEST_CASE("a policy asks no more of a domain than 64 questions") {
    std::string text;
    for (int i = 0; i < 64; ++i)
        text += fmt::format("[rule.r{:02}]\naction = 'refuse'\n", i);
    CHECK(errors_of(text) == Lines{});
    CHECK(errors_of(text + "[scheduler.recognise.nova]\nmatch = 'true()'") ==
          Lines{"p:129:22: scheduler.recognise.nova.match: one of 65 expressions: expected at most "
                "64 in all tables together"});
}

TEST_CASE("a capacity is a number, a file, or either of them per node") {
    const auto [text, host, nodes] =
        GENERATE(table<std::string, std::optional<CustomCapacity>, std::map<int, CustomCapacity>>({
            {"capacity = 4", CustomCapacity{.amount = 4}, {}},
            {"capacity = '4'", CustomCapacity{.amount = 4}, {}},
            {"capacity = { file = '/x' }", CustomCapacity{.file = "/x"}, {}},
            {"capacity = { node = { 0 = 2, 1 = { file = '/y' } } }",
             std::nullopt,
             {{0, {.amount = 2}}, {1, {.file = "/y"}}}},
        }));
    const Policy policy = values_of("[resource.gpu]\ndemand = '1'\n" + text);
    const CustomResource& gpu = policy.resources.at(Resource::custom("gpu"));
    CHECK(gpu.host == host);
    CHECK(gpu.nodes == nodes);
}

TEST_CASE("a capacity in a later file replaces an earlier one of another form") {
    const std::string base = "[resource.gpu]\ndemand = '1'\ncapacity = ";
    const auto [first, second, host, nodes] =
        GENERATE(table<std::string, std::string, std::optional<CustomCapacity>,
                       std::map<int, CustomCapacity>>({
            {"4", "{ file = '/x' }", CustomCapacity{.file = "/x"}, {}},
            {"4", "{ node = { 1 = 2 } }", std::nullopt, {{1, {.amount = 2}}}},
            {"{ node = { 1 = 2 } }", "4", CustomCapacity{.amount = 4}, {}},
            {"{ file = '/x' }", "4", CustomCapacity{.amount = 4}, {}},
            {"{ node = { 1 = 2 } }",
             "{ node = { 1 = { file = '/y' } } }",
             std::nullopt,
             {{1, {.file = "/y"}}}},
        }));
    const auto policy =
        load(std::vector{PolicyText{"p", base + first}, PolicyText{"q", base + second}});
    REQUIRE(policy.has_value());
    const CustomResource& gpu = policy->resources.at(Resource::custom("gpu"));
    CHECK(gpu.host == host);
    CHECK(gpu.nodes == nodes);
}

TEST_CASE("an empty table in a later file made a capacity 0") {
    const auto [first, second] = GENERATE(table<std::string, std::string>(
        {{"4", "{}"}, {"4", "{ node = {} }"}, {"{ node = {} }", "{}"}}));
    const std::string table = "[resource.gpu]\n";
    const auto policy =
        load(std::vector{PolicyText{"p", table + "demand = '1'\ncapacity = " + first},
                         PolicyText{"q", table + "capacity = " + second}});
    REQUIRE_FALSE(policy.has_value());
    REQUIRE(policy.error().size() == 1);
    CHECK(policy.error().front().ends_with(
        "resource.gpu.capacity: missing: expected a number, a file or nodes"));
}

TEST_CASE("a resource may be used in a file before the one that declares it") {
    const auto policy = load(std::vector{
        PolicyText{"p", "overcommit.'a.org/gpu' = 2\nscheduler.accept.x.quota.'a.org/gpu' = '50%'"},
        PolicyText{"q", "[resource.'a.org/gpu']\ncapacity = 1\ndemand = '1'"}});
    REQUIRE(policy.has_value());
    const Resource gpu = Resource::custom("a.org/gpu");
    CHECK(policy->ratio_of(gpu) == *Ratio::parse("2"));
    CHECK(policy->scheduler.accept.at("x").quota.at(gpu).percent == Ratio::parse("50").value());
    CHECK(policy->origins.at("overcommit.\"a.org/gpu\"") == "p:1");
}
