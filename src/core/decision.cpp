// SPDX-License-Identifier: Apache-2.0
#include "core/decision.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace virtguard::core {

namespace {

std::string shortened(const std::string& line) {
    constexpr std::size_t max_length = 2000;
    return line.size() <= max_length ? line : std::string(cut_text(line, max_length - 3)) + "...";
}

} // namespace

std::string_view code_name(Code code) {
    switch (code) {
    case Code::invalid_domain:
        return "invalid-domain";
    case Code::foreign_scheduler:
        return "foreign-scheduler";
    case Code::policy_rule:
        return "policy-rule";
    case Code::no_such_node:
        return "no-such-node";
    case Code::no_such_page_size:
        return "no-such-page-size";
    case Code::cpu_not_available:
        return "cpu-not-available";
    case Code::larger_than_host:
        return "larger-than-host";
    case Code::insufficient_capacity:
        return "insufficient-capacity";
    case Code::insufficient_node_capacity:
        return "insufficient-node-capacity";
    case Code::scheduler_quota:
        return "scheduler-quota";
    case Code::not_ready:
        return "not-ready";
    }
    std::unreachable();
}

bool Decision::admitted() const {
    return std::ranges::none_of(reasons,
                                [](const Reason& reason) { return reason.mode == Mode::enforce; });
}

bool Decision::is_short_of(const Resource& resource) const {
    return std::ranges::any_of(reasons, [&](const Reason& reason) {
        return reason.resource == resource && (reason.code == Code::insufficient_capacity ||
                                               reason.code == Code::insufficient_node_capacity ||
                                               reason.code == Code::scheduler_quota);
    });
}

std::string refusing_text(const Decision& decision) {
    std::string text;
    for (const Reason& reason : decision.reasons)
        if (reason.mode == Mode::enforce)
            text += fmt::format("{}{}", text.empty() ? "" : "; ", one_line(reason.text));
    return shortened(text);
}

std::string refusal_line(std::string_view domain_name, const Decision& decision) {
    return shortened(
        fmt::format("virtguard: refused {}: {}",
                    domain_name.empty() ? "a domain without a name" : printable(domain_name),
                    refusing_text(decision)));
}

} // namespace virtguard::core
