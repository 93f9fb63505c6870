// SPDX-License-Identifier: Apache-2.0
#include "wire/hook_conf.hpp"

#include <array>

#include <fcntl.h>
#include <unistd.h>

#include "base/text.hpp"
#include "base/unique.hpp"

namespace virtguard::wire {

namespace {

/// Takes prefix off the front of the text, if it is there.
bool take(std::string_view& text, std::string_view prefix) noexcept {
    if (!text.starts_with(prefix))
        return false;
    text.remove_prefix(prefix.size());
    return true;
}

} // namespace

std::optional<HookConf> parse_hook_conf(std::string_view text) noexcept {
    if (!take(text, "timeout-ms="))
        return std::nullopt;
    const std::string_view digits(text.data(), std::min(text.find('\n'), text.size()));
    text.remove_prefix(digits.size());
    const auto timeout = parse_unsigned(digits);
    if (!timeout || *timeout < 1 || *timeout > std::uint64_t{max_hook_timeout.count()})
        return std::nullopt;
    HookConf conf{.timeout = std::chrono::milliseconds(*timeout)};
    conf.unavailable_denies = text == "\nunavailable=deny\n";
    if (!conf.unavailable_denies && text != "\nunavailable=allow\n")
        return std::nullopt;
    return conf;
}

HookConf read_hook_conf(const char* path) noexcept {
    // O_NONBLOCK: should someone have put a FIFO there, it reads as empty.
    const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    std::array<char, 64> text; // the two lines have at most 46 bytes
    const ssize_t size = file ? ::read(file.get(), text.data(), text.size()) : -1;
    if (size <= 0)
        return {};
    return parse_hook_conf({text.data(), static_cast<std::size_t>(size)}).value_or(HookConf{});
}

} // namespace virtguard::wire
