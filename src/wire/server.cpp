// SPDX-License-Identifier: Apache-2.0
#include "wire/server.hpp"

#include <sys/socket.h>

#include "base/text.hpp"

namespace virtguard::wire {

std::expected<std::optional<Request>, Fault> RequestReader::feed(std::string_view bytes) {
    if (!header_) {
        const std::size_t taken = bytes.copy(head_.data() + head_size_, head_.size() - head_size_);
        head_size_ += taken;
        bytes.remove_prefix(taken);
        const auto header = decode_request_header({head_.data(), head_size_});
        if (!header)
            return std::unexpected(header.error());
        if (!*header)
            return std::nullopt;
        header_ = *header;
    }
    if (bytes.size() > header_->body_length - body_.size())
        return std::unexpected(Fault::surplus);
    body_.append(bytes);
    if (body_.size() < header_->body_length)
        return std::nullopt;
    return Request{*header_, std::move(body_)};
}

std::string encode_reply(Operation operation, Verdict verdict, std::string_view body) {
    if (verdict != Verdict::done)
        body = cut_text(body, max_line);
    if (body.size() > max_reply_body(operation))
        return encode_reply(operation, Verdict::error, "the document is too long");
    const auto head = encode_reply_header({verdict, static_cast<std::uint32_t>(body.size())});
    std::string reply(head.data(), head.size());
    reply += body;
    return reply;
}

std::optional<Uuid> find_uuid(std::string_view xml) noexcept {
    constexpr std::string_view open = "<uuid>";
    const std::size_t tag = xml.find(open);
    if (tag == std::string_view::npos)
        return std::nullopt;
    xml.remove_prefix(tag + open.size());
    const std::size_t end = xml.find("</uuid>");
    return end == std::string_view::npos ? std::nullopt : Uuid::parse(xml.substr(0, end));
}

bool peer_is_root(int fd) noexcept {
    ucred peer{};
    socklen_t size = sizeof peer;
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == 0;
}

} // namespace virtguard::wire
