// SPDX-License-Identifier: Apache-2.0
#include "base/idset.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <optional>

#include "base/text.hpp"

namespace virtguard {

namespace {

constexpr int word_bits = 64;

std::size_t word_of(int id) {
    return static_cast<std::size_t>(id) / word_bits;
}
std::uint64_t bit_of(int id) {
    return std::uint64_t{1} << (id % word_bits);
}

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\n");
    if (first == std::string_view::npos)
        return {};
    return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::optional<int> parse_id(std::string_view text) {
    const auto value = parse_unsigned(trimmed(text));
    if (!value || *value >= std::uint64_t{IdSet::limit})
        return std::nullopt;
    return static_cast<int>(*value);
}

} // namespace

IdSet::IdSet(std::initializer_list<int> ids) {
    for (const int id : ids)
        insert(id);
}

IdSet IdSet::range(int first, int last) {
    if (first > last)
        return {};
    IdSet result;
    result.insert(first);
    result.insert(last);
    for (std::size_t word = word_of(first); word <= word_of(last); ++word)
        result.words_[word] = ~std::uint64_t{0};
    // Bits below the first id and above the last one belong to their words only.
    result.words_[word_of(first)] &= ~(bit_of(first) - 1);
    result.words_[word_of(last)] &= bit_of(last) | (bit_of(last) - 1);
    return result;
}

Result<IdSet> IdSet::parse(std::string_view text) {
    const auto error = [&] {
        return fail(Errc::invalid,
                    "{} is not a list of ids: expected such as \"0-3,8\", each below {}",
                    quote(text), limit);
    };
    IdSet result;
    std::string_view rest = trimmed(text);
    while (!rest.empty()) {
        const std::size_t comma = rest.find(',');
        std::string_view item = trimmed(rest.substr(0, comma));
        rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
        if (comma != std::string_view::npos && trimmed(rest).empty())
            return error();
        const bool exclude = item.starts_with('^');
        if (exclude)
            item.remove_prefix(1);
        const std::size_t dash = item.find('-');
        const auto first = parse_id(item.substr(0, dash));
        const auto last = dash == std::string_view::npos ? first : parse_id(item.substr(dash + 1));
        if (!first || !last || *first > *last)
            return error();
        const IdSet ids = range(*first, *last);
        exclude ? result -= ids : result |= ids;
    }
    return result;
}

std::string IdSet::text() const {
    std::string result;
    for (int id = first(); id >= 0;) {
        int last = id;
        int following = next(id);
        while (following == last + 1) {
            last = following;
            following = next(following);
        }
        if (!result.empty())
            result += ',';
        result += last == id ? fmt::format("{}", id) : fmt::format("{}-{}", id, last);
        id = following;
    }
    return result;
}

void IdSet::insert(int id) {
    assert(id >= 0 && id < limit);
    if (word_of(id) >= words_.size())
        words_.resize(word_of(id) + 1);
    words_[word_of(id)] |= bit_of(id);
}

void IdSet::erase(int id) noexcept {
    if (!contains(id))
        return;
    words_[word_of(id)] &= ~bit_of(id);
    trim();
}

bool IdSet::contains(int id) const noexcept {
    return id >= 0 && word_of(id) < words_.size() && (words_[word_of(id)] & bit_of(id)) != 0;
}

int IdSet::count() const noexcept {
    int result = 0;
    for (const std::uint64_t word : words_)
        result += std::popcount(word);
    return result;
}

int IdSet::next(int id) const noexcept {
    const int from = id + 1;
    for (std::size_t word = word_of(from); word < words_.size(); ++word) {
        std::uint64_t bits = words_[word];
        if (word == word_of(from))
            bits &= ~std::uint64_t{0} << (from % word_bits);
        if (bits != 0)
            return static_cast<int>(word) * word_bits + std::countr_zero(bits);
    }
    return -1;
}

std::vector<int> IdSet::ids() const {
    std::vector<int> result;
    result.reserve(static_cast<std::size_t>(count()));
    for (int id = first(); id >= 0; id = next(id))
        result.push_back(id);
    return result;
}

bool IdSet::intersects(const IdSet& other) const noexcept {
    const std::size_t common = std::min(words_.size(), other.words_.size());
    for (std::size_t i = 0; i < common; ++i)
        if ((words_[i] & other.words_[i]) != 0)
            return true;
    return false;
}

bool IdSet::is_subset_of(const IdSet& other) const noexcept {
    if (words_.size() > other.words_.size())
        return false;
    for (std::size_t i = 0; i < words_.size(); ++i)
        if ((words_[i] & ~other.words_[i]) != 0)
            return false;
    return true;
}

IdSet& IdSet::operator|=(const IdSet& other) {
    if (other.words_.size() > words_.size())
        words_.resize(other.words_.size());
    for (std::size_t i = 0; i < other.words_.size(); ++i)
        words_[i] |= other.words_[i];
    return *this;
}

IdSet& IdSet::operator&=(const IdSet& other) {
    if (words_.size() > other.words_.size())
        words_.resize(other.words_.size());
    for (std::size_t i = 0; i < words_.size(); ++i)
        words_[i] &= other.words_[i];
    trim();
    return *this;
}

IdSet& IdSet::operator-=(const IdSet& other) {
    const std::size_t common = std::min(words_.size(), other.words_.size());
    for (std::size_t i = 0; i < common; ++i)
        words_[i] &= ~other.words_[i];
    trim();
    return *this;
}

IdSet IdSet::from_words(std::vector<std::uint64_t> words) {
    IdSet result;
    result.words_ = std::move(words);
    result.trim();
    return result;
}

/// FNV-1a over words, with a final mix so that high bits reach the low ones.
std::size_t IdSet::hash() const noexcept {
    std::uint64_t result = 0xcbf29ce484222325;
    for (const std::uint64_t word : words_) {
        result = (result ^ word) * 0x100000001b3;
        result ^= result >> 32;
    }
    return result;
}

void IdSet::trim() noexcept {
    while (!words_.empty() && words_.back() == 0)
        words_.pop_back();
}

} // namespace virtguard
