// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <catch2/catch.hpp>

#include "host/topology_text.hpp"

using namespace virtguard;
using core::Topology;

namespace {

Topology topology() {
    return {.nodes = {{.id = 0, .pus = {0, 2}, .memory = std::int64_t{1} << 62},
                      {.id = 7,
                       .kind = "a \\x09 kind",
                       .pus = {},
                       .memory = 0,
                       .pools = {{2 << 20, 5}, {1 << 30, 0}}}},
            .cores = {{0}, {2}},
            .online = {0, 2},
            .offline = {1, 3},
            .allowed = {0},
            .base_page = 65536,
            .default_hugepage = 2 << 20};
}

} // namespace

TEST_CASE("a topology comes back as it was") {
    Topology host = topology();
    CHECK(host::topology_from_text(host::topology_to_text(host)).value() == host);
    host.offline = {};
    host.default_hugepage.reset();
    CHECK(host::topology_from_text(host::topology_to_text(host)).value() == host);
}

TEST_CASE("so does an error") {
    const auto text = host::topology_to_text(fail(Errc::limit, "node {}: ids go up", 16384));
    const auto error = host::topology_from_text(text).error();
    CHECK(error.code == Errc::limit);
    CHECK(error.what == "node 16384: ids go up");
}

TEST_CASE("text that no topology makes is refused") {
    const auto text = GENERATE(as<std::string>(), "", "x", "error", "error\t9\tx", "error\t0\tx\ty",
                               "online\t0-3", "node\t0\t\t\t-1", "node\t16384\t\t0\t1",
                               "node\t0\t\t0", "node\t0\t\t0\t1\t1", "node\t0\t\t0-x\t1",
                               "pool\t1\t1", "node\t0\t\t0\t9223372036854775808");
    CAPTURE(text);
    const auto read = host::topology_from_text(text);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().code == Errc::invalid);
}
