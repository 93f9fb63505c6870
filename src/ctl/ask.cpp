// SPDX-License-Identifier: Apache-2.0
#include "ctl/ask.hpp"

#include <unistd.h>

#include "wire/exchange.hpp"

namespace virtguard::ctl {

namespace {

/// It answers root alone, and to others its socket is closed, too.
std::string_view what_to_do() {
    return ::geteuid() == 0 ? "is it running? see systemctl status virtguardd"
                            : "it answers only root; try again with sudo";
}

} // namespace

Result<std::string> ask_daemon(const std::string& socket, wire::Operation operation,
                               std::string_view body) {
    auto reply = wire::exchange(socket, operation, body, patience);
    if (!reply && reply.error().code == Errc::unavailable)
        return fail(Errc::unavailable, "virtguardd: {}; {}", reply.error().what, what_to_do());
    if (!reply)
        return std::unexpected(std::move(reply.error()));
    if (reply->verdict != wire::Verdict::done)
        return fail(Errc::invalid, "{}", reply->body);
    return std::move(reply->body);
}

} // namespace virtguard::ctl
