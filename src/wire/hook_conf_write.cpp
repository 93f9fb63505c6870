// SPDX-License-Identifier: Apache-2.0
// Apart from hook_conf.cpp, which the hook links: this needs fmt.
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <libgen.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/unique.hpp"
#include "wire/hook_conf.hpp"

namespace virtguard::wire {

namespace {

std::unexpected<Error> fail_errno(const std::string& path, std::string_view what) {
    const int number = errno;
    return fail(Errc::io, "{}: {}: {}", path, what, std::strerror(number));
}

Result<> write_durably(const std::string& path, std::string_view text) {
    const UniqueFd file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!file)
        return fail_errno(path, "cannot be created");
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0)
        return fail_errno(path, "cannot be written");
    if (static_cast<std::size_t>(written) != text.size())
        return fail(Errc::io, "{}: cannot be written whole", path);
    if (::fsync(file.get()) != 0)
        return fail_errno(path, "cannot be made durable");
    return {};
}

} // namespace

Result<> write_hook_conf(const std::string& path, const HookConf& conf) {
    if (conf.timeout.count() < 1 || conf.timeout > max_hook_timeout)
        return fail(Errc::invalid, "hook.timeout: {} ms is not between 1 ms and 10 minutes",
                    conf.timeout.count());
    const std::string next = path + ".new";
    const std::string text = fmt::format("timeout-ms={}\nunavailable={}\n", conf.timeout.count(),
                                         conf.unavailable_denies ? "deny" : "allow");
    if (auto written = write_durably(next, text); !written)
        return written;
    if (::rename(next.c_str(), path.c_str()) != 0)
        return fail_errno(path, "cannot be replaced");
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    const UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory || ::fsync(directory.get()) != 0)
        return fail_errno(folder, "cannot be made durable");
    return {};
}

} // namespace virtguard::wire
