// SPDX-License-Identifier: Apache-2.0
#pragma once
// The asking end, without heap: what virtguard-hook needs, and what exchange() is built on.
// Everything ends by a deadline; nothing raises SIGPIPE.

#include <array>
#include <chrono>
#include <cstddef>
#include <expected>
#include <span>
#include <string_view>
#include <utility>

#include "base/instant.hpp"
#include "base/unique.hpp"
#include "wire/protocol.hpp"

namespace virtguard::wire {

/// As loop::now(), for those who link no loop.
[[nodiscard]] Instant now() noexcept;

/// Waits until poll() has one of the events (or an error) for fd.
[[nodiscard]] std::expected<short, Fault> wait_for(int fd, short events, Instant deadline) noexcept;

/// One connection.
class Client {
  public:
    /// A path too long for a socket's address is unreachable.
    [[nodiscard]] static std::expected<Client, Fault> connect(const char* path,
                                                              Instant deadline) noexcept;

    /// Hands the whole request to the kernel; header.body_length is body.size(). Stops early
    /// without a fault where the other end has answered or closed already: receive() tells which.
    [[nodiscard]] std::expected<void, Fault> send(const RequestHeader& header,
                                                  std::string_view body) noexcept;

    /// At least one byte; how many. What has come counts, also after the deadline.
    [[nodiscard]] std::expected<std::size_t, Fault> receive(std::span<char> room) noexcept;

  private:
    Client(UniqueFd socket, Instant deadline) noexcept
        : socket_(std::move(socket)), deadline_(deadline) {}

    UniqueFd socket_;
    Instant deadline_;
};

struct Answer {
    Verdict verdict = Verdict::error;
    std::string_view line; ///< in the buffer given to ask(), at most max_line bytes, unchecked
};

/// One byte more than the longest answer, to notice surplus.
using AnswerBuffer = std::array<char, reply_header_size + max_line + 1>;

/// Asks and waits for the answer, once more where the connection is closed before it came;
/// header.body_length is set here.
[[nodiscard]] std::expected<Answer, Fault> ask(const char* path, RequestHeader header,
                                               std::string_view body, Instant deadline,
                                               AnswerBuffer& buffer) noexcept;

/// Sends, and waits for nothing but the kernel. A body above max_told_xml is cut.
[[nodiscard]] std::expected<void, Fault> tell(const char* path, RequestHeader header,
                                              std::string_view body, Instant deadline) noexcept;

} // namespace virtguard::wire
