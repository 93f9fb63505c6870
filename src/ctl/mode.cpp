// SPDX-License-Identifier: Apache-2.0
#include "ctl/mode.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "core/run_time.hpp"
#include "ctl/ask.hpp"
#include "ctl/show.hpp"
#include "json/document.hpp"

namespace virtguard::ctl {

namespace {

constexpr const char* key = "mode";

/// As TOML has it between its quotation marks: a word.
std::string word(const core::Setting& setting) {
    std::string text = setting.value;
    std::erase(text, '"');
    return printable(text);
}

std::string mode_screen(const json::PolicyInForce& policy, const core::Status& status,
                        const Screen& screen) {
    const bool is_usual = status.mode == core::Mode::enforce && !status.maintenance;
    std::string text =
        inked(screen, is_usual ? Ink::plain : Ink::warning, std::string(mode_text(status)));
    if (!status.maintenance.value_or("").empty())
        text += ": " + one_line(*status.maintenance);
    for (const core::Setting& setting : policy.settings)
        text += fmt::format("\nset by: {}\n", one_line(setting.origin));
    for (const core::Setting& setting : policy.replaced)
        text += fmt::format("in files: {} ({})\n", word(setting), one_line(setting.origin));
    return text;
}

int show(const ModeOptions& options) {
    const auto status = ask_status(options.socket);
    if (!status)
        return failure(status.error());
    const auto document = ask_daemon(options.socket, wire::Operation::policy);
    if (!document)
        return failure(document.error());
    auto policy = json::parse_policy(*document);
    if (!policy)
        return failure(policy.error());
    const auto is_other = [](const core::Setting& setting) { return setting.key != key; };
    std::erase_if(policy->settings, is_other);
    std::erase_if(policy->replaced, is_other);
    print(options.json ? json::policy_document(*policy) + "\n"
                       : mode_screen(*policy, status->content, standard_output(options.colour)));
    return exit_ok;
}

} // namespace

int mode(const ModeOptions& options) {
    if (options.mode.empty())
        return show(options);
    return give_order(options.socket, core::read_set_mode(options.mode, options.message));
}

} // namespace virtguard::ctl
