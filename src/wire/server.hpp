// SPDX-License-Identifier: Apache-2.0
#pragma once
// The answering end, without the socket: bytes in, a request out; a verdict in, bytes out. Whoever
// owns the sockets feeds it, and closes a connection that faults or dawdles.

#include <array>
#include <chrono>
#include <cstddef>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "base/uuid.hpp"
#include "wire/protocol.hpp"

namespace virtguard::wire {

struct Request {
    RequestHeader header;
    std::string body; ///< domain XML, only its beginning if header.cut; of status empty
};

/// Puts one request together from what a connection brings. Never holds more than twice what has
/// really come, whatever was announced.
class RequestReader {
  public:
    /// Nothing while more must come; once a request or a fault has been returned, the reader is
    /// spent.
    [[nodiscard]] std::expected<std::optional<Request>, Fault> feed(std::string_view bytes);

  private:
    std::array<char, request_header_size> head_{};
    std::size_t head_size_ = 0;
    std::optional<RequestHeader> header_;
    std::string body_;
};

/// Header and body of the reply to such a request. A line too long is cut between characters; a
/// document too long becomes an error that says so. What is told gets no reply.
[[nodiscard]] std::string encode_reply(Operation operation, Verdict verdict, std::string_view body);

/// The UUID of a domain's XML as libvirt formats it for hooks, also where the XML has been cut.
/// (The name stands before it, but there "<" is escaped.)
[[nodiscard]] std::optional<Uuid> find_uuid(std::string_view xml) noexcept;

/// Whether the process that connected this socket did so as root.
[[nodiscard]] bool peer_is_root(int fd) noexcept;

} // namespace virtguard::wire
