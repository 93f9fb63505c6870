// SPDX-License-Identifier: Apache-2.0
#include "host/file.hpp"

#include <limits>
#include <string_view>
#include <system_error>

#include "base/text.hpp"

namespace virtguard::host {

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
        return kernel_failure(path.native(), error.value());
    return names;
}

} // namespace virtguard::host
