// SPDX-License-Identifier: Apache-2.0
#pragma once
// UTF-8, and what of a foreign text may stand in a line. Here and not in text.cpp for
// virtguard-hook, which is linked without that.

#include <array>
#include <cstddef>
#include <string_view>

namespace virtguard {

struct Utf8Character {
    unsigned code = 0;
    std::size_t length = 0; ///< in bytes; 0: none is there
};

/// The UTF-8 character that the text begins with.
[[nodiscard]] inline Utf8Character first_character(std::string_view text) noexcept {
    const auto byte = [text](std::size_t i) -> unsigned {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
    };
    const unsigned lead = byte(0);
    if (lead < 0x80)
        return {.code = lead, .length = text.empty() ? 0U : 1U};
    if (lead < 0xc2 || lead > 0xf4)
        return {};
    const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    unsigned code = lead & (0x7fU >> length);
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80)
            return {};
        code = code << 6 | (byte(i) & 0x3f);
    }
    constexpr std::array<unsigned, 5> least{0, 0, 0x80, 0x800, 0x10000};
    const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    if (code < least[length] || code > 0x10ffff || is_surrogate)
        return {};
    return {.code = code, .length = length};
}

/// How many bytes the UTF-8 character at the front has; 0 if none is there, or one that could end
/// or turn the line: C0, DEL, C1, the separators U+2028 and U+2029, and the marks, embeddings,
/// overrides and isolates of bidirectional text.
[[nodiscard]] inline std::size_t line_character_length(std::string_view text) noexcept {
    const auto [code, length] = first_character(text);
    const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    const bool turns = code == 0x061c || code == 0x200e || code == 0x200f ||
                       (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    return is_control || turns ? 0 : length;
}

} // namespace virtguard
