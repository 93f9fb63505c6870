// SPDX-License-Identifier: Apache-2.0
#include "json/export.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "json/values.hpp"

namespace virtguard::json {

namespace {

using core::Figures;
using core::Resource;

std::int64_t of(const core::Quantities& quantities, const Resource& resource) {
    const auto found = quantities.find(resource);
    return found == quantities.end() ? 0 : found->second;
}

Ratio ratio_of(const core::Report& report, const Resource& resource) {
    const auto found = report.overcommit.find(resource);
    return found == report.overcommit.end() ? Ratio{} : found->second;
}

/// As a number of JSON, which is written with the fewest digits that read as the same: those of the
/// exact decimal, which has at most ten.
double number(const Ratio& ratio) {
    const std::string text = ratio.text();
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

/// Kubernetes' spelling: "48", "256Gi".
std::string quantity(const Resource& resource, std::int64_t amount) {
    return resource.is_bytes() ? format_iec(amount) : std::to_string(amount);
}

template <class Amount>
Json quantities(const Figures& figures, Amount amount) {
    Json result = Json::object();
    for (const auto& [resource, capacity] : figures.capacity)
        result[resource.name()] = quantity(resource, amount(resource));
    return result;
}

/// What guests can have altogether. Where more is whole than there is, that is less than nothing.
std::int64_t effective(const Figures& figures, const Resource& resource) {
    return std::max<std::int64_t>(of(figures.effective, resource), 0);
}

/// The same, without what is foreign.
std::int64_t for_guests(const Figures& figures, const Resource& resource) {
    return std::max<std::int64_t>(effective(figures, resource) - of(figures.foreign, resource), 0);
}

Json object(std::string_view version, std::string_view kind, std::string_view name) {
    return {{"apiVersion", version}, {"kind", kind}, {"metadata", {{"name", name}}}};
}

// ------------------------------------------------------------------ MachinePool

Json machinepool(const core::Report& report, std::string_view name) {
    const Figures& host = report.host;
    Json json = object("compute.ironcore.dev/v1alpha1", "MachinePool", name);
    json["status"] = {
        {"capacity", quantities(host, [&](const Resource& r) { return of(host.capacity, r); })},
        {"allocatable", quantities(host, [&](const Resource& r) { return for_guests(host, r); })}};
    return json;
}

// ------------------------------------------------------------------ Hypervisor

/// Effective capacity without allocation is what is free, also where that is negative.
void add_cell(Json& json, const Figures& figures) {
    json["capacity"] =
        quantities(figures, [&](const Resource& r) { return of(figures.capacity, r); });
    json["effectiveCapacity"] =
        quantities(figures, [&](const Resource& r) { return effective(figures, r); });
    json["allocation"] = quantities(figures, [&](const Resource& r) {
        return saturate(Int128{effective(figures, r)} - of(figures.free, r));
    });
}

Json hypervisor(const core::Report& report, std::string_view name) {
    Json json = object("kvm.cloud.sap/v1", "Hypervisor", name);
    json["spec"]["overcommit"] = Json::object();
    for (const auto& [resource, ratio] : report.overcommit)
        json["spec"]["overcommit"][resource.name()] = number(ratio);
    add_cell(json["status"], report.host);
    json["status"]["cells"] = Json::array();
    for (const core::NodeReport& node : report.nodes) {
        Json cell{{"cellID", node.id}};
        add_cell(cell, node.figures);
        json["status"]["cells"].push_back(std::move(cell));
    }
    return json;
}

// ------------------------------------------------------------------ Placement

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t gib = std::int64_t{1} << 30;
/// Placement keeps them in columns of 32 bits.
constexpr std::int64_t max_placement = std::numeric_limits<std::int32_t>::max();

std::int64_t unit_of(const Resource& resource) {
    if (resource.kind == Resource::Kind::storage)
        return gib;
    return resource.is_bytes() ? mib : 1;
}

std::string resource_class(const Resource& resource) {
    if (resource.kind == Resource::Kind::cpu)
        return "VCPU";
    if (resource.kind == Resource::Kind::memory)
        return "MEMORY_MB";
    if (resource.kind == Resource::Kind::storage)
        return "DISK_GB";
    std::string name = "CUSTOM_" + resource.name();
    std::ranges::transform(name, name.begin(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return std::isalnum(byte) != 0 ? static_cast<char>(std::toupper(byte)) : '_';
    });
    return name;
}

/// Placement gives (total - reserved) × ratio away: of that the most that guests can have.
Json inventory(const core::Report& report, const Resource& resource, std::int64_t total) {
    const Figures& host = report.host;
    const Ratio ratio = ratio_of(report, resource);
    const std::int64_t unit = unit_of(resource);
    const std::int64_t step = std::max<std::int64_t>(resource.page_size / mib, 1);
    const std::int64_t guests = for_guests(host, resource);
    const auto usable =
        static_cast<std::int64_t>(Int128{guests} * ratio.denominator() / ratio.numerator() / unit);
    // No guest overcommits against itself.
    const std::int64_t largest = std::min({guests, of(host.allocatable, resource)}) / unit;
    return {{"total", total},
            {"reserved", total - std::min(usable, total)},
            {"allocation_ratio", number(ratio)},
            {"min_unit", step},
            {"max_unit", std::clamp(largest / step * step, step, max_placement / step * step)},
            {"step_size", step}};
}

/// Nothing can have no inventory.
Json placement(const core::Report& report) {
    Json inventories = Json::object();
    std::set<std::string> classes;
    for (const auto& [resource, capacity] : report.host.capacity) {
        const std::string name = resource_class(resource);
        std::string own = name;
        for (int count = 2; !classes.insert(own).second; ++count) // "a.b" and "a-b" are alike
            own = fmt::format("{}_{}", name, count);
        if (const std::int64_t total = std::min(capacity / unit_of(resource), max_placement);
            total > 0)
            inventories[own] = inventory(report, resource, total);
    }
    return {{"inventories", std::move(inventories)}};
}

} // namespace

std::string export_document(ExportFormat format, const core::Report& report,
                            std::string_view name) {
    switch (format) {
    case ExportFormat::machinepool:
        return dump(machinepool(report, name));
    case ExportFormat::hypervisor:
        return dump(hypervisor(report, name));
    case ExportFormat::placement:
        return dump(placement(report));
    }
    std::unreachable();
}

} // namespace virtguard::json
