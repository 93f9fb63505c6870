// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "daemon/hook_server.hpp"
#include "daemon/run_folder.hpp"
#include "loop/mailbox.hpp"

using namespace virtguard;
using namespace virtguard::daemon;
using namespace std::chrono_literals;

namespace {

std::string request(std::string_view body, wire::Operation operation = wire::Operation::prepare) {
    const wire::RequestHeader header{.operation = operation,
                                     .exec_time = loop::now(),
                                     .wait = 2000ms,
                                     .body_length = static_cast<std::uint32_t>(body.size())};
    const auto head = wire::encode_request_header(header);
    return std::string(head.data(), head.size()).append(body);
}

std::string reply_to(std::string_view body) {
    return wire::encode_reply(wire::Operation::prepare, wire::Verdict::refused,
                              "about " + std::string(body));
}

/// A blocking socket that is connected, or none. Receiving gives up after what no test should take.
UniqueFd connect_to(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::ranges::copy(path, address.sun_path);
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{.tv_sec = 20, .tv_usec = 0};
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0)
        return UniqueFd();
    return socket;
}

void send(const UniqueFd& socket, std::string_view bytes) {
    REQUIRE(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
}

/// All that comes until the server closes.
std::string receive(const UniqueFd& socket) {
    std::string received;
    std::vector<char> buffer(65536);
    while (true) {
        const ssize_t count = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
        if (count == 0 || (count < 0 && errno == ECONNRESET))
            return received;
        REQUIRE(count > 0);
        received.append(buffer.data(), static_cast<std::size_t>(count));
    }
}

/// A server whose loop runs in a thread; the handler runs there.
class Bench {
  public:
    explicit Bench(HookServer::Handler handler = [](const wire::Request& asked,
                                                    HookServer::Reply reply) {
        reply(reply_to(asked.body));
    }) {
        auto listener = listen_at(path());
        REQUIRE(listener.has_value());
        server_ = HookServer::create(loop_, *std::move(listener), std::move(handler)).value();
        stop_ = loop::Mailbox<int>::create().value();
        stopping_ =
            loop_.on_io("stop", stop_->fd(), EPOLLIN, [this](std::uint32_t) { loop_.stop(0); })
                .value();
        thread_ = std::thread([this] { (void)loop_.run(); });
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;
    ~Bench() {
        (void)stop_->push(0);
        thread_.join();
    }

    [[nodiscard]] std::string path() const { return folder_.path() / "hook.sock"; }
    [[nodiscard]] UniqueFd connect() const {
        UniqueFd socket = connect_to(path());
        REQUIRE(socket);
        return socket;
    }
    [[nodiscard]] std::string ask(std::string_view body) const {
        const UniqueFd socket = connect();
        send(socket, request(body));
        return receive(socket);
    }

  private:
    Folder folder_;
    loop::Loop loop_ = loop::Loop::create().value();
    std::unique_ptr<HookServer> server_;
    std::unique_ptr<loop::Mailbox<int>> stop_;
    std::optional<loop::Io> stopping_;
    std::thread thread_;
};

} // namespace

TEST_CASE("each client gets the reply to what it asked, in whatever pieces it asks") {
    const Bench bench;
    const UniqueFd first = bench.connect();
    const UniqueFd second = bench.connect();
    const std::string bytes = request("first");
    for (const char byte : bytes)
        send(first, {&byte, 1});
    send(second, request("second"));
    CHECK(receive(second) == reply_to("second"));
    CHECK(receive(first) == reply_to("first"));
}

TEST_CASE("a client that stops in the middle keeps nobody waiting") {
    const Bench bench;
    const UniqueFd silent = bench.connect();
    const UniqueFd half = bench.connect();
    send(half, request("half").substr(0, 30));
    CHECK(bench.ask("other") == reply_to("other"));
    send(half, request("half").substr(30));
    CHECK(receive(half) == reply_to("half"));
}

TEST_CASE("a client that hangs up is forgotten, and what it asked in whole is handled") {
    std::vector<std::string> seen;
    {
        const Bench bench([&seen](const wire::Request& asked, HookServer::Reply reply) {
            seen.push_back(asked.body);
            reply(std::string(1 << 20, 'x')); // more than a socket takes at once
        });
        send(bench.connect(), request("half").substr(0, 30));
        send(bench.connect(), request("told", wire::Operation::release));
        (void)bench.connect();
        CHECK(bench.ask("last").size() == 1 << 20);
    }
    std::ranges::sort(seen); // one is served per turn, in whatever order
    CHECK(seen == std::vector<std::string>{"last", "told"});
}

TEST_CASE("what is no request closes its own connection only") {
    const Bench bench;
    const auto bytes = GENERATE(as<std::string>(), "GET / HTTP/1.1\r\n\r\n", std::string(28, '\0'),
                                std::string("VGRQ\xff\xff"), request("x") + "surplus");
    const UniqueFd good = bench.connect();
    const UniqueFd bad = bench.connect();
    send(bad, bytes);
    CHECK(receive(bad).empty());
    send(good, request("good"));
    CHECK(receive(good) == reply_to("good"));
}

TEST_CASE("a request of 4 MiB and a reply as long go through") {
    const Bench bench([](const wire::Request& asked, HookServer::Reply reply) {
        reply(wire::encode_reply(wire::Operation::check, wire::Verdict::done, asked.body));
    });
    const std::string body(wire::max_xml, 'x');
    const UniqueFd socket = bench.connect();
    send(socket, request(body, wire::Operation::check));
    CHECK(receive(socket) == wire::encode_reply(wire::Operation::check, wire::Verdict::done, body));
}

TEST_CASE("a reply may come later, and to one that has gone it is dropped") {
    std::vector<HookServer::Reply> kept;
    const Bench bench([&kept](const wire::Request& asked, HookServer::Reply reply) {
        if (asked.body.starts_with("later"))
            return kept.push_back(std::move(reply));
        for (HookServer::Reply& each : kept)
            each(reply_to("kept"));
        kept.clear();
        reply(reply_to(asked.body));
    });
    const UniqueFd patient = bench.connect();
    send(patient, request("later"));
    UniqueFd gone = bench.connect();
    send(gone, request("later, but gone"));
    gone = UniqueFd();
    CHECK(bench.ask("now") == reply_to("now"));
    CHECK(receive(patient) == reply_to("kept"));
    CHECK(bench.ask("again") == reply_to("again"));
}

TEST_CASE("more connections at once than are served are answered all the same") {
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    constexpr std::size_t count = HookServer::max_connections + 300;
    rlimit raised = limit;
    raised.rlim_cur = std::min<rlim_t>(limit.rlim_max, 3 * count);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &raised) == 0);
    {
        const Bench bench;
        std::vector<UniqueFd> clients;
        for (std::size_t i = 0; i < count; ++i) {
            clients.push_back(bench.connect());
            // At once, as hooks do: who is silent for a second while all places are taken loses
            // his.
            send(clients.back(), request(std::to_string(i)));
        }
        for (std::size_t i = 0; i < count; ++i)
            REQUIRE(receive(clients[i]) == reply_to(std::to_string(i)));
    }
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

