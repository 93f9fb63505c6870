// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sets of places as bits in words of equal number, for Occupancy's inner loops, where an IdSet
// would compare lengths all the time.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace virtguard::core {

/// Bits in a word.
inline constexpr std::size_t word_bits = 64;

inline bool has(const std::vector<std::uint64_t>& words, std::size_t bit) {
    return (words[bit / word_bits] >> (bit % word_bits) & 1) != 0;
}
inline void set(std::vector<std::uint64_t>& words, std::size_t bit) {
    words[bit / word_bits] |= std::uint64_t{1} << (bit % word_bits);
}
inline void clear(std::vector<std::uint64_t>& words, std::size_t bit) {
    words[bit / word_bits] &= ~(std::uint64_t{1} << (bit % word_bits));
}
inline void unite(std::vector<std::uint64_t>& words, const std::vector<std::uint64_t>& other) {
    for (std::size_t i = 0; i < words.size(); ++i)
        words[i] |= other[i];
}
inline bool has_any(const std::vector<std::uint64_t>& words) {
    return std::ranges::any_of(words, [](std::uint64_t word) { return word != 0; });
}
/// Whether all of the words from first to end lie within the others.
inline bool is_within(const std::vector<std::uint64_t>& words,
                      const std::vector<std::uint64_t>& other, std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i)
        if ((words[i] & ~other[i]) != 0)
            return false;
    return true;
}

/// The lowest bit that is set in a word of that index.
inline std::uint32_t bit_at(std::size_t index, std::uint64_t word) {
    return static_cast<std::uint32_t>(index * word_bits) +
           static_cast<std::uint32_t>(std::countr_zero(word));
}

/// The first bit that is set in both, in the words from first to end.
inline std::optional<std::uint32_t> first_common_bit(const std::vector<std::uint64_t>& words,
                                                     const std::vector<std::uint64_t>& other,
                                                     std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i)
        if (const std::uint64_t word = words[i] & other[i]; word != 0)
            return bit_at(i, word);
    return std::nullopt;
}

/// Calls what for each bit that is set in both, ascending, until it returns false. It may clear the
/// bit it is called for.
template <class What>
void for_each_common_bit(const std::vector<std::uint64_t>& words,
                         const std::vector<std::uint64_t>& other, What what) {
    for (std::size_t i = 0; i < words.size(); ++i)
        for (std::uint64_t word = words[i] & other[i]; word != 0; word &= word - 1)
            if (!what(bit_at(i, word)))
                return;
}

/// Calls what for each set bit, ascending, until it returns false.
template <class What>
void for_each_bit(const std::vector<std::uint64_t>& words, What what) {
    for_each_common_bit(words, words, what);
}

/// The bit that is set when no other is.
inline std::optional<std::uint32_t> only_bit(const std::vector<std::uint64_t>& words) {
    std::optional<std::uint32_t> only;
    int count = 0;
    for_each_bit(words, [&](std::uint32_t bit) {
        only = bit;
        return ++count < 2;
    });
    return count == 1 ? only : std::nullopt;
}

} // namespace virtguard::core
