// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a key may be set to: readers from a TOML value to the type the policy keeps. An error says
// what is wrong and what was expected, without the key.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "base/idset.hpp"
#include "base/ratio.hpp"
#include "core/policy.hpp"

namespace virtguard::policy {

/// A TOML value that no key takes: "an array" of other things than strings, "a table", "a date or
/// time".
struct Unfit {
    std::string_view kind;
};
/// An array of nothing but strings.
using Strings = std::vector<std::string>;
using Value = std::variant<bool, std::int64_t, double, std::string, Strings, Unfit>;

/// "5 is an integer: expected ...".
[[nodiscard]] std::unexpected<Error> wrong_type(const Value& value, std::string_view expected);

/// The same, or that a string is none of the words that were expected.
[[nodiscard]] std::unexpected<Error> wrong_word(const Value& value, std::string_view expected);

[[nodiscard]] Result<bool> read_bool(const Value& value);

/// A number or a string. A float counts as the shortest decimal that is read as that float, which
/// is the one in the file as long as that has at most 15 digits.
[[nodiscard]] Result<Ratio> read_ratio(const Value& value);

/// Bytes: a string such as "4GiB", or a whole number.
[[nodiscard]] Result<std::int64_t> read_size(const Value& value);

[[nodiscard]] Result<std::chrono::milliseconds> read_duration(const Value& value);

/// A list such as "0-3,8"; the empty one is "".
[[nodiscard]] Result<IdSet> read_ids(const Value& value);

/// The same, of at least one id.
[[nodiscard]] Result<IdSet> read_some_ids(const Value& value);

/// Names of schedulers, and globs for them: 1 to core::max_scheduler_bytes bytes without control
/// characters.
[[nodiscard]] Result<std::string> read_name(const Value& value);

/// An amount of a resource ("48", "64GiB"), or a part of what is effective of it ("75%").
[[nodiscard]] Result<core::Quota> read_quota(const core::Resource& resource, const Value& value);

/// An expression: 1 to max_xpath_bytes bytes. Line breaks and tabs are spaces to XPath, and become
/// such.
inline constexpr std::size_t max_xpath_bytes = 4096;
[[nodiscard]] Result<std::string> read_xpath(const Value& value);

/// A whole number that keeps its meaning in other people's files: at most a billion, or minus that.
[[nodiscard]] Result<std::int64_t> read_priority(const Value& value);

/// A line of text, which virsh's user reads: 1 to 500 bytes without control characters.
[[nodiscard]] Result<std::string> read_message(const Value& value);

/// A whole number, also as a string: 0 to core::max_domain_bytes.
[[nodiscard]] Result<std::int64_t> read_amount(const Value& value);

/// What is counted, a word or two: 1 to 63 bytes without control characters.
[[nodiscard]] Result<std::string> read_unit(const Value& value);

/// A file: as read_folder().
[[nodiscard]] Result<std::string> read_file_name(const Value& value);

/// A folder: absolute, below PATH_MAX bytes, without control characters.
[[nodiscard]] Result<std::string> read_folder(const Value& value);

/// Folders: an array of at most max_storage_paths of them.
inline constexpr std::size_t max_storage_paths = 16;
[[nodiscard]] Result<std::vector<std::string>> read_folders(const Value& value);

/// One word of a choice and what it means.
template <class T>
struct Word {
    std::string_view text;
    T value;
};

/// One of the words of an array that is a constant.
template <const auto& words>
[[nodiscard]] auto read_word(const Value& value) -> Result<decltype(words[0].value)> {
    const auto* text = std::get_if<std::string>(&value);
    std::string expected;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (text != nullptr && *text == words[i].text)
            return words[i].value;
        const std::string_view joint = i == 0 ? "" : i + 1 == words.size() ? " or " : ", ";
        expected += fmt::format("{}\"{}\"", joint, words[i].text);
    }
    return wrong_word(value, expected);
}

} // namespace virtguard::policy
