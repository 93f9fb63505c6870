// SPDX-License-Identifier: Apache-2.0
#include "core/wording.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace virtguard::core {

namespace {

std::string_view plural(std::int64_t count) {
    return count == 1 ? "" : "s";
}

bool is_storage(const Resource& resource) {
    return resource.kind == Resource::Kind::storage;
}

/// By the paths that the policy names.
std::string file_systems_text(const Host& host, const IdSet& places) {
    std::string text;
    for (const auto& [place, file_system] : host.file_systems.read)
        if (places.contains(place))
            text += fmt::format("{}{}", text.empty() ? "" : ", ", printable(file_system.path));
    return text;
}

std::string nodes_text(const IdSet& nodes) {
    return fmt::format("node{} {}", plural(nodes.count()), nodes.text());
}

/// "memory", "memory on node 1", "cpu on PUs 8-15 (node 1)", "ephemeral-storage on /srv/images".
std::string where_text(const Host& host, const Shortage& shortage) {
    std::string name = shortage.resource.name();
    if (shortage.is_all)
        return name;
    if (is_storage(shortage.resource))
        return fmt::format("{} on {}", name, file_systems_text(host, shortage.places));
    const IdSet nodes = host.nodes_of(shortage.resource, shortage.places);
    if (shortage.resource.kind != Resource::Kind::cpu)
        return fmt::format("{} on {}", name, nodes_text(nodes));
    const IdSet pus = host.pus_of(shortage.places);
    const std::string head = fmt::format("{} on PU{} {}", name, plural(pus.count()), pus.text());
    return nodes.empty() ? head : fmt::format("{} ({})", head, nodes_text(nodes));
}

} // namespace

std::string amount_text(const Host& host, const Resource& resource, std::int64_t amount,
                        Rounding rounding) {
    if (resource.is_bytes())
        return format_bytes(amount, rounding);
    if (resource.kind == Resource::Kind::cpu)
        return fmt::format("{} vCPU{}", amount, plural(amount));
    const Pool* pool = host.pool(resource);
    return pool == nullptr || pool->unit.empty() ? fmt::format("{}", amount)
                                                 : fmt::format("{} {}", amount, pool->unit);
}

namespace {

/// The same where the unit has been told: "8 GiB", "4", "2".
std::string figure_text(const Resource& resource, std::int64_t amount, Rounding rounding) {
    return resource.is_bytes() ? format_bytes(amount, rounding) : fmt::format("{}", amount);
}

std::string shortage_text(const Host& host, const Shortage& shortage) {
    const auto amount = [&](std::int64_t value, Rounding rounding) {
        return amount_text(host, shortage.resource, value, rounding);
    };
    const std::string head = fmt::format("{}: needs {}", where_text(host, shortage),
                                         amount(shortage.requested, Rounding::up));
    const std::string_view there = shortage.is_all ? "host has" : "there is";
    if (shortage.allocatable == 0)
        return fmt::format("{}, {} none", head, there);
    if (shortage.alone)
        return fmt::format("{}, more than the {} that one guest can have", head,
                           amount(shortage.allocatable, Rounding::down));
    const auto figure = [&](std::int64_t value, Rounding rounding) {
        return figure_text(shortage.resource, value, rounding);
    };
    const std::string effective = figure(shortage.effective, Rounding::down);
    if (shortage.free < 0)
        return fmt::format("{}, none free of {} (over by {})", head, effective,
                           figure(-std::max(shortage.free, -INT64_MAX), Rounding::up));
    return fmt::format("{}, {} free of {}", head, figure(shortage.free, Rounding::down), effective);
}

} // namespace

std::string unusable_pus(const Host& host, const IdSet& pus) {
    struct Cause {
        std::string_view word;
        IdSet pus;
    };
    const IdSet reserved = pus & host.reserved_pus & host.online;
    const IdSet outside = (pus & host.outside_slice) - reserved;
    const IdSet offline = pus & host.offline;
    const IdSet absent = pus - host.online - host.offline;
    const IdSet rest = pus - reserved - outside - offline - absent;
    const std::array<Cause, 5> causes{
        {{"reserved", reserved},
         {"outside machine.slice", outside},
         {"offline", offline},
         {"absent", absent},
         {"kept by cpu.dedicated, cpu.shared or a reserved core", rest}}};
    std::string result;
    for (const Cause& cause : causes)
        if (!cause.pus.empty())
            result +=
                fmt::format("{}{} ({})", result.empty() ? "" : ", ", cause.pus.text(), cause.word);
    return result;
}

