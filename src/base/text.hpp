// SPDX-License-Identifier: Apache-2.0
#pragma once
// The only place where text becomes a number and a byte count becomes text. No locale.

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.hpp"

namespace virtguard {

/// Decimal digits only (no sign, no space), below 2^64; nothing for anything else.
/// Here and not in text.cpp for virtguard-hook, which is linked without the rest.
[[nodiscard]] inline std::optional<std::uint64_t> parse_unsigned(std::string_view text) noexcept {
    std::uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end || text.empty())
        return std::nullopt;
    return value;
}

/// A whole number of bytes below 2^63 as operators and Kubernetes write it: "4GiB" = "4Gi",
/// "4GB" = "4G" = 4·10⁹, "1.5Gi", "1e9", "512". A fraction of a byte rounds up, as Kubernetes does.
[[nodiscard]] Result<std::int64_t> parse_size(std::string_view text);

/// A whole number of things below 2^63, in digits alone: half a vCPU is none, and "1Gi" of them is
/// most likely meant for something else.
[[nodiscard]] Result<std::int64_t> parse_count(std::string_view text);

/// A span of time: "2s", "500ms", "10min", "1h", "1d"; at most a year.
[[nodiscard]] Result<std::chrono::milliseconds> parse_duration(std::string_view text);

/// "2s", "500ms", "10min": what parse_duration() reads back as the same span.
[[nodiscard]] std::string format_duration(std::chrono::milliseconds span);

enum class Rounding { down, up };

/// For people: "3 GiB", "1.5 GiB", "-512 MiB", "0"; at most two decimals, rounded as asked, so that
/// "needs" (up) and "free" (down) never read as equal where they are not.
[[nodiscard]] std::string format_bytes(std::int64_t bytes, Rounding rounding);

/// For names and Kubernetes: the largest IEC unit that divides the count: "2Mi", "5Mi", "1536".
[[nodiscard]] std::string format_iec(std::int64_t bytes);

/// Whether a name matches a glob as fnmatch(3) knows it: "cortex*", "?", "[a-z]".
[[nodiscard]] bool glob_matches(const std::string& pattern, const std::string& name);

/// Levenshtein's distance: how many letters to add, drop or change. Only the first 64 bytes of each
/// are compared: it is for suggesting a name in place of a mistyped one.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The text between quotation marks, as one_line() has it and cut after 120 bytes: for showing
/// foreign input in a message of one line.
[[nodiscard]] std::string quote(std::string_view foreign);

/// The same, without the quotation marks: for names in messages.
[[nodiscard]] std::string printable(std::string_view foreign);

/// Whether one of its bytes is a control character of ASCII.
[[nodiscard]] bool has_control(std::string_view text) noexcept;

/// A string as TOML has it, of text without control characters.
[[nodiscard]] std::string toml_string(std::string_view text);

/// A part of a dotted key as TOML has it: bare, or between quotation marks where it has to be.
[[nodiscard]] std::string toml_key(std::string_view part);

/// The longest beginning of at most max bytes that does not end inside a UTF-8 character.
[[nodiscard]] std::string_view cut_text(std::string_view text, std::size_t max) noexcept;

/// All of it on one line: what could end or turn it, or is no UTF-8, as \xNN; nothing is cut.
[[nodiscard]] std::string one_line(std::string_view text);

} // namespace virtguard
