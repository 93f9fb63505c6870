// SPDX-License-Identifier: Apache-2.0
#include "core/policy.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"

namespace virtguard::core {

namespace {

/// Sums of bytes: of many nodes, each below 2^63.
using Total = Int128;

std::string up(Total bytes) {
    return format_bytes(saturate(bytes), Rounding::up);
}

std::string down(Total bytes) {
    return format_bytes(saturate(bytes), Rounding::down);
}

Total ordinary_memory(const Topology& topology) {
    return std::accumulate(topology.nodes.begin(), topology.nodes.end(), Total{0},
                           [](Total sum, const Node& node) { return sum + ordinary_memory(node); });
}

const Node* find_node(const Topology& topology, int id) {
    const auto found = std::ranges::find(topology.nodes, id, &Node::id);
    return found == topology.nodes.end() ? nullptr : &*found;
}

/// What is impossible, in the order it is found.
class Findings {
  public:
    explicit Findings(const Policy& policy) : policy_(policy) {}

    void add(std::string_view key, std::string_view text) {
        if (lines_.size() == max_told_errors) {
            ++untold_;
            return;
        }
        const auto origin = policy_.origins.find(std::string(key));
        lines_.push_back(origin == policy_.origins.end()
                             ? fmt::format("{}: {}", key, text)
                             : fmt::format("{}: {}: {}", origin->second, key, text));
    }
    [[nodiscard]] std::vector<std::string> take() && {
        if (untold_ > 0)
            lines_.push_back(fmt::format("and {} more", untold_));
        return std::move(lines_);
    }

