// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a function says that it failed: a Result holds the value or an Error.
// A refused start is not a failure; it is a core::Decision with reasons.

#include <expected>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace virtguard {

/// What a caller could do about it. A value exists only where some caller behaves differently.
enum class Errc {
    syntax,      ///< the input is not of its language at all (not XML, not TOML, not a domain)
    invalid,     ///< well-formed input that says something impossible
    not_found,   ///< the thing named is not there
    unavailable, ///< it may work later
    refused,     ///< what is asked for does not fit, or a policy forbids it
    limit,       ///< larger than we are willing to take
    io,          ///< the kernel said no
};

/// One line: "where: what is wrong"; no capital, no full stop.
struct Error {
    Errc code = Errc::invalid;
    std::string what;
};

template <class T = void>
using Result = std::expected<T, Error>;

template <class... Args>
[[nodiscard]] std::unexpected<Error> fail(Errc code, fmt::format_string<Args...> text,
                                          Args&&... args) {
    return std::unexpected(Error{code, fmt::format(text, std::forward<Args>(args)...)});
}

/// The same failure, seen from one step further out: "prefix: what".
[[nodiscard]] inline std::unexpected<Error> context(Error error, std::string_view prefix) {
    return std::unexpected(Error{error.code, fmt::format("{}: {}", prefix, error.what)});
}

} // namespace virtguard
