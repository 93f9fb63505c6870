// SPDX-License-Identifier: Apache-2.0
#include "base/file.hpp"

#include <array>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/text.hpp"
#include "base/unique.hpp"

namespace virtguard {

namespace {

// These fail as system calls do: false, with errno.

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t count = ::write(fd, text.data(), text.size());
        if (count < 0 && errno != EINTR)
            return false;
        if (count > 0)
            text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
}

/// Whatever stands there, a link included, is not written through.
bool write_new(const std::filesystem::path& path, std::string_view text, Durability durability,
               unsigned mode) {
    if (::unlink(path.c_str()) < 0 && errno != ENOENT)
        return false;
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    return fd && ::fchmod(fd.get(), mode) == 0 && write_all(fd.get(), text) &&
           (durability == Durability::volatile_ || ::fsync(fd.get()) == 0);
}

bool sync_folder(const std::filesystem::path& folder) {
    const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return fd && ::fsync(fd.get()) == 0;
}

bool is_null_device(const struct stat& found) {
    constexpr unsigned memory_devices = 1; // of the kernel's list of devices
    constexpr unsigned null = 3;
    return S_ISCHR(found.st_mode) && found.st_rdev == ::makedev(memory_devices, null);
}

} // namespace

std::unexpected<Error> kernel_failure(std::string_view name, int error) {
    // ESRCH: the process that a file of /proc is about has ended.
    const bool absent =
        error == ENOENT || error == ENOTDIR || error == ENODEV || error == ENXIO || error == ESRCH;
    return fail(absent ? Errc::not_found : Errc::io, "{}: {}", printable(name),
                std::generic_category().message(error));
}

Result<std::string> read_to_end(int fd, std::string_view name, std::size_t limit) {
    std::string text;
    std::array<char, 16384> chunk;
    for (;;) {
        const ssize_t count = ::read(fd, chunk.data(), chunk.size());
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return kernel_failure(name, errno);
        if (count == 0)
            return text;
        text.append(chunk.data(), static_cast<std::size_t>(count));
        if (text.size() > limit)
            return fail(Errc::limit, "{}: longer than {}", printable(name),
                        format_bytes(static_cast<std::int64_t>(limit), Rounding::down));
    }
}

Result<std::string> read_file(const std::filesystem::path& path, std::size_t limit) {
    // O_NONBLOCK: else the opening of a FIFO waits for a writer, for ever.
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    const bool is_socket = !fd && errno == ENXIO; // or a device that nothing drives
    if (!fd && !is_socket)
        return kernel_failure(path.native(), errno);
    struct stat found {};
    if (!is_socket && ::fstat(fd.get(), &found) < 0)
        return kernel_failure(path.native(), errno);
    if (is_socket || !(S_ISREG(found.st_mode) || is_null_device(found)))
        return fail(Errc::invalid, "{}: not a regular file", printable(path.native()));
    return read_to_end(fd.get(), path.native(), limit);
}

Result<std::string> read_stream(const std::filesystem::path& path, std::size_t limit) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (!fd)
        return kernel_failure(path.native(), errno);
    return read_to_end(fd.get(), path.native(), limit);
}

Result<> replace_file(const std::filesystem::path& path, std::string_view text,
                      Durability durability, unsigned mode) {
    const std::filesystem::path folder = path.parent_path();
    const std::filesystem::path fresh = folder / ("." + path.filename().native() + ".new");
    if (write_new(fresh, text, durability, mode) && ::rename(fresh.c_str(), path.c_str()) == 0 &&
        (durability == Durability::volatile_ || sync_folder(folder)))
        return {};
    const int error = errno;
    ::unlink(fresh.c_str()); // half a file is of no use, and takes space that may be short
    return fail(Errc::io, "{}: cannot be written: {}", printable(path.native()),
                std::generic_category().message(error));
}

} // namespace virtguard
