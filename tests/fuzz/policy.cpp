// SPDX-License-Identifier: Apache-2.0
// Policy files, through all that a reload does with them: a text gives a policy or errors of one
// line each, the policy can be shown as a text that gives it again, and decides a start.

#include <string>
#include <vector>

#include "core/guard.hpp"
#include "domxml/parse.hpp"
#include "fuzz.hpp"
#include "hosts.hpp"
#include "policy/load.hpp"
#include "policy/settings.hpp"

namespace virtguard {

namespace {

/// Files are what stands between zero bytes.
std::vector<policy::PolicyText> files_of(std::string_view input) {
    std::vector<policy::PolicyText> files;
    for (std::size_t begin = 0; begin <= input.size() && files.size() < 4;) {
        const std::size_t end = std::min(input.find('\0', begin), input.size());
        files.push_back(
            {fmt::format("{}.toml", files.size()), std::string(input.substr(begin, end - begin))});
        begin = end + 1;
    }
    return files;
}

std::string text_of(const core::Policy& policy) {
    std::string text;
    for (const core::Setting& setting : policy::settings(policy))
        text += fmt::format("{} = {}\n", setting.key, setting.value);
    return text;
}

void show_and_load_again(const core::Policy& policy) {
    const std::string text = text_of(policy);
    const auto again =
        policy::load(std::vector{policy::PolicyText{"again.toml", text}}, domxml::check_question);
    if (!again)
        for (const std::string& error : again.error())
            (void)std::fprintf(stderr, "%s\n", error.c_str());
    fuzz::require(again.has_value(), "what is shown of a policy can be loaded");
    fuzz::require(text_of(*again) == text, "what is shown of a policy gives that policy");
}

void decide(const core::Policy& policy) {
    constexpr int nodes = 2;
    constexpr int pus = 4;
    core::Topology topology = core::equal_nodes(nodes, pus, core::gib);
    core::add_pages(topology, 1, core::page_2m, 16);
    for (const std::string& conflict : core::conflicts(policy, topology))
        fuzz::require_one_line(conflict);
    core::Guard guard(std::move(topology), policy);
    const auto domain = domxml::parse_domain(
        "<domain type='kvm'><name>a</name><memory>262144</memory><vcpu>2</vcpu><devices/></domain>",
        guard.questions());
    fuzz::require(domain.has_value(), "no question makes a domain unreadable");
    for (int i = 0; i < 2; ++i)
        for (const core::Reason& reason : guard.start_at_once(*domain).decision.reasons)
            fuzz::require_one_line(reason.text);
}

} // namespace

} // namespace virtguard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace virtguard;
    [[maybe_unused]] static const bool is_initialised = (domxml::initialise(), true);
    const auto files = files_of(fuzz::text_of(data, size));
    const auto loaded = policy::load(files, domxml::check_question);
    if (!loaded) {
        fuzz::require(!loaded.error().empty(), "an error says something");
        for (const std::string& error : loaded.error())
            fuzz::require_one_line(error);
        return 0;
    }
    show_and_load_again(*loaded);
    decide(*loaded);
    return 0;
}
