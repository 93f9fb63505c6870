// SPDX-License-Identifier: Apache-2.0
#include "host/synthetic.hpp"

#include <cctype>
#include <cstddef>
#include <cstdint>

#include "base/idset.hpp"
#include "base/text.hpp"

namespace virtguard::host {

namespace {

/// hwloc takes 128 levels; with their attributes and index lists of thousands of PUs this is ample.
constexpr std::size_t longest_description = 65536;

/// hwloc compares each PU's bits with those of all beside it: the time grows with their number's
/// third power. For these, all side by side, it takes 2 s; for four times as many, minutes.
constexpr int max_pus = 4096;

bool is_alphanumeric(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0;
}
bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool is_octal(std::string_view word) {
    return word.size() > 1 && word[0] == '0' && is_digit(word[1]);
}
std::unexpected<Error> octal(std::string_view word) {
    return fail(Errc::invalid, "{} begins with 0, which hwloc takes for octal", quote(word));
}

/// The value of "memory=", "size=" or "memorysidecachesize=".
Result<> check_size(std::string_view value) {
    if (is_octal(value))
        return octal(value);
    const auto size = parse_size(value);
    if (!size)
        return std::unexpected(size.error());
    if (*size == 0)
        return fail(Errc::invalid, "a size of 0 is not possible: hwloc would take its default");
    return {};
}

/// A count or an index: neither makes sense above the limit of ids.
Result<int> check_number(std::string_view word) {
    const auto number = parse_unsigned(word);
    if (is_octal(word))
        return octal(word);
    if (!number)
        return fail(Errc::invalid, "{} is not a number", quote(word));
    if (*number > std::uint64_t{IdSet::limit})
        return fail(Errc::limit, "{} is more than {}", word, IdSet::limit);
    return static_cast<int>(*number);
}

} // namespace

Result<> check_synthetic(std::string_view description) {
    if (description.size() > longest_description)
        return fail(Errc::limit, "longer than {} bytes", longest_description);
    if (description.find_first_of(std::string_view("-\0", 2)) != std::string_view::npos)
        return fail(Errc::invalid, "no number is negative");
    std::int64_t leaves = 1;
    int parentheses = 0;
    for (std::size_t i = 0; i < description.size();) {
        parentheses += description[i] == '(' ? 1 : description[i] == ')' ? -1 : 0;
        if (!is_alphanumeric(description[i])) {
            ++i;
            continue;
        }
        std::size_t end = i;
        while (end < description.size() &&
               (is_alphanumeric(description[end]) || description[end] == '.'))
            ++end;
        const std::string_view word = description.substr(i, end - i);
        const std::string_view before = description.substr(0, i);
        i = end;
        if (before.ends_with("memory=") || before.ends_with("size=")) {
            if (auto checked = check_size(word); !checked)
                return checked;
        } else if (is_digit(word[0])) {
            const auto number = check_number(word);
            if (!number)
                return std::unexpected(number.error());
            if (parentheses == 0)
                leaves *= *number;
            if (leaves > max_pus)
                return fail(Errc::limit, "more than {} PUs", max_pus);
        }
    }
    return {};
}

} // namespace virtguard::host
