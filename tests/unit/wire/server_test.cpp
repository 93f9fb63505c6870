// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <tuple>

#include <catch2/catch.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unique.hpp"
#include "wire/server.hpp"

using namespace virtguard;
using namespace virtguard::wire;
using namespace std::chrono_literals;
using namespace std::string_literals;

namespace {

std::string request_bytes(RequestHeader header, std::string_view body) {
    header.body_length = static_cast<std::uint32_t>(body.size());
    const auto head = encode_request_header(header);
    return std::string(head.data(), head.size()).append(body);
}

} // namespace

TEST_CASE("a request is complete with its last byte, however it is cut into pieces") {
    const auto piece = GENERATE(1UL, 7UL, 27UL, 28UL, 29UL, 4096UL);
    CAPTURE(piece);
    const std::string body(1000, 'x');
    const std::string bytes = request_bytes({.exec_time = Instant(5ns), .wait = 2000ms}, body);
    RequestReader reader;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
        const auto request = reader.feed(std::string_view(bytes).substr(at, piece));
        REQUIRE(request.has_value());
        CHECK(request->has_value() == (at + piece >= bytes.size()));
        if (*request) {
            CHECK((*request)->header ==
                  RequestHeader{.exec_time = Instant(5ns), .wait = 2000ms, .body_length = 1000});
            CHECK((*request)->body == body);
        }
    }
}

TEST_CASE("a request without a body is complete with its header") {
    RequestReader reader;
    const auto request = reader.feed(request_bytes({.operation = Operation::status}, ""));
    REQUIRE(request.has_value());
    REQUIRE(request->has_value());
    CHECK((*request)->header.operation == Operation::status);
    CHECK((*request)->body.empty());
}

TEST_CASE("a request that is wrong is a fault, in whatever piece the fault comes") {
    const std::string good = request_bytes({}, "<domain/>");
    const auto [name, first, second, fault] =
        GENERATE_COPY(table<std::string, std::string, std::string, Fault>({
            {"surplus in the same piece", "", good + "!", Fault::surplus},
            {"surplus after half", good.substr(0, 30), good.substr(30) + "!", Fault::surplus},
            {"not ours", "V", "IRTGUARD", Fault::foreign},
            {"another version", "VGRQ", "\x02\x00"s, Fault::version},
            {"surplus after a status", "",
             request_bytes({.operation = Operation::status}, "") + "x", Fault::surplus},
        }));
    CAPTURE(name);
    RequestReader reader;
    const auto begun = reader.feed(first);
    REQUIRE(begun.has_value());
    CHECK(*begun == std::nullopt);
    const auto request = reader.feed(second);
    REQUIRE_FALSE(request.has_value());
    CHECK(request.error() == fault);
}

TEST_CASE("a reply is its header and a body within its bound") {
    const auto [name, operation, verdict, body, reply] =
        GENERATE(table<std::string, Operation, Verdict, std::string, std::string>({
            {"admitted", Operation::prepare, Verdict::admitted, "",
             "VGRP\x01\x00\x01\x00\x00\x00\x00\x00"s},
            {"refused", Operation::prepare, Verdict::refused, "no",
             "VGRP\x01\x00\x02\x00\x02\x00\x00\x00no"s},
            {"a document", Operation::check, Verdict::done, std::string(3000, 'x'),
             "VGRP\x01\x00\x03\x00\xb8\x0b\x00\x00"s + std::string(3000, 'x')},
            {"a line too long", Operation::prepare, Verdict::refused, std::string(2001, 'x'),
             "VGRP\x01\x00\x02\x00\xd0\x07\x00\x00"s + std::string(2000, 'x')},
            {"cut before a character", Operation::prepare, Verdict::refused,
             std::string(1999, 'x') + "\xc3\xbc",
             "VGRP\x01\x00\x02\x00\xcf\x07\x00\x00"s + std::string(1999, 'x')},
            {"a document too long", Operation::status, Verdict::done,
             std::string(max_document + 1, 'x'),
             "VGRP\x01\x00\x04\x00\x18\x00\x00\x00the document is too long"s},
        }));
    CAPTURE(name);
    CHECK(encode_reply(operation, verdict, body) == reply);
}

TEST_CASE("the UUID is found in domain XML, also in its beginning alone") {
    const std::string uuid = "6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b11";
    const auto [xml, found] = GENERATE_COPY(table<std::string, bool>({
        {"<domain><name>a</name><uuid>" + uuid + "</uuid><memory>", true},
        {"<domain><name>&lt;uuid&gt;</name>\n  <uuid>" + uuid + "</uuid>", true},
        {"<domain><name>a</name><uuid>" + uuid + "</uui", false},
        {"<domain><name>a</name><uuid>6f1c</uuid>", false},
        {"<domain/>", false},
        {"", false},
    }));
    CAPTURE(xml);
    CHECK(find_uuid(xml) == (found ? Uuid::parse(uuid) : std::nullopt));
}

TEST_CASE("a peer is root if it was when it connected") {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const UniqueFd one(ends[0]);
    const UniqueFd other(ends[1]);
    CHECK(peer_is_root(one.get()) == (::geteuid() == 0));
    CHECK_FALSE(peer_is_root(-1));
}
