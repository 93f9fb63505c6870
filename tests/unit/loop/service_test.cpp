// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/unique.hpp"
#include "loop/service.hpp"

using namespace virtguard;

namespace {

/// A datagram socket where systemd's would be, at an address the kernel chooses.
class NotifySocket {
  public:
    NotifySocket() : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        socklen_t size = sizeof(sa_family_t);
        REQUIRE(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
        size = sizeof address;
        REQUIRE(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
        std::string name(address.sun_path, size - offsetof(sockaddr_un, sun_path));
        name.at(0) = '@';
        ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
    }
    ~NotifySocket() { ::unsetenv("NOTIFY_SOCKET"); }
    NotifySocket(const NotifySocket&) = delete;
    NotifySocket& operator=(const NotifySocket&) = delete;

    [[nodiscard]] std::string next() const {
        std::array<char, 512> text{};
        const ssize_t size = ::recv(fd_.get(), text.data(), text.size(), 0);
        return size < 0 ? "" : std::string(text.data(), static_cast<std::size_t>(size));
    }

  private:
    UniqueFd fd_;
};

} // namespace

TEST_CASE("systemd is told what it understands") {
    const NotifySocket systemd;
    loop::notify_ready("12 guests");
    CHECK(systemd.next() == "READY=1\nSTATUS=12 guests");
    loop::notify_reloading();
    CHECK(systemd.next() == "RELOADING=1");
    loop::notify_stopping();
    CHECK(systemd.next() == "STOPPING=1");
}

TEST_CASE("a status with line breaks says nothing but a status") {
    const NotifySocket systemd;
    loop::notify_status("bad policy\nMAINPID=1");
    CHECK(systemd.next() == "STATUS=bad policy\\x0aMAINPID=1");
}

TEST_CASE("a status that systemd has is not sent again") {
    const NotifySocket systemd;
    loop::notify_ready("1 guest");
    REQUIRE_FALSE(systemd.next().empty());
    loop::notify_status("1 guest");
    CHECK(systemd.next().empty());
    loop::notify_status("2 guests");
    CHECK(systemd.next() == "STATUS=2 guests");
    loop::notify_status("2 guests");
    CHECK(systemd.next().empty());
    loop::notify_status("1 guest");
    CHECK(systemd.next() == "STATUS=1 guest");
}

TEST_CASE("without systemd the notes go nowhere and no socket is passed") {
    loop::notify_ready("ready");
    CHECK(loop::listen_fds().value().empty());
}

TEST_CASE("a socket passed by systemd comes with its name, close-on-exec and non-blocking") {
    // In a child: the sockets are known by their numbers, from 3 on, and by the process id.
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
        if (fd < 0 || (fd != 3 && ::dup2(fd, 3) != 3))
            ::_exit(10);
        ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
        ::setenv("LISTEN_FDS", "1", 1);
        ::setenv("LISTEN_FDNAMES", "hook", 1);
        auto sockets = loop::listen_fds();
        if (!sockets || sockets->size() != 1 || sockets->at(0).name != "hook")
            ::_exit(11);
        const int passed = sockets->at(0).fd.get();
        if (passed != 3 || (::fcntl(passed, F_GETFD) & FD_CLOEXEC) == 0 ||
            (::fcntl(passed, F_GETFL) & O_NONBLOCK) == 0)
            ::_exit(12);
        ::_exit(loop::listen_fds().value().empty() ? 0 : 13);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}
