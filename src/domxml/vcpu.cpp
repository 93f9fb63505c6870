// SPDX-License-Identifier: Apache-2.0
#include "domxml/vcpu.hpp"

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "domxml/parse.hpp"
#include "domxml/values.hpp"

namespace virtguard::domxml {

namespace {

using Pins = std::map<std::uint32_t, IdSet>;

/// How many vCPUs there are at most; one where <vcpu> is absent.
Result<std::uint32_t> read_maximum(Element vcpu) {
    if (!vcpu)
        return 1;
    const auto maximum = number_in(vcpu, vcpu.text());
    if (maximum && (*maximum == 0 || *maximum > core::max_domain_vcpus))
        return vcpu.invalid("<vcpu>: {} vCPUs: expected 1 to {}", *maximum, core::max_domain_vcpus);
    return maximum;
}

/// Which vCPUs <vcpus> enables. One that it does not list is disabled.
Result<std::vector<bool>> read_individual(Element root, std::uint32_t maximum) {
    std::vector<bool> enabled(maximum, false);
    for (const Element list : root.children("vcpus")) {
        for (const Element vcpu : list.children("vcpu")) {
            const auto id = number_attribute(vcpu, "id");
            if (!id)
                return std::unexpected(id.error());
            if (!*id || **id >= maximum)
                return vcpu.invalid("<vcpu id>: expected 0 to {}", maximum - 1);
            const std::string state = vcpu.attribute("enabled").value_or("");
            if (state != "yes" && state != "no")
                return vcpu.invalid("<vcpu enabled>: {}: expected \"yes\" or \"no\"", quote(state));
            enabled[**id] = state == "yes";
        }
    }
    return enabled;
}

/// Which vCPUs are enabled at start: those <vcpus> names, else the first <vcpu current>.
Result<std::vector<bool>> read_enabled(Element root, std::uint32_t maximum) {
    const Element vcpu = root.child("vcpu");
    const auto current = number_attribute(vcpu, "current");
    if (!current)
        return std::unexpected(current.error());
    if (root.child("vcpus").child("vcpu")) {
        auto enabled = read_individual(root, maximum);
        if (enabled && std::ranges::find(*enabled, true) == enabled->end())
            return root.child("vcpus").invalid("<vcpus>: none is enabled");
        return enabled;
    }
    const std::uint32_t count = current->value_or(maximum);
    if (count == 0 || count > maximum)
        return vcpu.invalid("<vcpu current>: {} of {} vCPUs: expected 1 to {}", count, maximum,
                            maximum);
    std::vector<bool> enabled(maximum, false);
    std::fill_n(enabled.begin(), count, true);
    return enabled;
}

Result<Pins> read_pins(Element root, std::uint32_t maximum) {
    Pins pins;
    for (const Element tune : root.children("cputune")) {
        for (const Element pin : tune.children("vcpupin")) {
            const auto id = number_attribute(pin, "vcpu");
            if (!id)
                return std::unexpected(id.error());
            if (!*id)
                return pin.invalid("<vcpupin vcpu>: missing");
            if (**id >= maximum)
                continue; // libvirt ignores it as well
            auto cpus = set_attribute(pin, "cpuset");
            if (!cpus)
                return std::unexpected(cpus.error());
            if (!*cpus)
                return pin.invalid("<vcpupin cpuset>: missing");
            if (!pins.emplace(**id, *std::move(*cpus)).second)
                return pin.invalid("<vcpupin vcpu>: vCPU {} is pinned twice", **id);
        }
    }
    return pins;
}

Result<std::optional<IdSet>> read_cpuset(Element root) {
    const auto automatic = has_automatic_placement(root);
    if (!automatic)
        return std::unexpected(automatic.error());
    if (*automatic)
        return std::nullopt;
    return set_attribute(root.child("vcpu"), "cpuset");
}

std::vector<core::VcpuGroup> grouped(const std::vector<bool>& enabled, const Pins& pins,
                                     const std::optional<IdSet>& cpuset) {
    std::vector<core::VcpuGroup> groups;
    std::map<std::optional<IdSet>, std::size_t> by_cpus;
    std::optional<std::size_t> unpinned; // looked up once: most vCPUs of large guests are that
    for (std::uint32_t id = 0; id < enabled.size(); ++id) {
        const auto pin = pins.find(id);
        const bool is_pinned = pin != pins.end();
        std::size_t at = groups.size();
        if (!is_pinned && unpinned) {
            at = *unpinned;
        } else {
            const auto cpus = is_pinned ? std::optional(pin->second) : cpuset;
            at = by_cpus.emplace(cpus, groups.size()).first->second;
            if (at == groups.size())
                groups.push_back({.cpus = cpus});
            if (!is_pinned)
                unpinned = at;
        }
        groups[at].maximum += 1;
        groups[at].current += enabled[id] ? 1 : 0;
    }
    return groups;
}

} // namespace

Result<bool> has_automatic_placement(Element root) {
    const Element vcpu = root.child("vcpu");
    const std::string placement = vcpu.attribute("placement").value_or("static");
    if (placement != "static" && placement != "auto")
        return vcpu.invalid("<vcpu placement>: {}: expected \"static\" or \"auto\"",
                            quote(placement));
    return placement == "auto";
}

Result<std::vector<core::VcpuGroup>> read_vcpus(Element root) {
    const auto maximum = read_maximum(root.child("vcpu"));
    if (!maximum)
        return std::unexpected(maximum.error());
    const auto enabled = read_enabled(root, *maximum);
    if (!enabled)
        return std::unexpected(enabled.error());
    const auto cpuset = read_cpuset(root);
    if (!cpuset)
        return std::unexpected(cpuset.error());
    const auto pins = read_pins(root, *maximum);
    if (!pins)
        return std::unexpected(pins.error());
    auto groups = grouped(*enabled, *pins, *cpuset);
    if (groups.size() > max_vcpu_sets)
        return root.child("cputune").invalid("<vcpupin cpuset>: {} different sets: expected at "
                                             "most {}",
                                             groups.size(), max_vcpu_sets);
    return groups;
}

Result<std::int64_t> read_iothreads(Element root) {
    const Element element = root.child("iothreads");
    const std::string text = element.text();
    std::int64_t count = 0;
    if (!text.empty()) {
        const auto number = number_in(element, text);
        if (!number)
            return std::unexpected(number.error());
        count = *number;
    }
    std::int64_t listed = 0;
    for (const Element ids : root.children("iothreadids"))
        for ([[maybe_unused]] const Element id : ids.children("iothread"))
            ++listed;
    count = std::max(count, listed);
    if (count > max_iothreads)
        return root.invalid("<iothreads>: {} I/O threads: expected at most {}", count,
                            max_iothreads);
    return count;
}

} // namespace virtguard::domxml
