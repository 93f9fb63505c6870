// SPDX-License-Identifier: Apache-2.0
#pragma once
// Integer arithmetic that says when it overflows.

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>

namespace virtguard {

/// Wide enough for any product of an amount (below 2^63) and a ratio's numerator (at most 10^9).
__extension__ typedef __int128 Int128;

/// a + b, or nothing when the sum does not fit.
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) noexcept {
    T sum{};
    if (__builtin_add_overflow(a, b, &sum))
        return std::nullopt;
    return sum;
}

/// a × b, or nothing when the product does not fit.
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_multiply(T a, T b) noexcept {
    T product{};
    if (__builtin_mul_overflow(a, b, &product))
        return std::nullopt;
    return product;
}

/// a rounded up to a multiple of step (step > 0, a >= 0), or nothing when that does not fit.
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_round_up(T a, T step) noexcept {
    const T rest = a % step;
    return rest == 0 ? std::optional<T>(a) : checked_add<T>(a, step - rest);
}

/// a ÷ b towards minus infinity; b > 0.
[[nodiscard]] constexpr Int128 floor_divide(Int128 a, Int128 b) noexcept {
    const Int128 quotient = a / b;
    return a % b < 0 ? quotient - 1 : quotient;
}

/// a × b ÷ c towards minus infinity without an intermediate overflow; 0 <= b, 0 < c < 2^126, and
/// the result fits.
[[nodiscard]] constexpr Int128 multiply_divide(Int128 a, Int128 b, Int128 c) noexcept {
    const Int128 whole = floor_divide(a, c);
    const Int128 part = a - whole * c; // in [0, c)
    Int128 result = 0;
    Int128 rest = 0;
    for (int bit = 126; bit >= 0; --bit) { // b's binary digits, highest first
        rest = rest * 2 + (((b >> bit) & 1) != 0 ? part : 0);
        result = result * 2 + rest / c;
        rest %= c;
    }
    return whole * b + result;
}

/// The nearest int64: for sums that are shown, where the exact value cannot occur on a real host.
[[nodiscard]] constexpr std::int64_t saturate(Int128 value) noexcept {
    constexpr std::int64_t low = std::numeric_limits<std::int64_t>::min();
    constexpr std::int64_t high = std::numeric_limits<std::int64_t>::max();
    if (value < low)
        return low;
    return value > high ? high : static_cast<std::int64_t>(value);
}

} // namespace virtguard
