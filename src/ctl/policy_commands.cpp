// SPDX-License-Identifier: Apache-2.0
#include "ctl/policy_commands.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ratio.hpp"
#include "base/text.hpp"
#include "ctl/ask.hpp"
#include "ctl/show.hpp"
#include "ctl/table.hpp"
#include "domxml/parse.hpp"
#include "host/topology.hpp"
#include "policy/load.hpp"
#include "policy/settings.hpp"
#include "json/document.hpp"

namespace virtguard::ctl {

namespace {

/// A folder without any policy was most likely not meant.
policy::PolicyFiles read_files(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error))
        return policy::read_one_file(path);
    policy::PolicyFiles files = policy::read_directory(path);
    if (!files.is_there)
        files.unreadable.push_back(
            fmt::format("{}: has neither virtguard.toml nor conf.d: expected a folder with one of "
                        "them, or a file",
                        printable(path)));
    return files;
}

void show_errors(const std::vector<std::string>& errors) {
    for (const std::string& error : errors)
        show_error(error);
}

/// All that is wrong with the files, or impossible on this host. Error: the host cannot be read.
Result<std::vector<std::string>> errors_of(policy::PolicyFiles files) {
    const auto loaded = policy::load(std::move(files), domxml::check_question);
    if (!loaded)
        return loaded.error();
    const auto topology = host::live_topology("/");
    if (!topology)
        return std::unexpected(topology.error());
    return core::conflicts(*loaded, *topology);
}

Result<json::PolicyInForce> ask_policy(const PolicyOptions& options) {
    const auto document = ask_daemon(options.socket, wire::Operation::policy);
    return document ? json::parse_policy(*document) : std::unexpected(document.error());
}

std::string line_of(const core::Setting& setting) {
    return fmt::format("{} = {}  # {}", one_line(setting.key), one_line(setting.value),
                       one_line(setting.origin));
}

std::map<std::string, core::Setting> by_key(const std::vector<core::Setting>& settings) {
    std::map<std::string, core::Setting> map;
    for (const core::Setting& setting : settings)
        map.emplace(setting.key, setting);
    return map;
}

/// Who set it and, where that was at run time, in place of what.
std::string whole_origin(const core::Setting& setting,
                         const std::map<std::string, core::Setting>& replaced) {
    const auto file = replaced.find(setting.key);
    return one_line(file == replaced.end() ? setting.origin
                                           : fmt::format("{}, in place of {} ({})", setting.origin,
                                                         file->second.value, file->second.origin));
}

/// What a reload would replace: what is set at run time stays.
std::vector<core::Setting> from_files(const json::PolicyInForce& policy) {
    const std::map<std::string, core::Setting> replaced = by_key(policy.replaced);
    std::vector<core::Setting> settings;
    for (const core::Setting& setting : policy.settings) {
        const auto file = replaced.find(setting.key);
        settings.push_back(file == replaced.end() ? setting : file->second);
    }
    return settings;
}

using Change = json::PolicyChange;

/// What a key has. A ratio that is not listed, as that of what no policy declares, is 1.
std::string value_of(const std::optional<core::Setting>& setting, std::string_view key) {
    if (setting)
        return setting->value;
    return key.starts_with("overcommit.") ? Ratio{}.text() : "";
}

std::vector<Change> changes(const std::vector<core::Setting>& in_force,
                            const std::vector<core::Setting>& in_files) {
    std::map<std::string_view, Change> by_key;
    for (const core::Setting& setting : in_force)
        by_key[setting.key].in_force = setting;
    for (const core::Setting& setting : in_files)
        by_key[setting.key].in_files = setting;
    std::vector<Change> changed;
    for (const auto& [key, change] : by_key)
        if (value_of(change.in_force, key) != value_of(change.in_files, key))
            changed.push_back(change);
    return changed;
}

} // namespace

int check_policy_files(const PolicyOptions& options) {
    policy::PolicyFiles files = read_files(options.path);
    const bool is_read = files.unreadable.empty();
    const auto errors = errors_of(std::move(files));
    if (!errors)
        return failure(errors.error());
    if (!is_read) {
        show_errors(*errors);
        return exit_bad_input;
    }
    if (options.json)
        print(json::policy_check_document(*errors) + "\n");
    else if (errors->empty())
        print(
            fmt::format("{}: well written, and possible on this host\n", printable(options.path)));
    else
        show_errors(*errors);
    return errors->empty() ? exit_ok : exit_refused;
}

int show_policy(const PolicyOptions& options) {
    const auto policy = ask_policy(options);
    if (!policy)
        return failure(policy.error());
    if (options.json) {
        print(json::policy_document(*policy) + "\n");
        return exit_ok;
    }
    const Screen screen = standard_output(options.colour);
    const std::map<std::string, core::Setting> replaced = by_key(policy->replaced);
    for (const std::string& problem : policy->problems)
        print(inked(screen, Ink::bad, fmt::format("# not in force: {}", one_line(problem))) + "\n");
    std::size_t widest = 0;
    for (const core::Setting& setting : policy->settings)
        widest = std::max(widest, setting.key.size() + setting.value.size() + 3);
    for (const core::Setting& setting : policy->settings) {
        const std::string line =
            fmt::format("{} = {}", one_line(setting.key), one_line(setting.value));
        print(fmt::format("{:{}}  {}\n", line, widest,
                          inked(screen, setting.origin == "default" ? Ink::faint : Ink::good,
                                "# " + whole_origin(setting, replaced))));
    }
    return exit_ok;
}

int compare_policies(const PolicyOptions& options) {
    const auto policy = ask_policy(options);
    if (!policy)
        return failure(policy.error());
    const auto loaded = policy::load(read_files(options.path), domxml::check_question);
    if (!loaded) {
        show_errors(loaded.error());
        return exit_bad_input;
    }
    const std::vector<core::Setting> in_files = policy::settings(*loaded);
    const std::vector<Change> changed = changes(from_files(*policy), in_files);
    if (options.json) {
        print(json::policy_difference_document(changed) + "\n");
        return changed.empty() ? exit_ok : exit_refused;
    }
    const Screen screen = standard_output(options.colour);
    for (const Change& change : changed) {
        if (change.in_force)
            print(inked(screen, Ink::bad, "- " + line_of(*change.in_force)) + "\n");
        if (change.in_files)
            print(inked(screen, Ink::good, "+ " + line_of(*change.in_files)) + "\n");
    }
    return changed.empty() ? exit_ok : exit_refused;
}

} // namespace virtguard::ctl
