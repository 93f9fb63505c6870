// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sockets of the hook exchange: accepts root's connections, reads one request from each, hands
// it on, writes the reply, closes. Nothing here waits; whoever dawdles is dropped.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "base/unique.hpp"
#include "loop/loop.hpp"
#include "wire/server.hpp"

namespace virtguard::daemon {

class HookServer {
  public:
    /// As many as libvirtd can have hooks at once (its workers, and a thread per reconnecting
    /// domain) on hosts of some thousand guests; what comes beyond waits in the kernel's queue.
    static constexpr std::size_t max_connections = 1024;

    /// Takes the reply's bytes, at once or later (but not after the server's end); none: the
    /// connection is closed. Where the asker has gone meanwhile they are dropped.
    using Reply = std::move_only_function<void(std::string)>;
    using Handler = std::function<void(wire::Request, Reply)>;

    /// Serves a listening socket from then on, until destroyed. The loop must outlive it.
    [[nodiscard]] static Result<std::unique_ptr<HookServer>>
    create(loop::Loop& loop, UniqueFd listener, Handler handler);

    /// Serves this socket in place of the one before. Who has connected to that one is served all
    /// the same.
    [[nodiscard]] Result<> listen(UniqueFd listener);

    HookServer(const HookServer&) = delete;
    HookServer& operator=(const HookServer&) = delete;
    ~HookServer();

  private:
    struct Connection;

    HookServer(loop::Loop& loop, Handler handler);
    void accept_up_to(std::size_t most);
    void add(UniqueFd socket);
    bool watch(Connection& connection, std::uint32_t events);
    void serve(Connection& connection);
    void read_request(Connection& connection);
    void reply(std::uint64_t id, std::string bytes);
    void write_reply(Connection& connection);
    void drop(Connection& connection);
    [[nodiscard]] std::list<Connection>::iterator in_the_way();
    void drop_late();
    void arm_timer();

    loop::Loop& loop_;
    UniqueFd listener_;
    Handler handler_;
    std::list<Connection> connections_; ///< by deadline, as all get the same time
    std::uint64_t next_id_ = 0;
    bool paused_ = false; ///< accepting waits for a connection to end
    std::unique_ptr<loop::Io> accepting_;
    std::unique_ptr<loop::Timer> timer_;
};

} // namespace virtguard::daemon
