// SPDX-License-Identifier: Apache-2.0
#include "daemon/hook_server.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.hpp"

namespace virtguard::daemon {

namespace {

/// A hook sends all it has at once and is gone after hook.timeout; longer than this nobody waits.
constexpr std::chrono::seconds max_age{60};

/// While others wait to be accepted, who has not sent all its request by this age, or not taken its
/// reply in this time, makes room. A hook on a loaded host needs a part of it: it connects when it
/// has read all there is to send, and who waits behind it has little more patience (hook.timeout).
constexpr std::chrono::seconds patience_when_full{1};

constexpr std::size_t read_size = 65536;

/// Reads of one connection in one turn of the loop, so that one sender does not keep others
/// waiting.
constexpr int reads_per_turn = 4;

/// Connections that are accepted, and served where their request is there already, in one turn.
constexpr std::size_t accepts_per_turn = 16;

} // namespace

struct HookServer::Connection {
    enum class State { reading, waiting, writing };

    std::uint64_t id = 0;
    UniqueFd socket;
    Instant deadline;
    Instant since; ///< when it was accepted; while writing, when its reply was there
    wire::RequestReader reader;
    State state = State::reading;
    std::string unsent; ///< what is left of the reply
    std::optional<loop::Io> io;
};

Result<std::unique_ptr<HookServer>> HookServer::create(loop::Loop& loop, UniqueFd listener,
                                                       Handler handler) {
    std::unique_ptr<HookServer> server(new HookServer(loop, std::move(handler)));
    auto timer = loop.timer("hook connections", [raw = server.get()] { raw->drop_late(); });
    if (!timer)
        return std::unexpected(timer.error());
    server->timer_ = std::make_unique<loop::Timer>(*std::move(timer));
    if (auto listening = server->listen(std::move(listener)); !listening)
        return std::unexpected(listening.error());
    return server;
}

HookServer::HookServer(loop::Loop& loop, Handler handler)
    : loop_(loop), handler_(std::move(handler)) {}

HookServer::~HookServer() = default;

Result<> HookServer::listen(UniqueFd listener) {
    auto accepting = loop_.on_io(
        "hook socket", listener.get(), EPOLLIN,
        [this](std::uint32_t) { accept_up_to(accepts_per_turn); }, loop::Priority::important);
    if (!accepting)
        return std::unexpected(accepting.error());
    if (listener_)
        accept_up_to(max_connections);
    accepting_ = std::make_unique<loop::Io>(*std::move(accepting));
    listener_ = std::move(listener);
    paused_ = false;
    return {};
}

void HookServer::accept_up_to(std::size_t most) {
    for (std::size_t i = 0; connections_.size() < max_connections; ++i) {
        if (i == most)
            return; // the rest is reported again
        UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (socket)
            add(std::move(socket));
        else if (errno == EAGAIN || connections_.empty())
            return; // nothing waits; or it is no connection of ours that stands in the way
        else if (errno != EINTR && errno != ECONNABORTED)
            break; // no descriptor or memory is left: the end of a connection gives some back
    }
    paused_ = accepting_->set_events(0).has_value();
    if (!paused_)
        log(Level::warning, "hook socket: cannot pause accepting, ignoring");
    arm_timer();
}

void HookServer::add(UniqueFd socket) {
    if (!wire::peer_is_root(socket.get())) {
        log(Level::warning, "hook socket: closed a connection that is not root's");
        return;
    }
    Connection& connection = connections_.emplace_back();
    connection.id = next_id_++;
    connection.socket = std::move(socket);
    connection.since = loop::now();
    connection.deadline = connection.since + max_age;
    if (connections_.size() == 1)
        arm_timer();
    // Most have sent all they have by now, and are served before anything watches them.
    const std::uint64_t id = connection.id;
    read_request(connection);
    if (connections_.empty() || connections_.back().id != id || connection.io)
        return;
    const bool has_all = connection.state == Connection::State::waiting;
    watch(connection, has_all ? std::uint32_t{} : EPOLLIN);
}

/// Has serve() called on these events and on a hang-up. False: the connection is dropped.
bool HookServer::watch(Connection& connection, std::uint32_t events) {
    if (connection.io && connection.io->set_events(events))
        return true;
    auto io = loop_.on_io(
        "hook connection", connection.socket.get(), events,
        [this, &connection](std::uint32_t) { serve(connection); }, loop::Priority::important);
    if (!io) {
        log(Level::error, "hook socket: {}", io.error().what);
        drop(connection);
        return false;
    }
    connection.io = *std::move(io);
    return true;
}

void HookServer::serve(Connection& connection) {
    switch (connection.state) {
    case Connection::State::reading:
        return read_request(connection);
    case Connection::State::waiting: // only a hang-up is reported then
        return drop(connection);
    case Connection::State::writing:
        return write_reply(connection);
    }
}

void HookServer::read_request(Connection& connection) {
    std::array<char, read_size> buffer;
    for (int i = 0; i < reads_per_turn; ++i) {
        const ssize_t count = ::recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN)
            return;
        if (count <= 0)
            return drop(connection);
        auto request = connection.reader.feed({buffer.data(), static_cast<std::size_t>(count)});
        if (!request) {
            log(Level::warning, "hook socket: {}", wire::describe(request.error()));
            return drop(connection);
        }
        if (!*request)
            continue;
        if (connection.io && !connection.io->set_events(0))
            return drop(connection);
        connection.state = Connection::State::waiting;
        return handler_(std::move(**request), [this, id = connection.id](std::string bytes) {
            reply(id, std::move(bytes));
        });
    }
}

