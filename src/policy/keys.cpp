// SPDX-License-Identifier: Apache-2.0
#include "policy/keys.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "base/text.hpp"
#include "core/domain.hpp"

namespace virtguard::policy {

namespace {

using core::Mode;
using core::Policy;

constexpr std::array mode_words{Word<Mode>{"enforce", Mode::enforce},
                                Word<Mode>{"observe", Mode::observe}, Word<Mode>{"off", Mode::off}};
constexpr std::array memory_count_words{Word<bool>{"maximum", false}, Word<bool>{"current", true}};
constexpr std::array virtio_mem_words{Word<bool>{"size", false}, Word<bool>{"requested", true}};
constexpr std::array file_words{Word<bool>{"memory", false}, Word<bool>{"storage", true}};
constexpr std::array foreign_words{Word<bool>{"show", false}, Word<bool>{"charge", true}};
constexpr std::array cpu_count_words{Word<bool>{"threads", false}, Word<bool>{"cores", true}};
constexpr std::array pinning_words{Word<bool>{"exclusive", true}, Word<bool>{"shared", false}};
constexpr std::array vcpus_words{Word<bool>{"current", false}, Word<bool>{"maximum", true}};
using Action = core::Rule::Action;
constexpr std::array action_words{Word<Action>{"refuse", Action::refuse},
                                  Word<Action>{"exempt", Action::exempt},
                                  Word<Action>{"observe", Action::observe}};
constexpr std::array unknown_words{Word<bool>{"admit", false}, Word<bool>{"refuse", true}};
constexpr std::array unavailable_words{Word<bool>{"allow", false}, Word<bool>{"deny", true}};

/// Reads the value and stores it where the members lead.
template <auto read, auto... members>
Result<> set(Policy& policy, const Names&, const Value& value) {
    auto read_value = read(value);
    if (!read_value)
        return std::unexpected(std::move(read_value.error()));
    (policy.*....*members) = std::move(*read_value);
    return {};
}

Result<> set_overcommit(Policy& policy, const Names& names, const Value& value) {
    const auto ratio = read_ratio(value);
    if (!ratio)
        return std::unexpected(ratio.error());
    if (names.resource.kind != core::Resource::Kind::hugepages)
        policy.overcommit[names.resource] = *ratio;
    else if (!ratio->is_one())
        return fail(Errc::invalid, "hugepages take no ratio: expected 1, or no such key");
    return {};
}

Result<> set_resource_mode(Policy& policy, const Names& names, const Value& value) {
    const auto mode = read_word<mode_words>(value);
    if (!mode)
        return std::unexpected(mode.error());
    policy.resource_mode[names.resource] = *mode;
    return {};
}

Result<> set_no_overhead(Policy& policy, const Names&, const Value& value) {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr || *text != "none")
        return wrong_word(value, "\"none\" or a table");
    policy.memory.overhead.reset();
    return {};
}

/// The table is entered before its keys are set, so there is an overhead.
template <auto read, auto member>
Result<> set_overhead(Policy& policy, const Names&, const Value& value) {
    const auto part = read(value);
    if (!part)
        return std::unexpected(part.error());
    policy.memory.overhead.value().*member = *part;
    return {};
}

/// While a hook waits, libvirt holds its domain's lock, and whoever lists the domains waits too.
/// After a minute the answer is worth less than what it holds up; none at all would never do.
Result<std::chrono::milliseconds> read_hook_timeout(const Value& value) {
    constexpr std::chrono::milliseconds longest = std::chrono::minutes(1);
    auto span = read_duration(value);
    if (span && (*span <= std::chrono::milliseconds::zero() || *span > longest))
        return fail(Errc::invalid, "{} is no time to wait for: expected above 0 and at most 60s",
                    format_duration(*span));
    return span;
}

/// A lease of nothing would free the place of a guest that is just starting.
Result<std::chrono::milliseconds> read_lease(const Value& value) {
    auto span = read_duration(value);
    if (span && *span <= std::chrono::milliseconds::zero())
        return fail(Errc::invalid, "0s is no lease: expected above 0");
    return span;
}

Result<> set_node_memory(Policy& policy, const Names& names, const Value& value) {
    const auto bytes = read_size(value);
    if (!bytes)
        return std::unexpected(bytes.error());
    policy.reserve.nodes[names.node].memory = *bytes;
    return {};
}

Result<> set_node_hugepages(Policy& policy, const Names& names, const Value& value) {
    const auto bytes = read_size(value);
    if (!bytes)
        return std::unexpected(bytes.error());
    if (*bytes % names.page_size != 0)
        return fail(Errc::invalid, "{} is no whole number of pages: expected a multiple of {}",
                    format_iec(*bytes), format_iec(names.page_size));
    policy.reserve.nodes[names.node].hugepages[names.page_size] = *bytes;
    return {};
}

core::AcceptedScheduler& accepted(Policy& policy, const Names& names) {
    return policy.scheduler.accept[names.scheduler];
}
core::Recogniser& recogniser(Policy& policy, const Names& names) {
    return policy.scheduler.recognise[names.scheduler];
}
core::Rule& rule(Policy& policy, const Names& names) {
    return policy.rules[names.rule];
}

/// Reads the value and stores it in what the names name.
template <auto find, auto read, auto member>
Result<> set_in(Policy& policy, const Names& names, const Value& value) {
    auto part = read(value);
    if (!part)
        return std::unexpected(std::move(part.error()));
    find(policy, names).*member = *std::move(part);
    return {};
}

template <auto find>
Result<> set_namespace(Policy& policy, const Names& names, const Value& value) {
    auto uri = read_name(value);
    if (!uri)
        return std::unexpected(std::move(uri.error()));
    find(policy, names).namespaces[names.prefix] = *std::move(uri);
    return {};
}

Result<> set_quota(Policy& policy, const Names& names, const Value& value) {
    const auto quota = read_quota(names.resource, value);
    if (!quota)
        return std::unexpected(quota.error());
    policy.scheduler.accept[names.scheduler].quota[names.resource] = *quota;
    return {};
}

core::CustomResource& custom(Policy& policy, const Names& names) {
    return policy.resources[names.resource];
}

using Capacity = core::CustomCapacity;

/// The host's capacity, or that of a node, which then is in place of it.
Result<> put_capacity(core::CustomResource& resource, const Names& names, bool of_node,
                      Capacity capacity) {
    if (of_node)
        resource.nodes[names.node] = std::move(capacity);
    else
        resource.host = std::move(capacity);
    return {};
}

template <bool of_node>
Result<> set_capacity(Policy& policy, const Names& names, const Value& value) {
    const auto amount = read_amount(value);
    if (!amount)
        return std::unexpected(amount.error());
    if (!of_node)
        custom(policy, names).nodes.clear(); // a number replaces the table
    return put_capacity(custom(policy, names), names, of_node, {.amount = *amount});
}

template <bool of_node>
Result<> set_capacity_file(Policy& policy, const Names& names, const Value& value) {
    auto file = read_file_name(value);
    if (!file)
        return std::unexpected(std::move(file.error()));
    return put_capacity(custom(policy, names), names, of_node, {.file = *std::move(file)});
}

using core::ClaimPolicy;
using core::CpuPolicy;
using core::HookPolicy;
using core::MemoryPolicy;
using core::MetricsPolicy;
using core::Overhead;
using core::ReservePolicy;
using core::SchedulerPolicy;
using core::StoragePolicy;

constexpr Key known_keys[] = {
    {"mode", set<read_word<mode_words>, &Policy::mode>},
    {"overcommit.<resource>", set_overcommit},
    {"resource-mode.<resource>", set_resource_mode},
    {"memory.count",
     set<read_word<memory_count_words>, &Policy::memory, &MemoryPolicy::count_current>},
    {"memory.virtio-mem",
     set<read_word<virtio_mem_words>, &Policy::memory, &MemoryPolicy::virtio_mem_requested>},
    {"memory.file", set<read_word<file_words>, &Policy::memory, &MemoryPolicy::file_is_storage>},
    {"memory.foreign",
     set<read_word<foreign_words>, &Policy::memory, &MemoryPolicy::charge_foreign>},
    {"memory.nodes", set<read_some_ids, &Policy::memory, &MemoryPolicy::nodes>},
    {"memory.overhead", set_no_overhead},
    {"memory.overhead.base", set_overhead<read_size, &Overhead::base>},
    {"memory.overhead.per-vcpu", set_overhead<read_size, &Overhead::per_vcpu>},
    {"memory.overhead.per-iothread", set_overhead<read_size, &Overhead::per_iothread>},
    {"memory.overhead.per-gib", set_overhead<read_size, &Overhead::per_gib>},
    {"memory.overhead.video", set_overhead<read_bool, &Overhead::video>},
    {"memory.overhead.per-vfio", set_overhead<read_size, &Overhead::per_vfio>},
    {"memory.overhead.sev", set_overhead<read_size, &Overhead::sev>},
    {"memory.overhead.tpm", set_overhead<read_size, &Overhead::tpm>},
    {"cpu.count", set<read_word<cpu_count_words>, &Policy::cpu, &CpuPolicy::count_cores>},
    {"cpu.pinning", set<read_word<pinning_words>, &Policy::cpu, &CpuPolicy::pinning_exclusive>},
    {"cpu.vcpus", set<read_word<vcpus_words>, &Policy::cpu, &CpuPolicy::vcpus_maximum>},
    {"cpu.dedicated", set<read_some_ids, &Policy::cpu, &CpuPolicy::dedicated>},
    {"cpu.shared", set<read_some_ids, &Policy::cpu, &CpuPolicy::shared>},
    {"hook.timeout", set<read_hook_timeout, &Policy::hook, &HookPolicy::timeout>},
    {"hook.unavailable",
     set<read_word<unavailable_words>, &Policy::hook, &HookPolicy::unavailable_denies>},
    {"claim.lease", set<read_lease, &Policy::claim, &ClaimPolicy::lease>},
    {"claim.return", set<read_duration, &Policy::claim, &ClaimPolicy::return_hold>},
    {"reserve.cpus", set<read_ids, &Policy::reserve, &ReservePolicy::cpus>},
    {"reserve.memory", set<read_size, &Policy::reserve, &ReservePolicy::memory>},
    {"reserve.node.<node>.memory", set_node_memory},
    {"reserve.node.<node>.hugepages.<page-size>", set_node_hugepages},
    {"storage.paths", set<read_folders, &Policy::storage, &StoragePolicy::paths>},
    {"storage.unknown",
     set<read_word<unknown_words>, &Policy::storage, &StoragePolicy::unknown_refuses>},
    {"scheduler.default", set<read_name, &Policy::scheduler, &SchedulerPolicy::default_name>},
    {"scheduler.accept-default",
     set<read_bool, &Policy::scheduler, &SchedulerPolicy::accept_default>},
    {"scheduler.accept-any", set<read_bool, &Policy::scheduler, &SchedulerPolicy::accept_any>},
    {"scheduler.accept.<scheduler>.match",
     set_in<accepted, read_name, &core::AcceptedScheduler::match>},
    {"scheduler.accept.<scheduler>.mode",
     set_in<accepted, read_word<mode_words>, &core::AcceptedScheduler::mode>},
    {"scheduler.accept.<scheduler>.quota.<resource>", set_quota},
    {"scheduler.recognise.<scheduler>.namespaces.<prefix>", set_namespace<recogniser>},
    {"scheduler.recognise.<scheduler>.match",
     set_in<recogniser, read_xpath, &core::Recogniser::match>},
    {"rule.<rule>.priority", set_in<rule, read_priority, &core::Rule::priority>},
    {"rule.<rule>.namespaces.<prefix>", set_namespace<rule>},
    {"rule.<rule>.match", set_in<rule, read_xpath, &core::Rule::match>},
    {"rule.<rule>.action", set_in<rule, read_word<action_words>, &core::Rule::action>},
    {"rule.<rule>.message", set_in<rule, read_message, &core::Rule::message>},
    {"resource.<custom>.capacity", set_capacity</*of_node=*/false>},
    {"resource.<custom>.capacity.file", set_capacity_file</*of_node=*/false>},
    {"resource.<custom>.capacity.node.<node>", set_capacity</*of_node=*/true>},
    {"resource.<custom>.capacity.node.<node>.file", set_capacity_file</*of_node=*/true>},
    {"resource.<custom>.unit", set_in<custom, read_unit, &core::CustomResource::unit>},
    {"resource.<custom>.namespaces.<prefix>", set_namespace<custom>},
    {"resource.<custom>.demand", set_in<custom, read_xpath, &core::CustomResource::demand>},
    {"metrics.textfile-folder",
     set<read_folder, &Policy::metrics, &MetricsPolicy::textfile_folder>},
};

struct Table {
    std::string_view path;
    bool (*enter)(Policy& policy, const Names& names); ///< as enter_table()
};

constexpr Table tables_that_say_something[] = {
    {"memory.overhead",
     [](Policy& policy, const Names&) {
         if (policy.memory.overhead)
             return false;
         policy.memory.overhead.emplace();
         return true;
     }},
    {"scheduler.accept.<scheduler>",
     [](Policy& policy, const Names& names) {
         const core::AcceptedScheduler accepted{.match = names.scheduler};
         return policy.scheduler.accept.try_emplace(names.scheduler, accepted).second;
     }},
    {"scheduler.recognise.<scheduler>",
     [](Policy& policy, const Names& names) {
         return policy.scheduler.recognise.try_emplace(names.scheduler).second;
     }},
    {"rule.<rule>", [](Policy& policy,
                       const Names& names) { return policy.rules.try_emplace(names.rule).second; }},
    {"resource.<custom>",
     [](Policy& policy, const Names& names) {
         return policy.resources.try_emplace(names.resource).second;
     }},
    {"resource.<custom>.capacity",
     [](Policy& policy, const Names& names) { // a table replaces a number
         std::optional<Capacity>& host = custom(policy, names).host;
         const bool replaces = host && host->file.empty();
         if (replaces)
             host.reset();
         return replaces;
     }},
};

Result<std::int64_t> read_page_size(std::string_view text) {
    auto size = parse_size(text);
    if (!size || !core::is_page_size(*size))
        return fail(Errc::invalid,
                    "{} is not a page size: expected a power of two from {} to {}, such as \"2Mi\"",
                    quote(text), format_iec(core::min_page_size), format_iec(core::max_page_size));
    return size;
}

/// Resource::parse() also reads pages that only the XML of some domain has. Whether a custom one is
/// declared is known when all files are read.
Result<std::string> read_resource_part(std::string_view text, Names& names) {
    const auto resource = core::Resource::parse(text);
    if (!resource)
        return std::unexpected(core::Resource::parse_known(text).error());
    if (resource->kind == core::Resource::Kind::hugepages)
        if (const auto size = read_page_size(format_iec(resource->page_size)); !size)
            return std::unexpected(size.error());
    names.resource = *resource;
    return resource->name();
}

Result<std::string> read_custom_part(std::string_view text, Names& names) {
    const auto resource = core::Resource::parse(text);
    if (!resource)
        return std::unexpected(resource.error());
    if (resource->kind != core::Resource::Kind::custom)
        return fail(Errc::invalid, "{} is built in: expected a name of your own", quote(text));
    names.resource = *resource;
    return resource->name();
}

Result<std::string> read_node_part(std::string_view text, Names& names) {
    const auto node = parse_unsigned(text);
    if (!node || *node >= std::uint64_t{IdSet::limit} || std::to_string(*node) != text)
        return fail(Errc::invalid, "{} is not a node: expected its number, such as 0", quote(text));
    names.node = static_cast<int>(*node);
    return std::string(text);
}

Result<std::string> read_page_size_part(std::string_view text, Names& names) {
    const auto size = read_page_size(text);
    if (!size)
        return std::unexpected(size.error());
    names.page_size = *size;
    return format_iec(*size);
}

template <auto member>
Result<std::string> read_name_part(std::string_view text, Names& names) {
    auto name = read_name(std::string(text));
    if (name)
        names.*member = *name;
    return name;
}

/// As XML has them, in ASCII.
Result<std::string> read_prefix_part(std::string_view text, Names& names) {
    constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    constexpr std::string_view others = "0123456789-.";
    const bool good = !text.empty() && letters.contains(text.front()) &&
                      text.size() <= core::max_scheduler_bytes && !text.starts_with("xml") &&
                      std::ranges::all_of(
                          text, [&](char c) { return letters.contains(c) || others.contains(c); });
    if (!good)
        return fail(Errc::invalid, "{} is not a prefix: expected such as \"nova\"", quote(text));
    names.prefix = text;
    return names.prefix;
}

struct Placeholder {
    std::string_view text;
    Result<std::string> (*read)(std::string_view text, Names& names);
};

constexpr Placeholder placeholders[] = {
    {"<resource>", read_resource_part},       {"<node>", read_node_part},
    {"<page-size>", read_page_size_part},     {"<scheduler>", read_name_part<&Names::scheduler>},
    {"<rule>", read_name_part<&Names::rule>}, {"<prefix>", read_prefix_part},
    {"<custom>", read_custom_part},
};

} // namespace

std::span<const Key> keys() {
    return known_keys;
}

const Key* find_key(std::string_view path) {
    const auto* found = std::ranges::find(known_keys, path, &Key::path);
    return found == std::end(known_keys) ? nullptr : found;
}

std::vector<std::string_view> parts_below(std::string_view table) {
    std::vector<std::string_view> parts;
    for (const Key& key : known_keys) {
        std::string_view rest = key.path;
        if (!table.empty()) {
            if (!rest.starts_with(table) || !rest.substr(table.size()).starts_with('.'))
                continue;
            rest.remove_prefix(table.size() + 1);
        }
        const std::string_view part = rest.substr(0, rest.find('.'));
        if (std::ranges::find(parts, part) == parts.end())
            parts.push_back(part);
    }
    return parts;
}

Result<std::string> read_part(std::string_view placeholder, std::string_view text, Names& names) {
    const auto* found = std::ranges::find(placeholders, placeholder, &Placeholder::text);
    return found->read(text, names);
}

bool enter_table(std::string_view path, core::Policy& policy, const Names& names) {
    const auto* found = std::ranges::find(tables_that_say_something, path, &Table::path);
    return found != std::end(tables_that_say_something) && found->enter(policy, names);
}

} // namespace virtguard::policy
