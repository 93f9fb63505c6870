// SPDX-License-Identifier: Apache-2.0
#pragma once
// A domain's UUID as sixteen bytes.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace virtguard {

struct Uuid {
    std::array<std::uint8_t, 16> bytes{};

    /// As libvirt reads one: 32 hexadecimal digits of either case, hyphens and surrounding spaces
    /// ignored. Nothing for anything else.
    [[nodiscard]] static std::optional<Uuid> parse(std::string_view text) noexcept;

    /// 8-4-4-4-12 lower-case digits.
    [[nodiscard]] std::string text() const;

    friend bool operator==(const Uuid&, const Uuid&) = default;
    friend auto operator<=>(const Uuid&, const Uuid&) = default;
};

} // namespace virtguard