  private:
    const Policy& policy_;
    std::vector<std::string> lines_;
    std::size_t untold_ = 0;
};

void check_cpus(const Policy& policy, const Topology& topology, Findings& findings) {
    const IdSet present = topology.online | topology.offline;
    const auto check = [&](std::string_view key, const IdSet& cpus) {
        if (const IdSet absent = cpus - present; !absent.empty())
            findings.add(key, fmt::format("the host has no CPU {}", absent.text()));
    };
    check("reserve.cpus", policy.reserve.cpus);
    check("cpu.dedicated", policy.cpu.dedicated.value_or(IdSet{}));
    check("cpu.shared", policy.cpu.shared.value_or(IdSet{}));
    if (!policy.reserve.cpus.empty() && topology.online.is_subset_of(policy.reserve.cpus))
        findings.add("reserve.cpus", fmt::format("no CPU is left for guests: all that are online "
                                                 "({}) are reserved",
                                                 topology.online.text()));
}

void check_guest_nodes(const Policy& policy, const Topology& topology, Findings& findings) {
    IdSet absent = policy.memory.nodes.value_or(IdSet{});
    for (const Node& node : topology.nodes)
        absent.erase(node.id);
    if (!absent.empty())
        findings.add("memory.nodes", fmt::format("the host has no node {}", absent.text()));
    else if (policy.memory.nodes && std::ranges::none_of(topology.nodes, [&](const Node& node) {
                 return policy.memory.nodes->contains(node.id) && node.memory > 0;
             }))
        findings.add("memory.nodes",
                     fmt::format("there is no memory on {}", policy.memory.nodes->text()));
}

/// The named nodes take their part of reserve.memory; the others must have room for the rest.
void check_host_memory(const Policy& policy, const Topology& topology, Findings& findings) {
    if (!policy.reserve.memory)
        return;
    const Total reserved = *policy.reserve.memory;
    const Total host = ordinary_memory(topology);
    Total named = 0;
    Total elsewhere = host;
    for (const auto& [id, reserve] : policy.reserve.nodes) {
        const Node* node = find_node(topology, id);
        if (!reserve.memory || node == nullptr)
            continue;
        named += *reserve.memory;
        elsewhere -= ordinary_memory(*node);
    }
    if (reserved > host)
        findings.add("reserve.memory", fmt::format("{} is more than the host's {} of memory",
                                                   up(reserved), down(host)));
    else if (reserved < named)
        findings.add("reserve.memory", fmt::format("{} is less than the {} of the nodes it names",
                                                   down(reserved), up(named)));
    else if (reserved - named > elsewhere)
        findings.add("reserve.memory",
                     fmt::format("{} is left for the nodes it does not name, which have {}",
                                 up(reserved - named), down(elsewhere)));
}

void check_pool(const Node& node, std::int64_t page_size, std::int64_t reserved,
                std::string_view key, Findings& findings) {
    const auto pool = std::ranges::find(node.pools, page_size, &PagePool::page_size);
    if (pool == node.pools.end()) {
        findings.add(key, fmt::format("node {} has no pages of this size", node.id));
        return;
    }
    const Total bytes = static_cast<Total>(pool->page_size) * static_cast<Total>(pool->pages);
    if (reserved > bytes)
        findings.add(key, fmt::format("{} is more than node {}'s pool of {}", up(reserved), node.id,
                                      down(bytes)));
}

void check_node(int id, const NodeReserve& reserve, const Topology& topology, Findings& findings) {
    const Node* node = find_node(topology, id);
    const std::string prefix = fmt::format("reserve.node.{}.", id);
    const std::string absent = fmt::format("the host has no node {}", id);
    const std::string memory_key = prefix + "memory";
    if (reserve.memory && node == nullptr)
        findings.add(memory_key, absent);
    else if (reserve.memory && *reserve.memory > ordinary_memory(*node))
        findings.add(memory_key,
                     fmt::format("{} is more than the {} of memory that node {} has",
                                 up(*reserve.memory), down(ordinary_memory(*node)), id));
    for (const auto& [page_size, bytes] : reserve.hugepages) {
        const std::string key = fmt::format("{}hugepages.{}", prefix, format_iec(page_size));
        if (node == nullptr)
            findings.add(key, absent);
        else
            check_pool(*node, page_size, bytes, key, findings);
    }
}

void check_custom(const Resource& resource, const CustomResource& custom, const Topology& topology,
                  Findings& findings) {
    for (const auto& [id, capacity] : custom.nodes)
        if (find_node(topology, id) == nullptr)
            findings.add(fmt::format("resource.{}.capacity.node.{}{}", toml_key(resource.name()),
                                     id, capacity.file.empty() ? "" : ".file"),
                         "the host has no such node");
}

} // namespace

std::string_view mode_name(Mode mode) {
    switch (mode) {
    case Mode::off:
        return "off";
    case Mode::observe:
        return "observe";
    case Mode::enforce:
        return "enforce";
    }
    std::unreachable();
}

Ratio Policy::ratio_of(const Resource& resource) const {
    const auto found = overcommit.find(resource);
    return found == overcommit.end() ? Ratio{} : found->second;
}

std::string recognise_key(std::string_view scheduler) {
    return fmt::format("scheduler.recognise.{}.match", toml_key(scheduler));
}

std::string rule_key(std::string_view rule) {
    return fmt::format("rule.{}.match", toml_key(rule));
}

std::string capacity_file_key(const Resource& resource, std::optional<int> node) {
    return fmt::format("resource.{}.capacity{}.file", toml_key(resource.name()),
                       node ? fmt::format(".node.{}", *node) : "");
}

std::string demand_key(const Resource& resource) {
    return fmt::format("resource.{}.demand", toml_key(resource.name()));
}

std::string_view action_name(Rule::Action action) {
    switch (action) {
    case Rule::Action::refuse:
        return "refuse";
    case Rule::Action::exempt:
        return "exempt";
    case Rule::Action::observe:
        return "observe";
    }
    std::unreachable();
}

Questions Policy::questions() const {
    Questions all;
    for (const auto& [name, rule] : rules)
        all.push_back({.key = rule_key(name), .xpath = rule.match, .namespaces = rule.namespaces});
    for (const auto& [name, recogniser] : scheduler.recognise)
        all.push_back({.key = recognise_key(name),
                       .xpath = recogniser.match,
                       .namespaces = recogniser.namespaces});
    for (const auto& [resource, custom] : resources)
        all.push_back({.key = demand_key(resource),
                       .kind = Question::Kind::amount,
                       .xpath = custom.demand,
                       .namespaces = custom.namespaces});
    return all;
}

Result<Resource> Policy::find_resource(std::string_view name) const {
    std::vector<std::string> declared;
    declared.reserve(resources.size());
    for (const auto& [resource, custom] : resources)
        declared.push_back(resource.name());
    return Resource::parse_known(name, declared);
}

std::map<std::string, std::string> Policy::capacity_files() const {
    std::map<std::string, std::string> files;
    const auto add = [&](const std::string& key, const CustomCapacity& capacity) {
        if (!capacity.file.empty())
            files[key] = capacity.file;
    };
    for (const auto& [resource, custom] : resources) {
        if (custom.host)
            add(capacity_file_key(resource), *custom.host);
        for (const auto& [node, capacity] : custom.nodes)
            add(capacity_file_key(resource, node), capacity);
    }
    return files;
}

std::vector<std::string> conflicts(const Policy& policy, const Topology& topology) {
    Findings findings(policy);
    check_guest_nodes(policy, topology, findings);
    check_cpus(policy, topology, findings);
    check_host_memory(policy, topology, findings);
    for (const auto& [id, reserve] : policy.reserve.nodes)
        check_node(id, reserve, topology, findings);
    for (const auto& [resource, custom] : policy.resources)
        check_custom(resource, custom, topology, findings);
    return std::move(findings).take();
}

} // namespace virtguard::core
