// SPDX-License-Identifier: Apache-2.0
// The asking end against a peer in a thread, which does one thing and goes.
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <tuple>

#include <catch2/catch.hpp>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "wire/client.hpp"
#include "wire/exchange.hpp"
#include "wire/server.hpp"

using namespace virtguard;
using namespace virtguard::wire;
using namespace std::chrono_literals;
using namespace std::string_literals;

namespace {

/// A listening socket at a path of its own.
class Listener {
  public:
    explicit Listener(int backlog = 8) {
        REQUIRE(::mkdtemp(folder_.data()) != nullptr);
        path = folder_ + "/hook.sock";
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path.copy(address.sun_path, sizeof address.sun_path - 1);
        REQUIRE(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address),
                       sizeof address) == 0);
        REQUIRE(::listen(socket_.get(), backlog) == 0);
    }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    ~Listener() { std::filesystem::remove_all(folder_); }

    [[nodiscard]] UniqueFd accept() const {
        return UniqueFd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }

    std::string path;

  private:
    std::string folder_ = "/tmp/virtguard-wire-XXXXXX";
    UniqueFd socket_{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

std::optional<Request> read_request(const UniqueFd& connection) {
    std::array<char, 4096> buffer;
    RequestReader reader;
    while (true) {
        const ssize_t got = ::recv(connection.get(), buffer.data(), buffer.size(), 0);
        if (got <= 0)
            return std::nullopt;
        auto request = reader.feed({buffer.data(), static_cast<std::size_t>(got)});
        if (!request || *request)
            return request.value_or(std::nullopt);
    }
}

void send_all(const UniqueFd& connection, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent < 0)
            return;
        bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
}

} // namespace

TEST_CASE("an answer is taken as it came, and everything else is a fault") {
    struct Want {
        std::optional<Fault> fault;
        Verdict verdict{};
        std::string line;
    };
    const auto [name, reply, want] = GENERATE(table<std::string, std::string, Want>({
        {"admitted", "VGRP\x01\x00\x01\x00\x00\x00\x00\x00"s, {{}, Verdict::admitted, ""}},
        {"refused", "VGRP\x01\x00\x02\x00\x02\x00\x00\x00no"s, {{}, Verdict::refused, "no"}},
        {"the longest line",
         encode_reply(Operation::prepare, Verdict::refused, std::string(2000, 'x')),
         {{}, Verdict::refused, std::string(2000, 'x')}},
        {"nothing", "", {Fault::closed, {}, ""}},
        {"half a header", "VGRP\x01\x00"s, {Fault::closed, {}, ""}},
        {"half a line", "VGRP\x01\x00\x02\x00\x04\x00\x00\x00no"s, {Fault::closed, {}, ""}},
        {"surplus", "VGRP\x01\x00\x02\x00\x02\x00\x00\x00no!"s, {Fault::surplus, {}, ""}},
        {"nonsense", "HTTP/1.1 200 OK\r\n", {Fault::foreign, {}, ""}},
        {"a line too long", "VGRP\x01\x00\x02\x00\xd1\x07\x00\x00"s, {Fault::too_long, {}, ""}},
    }));
    CAPTURE(name);
    const Listener listener;
    std::optional<Request> request;
    const int asked = want.fault == Fault::closed ? 2 : 1;
    std::jthread peer([&, text = reply] {
        for (int i = 0; i < asked; ++i) {
            const UniqueFd connection = listener.accept();
            request = read_request(connection);
            send_all(connection, text);
        }
    });
    AnswerBuffer buffer;
    const RequestHeader header{.exec_time = Instant(7ns), .wait = 9ms};
    const auto answer = ask(listener.path.c_str(), header, "<domain/>", now() + 60s, buffer);
    peer.join();
    REQUIRE(request.has_value());
    CHECK(request->body == "<domain/>");
    CHECK(request->header ==
          RequestHeader{.exec_time = Instant(7ns), .wait = 9ms, .body_length = 9});
    CHECK(answer.has_value() == !want.fault.has_value());
    if (answer) {
        CHECK(answer->verdict == want.verdict);
        CHECK(answer->line == want.line);
    } else {
        CHECK(answer.error() == want.fault);
    }
}

TEST_CASE("nobody there is unreachable, at once") {
    const auto path =
        GENERATE(as<std::string>{}, "/nowhere/hook.sock", "", "/tmp/" + std::string(200, 'x'));
    CAPTURE(path);
    AnswerBuffer buffer;
    const auto answer = ask(path.c_str(), {}, "<domain/>", now() + 60s, buffer);
    REQUIRE_FALSE(answer.has_value());
    CHECK(answer.error() == Fault::unreachable);
}

