// SPDX-License-Identifier: Apache-2.0
#include "policy/values.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>

#include "base/text.hpp"
#include "core/domain.hpp"

namespace virtguard::policy {

namespace {

bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= core::max_scheduler_bytes && !has_control(text);
}

/// Never in scientific notation: that is not how ratios are written.
std::string decimal(double value) {
    constexpr std::size_t longest = 400; // of a double: 1 + 308 digits, or "0." and 324
    std::array<char, longest> buffer{};
    const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                            std::chars_format::fixed);
    return error == std::errc{} ? std::string(buffer.data(), end) : "nan";
}

/// A value with its type, for a reader of messages: "5 is an integer", "this is a table".
struct Describe {
    std::string operator()(bool value) const {
        return value ? "true is a boolean" : "false is a boolean";
    }
    std::string operator()(std::int64_t value) const {
        return fmt::format("{} is an integer", value);
    }
    std::string operator()(double value) const {
        return fmt::format("{} is a float", printable(decimal(value)));
    }
    std::string operator()(const std::string& value) const {
        return fmt::format("{} is a string", quote(value));
    }
    std::string operator()(const Strings&) const { return "this is an array"; }
    std::string operator()(const Unfit& value) const {
        return fmt::format("this is {}", value.kind);
    }
};

Result<std::string> read_line(const Value& value, std::string_view what, std::size_t longest) {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr)
        return wrong_type(value, "a string");
    if (text->empty() || text->size() > longest || has_control(*text))
        return fail(Errc::invalid, "{} is no {}: expected 1 to {} bytes without control characters",
                    quote(*text), what, longest);
    return *text;
}

Result<std::string> read_path(const Value& value, std::string_view what, std::string_view such_as) {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr)
        return wrong_type(value, fmt::format("a string such as {}", quote(such_as)));
    if (!text->starts_with('/') || text->size() >= PATH_MAX || has_control(*text))
        return fail(Errc::invalid, "{} is not a {}: expected an absolute path", quote(*text), what);
    return *text;
}

} // namespace

std::unexpected<Error> wrong_type(const Value& value, std::string_view expected) {
    return fail(Errc::invalid, "{}: expected {}", std::visit(Describe{}, value), expected);
}

std::unexpected<Error> wrong_word(const Value& value, std::string_view expected) {
    if (const auto* text = std::get_if<std::string>(&value))
        return fail(Errc::invalid, "{} is not one of its values: expected {}", quote(*text),
                    expected);
    return wrong_type(value, expected);
}

Result<bool> read_bool(const Value& value) {
    if (const auto* boolean = std::get_if<bool>(&value))
        return *boolean;
    return wrong_type(value, "true or false");
}

Result<Ratio> read_ratio(const Value& value) {
    if (const auto* text = std::get_if<std::string>(&value))
        return Ratio::parse(*text);
    if (const auto* integer = std::get_if<std::int64_t>(&value))
        return Ratio::parse(std::to_string(*integer));
    if (const auto* number = std::get_if<double>(&value))
        return Ratio::parse(decimal(*number));
    return wrong_type(value, "a number, or a string such as \"1.5\"");
}

Result<std::int64_t> read_size(const Value& value) {
    if (const auto* text = std::get_if<std::string>(&value))
        return parse_size(*text);
    if (const auto* integer = std::get_if<std::int64_t>(&value))
        return parse_size(std::to_string(*integer));
    return wrong_type(value, "a string such as \"4GiB\", or a number of bytes");
}

Result<std::chrono::milliseconds> read_duration(const Value& value) {
    if (const auto* text = std::get_if<std::string>(&value))
        return parse_duration(*text);
    return wrong_type(value, "a string such as \"2s\"");
}

Result<IdSet> read_ids(const Value& value) {
    if (const auto* text = std::get_if<std::string>(&value))
        return IdSet::parse(*text);
    return wrong_type(value, "a string such as \"0-3,8\"");
}

Result<IdSet> read_some_ids(const Value& value) {
    auto ids = read_ids(value);
    if (ids && ids->empty())
        return fail(Errc::invalid, "this is the empty set: expected at least one, or no such key");
    return ids;
}

