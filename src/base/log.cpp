// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.hpp"
#include "base/unique.hpp"

namespace virtguard {

namespace {

/// $JOURNAL_STREAM is "DEVICE:INODE" of the connection to the journal: systemd.exec(5). It is
/// inherited, so it is also there where stderr has been redirected since.
bool stderr_is_journal() {
    const char* stream = std::getenv("JOURNAL_STREAM");
    struct stat status {};
    return stream != nullptr && ::fstat(STDERR_FILENO, &status) == 0 &&
           fmt::format("{}:{}", status.st_dev, status.st_ino) == stream;
}

/// Where lines with fields go.
struct JournalSocket {
    UniqueFd fd;
    sockaddr_un address{};
};
JournalSocket journal;

/// Not connected: the journal may be restarted.
bool send_to_journal(std::string_view entry) {
    return journal.fd &&
           ::sendto(journal.fd.get(), entry.data(), entry.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                    reinterpret_cast<const sockaddr*>(&journal.address),
                    sizeof journal.address) >= 0;
}

std::string format_line(Level level, std::string_view line) {
    const std::string prefix =
        stderr_is_journal() ? fmt::format("<{}>", std::to_underlying(level)) : "";
    return fmt::format("{}{}\n", prefix, one_line(line));
}

/// stderr is shared with other processes, who would not expect it to be non-blocking: a pipe or
/// terminal is opened anew. What cannot be (a terminal that is gone) is used as it is.
ssize_t write_to_pipe(std::string_view text) {
    const UniqueFd fd(::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    return ::write(fd ? fd.get() : STDERR_FILENO, text.data(), text.size());
}

/// One write, so that lines of two threads do not mix. As write(2), and never waits for a reader.
ssize_t write_now(std::string_view text) {
    struct stat status {};
    if (::fstat(STDERR_FILENO, &status) < 0)
        return -1;
    if (S_ISSOCK(status.st_mode))
        return ::send(STDERR_FILENO, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))
        return write_to_pipe(text);
    return ::write(STDERR_FILENO, text.data(), text.size());
}

} // namespace

void log_line(Level level, std::string_view line) {
    static std::atomic<std::uint64_t> lost = 0; ///< lines since the last one that got through
    static std::atomic<bool> cut = false;       ///< of the last of them a part did
    const std::uint64_t before = lost.exchange(0);
    const bool was_cut = cut.exchange(false);
    std::string text = was_cut ? "\n" : "";
    if (before > 0)
        text += format_line(
            Level::warning,
            fmt::format("log: lines that could not be written before this one: {}", before));
    text += format_line(level, line);
    const ssize_t written = write_now(text);
    if (written == static_cast<ssize_t>(text.size()))
        return;
    lost += before + 1;
    if (was_cut || written > 0)
        cut = true;
}

void set_journal_socket(const std::string& path) {
    journal = {};
    if (path.size() >= sizeof journal.address.sun_path)
        return;
    journal.address.sun_family = AF_UNIX;
    path.copy(journal.address.sun_path, path.size());
    journal.fd = UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

void log_line(Level level, std::string_view line, const LogFields& fields) {
    if (!stderr_is_journal() ||
        !send_to_journal(journal_entry(std::to_underlying(level), program_invocation_short_name,
                                       one_line(line), fields)))
        log_line(level, line);
}

} // namespace virtguard
