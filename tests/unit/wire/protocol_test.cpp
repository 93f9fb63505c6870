// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>
#include <tuple>

#include <catch2/catch.hpp>

#include "wire/protocol.hpp"

using namespace virtguard;
using namespace virtguard::wire;
using namespace std::chrono_literals;
using namespace std::string_literals;

namespace {

std::string text(const auto& bytes) {
    return {bytes.data(), bytes.size()};
}

const std::string prepare_header = "VGRQ\x01\x00\x01\x00\x08\x07\x06\x05\x04\x03\x02\x01"
                                   "\xd0\x07\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00"s;

/// The header with one field overwritten.
std::string with(std::string header, std::size_t offset, const std::string& bytes) {
    return header.replace(offset, bytes.size(), bytes);
}

} // namespace

TEST_CASE("a request header is 28 bytes, little-endian, as documented") {
    const RequestHeader header{.operation = Operation::prepare,
                               .exec_time = Instant(0x0102030405060708ns),
                               .wait = 2000ms,
                               .body_length = 10};
    CHECK(text(encode_request_header(header)) == prepare_header);
    const RequestHeader cut{
        .operation = Operation::release, .wait = 100ms, .cut = true, .body_length = 65536};
    CHECK(text(encode_request_header(cut)) == "VGRQ\x01\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"
                                              "\x64\x00\x00\x00\x01\x00\x00\x00\x00\x00\x01\x00"s);
    for (const RequestHeader& each : {header, cut}) {
        const auto decoded = decode_request_header(text(encode_request_header(each)));
        REQUIRE(decoded.has_value());
        CHECK(*decoded == each);
    }
}

TEST_CASE("a reply header is 12 bytes, little-endian, as documented") {
    const ReplyHeader header{Verdict::refused, 1999};
    CHECK(text(encode_reply_header(header)) == "VGRP\x01\x00\x02\x00\xcf\x07\x00\x00"s);
    const auto decoded = decode_reply_header(text(encode_reply_header(header)));
    REQUIRE(decoded.has_value());
    CHECK(*decoded == header);
}

TEST_CASE("a beginning of a header is neither a header nor a fault") {
    for (std::size_t size = 0; size < request_header_size; ++size) {
        const auto decoded = decode_request_header(prepare_header.substr(0, size));
        REQUIRE(decoded.has_value());
        CHECK(*decoded == std::nullopt);
    }
}

TEST_CASE("a bad request header is a fault as soon as it shows") {
    const auto [name, header, fault] = GENERATE(table<std::string, std::string, Fault>({
        {"one foreign byte", "G", Fault::foreign},
        {"another protocol", "GET / HTTP/1.1\r\n", Fault::foreign},
        {"a reply", "VGRP", Fault::foreign},
        {"the next version, six bytes", "VGRQ\x02\x00"s, Fault::version},
        {"version 0", with(prepare_header, 4, "\x00"s), Fault::version},
        {"operation 0", with(prepare_header, 6, "\x00"s), Fault::malformed},
        {"operation 11", with(prepare_header, 6, "\x0b"), Fault::malformed},
        {"operation 257", with(prepare_header, 6, "\x01\x01"), Fault::malformed},
        {"a time before boot", with(prepare_header, 15, "\x80"), Fault::malformed},
        {"an unknown flag", with(prepare_header, 20, "\x02"), Fault::malformed},
        {"4 MiB and a byte", with(prepare_header, 24, "\x01\x00\x40\x00"s), Fault::too_long},
        {"4 GiB", with(prepare_header, 24, "\xff\xff\xff\xff"), Fault::too_long},
        {"64 KiB and a byte told", with(with(prepare_header, 6, "\x03"), 24, "\x01\x00\x01\x00"s),
         Fault::too_long},
        {"a status with a body", with(prepare_header, 6, "\x06"), Fault::too_long},
    }));
    CAPTURE(name);
    const auto decoded = decode_request_header(header);
    REQUIRE_FALSE(decoded.has_value());
    CHECK(decoded.error() == fault);
}

TEST_CASE("a reply says how much of it is missing, or what is wrong with it") {
    using Missing = std::expected<std::size_t, Fault>;
    const auto [name, received, missing] = GENERATE(table<std::string, std::string, Missing>({
        {"nothing yet", "", 12},
        {"half a header", "VGRP\x01\x00"s, 6},
        {"a header", "VGRP\x01\x00\x02\x00\x03\x00\x00\x00"s, 3},
        {"most", "VGRP\x01\x00\x02\x00\x03\x00\x00\x00no"s, 1},
        {"all", "VGRP\x01\x00\x02\x00\x03\x00\x00\x00no!"s, 0},
        {"all of nothing", "VGRP\x01\x00\x01\x00\x00\x00\x00\x00"s, 0},
        {"the longest", "VGRP\x01\x00\x01\x00\xd0\x07\x00\x00"s, 2000},
        {"surplus", "VGRP\x01\x00\x02\x00\x03\x00\x00\x00no!!"s, std::unexpected(Fault::surplus)},
        {"too long", "VGRP\x01\x00\x02\x00\xd1\x07\x00\x00"s, std::unexpected(Fault::too_long)},
        {"4 GiB", "VGRP\x01\x00\x02\x00\xff\xff\xff\xff"s, std::unexpected(Fault::too_long)},
        {"verdict 0", "VGRP\x01\x00\x00\x00\x00\x00\x00\x00"s, std::unexpected(Fault::malformed)},
        {"verdict 5", "VGRP\x01\x00\x05\x00\x00\x00\x00\x00"s, std::unexpected(Fault::malformed)},
        {"version 2", "VGRP\x02\x00"s, std::unexpected(Fault::version)},
        {"zeros", std::string(12, '\0'), std::unexpected(Fault::foreign)},
    }));
    CAPTURE(name);
    CHECK(reply_missing(received, max_line) == missing);
}
