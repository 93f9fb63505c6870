// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files of the kernel.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"

namespace virtguard::host {

/// More than any file of sysfs or /proc that is read here: a list of 16,384 CPUs takes 100 KB.
inline constexpr std::size_t kernel_file_limit = std::size_t{1} << 20;

/// A file of one number, as sysfs has it.
[[nodiscard]] Result<std::int64_t> read_number(const std::filesystem::path& path);

/// The names in a folder, unsorted, without "." and ".."; not_found where there is no such folder.
[[nodiscard]] Result<std::vector<std::string>> list_folder(const std::filesystem::path& path);

} // namespace virtguard::host
