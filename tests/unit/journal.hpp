// SPDX-License-Identifier: Apache-2.0
#pragma once
// The journal for a test: what is logged while it lives goes there.

#include <array>
#include <cstdlib>
#include <optional>
#include <string>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/log.hpp"
#include "base/unique.hpp"
#include "folder.hpp"

namespace virtguard {

/// A datagram socket in place of the journal's, and a stream in place of stderr, which is the
/// journal's, too.
class Journal {
  public:
    Journal() {
        sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
        path().copy(address.sun_path, sizeof address.sun_path - 1);
        socket_ = UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0));
        REQUIRE(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address),
                       sizeof address) == 0);
        std::array<int, 2> ends{};
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
        lines_ = UniqueFd(ends[0]);
        const UniqueFd writer(ends[1]);
        saved_ = UniqueFd(::dup(STDERR_FILENO));
        REQUIRE(::dup2(writer.get(), STDERR_FILENO) == STDERR_FILENO);
        struct stat status {};
        REQUIRE(::fstat(STDERR_FILENO, &status) == 0);
        ::setenv("JOURNAL_STREAM", fmt::format("{}:{}", status.st_dev, status.st_ino).c_str(), 1);
        set_journal_socket(path());
    }
    Journal(const Journal&) = delete;
    Journal& operator=(const Journal&) = delete;
    ~Journal() {
        ::dup2(saved_.get(), STDERR_FILENO);
        ::unsetenv("JOURNAL_STREAM");
        set_journal_socket("");
    }

    [[nodiscard]] std::string path() const { return folder_.file("socket"); }
    void go_away() { socket_ = UniqueFd(); }
    /// The next entry; nothing where there is none now.
    [[nodiscard]] std::optional<std::string> entry() const { return receive(socket_.get()); }
    /// What came over stderr; "" where that is nothing.
    [[nodiscard]] std::string lines() const { return receive(lines_.get()).value_or(""); }

  private:
    static std::optional<std::string> receive(int fd) {
        std::string bytes(1 << 20, '\0');
        const ssize_t count = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (count < 0)
            return std::nullopt;
        bytes.resize(static_cast<std::size_t>(count));
        return bytes;
    }

    Folder folder_;
    UniqueFd socket_;
    UniqueFd lines_;
    UniqueFd saved_;
};

} // namespace virtguard