Result<std::string> read_name(const Value& value) {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr)
        return wrong_type(value, "a string");
    if (!is_name(*text))
        return fail(Errc::invalid,
                    "{} is not a name: expected 1 to {} bytes without control characters",
                    quote(*text), core::max_scheduler_bytes);
    return *text;
}

Result<core::Quota> read_quota(const core::Resource& resource, const Value& value) {
    const auto* text = std::get_if<std::string>(&value);
    if (text != nullptr && text->ends_with('%')) {
        constexpr std::int64_t hundred = 100;
        const auto percent = Ratio::parse(std::string_view(*text).substr(0, text->size() - 1));
        if (!percent || percent->numerator() > hundred * percent->denominator())
            return fail(Errc::invalid,
                        "{} is no part: expected above 0% and at most 100%, with up to 6 decimals",
                        quote(*text));
        return core::Quota{.percent = *percent};
    }
    if (resource.is_bytes()) {
        const auto bytes = read_size(value);
        return bytes ? Result<core::Quota>{{.amount = *bytes}} : std::unexpected(bytes.error());
    }
    const auto* number = std::get_if<std::int64_t>(&value);
    if (text == nullptr && number == nullptr)
        return wrong_type(value, resource == core::Resource::cpu()
                                     ? "a number of vCPUs, or a string such as \"75%\""
                                     : "a number, or a string such as \"75%\"");
    const auto count = parse_count(text != nullptr ? *text : std::to_string(*number));
    return count ? Result<core::Quota>{{.amount = *count}} : std::unexpected(count.error());
}

Result<std::string> read_xpath(const Value& value) {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr)
        return wrong_type(value, "a string with an XPath expression");
    std::string xpath = *text;
    std::ranges::replace_if(
        xpath, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
    if (xpath.empty() || xpath.size() > max_xpath_bytes || has_control(xpath))
        return fail(Errc::invalid,
                    "{} is no XPath: expected 1 to {} bytes without control characters",
                    quote(xpath), max_xpath_bytes);
    return xpath;
}

Result<std::int64_t> read_priority(const Value& value) {
    constexpr std::int64_t most = 1'000'000'000;
    const auto* number = std::get_if<std::int64_t>(&value);
    if (number == nullptr)
        return wrong_type(value, "a whole number");
    if (*number < -most || *number > most)
        return fail(Errc::invalid, "{} is no priority: expected {} to {}", *number, -most, most);
    return *number;
}

Result<std::string> read_message(const Value& value) {
    return read_line(value, "message", 500);
}

Result<std::int64_t> read_amount(const Value& value) {
    const auto* text = std::get_if<std::string>(&value);
    const auto* number = std::get_if<std::int64_t>(&value);
    if (text == nullptr && number == nullptr)
        return wrong_type(value, "a whole number such as 4");
    const auto amount = parse_count(text != nullptr ? *text : std::to_string(*number));
    if (amount && *amount > core::max_domain_bytes)
        return fail(Errc::invalid, "{} is too large: expected at most {}", *amount,
                    core::max_domain_bytes);
    return amount;
}

Result<std::string> read_unit(const Value& value) {
    return read_line(value, "unit", 63);
}

Result<std::string> read_file_name(const Value& value) {
    return read_path(value, "file", "/sys/...");
}

Result<std::string> read_folder(const Value& value) {
    return read_path(value, "folder", "/srv/metrics");
}

Result<std::vector<std::string>> read_folders(const Value& value) {
    const auto* folders = std::get_if<Strings>(&value);
    if (folders == nullptr)
        return wrong_type(value, "an array of strings such as [\"/srv/images\"]");
    if (folders->size() > max_storage_paths)
        return fail(Errc::invalid, "these are {} folders: expected at most {}", folders->size(),
                    max_storage_paths);
    for (const std::string& folder : *folders)
        if (const auto read = read_folder(folder); !read)
            return std::unexpected(read.error());
    return *folders;
}

} // namespace virtguard::policy
