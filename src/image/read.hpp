// SPDX-License-Identifier: Apache-2.0
#pragma once
// Looks at the files of images, and at the file systems they are on. All of it may block for as
// long as the storage likes, and takes bounded work otherwise.

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "core/storage.hpp"

namespace virtguard::image {

/// What the file of an image is. root: "/" but for tests. A symbolic link is what it leads to.
/// What is no regular file (a block device by another name) does not grow: its size is 0, and it is
/// neither opened nor read. No size is beyond max_image_bytes. Errors, which say what is wrong
/// without the path: not_found, invalid (a format we do not read, a header that is not of it), io.
[[nodiscard]] Result<core::Image> read(const std::filesystem::path& root,
                                       const core::ImageName& name);

/// The file system a path is on, now. Errors: not_found, io (also where it does not tell its size).
[[nodiscard]] Result<core::FileSystem> read_file_system(const std::filesystem::path& root,
                                                        const std::string& path);

/// Where file systems are mounted, but for the root; nothing where the kernel does not tell. Waits
/// for none of them.
[[nodiscard]] std::vector<std::string> mount_points(const std::filesystem::path& root);

} // namespace virtguard::image
