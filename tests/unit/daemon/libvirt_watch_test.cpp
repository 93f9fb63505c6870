// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "daemon/libvirt_watch.hpp"

using namespace virtguard;
using namespace virtguard::daemon;
using namespace std::chrono_literals;

namespace {

using Problems = std::vector<std::string>;

class Bench {
  public:
    Problems problems(Span later = {}) const { return watch->problems(loop::now() + later); }
    void look(Instant began) { watch->note(virt::Look{.began = began, .active = {}}); }

    loop::Loop loop = loop::Loop::create().value();
    core::Guard guard{{.nodes = {{.id = 0, .pus = {0}, .memory = 1 << 30}},
                       .cores = {{0}},
                       .online = {0},
                       .allowed = {0}},
                      {}};
    std::unique_ptr<LibvirtWatch> watch = LibvirtWatch::create(
                                              loop, guard, [this] { loop.stop(7); }, /*wait=*/50ms)
                                              .value();
};

} // namespace

TEST_CASE("a libvirt that does not answer is a problem, with the age of what is known") {
    Bench bench;
    bench.look(loop::now() - 100s);
    CHECK(bench.problems() == Problems{});
    const Instant asked = loop::now();
    bench.watch->note(virt::Asked{asked});
    CHECK(bench.problems() == Problems{});
    REQUIRE(bench.loop.run() == 7);
    CHECK(loop::now() >= asked + 50ms);
    CHECK(bench.problems(30s) ==
          Problems{"libvirt: has not answered for 30 s; what is known of it is 130 s old"});
    const bool all = GENERATE(false, true);
    if (all)
        bench.look(asked);
    else
        bench.watch->note(virt::DomainLook{.began = asked, .uuid = {}, .active = {}});
    CHECK(bench.problems() == Problems{});
}

TEST_CASE("an answer in time is none") {
    Bench bench;
    bench.watch->note(virt::Asked{loop::now()});
    bench.look(loop::now());
    auto timer = bench.loop.timer("end", [&] { bench.loop.stop(0); });
    REQUIRE(timer.has_value());
    timer->arm_after(100ms);
    CHECK(bench.loop.run() == 0);
    CHECK(bench.problems() == Problems{});
}

TEST_CASE("a connection that is lost while libvirt is asked is what it is called") {
    Bench bench;
    bench.watch->note(virt::Asked{loop::now()});
    bench.watch->note(virt::Lost{"libvirtd does not answer"});
    CHECK(bench.problems() ==
          Problems{"libvirt: libvirtd does not answer; nothing is known of it yet"});
    CHECK_FALSE(bench.watch->has_told());
    bench.watch->note(virt::Connected{});
    CHECK(bench.problems() == Problems{});
    CHECK_FALSE(bench.watch->has_told());
    bench.look(loop::now());
    CHECK(bench.watch->has_told());
}

TEST_CASE("a guest that cannot be read is said to be counted where it is, as it was") {
    Bench bench;
    const auto unreadable = [](std::uint8_t number) {
        virt::ActiveDomain domain{
            .uuid = {}, .name = "web", .domain = fail(Errc::unavailable, "timed out")};
        domain.uuid.bytes[15] = number;
        return domain;
    };
    core::Domain known{.name = "web", .uuid = unreadable(1).uuid, .scheduler = {}, .vcpus = {}};
    bench.guard.running(known, loop::now());
    bench.watch->note(virt::Look{.began = loop::now(), .active = {unreadable(1), unreadable(2)}});
    CHECK(bench.problems() == Problems{"libvirt: 00000000-0000-0000-0000-000000000001 runs and is "
                                       "counted as it was last known",
                                       "libvirt: 00000000-0000-0000-0000-000000000002 runs and is "
                                       "not counted"});
    bench.watch->note(virt::Lost{"x"});
    CHECK(bench.problems().front() == "libvirt: x; what is known of it is 0 s old");
}
