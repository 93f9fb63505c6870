// SPDX-License-Identifier: Apache-2.0
#include "core/run_time.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/chrono.h>

#include "base/text.hpp"

namespace virtguard::core {

namespace {

void carry_out(RunTime& run_time, const SetOvercommit& order, const Setter& by) {
    if (order.resource.kind != Resource::Kind::hugepages) // theirs is 1, as it would be without
        run_time.overcommit[order.resource] = {order.ratio, by};
}

void carry_out(RunTime& run_time, const ResetOvercommit& order, const Setter&) {
    if (order.resource)
        run_time.overcommit.erase(*order.resource);
    else
        run_time.overcommit.clear();
}

void carry_out(RunTime& run_time, const SetMode& order, const Setter& by) {
    run_time.mode = {order.mode, order.message, by};
}

void carry_out(RunTime& run_time, const ResetMode&, const Setter&) {
    run_time.mode.reset();
}

std::string text_of(const SetOvercommit& order) {
    return fmt::format("overcommit.{} = {}", toml_key(order.resource.name()), order.ratio.text());
}

std::string text_of(const ResetOvercommit& order) {
    return fmt::format("overcommit{} as in the files",
                       order.resource ? "." + order.resource->name() : "");
}

std::string text_of(const SetMode& order) {
    if (order.mode)
        return fmt::format("mode = {}", mode_name(*order.mode));
    return fmt::format("mode = maintenance{}{}", order.message.empty() ? "" : ": ", order.message);
}

std::string text_of(const ResetMode&) {
    return "mode as in the files";
}

bool is_control(char letter) {
    constexpr char last = 0x1f;
    constexpr char erase = 0x7f;
    return (letter >= 0 && letter <= last) || letter == erase;
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
        files.origins[fmt::format("overcommit.{}", toml_key(resource.name()))] =
            origin_text(set.by);
    }
    if (const auto& set = run_time.mode) {
        if (set->mode)
            files.mode = *set->mode;
        else
            files.maintenance = set->message;
        files.origins["mode"] = origin_text(set->by);
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
    if (known->kind == Resource::Kind::hugepages && !read->is_one())
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

Result<Order> read_set_mode(std::string_view mode, std::string_view message) {
    if (mode != "maintenance" && !message.empty())
        return fail(Errc::invalid, "message: expected none but for maintenance");
    if (message.size() > max_message)
        return fail(Errc::invalid, "message: longer than {} bytes", max_message);
    if (std::ranges::any_of(message, is_control))
        return fail(Errc::invalid, "message: expected one line without control characters");
    if (mode == "maintenance")
        return SetMode{std::nullopt, std::string(message)};
    if (mode == "reset")
        return ResetMode{};
    for (const Mode each : {Mode::enforce, Mode::observe, Mode::off})
        if (mode == mode_name(each))
            return SetMode{each, {}};
    return fail(Errc::invalid, "mode: {}: expected enforce, observe, off, maintenance or reset",
                quote(mode));
}

std::string order_text(const Order& order) {
    return std::visit([](const auto& each) { return text_of(each); }, order);
}

RunTime carried_out(RunTime before, const Order& order, const Setter& by) {
    std::visit([&](const auto& each) { carry_out(before, each, by); }, order);
    return before;
}

} // namespace virtguard::core
