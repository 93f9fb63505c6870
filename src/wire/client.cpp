// SPDX-License-Identifier: Apache-2.0
#include "wire/client.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

namespace virtguard::wire {

namespace {

using std::chrono::milliseconds;

/// How soon a full backlog is tried again: a fraction of what exec costs.
constexpr int backlog_retry_ms = 1;

/// For poll(): rounded up, so that it never ends just before the deadline.
int milliseconds_until(Instant deadline) noexcept {
    const auto rest = std::chrono::ceil<milliseconds>(deadline - now()).count();
    return static_cast<int>(std::clamp<milliseconds::rep>(rest, 0, INT_MAX));
}

/// Takes count bytes off the front of what is still to be sent.
void drop_front(std::span<iovec> parts, std::size_t count) noexcept {
    for (iovec& part : parts) {
        const std::size_t taken = std::min(count, part.iov_len);
        part.iov_base = static_cast<char*>(part.iov_base) + taken;
        part.iov_len -= taken;
        count -= taken;
    }
}

} // namespace

Instant now() noexcept {
    timespec time{};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    return Instant(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

std::expected<short, Fault> wait_for(int fd, short events, Instant deadline) noexcept {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    // Also who is always ready, a byte at a time, must not outlive the deadline.
    while (const int rest = milliseconds_until(deadline)) {
        const int ready = ::poll(&entry, 1, rest);
        if (ready > 0)
            return entry.revents;
        if (ready < 0 && errno != EINTR)
            break;
    }
    return std::unexpected(Fault::timed_out);
}

std::expected<Client, Fault> Client::connect(const char* path, Instant deadline) noexcept {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t length = std::strlen(path);
    if (length >= sizeof address.sun_path)
        return std::unexpected(Fault::unreachable);
    std::memcpy(address.sun_path, path, length);
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket)
        return std::unexpected(Fault::unreachable);
    // The kernel says EAGAIN, and does not queue us, while the listener's backlog is full.
    while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
           0) {
        if (errno == EINTR)
            continue;
        if (errno == EACCES || errno == EPERM)
            return std::unexpected(Fault::denied);
        if (errno != EAGAIN)
            return std::unexpected(Fault::unreachable);
        const int rest = milliseconds_until(deadline);
        if (rest == 0)
            return std::unexpected(Fault::timed_out);
        ::poll(nullptr, 0, std::min(rest, backlog_retry_ms));
    }
    return Client(std::move(socket), deadline);
}

std::expected<void, Fault> Client::send(const RequestHeader& header,
                                        std::string_view body) noexcept {
    auto head = encode_request_header(header);
    std::array<iovec, 2> parts{
        {{head.data(), head.size()}, {const_cast<char*>(body.data()), body.size()}}};
    std::size_t rest = head.size() + body.size();
    while (rest > 0) {
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = parts.size();
        const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
        if (sent >= 0) {
            drop_front(parts, static_cast<std::size_t>(sent));
            rest -= static_cast<std::size_t>(sent);
        } else if (errno == EAGAIN) {
            const auto events = wait_for(socket_.get(), POLLIN | POLLOUT, deadline_);
            if (!events)
                return std::unexpected(events.error());
            if ((*events & POLLIN) != 0)
                return {};
        } else if (errno != EINTR) {
            return {};
        }
    }
    return {};
}

std::expected<std::size_t, Fault> Client::receive(std::span<char> room) noexcept {
    // Looks before it waits: on a busy host the answer may be there while the deadline has passed.
    while (true) {
        const ssize_t got = ::recv(socket_.get(), room.data(), room.size(), 0);
        if (got > 0)
            return static_cast<std::size_t>(got);
        if (got == 0 || (errno != EAGAIN && errno != EINTR))
            return std::unexpected(Fault::closed);
        if (const auto ready = wait_for(socket_.get(), POLLIN, deadline_); !ready)
            return std::unexpected(ready.error());
    }
}

namespace {

std::expected<Answer, Fault> ask_once(const char* path, const RequestHeader& header,
                                      std::string_view body, Instant deadline,
                                      AnswerBuffer& buffer) noexcept {
    auto client = Client::connect(path, deadline);
    if (!client)
        return std::unexpected(client.error());
    if (const auto sent = client->send(header, body); !sent)
        return std::unexpected(sent.error());
    std::size_t size = 0;
    while (true) {
        const auto got = client->receive(std::span(buffer).subspan(size));
        if (!got)
            return std::unexpected(got.error());
        size += *got;
        const std::string_view received(buffer.data(), size);
        const auto missing = reply_missing(received, max_line);
        if (!missing)
            return std::unexpected(missing.error());
        if (*missing == 0) {
            const auto reply = decode_reply_header(received);
            return Answer{(*reply)->verdict,
                          {buffer.data() + reply_header_size, size - reply_header_size}};
        }
    }
}

} // namespace

std::expected<Answer, Fault> ask(const char* path, RequestHeader header, std::string_view body,
                                 Instant deadline, AnswerBuffer& buffer) noexcept {
    header.body_length = static_cast<std::uint32_t>(body.size());
    const auto answer = ask_once(path, header, body, deadline, buffer);
    if (answer || answer.error() != Fault::closed)
        return answer;
    // A daemon that ends, as for an upgrade, leaves the socket to the next one. Not more often:
    // what we ask may be what it dies of.
    return ask_once(path, header, body, deadline, buffer);
}

std::expected<void, Fault> tell(const char* path, RequestHeader header, std::string_view body,
                                Instant deadline) noexcept {
    if (body.size() > max_told_xml) {
        body.remove_suffix(body.size() - max_told_xml);
        header.cut = true;
    }
    header.body_length = static_cast<std::uint32_t>(body.size());
    auto client = Client::connect(path, deadline);
    if (!client)
        return std::unexpected(client.error());
    return client->send(header, body);
}

} // namespace virtguard::wire
