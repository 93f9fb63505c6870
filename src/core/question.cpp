// SPDX-License-Identifier: Apache-2.0
#include "core/question.hpp"

#include <algorithm>
#include <string_view>

namespace virtguard::core {

namespace {

/// FNV-1a: the same in each daemon, which std::hash need not be.
class Hash {
  public:
    void add(std::string_view text) {
        for (const char c : text)
            add(static_cast<unsigned char>(c));
        constexpr unsigned char no_text_has_it = 0xff; // UTF-8
        add(no_text_has_it);
    }
    void add(unsigned char byte) { value_ = (value_ ^ byte) * prime; }
    /// JSON has it as a number from 0 up to 2^63.
    [[nodiscard]] std::uint64_t value() const { return (value_ >> 1) | 1; }

  private:
    static constexpr std::uint64_t prime = 0x100000001b3;
    std::uint64_t value_ = 0xcbf29ce484222325;
};

bool is_of(const Fact& fact, const Question& question) {
    return fact.question == 0 || fact.question == id_of(question);
}

} // namespace

std::uint64_t id_of(const Question& question) {
    Hash hash;
    hash.add(static_cast<unsigned char>(question.kind));
    hash.add(question.xpath);
    for (const auto& [prefix, uri] : question.namespaces) {
        hash.add(prefix);
        hash.add(uri);
    }
    return hash.value();
}

void drop_outdated(Facts& facts, const Questions& questions) {
    for (const Question& question : questions)
        if (const auto told = facts.find(question.key);
            told != facts.end() && !is_of(told->second, question))
            facts.erase(told);
}

bool answer_all(const Facts& facts, const Questions& questions) {
    return std::ranges::all_of(questions, [&](const Question& question) {
        const auto told = facts.find(question.key);
        return told != facts.end() && is_of(told->second, question);
    });
}

} // namespace virtguard::core
