// SPDX-License-Identifier: Apache-2.0
#include "wire/protocol.hpp"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <limits>
#include <utility>

namespace virtguard::wire {

namespace {

constexpr std::string_view request_magic = "VGRQ";
constexpr std::string_view reply_magic = "VGRP";
constexpr std::size_t version_offset = 4;
constexpr std::uint32_t flag_cut = 1;

template <std::unsigned_integral T>
T little_endian(T value) noexcept {
    if constexpr (std::endian::native == std::endian::big)
        return std::byteswap(value);
    return value;
}

template <std::unsigned_integral T>
void put(char* at, T value) noexcept {
    value = little_endian(value);
    std::memcpy(at, &value, sizeof value);
}

template <std::unsigned_integral T>
T get(const char* at) noexcept {
    T value;
    std::memcpy(&value, at, sizeof value);
    return little_endian(value);
}

/// Magic and version stand first in every version, so they are judged before the rest has come.
std::expected<void, Fault> check_preamble(std::string_view received,
                                          std::string_view magic) noexcept {
    const std::size_t seen = std::min(received.size(), magic.size());
    if (!std::equal(received.begin(), received.begin() + seen, magic.begin()))
        return std::unexpected(Fault::foreign);
    if (received.size() >= version_offset + sizeof(std::uint16_t) &&
        get<std::uint16_t>(received.data() + version_offset) != protocol_version)
        return std::unexpected(Fault::version);
    return {};
}

} // namespace

std::string_view describe(Fault fault) noexcept {
    switch (fault) {
    case Fault::foreign:
        return "what came is not of this protocol";
    case Fault::version:
        return "the other end speaks another version of the protocol";
    case Fault::malformed:
        return "a header without meaning came";
    case Fault::too_long:
        return "more was announced than is allowed";
    case Fault::surplus:
        return "more came than was announced";
    case Fault::closed:
        return "the connection was closed too early";
    case Fault::timed_out:
        return "the time was up";
    case Fault::unreachable:
        return "nobody listens on its socket";
    case Fault::denied:
        return "its socket may not be used";
    }
    std::unreachable();
}

std::size_t max_request_body(Operation operation) noexcept {
    switch (operation) {
    case Operation::prepare:
    case Operation::check:
        return max_xml;
    case Operation::started:
    case Operation::release:
    case Operation::reconnect:
        return max_told_xml;
    case Operation::status:
    case Operation::recent:
    case Operation::metrics:
    case Operation::policy:
        return 0;
    case Operation::order:
        return max_order;
    }
    std::unreachable();
}

std::size_t max_reply_body(Operation operation) noexcept {
    return operation >= Operation::check ? max_document : max_line;
}

std::array<char, request_header_size> encode_request_header(const RequestHeader& header) noexcept {
    std::array<char, request_header_size> bytes{};
    request_magic.copy(bytes.data(), request_magic.size());
    put(bytes.data() + 4, protocol_version);
    put(bytes.data() + 6, std::to_underlying(header.operation));
    put(bytes.data() + 8, static_cast<std::uint64_t>(header.exec_time.time_since_epoch().count()));
    put(bytes.data() + 16, static_cast<std::uint32_t>(header.wait.count()));
    put(bytes.data() + 20, header.cut ? flag_cut : 0);
    put(bytes.data() + 24, header.body_length);
    return bytes;
}

std::expected<std::optional<RequestHeader>, Fault>
decode_request_header(std::string_view received) noexcept {
    if (const auto preamble = check_preamble(received, request_magic); !preamble)
        return std::unexpected(preamble.error());
    if (received.size() < request_header_size)
        return std::nullopt;
    const char* bytes = received.data();
    const auto operation = get<std::uint16_t>(bytes + 6);
    const auto exec_time = get<std::uint64_t>(bytes + 8);
    const auto flags = get<std::uint32_t>(bytes + 20);
    if (operation < std::to_underlying(Operation::prepare) ||
        operation > std::to_underlying(Operation::order) || flags > flag_cut ||
        exec_time > std::numeric_limits<std::int64_t>::max())
        return std::unexpected(Fault::malformed);
    const RequestHeader header{
        .operation = static_cast<Operation>(operation),
        .exec_time = Instant(std::chrono::nanoseconds(exec_time)),
        .wait = std::chrono::milliseconds(get<std::uint32_t>(bytes + 16)),
        .cut = flags == flag_cut,
        .body_length = get<std::uint32_t>(bytes + 24),
    };
    if (header.body_length > max_request_body(header.operation))
        return std::unexpected(Fault::too_long);
    return header;
}

std::array<char, reply_header_size> encode_reply_header(const ReplyHeader& header) noexcept {
    std::array<char, reply_header_size> bytes{};
    reply_magic.copy(bytes.data(), reply_magic.size());
    put(bytes.data() + 4, protocol_version);
    put(bytes.data() + 6, std::to_underlying(header.verdict));
    put(bytes.data() + 8, header.body_length);
    return bytes;
}

std::expected<std::optional<ReplyHeader>, Fault>
decode_reply_header(std::string_view received) noexcept {
    if (const auto preamble = check_preamble(received, reply_magic); !preamble)
        return std::unexpected(preamble.error());
    if (received.size() < reply_header_size)
        return std::nullopt;
    const auto verdict = get<std::uint16_t>(received.data() + 6);
    if (verdict < std::to_underlying(Verdict::admitted) ||
        verdict > std::to_underlying(Verdict::error))
        return std::unexpected(Fault::malformed);
    return ReplyHeader{static_cast<Verdict>(verdict), get<std::uint32_t>(received.data() + 8)};
}

std::expected<std::size_t, Fault> reply_missing(std::string_view received,
                                                std::size_t max_body) noexcept {
    const auto header = decode_reply_header(received);
    if (!header)
        return std::unexpected(header.error());
    if (!*header)
        return reply_header_size - received.size();
    const std::size_t length = (*header)->body_length;
    if (length > max_body)
        return std::unexpected(Fault::too_long);
    const std::size_t came = received.size() - reply_header_size;
    if (came > length)
        return std::unexpected(Fault::surplus);
    return length - came;
}

} // namespace virtguard::wire
