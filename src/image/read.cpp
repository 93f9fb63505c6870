// SPDX-License-Identifier: Apache-2.0
#include "image/read.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/checked.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "base/unique.hpp"
#include "image/header.hpp"

namespace virtguard::image {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t block = 512; ///< of stx_blocks

std::unexpected<Error> failure() {
    return fail(errno == ENOENT ? Errc::not_found : Errc::io, "{}", std::strerror(errno));
}

/// A path of the host, below another root.
fs::path below(const fs::path& root, const fs::path& path) {
    return root / path.relative_path();
}

/// A path that is not there, and would be in /dev: virtguardd sees none of the machine's devices
/// (PrivateDevices= of its unit), which do not grow. What is in /dev/shm it does see.
bool would_be_device(const fs::path& root, const fs::path& path) {
    constexpr int most_links = 40; // as the kernel has it
    fs::path target = path;
    for (int links = 0; links < most_links; ++links) {
        target = target.lexically_normal();
        const std::string& text = target.native();
        if (text.starts_with("/dev/"))
            return !text.starts_with("/dev/shm/");
        std::error_code no_link;
        const fs::path link = fs::read_symlink(below(root, target), no_link);
        if (no_link)
            return false;
        target = target.parent_path() / link;
    }
    return false;
}

/// "\040" is a space: of blanks and backslashes the kernel writes three octal digits.
std::string unescaped(std::string_view word) {
    std::string result;
    for (std::size_t i = 0; i < word.size(); ++i) {
        if (word[i] != '\\' || i + 3 >= word.size()) {
            result += word[i];
            continue;
        }
        int byte = 0;
        for (const char digit : word.substr(i + 1, 3))
            byte = byte * 8 + (digit - '0');
        result += static_cast<char>(byte);
        i += 3;
    }
    return result;
}

Result<std::string> read_part(int fd, const Format& format, std::uint64_t file_size) {
    if (file_size < format.bytes)
        return fail(Errc::invalid, "it is too short for a {} image", format.name);
    std::string part(format.bytes, '\0');
    const auto offset =
        static_cast<off_t>(format.where == Where::last ? file_size - part.size() : 0);
    for (std::size_t done = 0; done < part.size();) {
        const ssize_t count =
            ::pread(fd, part.data() + done, part.size() - done, offset + static_cast<off_t>(done));
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return failure();
        if (count == 0)
            return fail(Errc::invalid, "it became shorter while it was read");
        done += static_cast<std::size_t>(count);
    }
    return part;
}

struct Content {
    std::uint64_t size = 0;
    bool has_snapshots = false;
};

Result<Content> read_content(int found, const Format& format, std::uint64_t file_size) {
    if (format.where == Where::nowhere)
        return Content{.size = file_size};
    // The file that was looked at, whatever the path leads to by now. Threads may have descriptors
    // of their own.
    const std::string path = fmt::format("/proc/thread-self/fd/{}", found);
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (!file)
        return failure();
    const auto part = read_part(file.get(), format, file_size);
    if (!part)
        return std::unexpected(part.error());
    const auto size = format.size(*part);
    if (!size)
        return std::unexpected(size.error());
    return Content{.size = *size,
                   .has_snapshots = format.has_snapshots != nullptr && format.has_snapshots(*part)};
}

/// Of what can be had without the times: NFS writes out for them what the guest has written.
std::optional<struct statx> look_at(const UniqueFd& found) {
    struct statx info = {};
    const unsigned wanted = STATX_TYPE | STATX_SIZE | STATX_BLOCKS;
    if (!found || ::statx(found.get(), "", AT_EMPTY_PATH, wanted, &info) < 0)
        return std::nullopt;
    return info;
}

std::uint64_t device_of(const struct statx& info) {
    return makedev(info.stx_dev_major, info.stx_dev_minor); // stat's st_dev
}

/// Of an image: what is more counts as that.
std::int64_t at_most_max(std::uint64_t bytes) {
    return static_cast<std::int64_t>(
        std::min(bytes, static_cast<std::uint64_t>(core::max_image_bytes)));
}

std::int64_t bytes_of(std::uint64_t blocks, std::uint64_t block_size) {
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    return static_cast<std::int64_t>(
        std::min(checked_multiply(blocks, block_size).value_or(most), most));
}

} // namespace

Result<core::Image> read(const fs::path& root, const core::ImageName& name) {
    if (!name.path.starts_with('/'))
        return fail(Errc::invalid, "only libvirt knows where it is"); // a volume of a pool
    // Without opening it: of a FIFO or a device that alone may wait, or do something.
    const UniqueFd found(::open(below(root, name.path).c_str(), O_PATH | O_CLOEXEC));
    if (!found && errno == ENOENT && would_be_device(root, name.path))
        return core::Image{};
    const auto info = look_at(found);
    if (!info)
        return failure();
    if (!S_ISREG(info->stx_mode))
        return core::Image{};
    const Format* format = find_format(name.format);
    if (format == nullptr)
        return fail(Errc::invalid, "images of format {} are not read", quote(name.format));
    const auto content = read_content(found.get(), *format, info->stx_size);
    if (!content)
        return std::unexpected(content.error());
    const std::int64_t allocated = bytes_of(info->stx_blocks, block);
    return core::Image{.device = device_of(*info),
                       .virtual_size = at_most_max(content->size),
                       .allocated =
                           content->has_snapshots ? 0 : std::min(allocated, core::max_image_bytes)};
}

Result<core::FileSystem> read_file_system(const fs::path& root, const std::string& path) {
    const UniqueFd found(::open(below(root, path).c_str(), O_PATH | O_CLOEXEC));
    const auto info = look_at(found);
    struct statvfs counts = {};
    if (!info || ::fstatvfs(found.get(), &counts) < 0)
        return failure();
    if (counts.f_blocks == 0) // FUSE without statfs, autofs that waits to be asked
        return fail(Errc::io, "it does not tell how large it is");
    const std::int64_t capacity = bytes_of(counts.f_blocks, counts.f_frsize);
    const std::int64_t available = bytes_of(counts.f_bavail, counts.f_frsize);
    return core::FileSystem{.path = path,
                            .device = device_of(*info),
                            .capacity = capacity,
                            .used = std::max<std::int64_t>(capacity - available, 0)};
}

std::vector<std::string> mount_points(const fs::path& root) {
    constexpr std::size_t most = std::size_t{4} << 20;
    constexpr std::size_t field = 4; // "36 35 98:0 /mnt1 /mnt2 rw,noatime ...": proc(5)
    std::vector<std::string> result;
    std::istringstream lines(read_file(root / "proc/self/mountinfo", most).value_or(""));
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string word;
        for (std::size_t i = 0; i <= field; ++i)
            words >> word;
        if (std::string path = unescaped(word); words && path != "/")
            result.push_back(std::move(path));
    }
    return result;
}

} // namespace virtguard::image
