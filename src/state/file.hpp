// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files that one daemon writes for the next: a line that says what follows and its checksum, then
// that. Nothing is believed that is not whole.

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/file.hpp"

namespace virtguard::state {

/// Readers of this version take no other. It changes when they could not make sense of a file, not
/// when something is added to one.
inline constexpr int version = 1;

/// Replaces the file in one step; only root can read it.
[[nodiscard]] Result<> write(const std::filesystem::path& path, std::string_view content,
                             Durability durability);

/// The content. Errors: not_found; invalid where it is not, whole and unchanged, what write()
/// wrote; limit where it is longer than limit bytes; io.
[[nodiscard]] Result<std::string> read(const std::filesystem::path& path, std::size_t limit);

/// Renames a file that cannot be used to NAME.damaged, for people to look at, in place of an older
/// one of that name.
[[nodiscard]] Result<> set_aside(const std::filesystem::path& path);

} // namespace virtguard::state