Reason cpu_not_available(const Host& host, const std::optional<IdSet>& pus, std::int64_t vcpus,
                         bool dedicated) {
    Reason reason{.code = Code::cpu_not_available, .resource = Resource::cpu(), .requested = vcpus};
    const std::string head = fmt::format("cpu: {} vCPU{}", vcpus, plural(vcpus));
    if (!pus) {
        reason.text =
            fmt::format("{} may run where guests may, and this host has no such PU", head);
        return reason;
    }
    reason.nodes = host.nodes_of(Resource::cpu(), host.cpus_of(*pus));
    reason.text = fmt::format("{} {} PU{} {}, which guests may not use: {}", head,
                              dedicated ? "pinned to" : "may run on", plural(pus->count()),
                              pus->text(), unusable_pus(host, *pus));
    return reason;
}

Reason no_such_node(const Resource& resource, const IdSet& nodes, std::int64_t requested) {
    return {.code = Code::no_such_node,
            .resource = resource,
            .nodes = nodes,
            .requested = requested,
            .text =
                fmt::format("{} on {}: host has no such node", resource.name(), nodes_text(nodes))};
}

Reason no_such_page_size(std::optional<std::int64_t> page_size, std::int64_t requested) {
    Reason reason{.code = Code::no_such_page_size, .requested = requested};
    if (page_size)
        reason.resource = Resource::hugepages(*page_size);
    reason.text = fmt::format("{}: needs {}, host has none",
                              page_size ? reason.resource->name() : "hugepages",
                              format_bytes(requested, Rounding::up));
    return reason;
}

Reason none_there(const Host& host, const Resource& resource, std::optional<int> node,
                  std::int64_t requested) {
    const IdSet nodes = node ? IdSet{*node} : IdSet{};
    const std::string where = node ? fmt::format(" on {}", nodes_text(nodes)) : "";
    return {.code = resource.kind == Resource::Kind::cpu ? Code::cpu_not_available
                    : node                               ? Code::insufficient_node_capacity
                                                         : Code::insufficient_capacity,
            .resource = resource,
            .nodes = nodes,
            .requested = requested,
            .text = fmt::format("{}{}: needs {}, {} none", resource.name(), where,
                                amount_text(host, resource, requested, Rounding::up),
                                node ? "there is" : "host has")};
}

Reason over_quota(const Host& host, const Resource& resource, std::string_view table,
                  std::int64_t requested, std::int64_t left, std::int64_t quota) {
    const auto figure = [&](std::int64_t value) {
        return figure_text(resource, value, Rounding::down);
    };
    return {.code = Code::scheduler_quota,
            .resource = resource,
            .requested = requested,
            .free = left,
            .effective = quota,
            .text = fmt::format(
                "{}: needs {}, {} left of the quota of {} of scheduler.accept.{}", resource.name(),
                amount_text(host, resource, requested, Rounding::up),
                left < 0 ? "none" : figure(left), figure(quota), printable(toml_key(table)))};
}

Reason not_ready(const std::string& key, const Fact& fact, std::optional<Resource> resource) {
    return {.code = Code::not_ready,
            .resource = std::move(resource),
            .text = fmt::format("{} {}", key, fact.problem)};
}

Reason shortage_reason(const Host& host, const Shortage& shortage) {
    const bool is_host_wide = shortage.is_all || is_storage(shortage.resource);
    Code code = is_host_wide ? Code::insufficient_capacity : Code::insufficient_node_capacity;
    if (shortage.alone)
        code = Code::larger_than_host;
    return {.code = code,
            .resource = shortage.resource,
            .nodes = is_host_wide ? IdSet{} : host.nodes_of(shortage.resource, shortage.places),
            .requested = shortage.requested,
            .free = shortage.free,
            .effective = shortage.effective,
            .text = shortage_text(host, shortage)};
}

} // namespace virtguard::core
