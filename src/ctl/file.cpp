// SPDX-License-Identifier: Apache-2.0
#include "ctl/file.hpp"

#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "base/text.hpp"
#include "base/unique.hpp"

namespace virtguard::ctl {

Result<std::string> read_file(const std::string& path, std::size_t limit) {
    const bool is_stdin = path == "-";
    const UniqueFd fd(is_stdin ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd)
        return fail(errno == ENOENT ? Errc::not_found : Errc::io, "{}: {}", printable(path),
                    std::strerror(errno));
    std::string text;
    std::vector<char> buffer(65536);
    while (true) {
        const ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return fail(Errc::io, "{}: {}", printable(path), std::strerror(errno));
        if (count == 0)
            return text;
        text.append(buffer.data(), static_cast<std::size_t>(count));
        if (text.size() > limit)
            return fail(Errc::limit, "{}: larger than {} bytes, which is more than is read",
                        printable(path), limit);
    }
}

} // namespace virtguard::ctl
