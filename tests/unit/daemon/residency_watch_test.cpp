// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "base/text.hpp"
#include "daemon/residency_watch.hpp"

using namespace virtguard;
using namespace virtguard::daemon;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

core::Topology topology() {
    return {.nodes = {{.id = 0, .pus = {0}, .memory = 8 * gib},
                      {.id = 1, .pus = {1}, .memory = 8 * gib}},
            .cores = {{0}, {1}},
            .online = {0, 1},
            .allowed = {0, 1}};
}

core::Domain domain(int number) {
    core::Domain domain{.name = fmt::format("web-{}", number)};
    domain.uuid = Uuid::parse(fmt::format("00000000-0000-4000-8000-{:012x}", number));
    domain.memory = {{.size = gib, .requested = gib, .pages = core::BasePages{}, .bound_to = {}}};
    domain.current_memory = gib;
    return domain;
}

std::string id(int number) {
    return core::identity_of(domain(number));
}

/// Guests that run by the guard, some of them with a process in a folder.
class Bench {
  public:
    Bench() { folder.write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\n"); }

    void run(int number) { guard.running(domain(number), Instant{1s}); }
    /// One that occupies so many pages of node 1.
    void add_process(int number, int pages) const {
        const std::string process = fmt::format("proc/{}/", 100 + number);
        folder.write(fmt::format("run/libvirt/qemu/web-{}.pid", number),
                     fmt::format("{}\n", 100 + number));
        folder.write(process + "cmdline", std::string("qemu\0-uuid\0", 11) + id(number));
        folder.write(process + "cgroup", "0::/\n");
        folder.write(process + "numa_maps",
                     fmt::format("1000 default anon={0} N1={0} kernelpagesize_kB=4\n", pages));
    }
    /// Runs the loop, which can be done once, for that many rounds; the last of them:
    /// "web-1 8 KiB, in use 600 KiB".
    std::string last_of(std::size_t count) {
        rounds_to_come = count;
        REQUIRE(loop.run().value() == 0);
        return shown(rounds.back());
    }
    [[nodiscard]] std::string shown(const ResidencyRound& round) const {
        std::string text;
        for (const auto& [identity, residency] : round.guests)
            text += fmt::format("{}{} {} KiB", text.empty() ? "" : ", ",
                                guard.ledger().find(identity)->domain.name,
                                residency.at(core::Resource::memory()).at(1) / 1024);
        if (round.memory_in_use)
            text += fmt::format("{}in use {} KiB", text.empty() ? "" : ", ",
                                *round.memory_in_use / 1024);
        return text;
    }

    Folder folder;
    loop::Loop loop = loop::Loop::create().value();
    core::Guard guard{topology(), {}};
    std::vector<ResidencyRound> rounds;
    std::size_t rounds_to_come = 0;
    std::unique_ptr<FilesThread> files = FilesThread::start().value();
    std::unique_ptr<ResidencyWatch> watch =
        ResidencyWatch::create(loop, *files, guard, folder.path(), [this](ResidencyRound round) {
            rounds.push_back(std::move(round));
            if (rounds.size() == rounds_to_come)
                loop.stop(0);
        }).value();
};

} // namespace

TEST_CASE("a look at all reads the guests that run and can be read, and the host") {
    Bench bench;
    for (const int number : {1, 2, 3})
        bench.run(number);
    bench.guard.claim(domain(4), Instant{1s}); // still starting
    for (const int number : {1, 3, 4, 5})
        bench.add_process(number, number);
    const Instant before = loop::now();
    bench.watch->look_at_all();
    CHECK(bench.last_of(1) == "web-1 4 KiB, web-3 12 KiB, in use 600 KiB");
    CHECK(bench.rounds.back().began >= before);
    CHECK(bench.rounds.back().began <= loop::now());
}

TEST_CASE("a look at one guest reads it alone") {
    Bench bench;
    bench.run(1);
    bench.run(2);
    bench.add_process(1, 1);
    bench.add_process(2, 2);
    bench.watch->look_at(id(2));
    CHECK(bench.last_of(1) == "web-2 8 KiB");
}

TEST_CASE("what is asked for while a round is under way makes one round more") {
    Bench bench;
    for (const int number : {1, 2, 3}) {
        bench.run(number);
        bench.add_process(number, number);
    }
    // The files thread is busy until the looks have been asked for.
    std::promise<void> asked;
    REQUIRE(bench.files->run([&] { asked.get_future().wait(); }));
    bench.watch->look_at(id(1));
    const bool with_all = GENERATE(false, true);
    for (int times = 0; times < 3; ++times) {
        bench.watch->look_at(id(2));
        bench.watch->look_at(id(3));
        if (with_all)
            bench.watch->look_at_all();
    }
    asked.set_value();
    CHECK(bench.last_of(2) == (with_all ? "web-1 4 KiB, web-2 8 KiB, web-3 12 KiB, in use 600 KiB"
                                        : "web-2 8 KiB, web-3 12 KiB"));
    CHECK(bench.shown(bench.rounds.front()) == "web-1 4 KiB");
}

TEST_CASE("a guest that does not run makes no round") {
    Bench bench;
    bench.run(1);
    bench.add_process(1, 1);
    bench.watch->look_at(id(7));
    bench.watch->look_at(id(1));
    CHECK(bench.last_of(1) == "web-1 4 KiB");
    CHECK(bench.rounds.size() == 1);
}

TEST_CASE("a host whose meminfo cannot be read has guests all the same") {
    Bench bench;
    bench.folder.write("proc/meminfo", "");
    bench.run(1);
    bench.add_process(1, 1);
    bench.watch->look_at_all();
    CHECK(bench.last_of(1) == "web-1 4 KiB");
}

TEST_CASE("a watch may end while a round is under way") {
    Bench bench;
    bench.run(1);
    bench.add_process(1, 1);
    std::promise<void> ended;
    REQUIRE(bench.files->run([&] { ended.get_future().wait(); }));
    bench.watch->look_at_all();
    bench.watch.reset();
    ended.set_value();
    bench.files.reset(); // finishes the round
    CHECK(bench.rounds.empty());
}
