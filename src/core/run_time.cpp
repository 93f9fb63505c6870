// SPDX-License-Identifier: Apache-2.0
#include "core/run_time.hpp"

#include <chrono>
#include <utility>

#include <fmt/chrono.h>

#include "base/text.hpp"

namespace virtguard::core {

namespace {

void carry_out(RunTime& run_time, const SetOvercommit& order, const Setter& by) {
    run_time.overcommit[order.resource] = {order.ratio, by};
}

void carry_out(RunTime& run_time, const ResetOvercommit& order, const Setter&) {
    if (order.resource)
        run_time.overcommit.erase(*order.resource);
    else
        run_time.overcommit.clear();
}

std::string text_of(const SetOvercommit& order) {
    return fmt::format("overcommit.{} = {}", order.resource.name(), order.ratio.text());
}

std::string text_of(const ResetOvercommit& order) {
    return fmt::format("overcommit{} as in the files",
                       order.resource ? "." + order.resource->name() : "");
}

} // namespace

std::string user_text(const Setter& setter) {
    return setter.user.empty() ? fmt::format("uid {}", setter.uid) : printable(setter.user);
}

std::string origin_text(const Setter& setter) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(setter.time);
    return fmt::format("run time by {} at {:%F %T} UTC", user_text(setter),
                       fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)));
}

Policy in_force(Policy files, const RunTime& run_time) {
    for (const auto& [resource, set] : run_time.overcommit) {
        files.overcommit[resource] = set.ratio;
        files.origins[fmt::format("overcommit.{}", resource.name())] = origin_text(set.by);
    }
    return files;
}

Result<Order> read_set_overcommit(std::string_view resource, std::string_view ratio) {
    const auto known = Resource::parse(resource);
    if (!known)
        return std::unexpected(known.error());
    const auto read = Ratio::parse(ratio);
    if (!read)
        return context(read.error(), known->name());
    if (known->kind == Resource::Kind::hugepages)
        return fail(Errc::invalid, "{}: hugepages take no ratio", known->name());
    return SetOvercommit{*known, *read};
}

Result<Order> read_reset_overcommit(std::string_view resource) {
    if (resource.empty())
        return ResetOvercommit{};
    const auto known = Resource::parse(resource);
    if (!known)
        return std::unexpected(known.error());
    return ResetOvercommit{*known};
}

std::string order_text(const Order& order) {
    return std::visit([](const auto& each) { return text_of(each); }, order);
}

RunTime carried_out(RunTime before, const Order& order, const Setter& by) {
    std::visit([&](const auto& each) { carry_out(before, each, by); }, order);
    return before;
}

} // namespace virtguard::core
