// SPDX-License-Identifier: Apache-2.0
#pragma once
// What goes over the hook socket: one request and one reply per connection, each a fixed header and
// a body. docs/hook-protocol.md has it byte by byte. No heap and no foreign library here or in
// client.hpp: virtguard-hook is exec'd three times per start and links both.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string_view>

#include "base/instant.hpp"

namespace virtguard::wire {

inline constexpr const char* hook_socket_path = "/run/virtguard/hook.sock";

inline constexpr std::uint16_t protocol_version = 1;
inline constexpr std::size_t request_header_size = 28;
inline constexpr std::size_t reply_header_size = 12;

/// libvirt's REMOTE_STRING_MAX: its own API passes no larger domain XML.
inline constexpr std::size_t max_xml = 4 << 20;
/// What is told is at most this, longer XML is cut: it fits into the socket's buffer
/// (net.core.wmem_default, 208 KiB), so telling never waits for the daemon to read.
inline constexpr std::size_t max_told_xml = 64 << 10;
/// An order: names and figures, or a domain's XML, which is rarely above 100 KiB.
inline constexpr std::size_t max_order = 512 << 10;
/// The line for the operator: libvirt passes it on in one message, and people read it.
inline constexpr std::size_t max_line = 2000;
/// The status of 10,000 guests at 1 KiB each, with room to spare.
inline constexpr std::size_t max_document = 16 << 20;

enum class Operation : std::uint16_t {
    prepare = 1, ///< may this domain start? The answer is waited for
    started,     ///< told, not answered, and so are the next two
    release,
    reconnect,
    check,   ///< what would prepare answer? Changes nothing; answered with a document
    status,  ///< no body; answered with a document, and so are recent and policy
    recent,  ///< the last starts
    metrics, ///< for Prometheus
    policy,  ///< what is in force
    order,   ///< something to be done; answered by an empty document when it is done
};

enum class Verdict : std::uint16_t {
    admitted = 1,
    refused, ///< of prepare: the body is the line for the operator
    done,    ///< of check and what follows it: the body is a document
    error,   ///< no verdict could be had; the body is a line that says why
};

/// Why an exchange failed.
enum class Fault {
    foreign,     ///< what came does not begin as our protocol does
    version,     ///< ours, but of a version not spoken here
    malformed,   ///< a header field has no meaning
    too_long,    ///< more announced than is allowed
    surplus,     ///< more came than was announced
    closed,      ///< the other end closed before all had come
    timed_out,   ///< not done by the deadline
    unreachable, ///< nobody listens at that path
    denied,      ///< the path is closed to us
};

/// For the operator: "nobody listens on its socket".
[[nodiscard]] std::string_view describe(Fault fault) noexcept;

struct RequestHeader {
    Operation operation = Operation::prepare;
    Instant exec_time;                ///< when the sender was exec'd
    std::chrono::milliseconds wait{}; ///< counted from exec_time; then the sender is gone
    bool cut = false;                 ///< the body is only the beginning of the XML
    std::uint32_t body_length = 0;

    friend bool operator==(const RequestHeader&, const RequestHeader&) = default;
};

/// The longest body a request of this kind may have.
[[nodiscard]] std::size_t max_request_body(Operation operation) noexcept;
/// The longest body the reply to it may have.
[[nodiscard]] std::size_t max_reply_body(Operation operation) noexcept;

[[nodiscard]] std::array<char, request_header_size>
encode_request_header(const RequestHeader& header) noexcept;

/// From the first bytes of a request: nothing as long as they are not enough, a fault as soon as it
/// shows.
[[nodiscard]] std::expected<std::optional<RequestHeader>, Fault>
decode_request_header(std::string_view received) noexcept;

struct ReplyHeader {
    Verdict verdict = Verdict::error;
    std::uint32_t body_length = 0;

    friend bool operator==(const ReplyHeader&, const ReplyHeader&) = default;
};

[[nodiscard]] std::array<char, reply_header_size>
encode_reply_header(const ReplyHeader& header) noexcept;
/// As decode_request_header().
[[nodiscard]] std::expected<std::optional<ReplyHeader>, Fault>
decode_reply_header(std::string_view received) noexcept;

/// How many bytes the reply still lacks, as far as its beginning tells: 0 when it is complete.
[[nodiscard]] std::expected<std::size_t, Fault> reply_missing(std::string_view received,
                                                              std::size_t max_body) noexcept;

} // namespace virtguard::wire
