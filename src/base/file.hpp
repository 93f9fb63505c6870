// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files as text, bounded, and replaced in one step.

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace virtguard {

/// "name: what the kernel said": not_found where its errno says that there is no such thing, else
/// io.
[[nodiscard]] std::unexpected<Error> kernel_failure(std::string_view name, int error);

/// The whole file, without waiting for anything but its storage. Errors: not_found where there is
/// none (also where the kernel took a file of /sys or /proc away in the middle); invalid where it
/// is no regular file, but for /dev/null, which is how one empties a file by a link; limit where it
/// is longer than limit bytes; io.
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path, std::size_t limit);

/// The same of a pipe or whatever else can be read, for as long as it takes: for what a person
/// names on a command line.
[[nodiscard]] Result<std::string> read_stream(const std::filesystem::path& path, std::size_t limit);

/// What is left to read; the name is for messages.
[[nodiscard]] Result<std::string> read_to_end(int fd, std::string_view name, std::size_t limit);

/// volatile_: as safe as the file system that holds it is; durable: on the disk, which is waited
/// for.
enum class Durability { volatile_, durable };

/// Replaces a file, or makes it, with the given mode: whoever reads finds the old text or the new,
/// also after a crash. For a moment there is a ".NAME.new" beside it; one that a crash has left is
/// written over.
[[nodiscard]] Result<> replace_file(const std::filesystem::path& path, std::string_view text,
                                    Durability durability, unsigned mode);

} // namespace virtguard
