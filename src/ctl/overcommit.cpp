// SPDX-License-Identifier: Apache-2.0
#include "ctl/overcommit.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "core/resource.hpp"
#include "core/run_time.hpp"
#include "ctl/ask.hpp"
#include "ctl/show.hpp"
#include "ctl/table.hpp"

namespace virtguard::ctl {

namespace {

constexpr std::string_view table = "overcommit.";

/// What a key of the table is the ratio of; nothing where that is none that we know.
std::optional<core::Resource> resource_of(const core::Setting& setting) {
    std::string name = setting.key.substr(table.size());
    std::erase(name, '"'); // as it has to stand in a file
    const auto resource = core::Resource::parse(name);
    return resource ? std::optional(*resource) : std::nullopt;
}

/// The keys of the table, in the order of status.
std::vector<core::Setting> ratios(const json::PolicyInForce& policy) {
    std::vector<core::Setting> found;
    for (const core::Setting& setting : policy.settings)
        if (setting.key.starts_with(table))
            found.push_back(setting);
    std::ranges::stable_sort(found, {}, resource_of);
    return found;
}

json::PolicyInForce only_ratios(json::PolicyInForce policy) {
    policy.settings = ratios(policy);
    std::erase_if(policy.replaced,
                  [](const core::Setting& each) { return !each.key.starts_with(table); });
    return policy;
}

} // namespace

std::string overcommit_text(const json::PolicyInForce& policy, const Screen& screen) {
    Table shown({{"RESOURCE"},
                 {"RATIO", Align::right},
                 {"SET BY", Align::left, Shown::always, /*wraps=*/true},
                 {"IN FILES", Align::left, Shown::always, /*wraps=*/true}});
    for (const core::Setting& setting : ratios(policy)) {
        const auto file = std::ranges::find(policy.replaced, setting.key, &core::Setting::key);
        const bool is_replaced = file != policy.replaced.end();
        const auto resource = resource_of(setting);
        shown.add({resource ? resource->name()
                            : printable(std::string_view(setting.key).substr(table.size())),
                   printable(setting.value),
                   Cell(one_line(setting.origin), is_replaced ? Ink::warning : Ink::plain),
                   is_replaced ? one_line(fmt::format("{} ({})", file->value, file->origin)) : ""});
    }
    return shown.text(screen);
}

int show_overcommit(const OvercommitOptions& options) {
    const auto document = ask_daemon(options.socket, wire::Operation::policy);
    if (!document)
        return failure(document.error());
    const auto policy = json::parse_policy(*document);
    if (!policy)
        return failure(policy.error());
    print(options.json ? json::policy_document(only_ratios(*policy)) + "\n"
                       : overcommit_text(*policy, standard_output(options.colour)));
    return exit_ok;
}

int set_overcommit(const OvercommitOptions& options) {
    return give_order(options.socket, core::read_set_overcommit(options.resource, options.ratio));
}

int reset_overcommit(const OvercommitOptions& options) {
    return give_order(options.socket, core::read_reset_overcommit(options.resource));
}

} // namespace virtguard::ctl
