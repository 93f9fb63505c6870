// SPDX-License-Identifier: Apache-2.0
#include "base/uuid.hpp"

#include <charconv>

namespace virtguard {

std::optional<Uuid> Uuid::parse(std::string_view text) noexcept {
    Uuid uuid;
    std::size_t digits = 0;
    for (const char c : text) {
        if (c == '-' || c == ' ' || c == '\t' || c == '\n')
            continue;
        std::uint8_t value = 0;
        if (std::from_chars(&c, &c + 1, value, 16).ec != std::errc{} || digits == 32)
            return std::nullopt;
        std::uint8_t& byte = uuid.bytes[digits / 2];
        byte = static_cast<std::uint8_t>(byte << 4 | value);
        ++digits;
    }
    return digits == 32 ? std::optional(uuid) : std::nullopt;
}

std::string Uuid::text() const {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string result(36, '-');
    std::size_t at = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            ++at;
        result[at++] = digits[bytes[i] >> 4U];
        result[at++] = digits[bytes[i] & 0xFU];
    }
    return result;
}

} // namespace virtguard
