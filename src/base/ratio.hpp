// SPDX-License-Identifier: Apache-2.0
#pragma once
// An overcommit ratio: an exact decimal, never a binary float.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace virtguard {

/// Above 0 and at most 1000, with at most 6 decimals; kept in lowest terms, so equal ratios are
/// equal values and the products made with it stay small.
class Ratio {
  public:
    /// One.
    constexpr Ratio() = default;

    /// Reads "1.15", "3", "0.5". The error says what was expected.
    [[nodiscard]] static Result<Ratio> parse(std::string_view text);

    [[nodiscard]] constexpr std::int64_t numerator() const noexcept { return numerator_; }
    [[nodiscard]] constexpr std::int64_t denominator() const noexcept { return denominator_; }
    [[nodiscard]] constexpr bool is_one() const noexcept { return numerator_ == denominator_; }
    [[nodiscard]] constexpr bool is_below_one() const noexcept { return numerator_ < denominator_; }

    /// The exact decimal without trailing zeros: "1.15", "3".
    [[nodiscard]] std::string text() const;

    friend constexpr bool operator==(const Ratio&, const Ratio&) = default;

  private:
    constexpr Ratio(std::int64_t numerator, std::int64_t denominator)
        : numerator_(numerator), denominator_(denominator) {}

    std::int64_t numerator_ = 1;
    std::int64_t denominator_ = 1;
};

} // namespace virtguard
