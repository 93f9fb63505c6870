// SPDX-License-Identifier: Apache-2.0
#include "domxml/values.hpp"

#include <limits>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "core/domain.hpp"

namespace virtguard::domxml {

namespace {

constexpr std::string_view spaces = " \t\r\n";

/// As strtoull() reads it, but neither negative nor followed by anything.
std::optional<std::uint64_t> parse_number(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(spaces), text.size()));
    if (text.starts_with('+'))
        text.remove_prefix(1);
    return parse_unsigned(text);
}

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        if (c >= 'A' && c <= 'Z')
            c = static_cast<char>(c - 'A' + 'a');
    return result;
}

/// Bytes of one unit: "b", "byte", "bytes"; "k", "KiB" (1024), "KB" (1000), up to E; any case.
std::optional<Int128> unit_bytes(std::string_view written) {
    const std::string unit = lower(written);
    if (unit.empty())
        return 1024;
    if (unit == "b" || unit == "byte" || unit == "bytes")
        return 1;
    const std::string_view tail = std::string_view(unit).substr(1);
    const std::size_t power = std::string_view("kmgtpe").find(unit.front());
    if (power == std::string_view::npos || (!tail.empty() && tail != "ib" && tail != "b"))
        return std::nullopt;
    Int128 bytes = 1;
    for (std::size_t i = 0; i <= power; ++i)
        bytes *= tail == "b" ? 1000 : 1024;
    return bytes;
}

Result<std::int64_t> size_of(Element element, std::string_view attribute, std::string_view text) {
    const auto number = parse_number(text);
    if (!number)
        return element.invalid("{}: {} is not a size: expected a whole number",
                               place(element, attribute), quote(text));
    const std::string unit = element.attribute("unit").value_or("");
    const auto factor = unit_bytes(unit);
    if (!factor)
        return element.invalid("{}: unknown unit {}: expected such as \"KiB\", \"MB\", \"bytes\"",
                               place(element, attribute), quote(unit));
    const Int128 bytes = (Int128{*number} * *factor + 1023) / 1024 * 1024;
    if (bytes > core::max_domain_bytes)
        return element.invalid("{}: {}{} is more than any guest can have ({})",
                               place(element, attribute), printable(text), printable(unit),
                               format_bytes(core::max_domain_bytes, Rounding::down));
    return static_cast<std::int64_t>(bytes);
}

} // namespace

std::string place(Element element, std::string_view attribute) {
    return attribute.empty() ? fmt::format("<{}>", element.name())
                             : fmt::format("<{} {}>", element.name(), attribute);
}

Result<std::uint32_t> number_in(Element element, std::string_view text,
                                std::string_view attribute) {
    const auto number = parse_number(text);
    if (!number || *number > std::numeric_limits<std::uint32_t>::max())
        return element.invalid("{}: {} is not a whole number below 2^32", place(element, attribute),
                               quote(text));
    return static_cast<std::uint32_t>(*number);
}

Result<std::optional<std::uint32_t>> number_attribute(Element element, std::string_view attribute) {
    const auto text = element.attribute(attribute);
    if (!text)
        return std::nullopt;
    return number_in(element, *text, attribute);
}

Result<std::optional<std::int64_t>> size_in(Element element) {
    const std::string text = element.text();
    if (text.empty())
        return std::nullopt;
    return size_of(element, {}, text);
}

Result<std::optional<std::int64_t>> size_attribute(Element element, std::string_view attribute) {
    const auto text = element.attribute(attribute);
    if (!text)
        return std::nullopt;
    return size_of(element, attribute, *text);
}

Result<IdSet> set_in(Element element, std::string_view text, std::string_view attribute) {
    auto set = IdSet::parse(text);
    if (!set)
        return element.invalid("{}: {}", place(element, attribute), set.error().what);
    if (set->empty())
        return element.invalid("{}: {} is an empty set", place(element, attribute), quote(text));
    return set;
}

Result<std::optional<IdSet>> set_attribute(Element element, std::string_view attribute) {
    const auto text = element.attribute(attribute);
    if (!text)
        return std::nullopt;
    return set_in(element, *text, attribute);
}

} // namespace virtguard::domxml
