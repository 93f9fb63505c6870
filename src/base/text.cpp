// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

#include <fnmatch.h>

#include "base/checked.hpp"
#include "base/utf8.hpp"

namespace virtguard {

namespace {

struct Suffix {
    std::string_view text;
    Int128 factor;
};

constexpr Int128 kibi = 1024;
constexpr Int128 kilo = 1000;

// Kubernetes' suffixes; K beside k because operators write it, and no such unit exists otherwise.
constexpr std::array<Suffix, 14> suffixes{{
    {"", 1},
    {"k", kilo},
    {"K", kilo},
    {"M", kilo* kilo},
    {"G", kilo* kilo* kilo},
    {"T", kilo* kilo* kilo* kilo},
    {"P", kilo* kilo* kilo* kilo* kilo},
    {"E", kilo* kilo* kilo* kilo* kilo* kilo},
    {"Ki", kibi},
    {"Mi", kibi* kibi},
    {"Gi", kibi* kibi* kibi},
    {"Ti", kibi* kibi* kibi* kibi},
    {"Pi", kibi* kibi* kibi* kibi* kibi},
    {"Ei", kibi* kibi* kibi* kibi* kibi* kibi},
}};

constexpr std::size_t max_digits = 19; // a mantissa of 19 digits times 2^60 stays below 2^127

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::optional<Int128> power_of_ten(std::uint64_t exponent) {
    if (exponent > max_digits)
        return std::nullopt;
    Int128 power = 1;
    for (std::uint64_t i = 0; i < exponent; ++i)
        power *= 10;
    return power;
}

/// What follows the digits: a suffix, or a decimal exponent ("e3", "E3").
std::optional<Int128> scale_of(std::string_view tail) {
    if (tail.size() > 1 && (tail.front() == 'e' || tail.front() == 'E') && is_digit(tail[1])) {
        const auto exponent = parse_unsigned(tail.substr(1));
        return exponent ? power_of_ten(*exponent) : std::nullopt;
    }
    const auto found = std::ranges::find(suffixes, tail, &Suffix::text);
    return found == suffixes.end() ? std::nullopt : std::optional(found->factor);
}

/// digits[.digits]scale, rounded up to a whole number; nothing when it is not that or too large.
std::optional<std::int64_t> parse_scaled(std::string_view text) {
    const auto end_of_number =
        std::ranges::find_if_not(text, [](char c) { return is_digit(c) || c == '.'; });
    const auto length = static_cast<std::size_t>(end_of_number - text.begin());
    const std::string_view number = text.substr(0, length);
    const auto scale = scale_of(text.substr(length));
    const std::size_t dot = number.find('.');
    const std::string_view whole = number.substr(0, dot);
    const std::string_view fraction =
        dot == std::string_view::npos ? std::string_view{} : number.substr(dot + 1);
    if (!scale || (dot != std::string_view::npos && fraction.empty()))
        return std::nullopt;
    std::string digits(whole);
    digits += fraction;
    if (digits.empty() || digits.size() > max_digits)
        return std::nullopt;
    const auto mantissa = parse_unsigned(digits);
    const auto divisor = power_of_ten(fraction.size());
    if (whole.empty() || !mantissa || !divisor)
        return std::nullopt;
    const Int128 product = static_cast<Int128>(*mantissa) * *scale;
    const Int128 rounded = (product + *divisor - 1) / *divisor;
    if (rounded > std::numeric_limits<std::int64_t>::max())
        return std::nullopt;
    return static_cast<std::int64_t>(rounded);
}

constexpr std::array<std::string_view, 7> iec_units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
constexpr std::array<std::string_view, 7> iec_suffixes{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};

bool is_control(char c) noexcept {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
}

} // namespace

Result<std::int64_t> parse_size(std::string_view text) {
    std::string_view quantity = text;
    if (quantity.ends_with('B'))
        quantity.remove_suffix(1);
    const auto value = parse_scaled(quantity);
    if (!value)
        return fail(Errc::invalid,
                    "{} is not a size: expected a number of bytes such as \"512MiB\", \"4Gi\" or "
                    "\"4GB\", below 8 EiB",
                    quote(text));
    return *value;
}

Result<std::int64_t> parse_count(std::string_view text) {
    const auto value = parse_unsigned(text);
    if (!value || *value > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        return fail(Errc::invalid, "{} is not a count: expected a whole number such as 48",
                    quote(text));
    return static_cast<std::int64_t>(*value);
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
    struct Unit {
        std::string_view text;
        std::uint64_t milliseconds;
    };
    constexpr std::array<Unit, 5> units{
        {{"ms", 1}, {"s", 1000}, {"min", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}}};
    constexpr std::uint64_t year = 366 * std::uint64_t{86'400'000};

    const auto length =
        static_cast<std::size_t>(std::ranges::find_if_not(text, is_digit) - text.begin());
    const auto unit = std::ranges::find(units, text.substr(length), &Unit::text);
    const auto number = parse_unsigned(text.substr(0, length));
    if (number && unit != units.end()) {
        const auto span = checked_multiply<std::uint64_t>(*number, unit->milliseconds);
        if (span && *span <= year)
            return std::chrono::milliseconds(*span);
    }
    return fail(Errc::invalid,
                "{} is not a duration: expected a number and ms, s, min, h or d, such as \"2s\", "
                "at most a year",
                quote(text));
}

std::string format_duration(std::chrono::milliseconds span) {
    const auto count = span.count();
    if (count != 0 && count % 60'000 == 0)
        return fmt::format("{}min", count / 60'000);
    return count % 1000 == 0 ? fmt::format("{}s", count / 1000) : fmt::format("{}ms", count);
}

std::string format_bytes(std::int64_t bytes, Rounding rounding) {
    const Int128 magnitude = bytes < 0 ? -static_cast<Int128>(bytes) : bytes;
    std::size_t unit = 0;
    Int128 factor = 1;
    while (unit + 1 < iec_units.size() && magnitude >= factor * kibi) {
        factor *= kibi;
        ++unit;
    }
    if (unit == 0)
        return bytes == 0 ? "0" : fmt::format("{} B", bytes);
    Int128 hundredths = floor_divide(static_cast<Int128>(bytes) * 100, factor);
    if (rounding == Rounding::up && hundredths * factor != static_cast<Int128>(bytes) * 100)
        ++hundredths;
    const bool negative = hundredths < 0;
    const auto shown = static_cast<std::int64_t>(negative ? -hundredths : hundredths);
    std::string decimals = shown % 100 == 0 ? "" : fmt::format(".{:02}", shown % 100);
    if (decimals.ends_with('0'))
        decimals.pop_back();
    return fmt::format("{}{}{} {}", negative ? "-" : "", shown / 100, decimals, iec_units[unit]);
}

std::string format_iec(std::int64_t bytes) {
    std::size_t unit = 0;
    while (unit + 1 < iec_suffixes.size() && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        ++unit;
    }
    return fmt::format("{}{}", bytes, iec_suffixes[unit]);
}

bool glob_matches(const std::string& pattern, const std::string& name) {
    if (pattern.find_first_of("*?[\\") == std::string::npos) // as most do
        return pattern == name;
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
    constexpr std::size_t longest_compared = 64;
    a = a.substr(0, longest_compared);
    b = b.substr(0, longest_compared);
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
        }
    }
    return row.back();
}

bool has_control(std::string_view text) noexcept {
    return std::ranges::any_of(text, is_control);
}

std::string printable(std::string_view foreign) {
    constexpr std::size_t max_shown = 120;
    std::string result = one_line(cut_text(foreign, max_shown));
    if (foreign.size() > max_shown)
        result += "...";
    return result;
}

std::string toml_string(std::string_view text) {
    std::string result = "\"";
    for (const char c : text)
        result += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
    return result + "\"";
}

std::string toml_key(std::string_view part) {
    constexpr std::string_view bare =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const bool is_bare = !part.empty() && part.find_first_not_of(bare) == std::string_view::npos;
    return is_bare ? std::string(part) : toml_string(part);
}

std::string_view cut_text(std::string_view text, std::size_t max) noexcept {
    if (text.size() <= max)
        return text;
    const auto continues = [](char byte) {
        return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
    };
    while (max > 0 && continues(text[max]))
        --max;
    return text.substr(0, max);
}

std::string one_line(std::string_view text) {
    std::string result;
    while (!text.empty()) {
        const std::size_t length = line_character_length(text);
        if (length > 0)
            result += text.substr(0, length);
        else
            result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return result;
}

std::string quote(std::string_view foreign) {
    return fmt::format("\"{}\"", printable(foreign));
}

} // namespace virtguard
