// SPDX-License-Identifier: Apache-2.0
#include "host/file.hpp"

#include <array>
#include <cerrno>
#include <limits>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "base/text.hpp"
#include "base/unique.hpp"

namespace virtguard::host {

namespace {

std::unexpected<Error> failed(const std::filesystem::path& path, int error) {
    // ESRCH: the process that a file of /proc is about has ended.
    const bool absent =
        error == ENOENT || error == ENOTDIR || error == ENODEV || error == ENXIO || error == ESRCH;
    return fail(absent ? Errc::not_found : Errc::io, "{}: {}", printable(path.native()),
                std::generic_category().message(error));
}

} // namespace

Result<std::string> read_file(const std::filesystem::path& path, std::size_t limit) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (!fd)
        return failed(path, errno);
    std::string text;
    std::array<char, 16384> chunk;
    for (;;) {
        const ssize_t count = ::read(fd.get(), chunk.data(), chunk.size());
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return failed(path, errno);
        if (count == 0)
            return text;
        text.append(chunk.data(), static_cast<std::size_t>(count));
        if (text.size() > limit)
            return fail(Errc::limit, "{}: longer than {}", printable(path.native()),
                        format_bytes(static_cast<std::int64_t>(limit), Rounding::down));
    }
}

Result<std::int64_t> read_number(const std::filesystem::path& path) {
    const auto text = read_file(path, kernel_file_limit);
    if (!text)
        return std::unexpected(text.error());
    std::string_view digits = *text;
    if (digits.ends_with('\n'))
        digits.remove_suffix(1);
    const auto number = parse_unsigned(digits);
    if (!number || *number > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        return fail(Errc::invalid, "{}: {} is not a number below 2^63", printable(path.native()),
                    quote(digits));
    return static_cast<std::int64_t>(*number);
}

Result<std::vector<std::string>> list_folder(const std::filesystem::path& path) {
    std::error_code error;
    std::vector<std::string> names;
    const std::filesystem::directory_iterator end;
    for (std::filesystem::directory_iterator entry(path, error); !error && entry != end;
         entry.increment(error))
        names.push_back(entry->path().filename().native());
    if (error)
        return failed(path, error.value());
    return names;
}

} // namespace virtguard::host
