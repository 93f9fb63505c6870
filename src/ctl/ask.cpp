// SPDX-License-Identifier: Apache-2.0
#include "ctl/ask.hpp"

#include <unistd.h>

#include "ctl/progress.hpp"
#include "ctl/show.hpp"
#include "wire/exchange.hpp"
#include "json/document.hpp"
#include "json/run_time.hpp"

namespace virtguard::ctl {

namespace {

/// It answers root alone, and to others its socket is closed, too.
std::string_view what_to_do() {
    return ::geteuid() == 0 ? "is it running? see systemctl status virtguardd"
                            : "it answers only root; try again with sudo";
}

template <class T>
Result<Said<T>> read(Result<std::string> document, Result<T> (*parse)(std::string_view)) {
    if (!document)
        return std::unexpected(std::move(document.error()));
    auto content = parse(*document);
    if (!content)
        return std::unexpected(std::move(content.error()));
    return Said<T>{*std::move(document), *std::move(content)};
}

} // namespace

Result<std::string> ask_daemon(const std::string& socket, wire::Operation operation,
                               std::string_view body) {
    const Progress progress("waiting for virtguardd");
    auto reply = wire::exchange(socket, operation, body, patience);
    if (!reply && reply.error().code == Errc::unavailable)
        return fail(Errc::unavailable, "virtguardd: {}; {}", reply.error().what, what_to_do());
    if (!reply)
        return std::unexpected(std::move(reply.error()));
    if (reply->verdict == wire::Verdict::refused)
        return fail(Errc::refused, "refused: {}", reply->body);
    if (reply->verdict != wire::Verdict::done)
        return fail(Errc::invalid, "{}", reply->body);
    return std::move(reply->body);
}

int give_order(const std::string& socket, const Result<core::Order>& order) {
    if (!order)
        return failure(order.error());
    const auto done = ask_daemon(socket, wire::Operation::order, json::order_document(*order));
    return done ? exit_ok : failure(done.error());
}

Result<Said<core::Status>> ask_status(const std::string& socket) {
    return read(ask_daemon(socket, wire::Operation::status), json::parse_status);
}

Result<Said<core::Outcome>> ask_check(const std::string& socket, std::string_view xml) {
    return read(ask_daemon(socket, wire::Operation::check, xml), json::parse_outcome);
}

} // namespace virtguard::ctl
