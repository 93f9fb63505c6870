// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "daemon/guest_store.hpp"
#include "state/file.hpp"

using namespace virtguard;
using namespace virtguard::daemon;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

core::Guard new_guard() {
    return {{.nodes = {{.id = 0, .pus = {0, 1}, .memory = 64 * gib}},
             .cores = {{0}, {1}},
             .online = {0, 1},
             .allowed = {0, 1}},
            {}};
}

core::Domain domain(int number) {
    core::Domain domain{
        .name = fmt::format("web-{}", number), .uuid = Uuid{}, .scheduler = {}, .vcpus = {}};
    domain.uuid->bytes[15] = static_cast<std::uint8_t>(number);
    domain.memory = {{.size = gib, .requested = gib, .pages = {}, .bound_to = {}}};
    domain.current_memory = gib;
    return domain;
}

std::string id(int number) {
    return core::identity_of(domain(number));
}

constexpr Instant noon{std::chrono::hours(12)};

class Bench {
  public:
    GuestStore store(const std::string& boot = "this boot") const {
        return {folder.path() / "guests", boot};
    }
    /// "web-1 pending, web-2 running"
    std::string kept(const std::string& boot = "this boot") const {
        std::vector<std::string> lines;
        for (const core::Guest& guest : store(boot).load())
            lines.push_back(guest.domain.name + " " + std::string(core::state_name(guest.state)));
        std::ranges::sort(lines);
        return fmt::format("{}", fmt::join(lines, ", "));
    }
    /// Two guests, kept.
    void keep_two() {
        guard.claim(domain(1), noon);
        guard.running(domain(2), noon);
        auto writer = store();
        writer.save(guard);
        REQUIRE(writer.problem().empty());
    }
    std::string file(int number) const { return folder.file("guests/" + id(number)); }

    Folder folder;
    core::Guard guard = new_guard();
};

} // namespace

TEST_CASE("the next store knows the guests, whatever became of the one before") {
    Bench bench;
    bench.keep_two();
    CHECK(bench.kept() == "web-1 pending, web-2 running");
    auto next = bench.store();
    const auto guests = next.load();
    const auto web = std::ranges::find(guests, domain(2), &core::Guest::domain);
    REQUIRE(web != guests.end());
    CHECK(web->changed == noon);
}

TEST_CASE("what is kept follows each change, and ends with the guest") {
    Bench bench;
    bench.keep_two();
    auto store = bench.store();
    bench.guard.started(id(1), noon + std::chrono::seconds(1));
    bench.guard.released(id(2), noon + std::chrono::seconds(1));
    store.save(bench.guard);
    CHECK(bench.kept() == "web-1 running, web-2 returning");
    bench.guard.expire(noon + std::chrono::hours(1));
    store.save(bench.guard);
    CHECK(bench.kept() == "web-1 running");
}

TEST_CASE("a guest that is only confirmed is not written again") {
    Bench bench;
    bench.keep_two();
    auto store = bench.store();
    fs::remove(bench.file(2));
    bench.guard.running(domain(2), noon + std::chrono::seconds(1));
    store.save(bench.guard);
    CHECK_FALSE(fs::exists(bench.file(2)));
}

TEST_CASE("guests of another boot are gone") {
    Bench bench;
    bench.keep_two();
    CHECK(bench.kept("next boot").empty());
    CHECK(bench.kept().empty());
}

TEST_CASE("without a note of which boot it was, nothing is believed") {
    Bench bench;
    bench.keep_two();
    bench.folder.write("guests/boot", "this boot");
    CHECK(bench.kept().empty());
}

TEST_CASE("a damaged file costs the knowledge of one guest, and is set aside") {
    Bench bench;
    bench.keep_two();
    SECTION("cut") {
        fs::resize_file(bench.file(1), fs::file_size(bench.file(1)) - 1);
    }
    SECTION("of another guest") {
        fs::copy_file(bench.file(2), bench.file(1), fs::copy_options::overwrite_existing);
    }
    SECTION("whole, but no guest") {
        REQUIRE(state::write(bench.file(1), "{}", Durability::volatile_).has_value());
    }
    SECTION("a folder") {
        fs::remove(bench.file(1));
        fs::create_directory(bench.file(1));
    }
    CHECK(bench.kept() == "web-2 running");
    CHECK(fs::exists(bench.file(1) + ".damaged"));
    CHECK(bench.kept() == "web-2 running");
    bench.guard.started(id(1), noon);
    bench.store().save(bench.guard);
    CHECK(bench.kept() == "web-1 running, web-2 running");
}

TEST_CASE("what could not be written is written with the next change") {
    Bench bench;
    auto store = bench.store();
    bench.folder.write("guests", "in the way");
    bench.guard.running(domain(1), noon);
    store.save(bench.guard);
    CHECK(store.problem() == bench.folder.file("guests") + ": Not a directory");
    fs::remove(bench.folder.path() / "guests");
    bench.guard.running(domain(2), noon);
    store.save(bench.guard);
    CHECK(store.problem().empty());
    CHECK(bench.kept() == "web-1 running, web-2 running");
}

TEST_CASE("a folder that cannot be used keeps no store from being made") {
    Bench bench;
    bench.folder.write("guests", "in the way");
    CHECK(bench.kept().empty());
}

TEST_CASE("a folder that was deleted is made again at once, with all guests in it") {
    Bench bench;
    auto store = bench.store();
    bench.guard.running(domain(1), noon);
    store.save(bench.guard);
    fs::remove_all(bench.folder.path() / "guests");
    bench.guard.running(domain(2), noon);
    store.save(bench.guard);
    CHECK(store.problem() == "");
    CHECK(bench.kept() == "web-1 running, web-2 running");
}

TEST_CASE("where all that was kept is lost, it is kept anew though nothing has changed") {
    Bench bench;
    auto store = bench.store();
    bench.guard.running(domain(1), noon);
    store.save(bench.guard);
    fs::remove_all(bench.folder.path() / "guests");
    store.save_anew(bench.guard);
    CHECK(bench.kept() == "web-1 running");
}

TEST_CASE("one file that cannot be written keeps no other guest from being kept") {
    Bench bench;
    auto store = bench.store();
    bench.guard.running(domain(3), noon);
    store.save(bench.guard);
    REQUIRE(store.problem().empty());
    bench.folder.write("guests/" + id(1) + "/in the way", "");
    bench.guard.running(domain(1), noon);
    bench.guard.running(domain(2), noon);
    store.save(bench.guard);
    CHECK(store.problem().starts_with(bench.file(1)));
    CHECK(fs::exists(bench.file(2)));
    fs::remove_all(bench.file(1));
    store.save(bench.guard);
    CHECK(store.problem().empty());
    CHECK(bench.kept() == "web-1 running, web-2 running, web-3 running");
}
