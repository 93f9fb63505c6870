// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a policy asks of each domain's XML, and what it was told. XPath is text to the core: who
// reads the XML answers, and the answers are facts of the domain like any other.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace virtguard::core {

struct Question {
    enum class Kind {
        match,  ///< true or false
        amount, ///< a number from 0 to max_domain_bytes
    };

    std::string key; ///< of the policy that asks, such as "scheduler.recognise.nova.match"
    Kind kind = Kind::match;
    std::string xpath;
    std::map<std::string, std::string> namespaces; ///< URIs by prefix

    friend bool operator==(const Question&, const Question&) = default;
};

using Questions = std::vector<Question>;

/// Tells what is asked from what else may be asked by the same key, also for the next daemon; not
/// 0.
[[nodiscard]] std::uint64_t id_of(const Question& question);

/// Of a policy. All of them are put to each domain, within one limit on what that costs.
inline constexpr std::size_t max_questions = 64;

/// What is wrong with a question whatever the domain; for who loads a policy.
using QuestionCheck = std::function<Result<>(const Question&)>;

/// The answer to a question.
struct Fact {
    std::int64_t value = 0;     ///< of a match 1 or 0
    std::string problem;        ///< why there is no answer, one line; the value is 0 then
    std::uint64_t question = 0; ///< id_of() what was asked; 0: whatever its key asks

    friend bool operator==(const Fact&, const Fact&) = default;
};

/// By the key of the question.
using Facts = std::map<std::string, Fact, std::less<>>;

/// Drops answers to what was asked by the key of one of the questions, and was another question.
void drop_outdated(Facts& facts, const Questions& questions);
/// All of the questions were asked.
[[nodiscard]] bool answer_all(const Facts& facts, const Questions& questions);

} // namespace virtguard::core