TEST_CASE("silent connections up to the limit keep others out for a second, not for a minute") {
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    rlimit raised = limit;
    raised.rlim_cur = std::min<rlim_t>(limit.rlim_max, 3 * HookServer::max_connections);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &raised) == 0);
    {
        const Bench bench([](const wire::Request& asked, HookServer::Reply reply) {
            reply(asked.body == "much" ? std::string(1 << 20, 'x') : reply_to(asked.body));
        });
        std::vector<UniqueFd> silent;
        silent.push_back(bench.connect());
        send(silent.back(), request("half").substr(0, 30));
        silent.push_back(bench.connect());
        send(silent.back(), request("much")); // more than fits into the socket
        char byte = 0;
        REQUIRE(::recv(silent.back().get(), &byte, 1, 0) == 1); // and not read on
        while (silent.size() < HookServer::max_connections)
            silent.push_back(bench.connect());
        CHECK(bench.ask("first") == reply_to("first"));
        silent.push_back(bench.connect()); // in place of silent[0]
        CHECK(bench.ask("second") == reply_to("second"));
        CHECK(receive(silent[0]).empty());
        CHECK(receive(silent[1]).size() < (1 << 20) - 1);
        CHECK(::recv(silent.back().get(), &byte, 1, MSG_DONTWAIT) < 0); // nobody came for its place
        CHECK(errno == EAGAIN);
    }
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

TEST_CASE("silent connections up to the limit hold up others only until one of them ends") {
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    rlimit raised = limit;
    raised.rlim_cur = std::min<rlim_t>(limit.rlim_max, 3 * HookServer::max_connections);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &raised) == 0);
    {
        const Bench bench;
        std::vector<UniqueFd> silent;
        for (std::size_t i = 0; i < HookServer::max_connections; ++i)
            silent.push_back(bench.connect());
        const UniqueFd waiting = bench.connect();
        send(waiting, request("waiting"));
        silent.pop_back();
        CHECK(receive(waiting) == reply_to("waiting"));
    }
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

TEST_CASE("when descriptors run out, who waits is served as soon as one is free") {
    const Bench bench;
    UniqueFd held = bench.connect();
    send(held, request("held").substr(0, 5));
    CHECK(bench.ask("before") == reply_to("before")); // so the server has accepted held
    const UniqueFd waiting = bench.connect();
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    rlimit low = limit;
    low.rlim_cur = 3;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0); // no new descriptor for anybody
    send(waiting, request("waiting"));
    ::shutdown(held.get(), SHUT_RDWR); // the server drops it, and has none free all the same
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(bench.ask("after") == reply_to("after"));
    CHECK(receive(waiting) == reply_to("waiting"));
}

TEST_CASE("only root is heard, whatever the mode of the socket") {
    if (::geteuid() != 0)
        return;
    const Bench bench;
    struct stat status {};
    REQUIRE(::stat(bench.path().c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    REQUIRE(::chmod(bench.path().c_str(), 0666) == 0);
    REQUIRE(::chmod(std::filesystem::path(bench.path()).parent_path().c_str(), 0755) == 0);
    const std::string bytes = request("from nobody");
    const pid_t child = ::fork();
    if (child == 0) {
        constexpr uid_t nobody = 65534;
        if (::setgid(nobody) != 0 || ::setuid(nobody) != 0)
            ::_exit(1);
        const UniqueFd socket = connect_to(bench.path());
        if (!socket)
            ::_exit(2);
        (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        char byte = 0;
        ::_exit(::recv(socket.get(), &byte, 1, 0) <= 0 ? 0 : 3);
    }
    int ended = 0;
    REQUIRE(::waitpid(child, &ended, 0) == child);
    CHECK(WIFEXITED(ended));
    CHECK(WEXITSTATUS(ended) == 0);
    CHECK(bench.ask("from root") == reply_to("from root"));
}
