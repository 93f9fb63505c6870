// SPDX-License-Identifier: Apache-2.0
#include "wire/exchange.hpp"

#include <algorithm>
#include <span>

#include "wire/client.hpp"

namespace virtguard::wire {

namespace {

constexpr std::size_t first_room = 64 << 10;

std::expected<Reply, Fault> receive_reply(Client& client, std::size_t max_body) {
    std::string buffer(first_room, '\0');
    std::size_t size = 0;
    while (true) {
        const auto got = client.receive(std::span(buffer).subspan(size));
        if (!got)
            return std::unexpected(got.error());
        size += *got;
        const std::string_view received = std::string_view(buffer).substr(0, size);
        const auto missing = reply_missing(received, max_body);
        if (!missing)
            return std::unexpected(missing.error());
        if (*missing == 0)
            return Reply{(*decode_reply_header(received))->verdict,
                         std::string(received.substr(reply_header_size))};
        // Room grows with what has come; one byte above the announced shows surplus.
        if (size == buffer.size())
            buffer.resize(size + std::min(size, *missing + 1));
    }
}

} // namespace

Result<Reply> exchange(const std::string& path, Operation operation, std::string_view body,
                       std::chrono::milliseconds wait) {
    if (body.size() > max_request_body(operation))
        return fail(Errc::limit, "{} bytes are too many: at most {} can be sent", body.size(),
                    max_request_body(operation));
    const Instant begin = now();
    const RequestHeader header{.operation = operation,
                               .exec_time = begin,
                               .wait = wait,
                               .body_length = static_cast<std::uint32_t>(body.size())};
    const auto unavailable = [&path](Fault fault) {
        return fail(Errc::unavailable, "{}: no answer: {}", path, describe(fault));
    };
    auto client = Client::connect(path.c_str(), begin + wait);
    if (!client)
        return unavailable(client.error());
    if (const auto sent = client->send(header, body); !sent)
        return unavailable(sent.error());
    auto reply = receive_reply(*client, max_reply_body(operation));
    if (!reply)
        return unavailable(reply.error());
    return std::move(*reply);
}

} // namespace virtguard::wire
