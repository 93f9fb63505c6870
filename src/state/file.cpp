// SPDX-License-Identifier: Apache-2.0
#include "state/file.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <system_error>

#include <zlib.h>

#include "base/text.hpp"

namespace virtguard::state {

namespace {

constexpr std::string_view magic = "virtguard-state";

std::uint32_t checksum(std::string_view content) {
    return static_cast<std::uint32_t>(
        ::crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
}

/// "virtguard-state 1 0a1b2c3d\n"
std::string first_line(std::string_view content) {
    return fmt::format("{} {} {:08x}\n", magic, version, checksum(content));
}

/// The version in the first line of what may be of another version; nothing where it is none.
std::optional<std::uint64_t> version_of(std::string_view text) {
    if (!text.starts_with(magic) || !text.substr(magic.size()).starts_with(' '))
        return std::nullopt;
    text.remove_prefix(magic.size() + 1);
    return parse_unsigned(text.substr(0, text.find_first_of(" \n")));
}

std::string_view defect(std::string_view text) {
    const auto found = version_of(text);
    if (found && *found > version)
        return "written by a newer version";
    return found ? "damaged" : "not a state file";
}

} // namespace

Result<> write(const std::filesystem::path& path, std::string_view content, Durability durability) {
    return replace_file(path, first_line(content).append(content), durability, 0600);
}

Result<std::string> read(const std::filesystem::path& path, std::size_t limit) {
    auto text = read_file(path, limit);
    if (!text)
        return text;
    const std::size_t start = text->find('\n') + 1; // 0 where there is no line
    if (start == 0 || first_line(std::string_view(*text).substr(start)) != text->substr(0, start))
        return fail(Errc::invalid, "{}: {}", printable(path.native()), defect(*text));
    return text->erase(0, start);
}

Result<> set_aside(const std::filesystem::path& path) {
    const std::filesystem::path aside = path.native() + ".damaged";
    std::error_code ignored; // of what may not be there; the renaming tells the rest
    std::filesystem::remove_all(aside, ignored);
    if (std::rename(path.c_str(), aside.c_str()) < 0)
        return kernel_failure(path.native(), errno);
    return {};
}

} // namespace virtguard::state