void HookServer::reply(std::uint64_t id, std::string bytes) {
    const auto connection = std::ranges::find(connections_, id, &Connection::id);
    if (connection == connections_.end())
        return;
    connection->unsent = std::move(bytes);
    connection->state = Connection::State::writing;
    connection->since = loop::now();
    write_reply(*connection);
}

void HookServer::write_reply(Connection& connection) {
    while (!connection.unsent.empty()) {
        const ssize_t count = ::send(connection.socket.get(), connection.unsent.data(),
                                     connection.unsent.size(), MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN)
            return watch(connection, EPOLLOUT) ? arm_timer() : void();
        if (count < 0)
            break; // the asker is gone; what it asked for is answered all the same
        connection.unsent.erase(0, static_cast<std::size_t>(count));
    }
    drop(connection);
}

void HookServer::drop(Connection& connection) {
    connections_.remove_if([&](const Connection& each) { return &each == &connection; });
    if (std::exchange(paused_, false) && !accepting_->set_events(EPOLLIN))
        log(Level::error, "hook socket: cannot resume accepting");
    if (connections_.empty())
        timer_->disarm();
}

/// While there is no room for more: of those that we wait for, the one we have waited for longest;
/// else end().
std::list<HookServer::Connection>::iterator HookServer::in_the_way() {
    if (!paused_)
        return connections_.end();
    const auto since = [](const Connection& connection) {
        return connection.state == Connection::State::waiting ? Instant::max() : connection.since;
    };
    const auto found = std::ranges::min_element(connections_, {}, since);
    const bool waits_for_us = found == connections_.end() || since(*found) == Instant::max();
    return waits_for_us ? connections_.end() : found;
}

void HookServer::drop_late() {
    const Instant now = loop::now();
    while (!connections_.empty() && connections_.front().deadline <= now)
        drop(connections_.front());
    // One is enough: where another is accepted in its place and there is none left, this runs
    // again.
    if (const auto slow = in_the_way();
        slow != connections_.end() && slow->since + patience_when_full <= now)
        drop(*slow);
    arm_timer();
}

void HookServer::arm_timer() {
    if (connections_.empty())
        return;
    const auto slow = in_the_way();
    const Instant last = connections_.front().deadline;
    timer_->arm(slow == connections_.end() ? last
                                           : std::min(last, slow->since + patience_when_full));
}

} // namespace virtguard::daemon
