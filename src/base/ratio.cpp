// SPDX-License-Identifier: Apache-2.0
#include "base/ratio.hpp"

#include <numeric>

#include "base/text.hpp"

namespace virtguard {

namespace {

constexpr std::int64_t scale = 1'000'000; // six decimals
constexpr std::size_t max_decimals = 6;
constexpr std::int64_t max_whole = 1000;

std::unexpected<Error> not_a_ratio(std::string_view text) {
    return fail(Errc::invalid,
                "{} is not a ratio: expected a decimal above 0 and at most 1000 with at most 6 "
                "decimals, such as 1.5",
                quote(text));
}

} // namespace

Result<Ratio> Ratio::parse(std::string_view text) {
    const std::size_t dot = text.find('.');
    const std::string_view whole_text = text.substr(0, dot);
    std::string decimals(dot == std::string_view::npos ? std::string_view{} : text.substr(dot + 1));
    const bool dot_without_decimals = dot != std::string_view::npos && decimals.empty();
    while (decimals.ends_with('0'))
        decimals.pop_back();
    if (dot_without_decimals || decimals.size() > max_decimals)
        return not_a_ratio(text);
    decimals.resize(max_decimals, '0');

    const auto whole = parse_unsigned(whole_text);
    const auto fraction = parse_unsigned(decimals);
    if (!whole || !fraction || *whole > std::uint64_t{max_whole})
        return not_a_ratio(text);
    const std::int64_t scaled =
        static_cast<std::int64_t>(*whole) * scale + static_cast<std::int64_t>(*fraction);
    if (scaled == 0 || scaled > max_whole * scale)
        return not_a_ratio(text);
    const std::int64_t divisor = std::gcd(scaled, scale);
    return Ratio(scaled / divisor, scale / divisor);
}

std::string Ratio::text() const {
    const std::int64_t scaled = numerator_ * (scale / denominator_);
    std::string result = fmt::format("{}.{:06}", scaled / scale, scaled % scale);
    while (result.ends_with('0'))
        result.pop_back();
    if (result.ends_with('.'))
        result.pop_back();
    return result;
}

} // namespace virtguard
