// SPDX-License-Identifier: Apache-2.0
// A policy's questions put to a domain's XML, both of which others write: the first line is the
// expression, the rest the XML.

#include <string>

#include "base/text.hpp"
#include "core/domain.hpp"
#include "domxml/parse.hpp"
#include "fuzz.hpp"

namespace virtguard {

namespace {

constexpr std::size_t policy_limit = 4096;

void ask(std::string_view xml, core::Question question) {
    if (const auto checked = domxml::check_question(question); !checked) {
        fuzz::require_one_line(checked.error().what);
        return; // no policy has it
    }
    const auto domain = domxml::parse_domain(xml, {question});
    if (!domain) {
        fuzz::require_one_line(domain.error().what);
        return;
    }
    const core::Fact& fact = domain->fact(question.key);
    if (!fact.problem.empty())
        fuzz::require_one_line(fact.problem);
    const std::int64_t most =
        question.kind == core::Question::Kind::match ? 1 : core::max_domain_bytes;
    fuzz::require(fact.value >= 0 && fact.value <= most, "an answer is within its range");
    fuzz::require(fact.problem.empty() || fact.value == 0, "a question without an answer has none");
}

} // namespace

} // namespace virtguard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace virtguard;
    [[maybe_unused]] static const bool is_initialised = (domxml::initialise(), true);
    const std::string_view input = fuzz::text_of(data, size);
    const std::size_t line = input.find('\n');
    const std::string_view xml = line == std::string_view::npos ? "" : input.substr(line + 1);
    core::Question question{.key = "rule.a.match",
                            .xpath = std::string(input.substr(0, line)),
                            .namespaces = {{"n", "http://example.org/n"}}};
    if (question.xpath.size() > policy_limit || has_control(question.xpath))
        return 0; // a policy does not take it
    for (const auto kind : {core::Question::Kind::match, core::Question::Kind::amount}) {
        question.kind = kind;
        ask(xml, question);
    }
    return 0;
}