TEST_CASE("a socket that is closed to us is not the same as nobody") {
    const Listener listener;
    const auto folder = std::filesystem::path(listener.path).parent_path();
    std::filesystem::permissions(folder, std::filesystem::perms::none);
    const int before = ::setfsuid(65534); // root may go anywhere; of others this changes nothing
    const auto client = Client::connect(listener.path.c_str(), now() + 60s);
    ::setfsuid(static_cast<uid_t>(before));
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error() == Fault::denied);
}

TEST_CASE("an answer that is there counts, also when the deadline has passed") {
    const Listener listener;
    auto client = Client::connect(listener.path.c_str(), now() - 1s);
    REQUIRE(client.has_value());
    const UniqueFd connection = listener.accept();
    send_all(connection, "VGRP");
    std::array<char, 16> room;
    CHECK(client->receive(room) == std::expected<std::size_t, Fault>(4));
    const auto more = client->receive(room);
    REQUIRE_FALSE(more.has_value());
    CHECK(more.error() == Fault::timed_out);
}

TEST_CASE("a silent peer and a full backlog cost no more than the deadline") {
    const auto full = GENERATE(false, true);
    CAPTURE(full);
    const Listener listener(0);
    const std::string body(1 << 20, 'x'); // more than the kernel takes before somebody reads
    AnswerBuffer buffer;
    if (full)
        CHECK(ask(listener.path.c_str(), {}, "", now() + 1ms, buffer).error() == Fault::timed_out);
    const Instant begin = now();
    const auto answer = ask(listener.path.c_str(), {}, body, begin + 20ms, buffer);
    REQUIRE_FALSE(answer.has_value());
    CHECK(answer.error() == Fault::timed_out);
    CHECK(now() - begin >= 20ms);
}

TEST_CASE("an answer that comes before the request has been read is taken") {
    const auto keeps_open = GENERATE(true, false);
    CAPTURE(keeps_open);
    const Listener listener;
    std::jthread peer([&] {
        UniqueFd connection = listener.accept();
        send_all(connection, encode_reply(Operation::prepare, Verdict::error, "busy"));
        if (!keeps_open)
            connection.reset();
        (void)listener.accept(); // until the test is done
    });
    AnswerBuffer buffer;
    const std::string body(max_xml, 'x');
    const auto answer = ask(listener.path.c_str(), {}, body, now() + 60s, buffer);
    CHECK(Client::connect(listener.path.c_str(), now() + 60s).has_value());
    REQUIRE(answer.has_value());
    CHECK(answer->verdict == Verdict::error);
    CHECK(answer->line == "busy");
}

TEST_CASE("what is told arrives without anybody having waited, cut to what a socket holds") {
    const auto [size, arrives, cut] = GENERATE(table<std::size_t, std::size_t, bool>({
        {9, 9, false},
        {max_told_xml, max_told_xml, false},
        {max_told_xml + 1, max_told_xml, true},
    }));
    CAPTURE(size);
    const Listener listener;
    const RequestHeader header{
        .operation = Operation::release, .exec_time = Instant(7ns), .wait = 100ms};
    REQUIRE(tell(listener.path.c_str(), header, std::string(size, 'x'), now() + 60s).has_value());
    const auto request = read_request(listener.accept());
    REQUIRE(request.has_value());
    CHECK(request->body == std::string(arrives, 'x'));
    CHECK(request->header.operation == Operation::release);
    CHECK(request->header.exec_time == Instant(7ns));
    CHECK(request->header.cut == cut);
}

TEST_CASE("exchange brings the document, of any size allowed") {
    const auto size = GENERATE(as<std::size_t>{}, 0, 2, 65524, 65525, 1 << 20, max_document);
    CAPTURE(size);
    const Listener listener;
    const std::string document(size, 'j');
    std::optional<Request> request;
    std::jthread peer([&] {
        const UniqueFd connection = listener.accept();
        request = read_request(connection);
        send_all(connection, encode_reply(Operation::check, Verdict::done, document));
    });
    const std::string xml(max_xml, 'x');
    const auto reply = exchange(listener.path, Operation::check, xml, 60s);
    peer.join();
    REQUIRE(reply.has_value());
    CHECK(reply->verdict == Verdict::done);
    CHECK(reply->body == document);
    REQUIRE(request.has_value());
    CHECK(request->body == xml);
    CHECK(request->header.wait == 60s);
}

TEST_CASE("exchange says where no answer came from, and why") {
    const auto gone = exchange("/nowhere/hook.sock", Operation::status, "", 60s);
    REQUIRE_FALSE(gone.has_value());
    CHECK(gone.error().code == Errc::unavailable);
    CHECK(gone.error().what == "/nowhere/hook.sock: no answer: nobody listens on its socket");
    const auto large = exchange("/nowhere", Operation::check, std::string(max_xml + 1, 'x'), 60s);
    REQUIRE_FALSE(large.has_value());
    CHECK(large.error().code == Errc::limit);
    CHECK(large.error().what == "4194305 bytes are too many: at most 4194304 can be sent");
}
