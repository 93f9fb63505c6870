// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <systemd/sd-event.h>

#include <catch2/catch.hpp>

#include "daemon/storage_watch.hpp"
#include "slow_storage.hpp"

using namespace virtguard;
using namespace virtguard::daemon;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t gib = SlowStorage::gib;
const core::Resource storage = core::Resource::storage();
using Lines = std::vector<std::string>;

core::Topology topology() {
    return {.nodes = {{.id = 0, .pus = {0}, .memory = 8 * gib}},
            .cores = {{0}},
            .online = {0},
            .allowed = {0}};
}

/// "/a/0", "/a/1", ...
std::vector<std::string> paths_in_a(int count) {
    std::vector<std::string> paths;
    for (int i = 0; i < count; ++i)
        paths.push_back(fmt::format("/a/{}", i));
    return paths;
}

/// Of 10 GiB.
core::Image image_with(std::int64_t gibibytes) {
    return {.device = 1, .virtual_size = 10 * gib, .allocated = gibibytes * gib};
}

/// The one of /a, of which so much is used.
core::FileSystem file_system_with(std::int64_t gibibytes) {
    return {.path = "/a", .device = 1, .capacity = 100 * gib, .used = gibibytes * gib};
}

core::Policy policy(std::vector<std::string> paths) {
    core::Policy policy;
    policy.storage.paths = std::move(paths);
    policy.origins["storage.paths"] = "file:1";
    return policy;
}

std::vector<core::Disk> disks(const std::vector<std::string>& paths) {
    std::vector<core::Disk> result;
    for (const std::string& path : paths)
        result.push_back({.image = {path, "raw"}});
    return result;
}

core::Domain domain(const std::vector<std::string>& paths) {
    core::Domain domain{.name = "web"};
    domain.disks = disks(paths);
    return domain;
}

class Bench {
  public:
    explicit Bench(const core::Policy& of) : guard(topology(), of) {}
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;
    ~Bench() { slow.release(); }

    void watch() {
        storage_watch =
            StorageWatch::create(loop, guard, slow.reader(), [this] { ++changes; }).value();
    }
    void run_until(const std::function<bool()>& is_so) {
        constexpr std::uint64_t microseconds = 1000;
        while (!is_so())
            REQUIRE(sd_event_run(loop.handle(), microseconds) >= 0);
    }
    /// How long it was until the images could be counted on, or were given up.
    std::chrono::nanoseconds read(const std::vector<std::string>& paths,
                                  std::chrono::nanoseconds at_most = 10s) {
        const Instant began = loop::now();
        bool done = false;
        storage_watch->read(disks(paths), at_most, [&] { done = true; });
        run_until([&] { return done; });
        return loop::now() - began;
    }
    /// What a guest with these images would hold of storage, and what is said of it.
    core::Demand demand(const std::vector<std::string>& paths) {
        return guard.check(domain(paths)).demand;
    }
    std::int64_t growth(const std::vector<std::string>& paths) {
        const core::Quantities total = demand(paths).total();
        const auto found = total.find(storage);
        return found == total.end() ? 0 : found->second;
    }
    core::Quantities capacity() { return guard.report().host.capacity; }

    SlowStorage slow;
    loop::Loop loop = loop::Loop::create().value();
    core::Guard guard;
    int changes = 0;
    std::unique_ptr<StorageWatch> storage_watch;
};

} // namespace

TEST_CASE("an image and its file system are known when its start goes on") {
    Bench bench(policy({"/a", "/b"}));
    bench.watch();
    (void)bench.read({"/a/1", "/b/1", "/c/1"});
    CHECK(bench.growth({"/a/1"}) == 10 * gib);
    CHECK(bench.growth({"/a/1", "/b/1"}) == 20 * gib);
    CHECK(bench.growth({"/c/1"}) == 0); // on neither
    CHECK(bench.demand({"/c/1"}).notes.empty());
    CHECK(bench.capacity().at(storage) == 200 * gib);
    CHECK(bench.storage_watch->problems().empty());
}

TEST_CASE("who has nothing to wait for goes on at once") {
    Bench bench(policy({"/a"}));
    bench.slow.hang("/a");
    bench.watch();
    bool done = false;
    bench.storage_watch->read({}, 10s, [&] { done = true; });
    CHECK(done);
    bench.guard.apply(policy({}));
    bench.storage_watch->policy_changed();
    done = false;
    bench.storage_watch->read(disks({"/a/1"}), 10s, [&] { done = true; });
    CHECK(done);
}

TEST_CASE("an image that hangs is given up in time, and holds up none elsewhere") {
    Bench bench(policy({"/a", "/b"}));
    bench.slow.hang("/a/1");
    bench.watch();
    const auto waited = bench.read({"/a/1"}, 50ms);
    CHECK(waited >= 50ms);
    CHECK(waited < 5s);
    CHECK(bench.demand({"/a/1"}).notes ==
          Lines{"how much /a/1 may grow is not known: it could not be read in time"});
    CHECK(bench.read({"/b/1"}) < 5s);
    CHECK(bench.growth({"/b/1"}) == 10 * gib);
    CHECK(bench.read({"/c/1"}) < 5s);
    bench.slow.release();
    (void)bench.read({"/a/1"});
    CHECK(bench.growth({"/a/1"}) == 10 * gib);
    CHECK(bench.demand({"/a/1"}).notes.empty());
}

TEST_CASE("an image that many starts ask for while its storage dawdles is read once for all") {
    Bench bench(policy({"/a"}));
    bench.watch();
    (void)bench.read({"/a/1"});
    bench.slow.hang("/a/1");
    int answered = 0;
    const auto ask = [&](const std::string& path) {
        bench.storage_watch->read(disks({path}), 1h, [&] { ++answered; });
    };
    ask("/a/1");
    for (int i = 0; i < 100; ++i)
        ask("/a/2");
    bench.slow.release();
    bench.run_until([&] { return answered == 101; });
    CHECK(bench.slow.images_read() == 3);
}

TEST_CASE("what all who asked for it have given up is read for guests alone") {
    const bool is_guests = GENERATE(false, true);
    Bench bench(policy({"/a"}));
    bench.watch();
    (void)bench.read({"/a/1"});
    bench.slow.hang("/a/1");
    bool done = false;
    bench.storage_watch->read(disks({"/a/1"}), 1h, [&] { done = true; });
    (void)bench.read({"/a/2"}, 10ms);
    if (is_guests)
        bench.guard.claim(domain({"/a/2"}), Instant{1s});
    bench.slow.release();
    bench.run_until([&] { return done; });
    if (is_guests)
        bench.run_until([&] { return bench.growth({"/a/2"}) == 10 * gib; });
    (void)bench.read({"/a/3"});
    CHECK(bench.slow.images_read() == (is_guests ? 4 : 3));
    CHECK(bench.demand({"/a/2"}).notes.empty() == is_guests);
}

TEST_CASE(
    "a file system that is mounted below a path, or elsewhere, holds up what is on it alone") {
    const std::string mount = GENERATE("/a/nfs", "/c");
    const bool is_of_guest = GENERATE(false, true); // known from the beginning
    Bench bench(policy({"/a", "/b"}));
    bench.slow.mounts = {mount, "/a/nf", "/b"};
    bench.slow.hang(mount + "/1");
    if (is_of_guest)
        bench.guard.running(domain({mount + "/1"}), Instant{1s});
    bench.watch();
    (void)bench.read({mount + "/1"}, 50ms);
    for (const auto* path : {"/a/1", "/b/1", "/d/1"}) {
        CHECK(bench.read({path}, 1h) < 1min);
        CHECK(bench.demand({path}).notes.empty());
    }
    CHECK(bench.growth({"/a/1", "/b/1"}) == 20 * gib);
    CHECK_FALSE(bench.demand({mount + "/1"}).notes.empty());
    bench.slow.release();
    (void)bench.read({mount + "/1"});
    CHECK(bench.demand({mount + "/1"}).notes.empty());
}

TEST_CASE("an image behind a link to what hangs holds up no other in its folder") {
    const bool is_of_guest = GENERATE(false, true);
    Bench bench(policy({"/a"}));
    bench.slow.hang("/a/link");
    if (is_of_guest)
        bench.guard.running(domain({"/a/link"}), Instant{1s});
    bench.watch();
    bool done = false;
    bench.storage_watch->read(disks({"/a/link"}), StorageWatch::patience, [&] { done = true; });
    CHECK(bench.read({"/a/at-once"}, StorageWatch::patience) < StorageWatch::patience);
    bench.run_until([&] { return done; });
    for (const auto* path : {"/a/1", "/a/2"}) {
        CHECK(bench.read({path}, 1h) < 1min);
        CHECK(bench.growth({path}) == 10 * gib);
    }
    CHECK_FALSE(bench.demand({"/a/link"}).notes.empty());
    (void)bench.read({"/a/link"}, 50ms);
    CHECK(bench.slow.held() == 1);
    bench.slow.release();
    (void)bench.read({"/a/link"});
    CHECK(bench.growth({"/a/link"}) == 10 * gib);
    CHECK(bench.demand({"/a/link"}).notes.empty());
    CHECK(bench.storage_watch->stop(5000ms));
}

TEST_CASE("of many images on what hangs one holds a thread, and the rest of their folder is read") {
    Bench bench(policy({"/a"}));
    const std::vector<std::string> paths = paths_in_a(100);
    for (const std::string& path : paths)
        bench.slow.set_image(path, core::Image{.device = 9, .virtual_size = gib, .allocated = 0});
    bench.guard.running(domain(paths), Instant{1s});
    bench.watch();
    (void)bench.read({"/a/there"});
    for (const std::string& path : paths)
        bench.slow.hang(path);
    bench.storage_watch->look();
    (void)bench.read(paths, 10ms);
    for (const auto* path : {"/a/new", "/a/there"})
        CHECK(bench.read({path}, 1h) < 1min);
    bool done = false;
    bench.storage_watch->read_all(1h, [&] { done = true; });
    bench.run_until([&] { return done; });
    CHECK(bench.slow.held() == 1);
    bench.slow.release();
    bench.slow.set_image("/a/7", core::Image{.device = 1, .virtual_size = 7 * gib, .allocated = 0});
    bench.run_until([&] { return bench.growth({"/a/7"}) == 7 * gib; });
}

TEST_CASE("more images than threads that hang end the answers of their lane alone") {
    Bench bench(policy({"/a", "/b"}));
    const std::vector<std::string> paths = paths_in_a(30);
    for (const std::string& path : paths)
        bench.slow.hang(path);
    bench.watch();
    (void)bench.read(paths, 6s);
    CHECK(bench.slow.held() == 9);
    CHECK(bench.read({"/a/there"}, 10ms) >= 10ms);
    CHECK(bench.read({"/b/1"}) < 5s);
    CHECK(bench.storage_watch->problems().front() == "storage: /a/0: no answer");
    CHECK_FALSE(bench.storage_watch->stop(50ms));
    bench.slow.release();
    (void)bench.storage_watch->stop(5000ms);
}

TEST_CASE("a start does not wait for others' images on storage that is slow") {
    Bench bench(policy({"/a"}));
    const std::vector<std::string> paths = paths_in_a(60);
    bench.guard.running(domain(paths), Instant{1s});
    bench.watch();
    (void)bench.read({"/a/1"});
    bench.slow.dawdle(20ms);
    bench.storage_watch->look();
    CHECK(bench.read({"/a/new"}, 10s) < StorageWatch::patience);
    CHECK(bench.growth({"/a/new"}) == 10 * gib);
}

TEST_CASE("what more starts ask for than is remembered is read for guests") {
    Bench bench(policy({"/a"}));
    bench.watch();
    (void)bench.read({"/a/1"});
    bench.slow.hang("/a/1");
    (void)bench.read({"/a/1"}, 1ms);
    const std::vector<std::string> paths = paths_in_a(16386);
    (void)bench.read(paths, 1ms);
    const std::string& last = paths.back();
    CHECK(bench.demand({last}).notes.size() == 1);
    bench.guard.claim(domain({last}), Instant{1s});
    bench.slow.release();
    bench.run_until([&] { return bench.growth({last}) == 10 * gib; });
}

TEST_CASE("file systems that are mounted no longer make room for others") {
    Bench bench(policy({"/a"}));
    bench.watch();
    for (int i = 0; i < 100; ++i) {
        const std::string mount = fmt::format("/c/{}", i);
        bench.slow.mounts = {mount};
        bench.storage_watch->look();
        (void)bench.read({mount + "/1"});
    }
    bench.slow.hang("/c/99/1");
    (void)bench.read({"/c/99/1"}, 1ms);
    CHECK(bench.read({"/d/1"}) < StorageWatch::patience);
}

TEST_CASE("more file systems than there are threads for share one") {
    Bench bench(policy({"/a"}));
    std::vector<std::string> paths;
    for (int i = 0; i < 100; ++i) {
        bench.slow.mounts.push_back(fmt::format("/a/{}", i));
        paths.push_back(fmt::format("/a/{}/1", i));
    }
    bench.guard.running(domain(paths), Instant{1s});
    bench.watch();
    (void)bench.read(paths);
    CHECK(bench.growth(paths) == 1000 * gib);
    CHECK(bench.storage_watch->stop(5000ms));
}

TEST_CASE("an image that was known counts as it was while it hangs") {
    Bench bench(policy({"/a"}));
    bench.watch();
    (void)bench.read({"/a/1"});
    bench.slow.set_image("/a/1", core::Image{.device = 1, .virtual_size = gib, .allocated = 0});
    bench.slow.hang("/a/1");
    (void)bench.read({"/a/1"}, 10ms);
    CHECK(bench.growth({"/a/1"}) == 10 * gib);
    CHECK(bench.demand({"/a/1"}).notes ==
          Lines{"/a/1 counts as it was when it was last read: it could not be read in time"});
    bench.slow.release();
    bench.run_until([&] { return bench.growth({"/a/1"}) == gib; });
}

TEST_CASE("an image that is no longer as it was is read anew for each start") {
    Bench bench(policy({"/a"}));
    bench.watch();
    (void)bench.read({"/a/1"});
    bench.slow.set_image("/a/1", core::Image{.device = 1, .virtual_size = gib, .allocated = 0});
    (void)bench.read({"/a/1"});
    CHECK(bench.growth({"/a/1"}) == gib);
    bench.slow.set_image("/a/1", fail(Errc::not_found, "No such file or directory"));
    (void)bench.read({"/a/2", "/a/1"});
    CHECK(bench.demand({"/a/1"}).notes ==
          Lines{"/a/1 counts as it was when it was last read: No such file or directory"});
}

TEST_CASE("a file system that hangs from the beginning is not waited for again and again") {
    Bench bench(policy({"/a", "/b"}));
    bench.slow.hang("/a");
    bench.watch();
    CHECK(bench.read({"/b/1"}, StorageWatch::patience) >= StorageWatch::patience);
    CHECK(bench.read({"/b/1"}) < 5s);
    CHECK(bench.growth({"/b/1"}) == 10 * gib);
    CHECK(bench.capacity().at(storage) == 100 * gib);
    CHECK(bench.demand({"/c/1"}).notes ==
          Lines{"how much /c/1 may grow is not known: not read yet"});
    (void)bench.read({"/c/1"});
    CHECK(bench.demand({"/c/1"}).notes ==
          Lines{"how much /c/1 may grow is not known: it may be on the file system of /a, which "
                "could not be read yet"});
    bench.slow.release();
    bench.run_until([&] { return bench.capacity().at(storage) == 200 * gib; });
    CHECK(bench.demand({"/c/1"}).notes.empty());
}

TEST_CASE("images of guests that run are read with each look, however many") {
    Bench bench(policy({"/a"}));
    const std::vector<std::string> paths = paths_in_a(200);
    bench.guard.running(domain(paths), Instant{1s});
    bench.watch();
    const auto allocated = [&] { return bench.guard.report().host.allocated[storage]; };
    bench.run_until([&] { return allocated() == 2000 * gib; });
    CHECK(bench.changes > 0);
    bench.slow.set_image("/a/7", core::Image{.device = 1, .virtual_size = gib, .allocated = 0});
    bench.slow.set_file_system(
        "/a", core::FileSystem{.path = "/a", .device = 1, .capacity = 50 * gib, .used = 9 * gib});
    bench.storage_watch->look();
    bench.storage_watch->look(); // while one is under way
    bench.run_until([&] { return allocated() == 1991 * gib; });
    CHECK(bench.capacity()[storage] == 50 * gib);
    CHECK(bench.guard.report().host.foreign.at(storage) == 9 * gib);
}

TEST_CASE("a start does not wait for a look at all images") {
    Bench bench(policy({"/a"}));
    const std::vector<std::string> paths = paths_in_a(1000);
    bench.guard.running(domain(paths), Instant{1s});
    bench.watch();
    bench.run_until([&] { return bench.guard.report().host.allocated[storage] == 10000 * gib; });
    bench.slow.hang("/a/999"); // the last of them, by its place in the round
    bench.storage_watch->look();
    CHECK(bench.read({"/a/new"}) < 5s);
    CHECK(bench.growth({"/a/new"}) == 10 * gib);
}

TEST_CASE("nothing is decided before what guests of an earlier daemon owe is known") {
    Bench bench(policy({"/a"}));
    const std::vector<std::string> paths = paths_in_a(200);
    bench.guard.running(domain(paths), Instant{1s});
    bench.watch();
    (void)bench.read({"/elsewhere/1"});
    CHECK(bench.guard.report().host.allocated.at(storage) == 2000 * gib);
}

TEST_CASE("guests of an earlier daemon whose storage hangs hold up no start for ever") {
    Bench bench(policy({"/a"}));
    bench.guard.running(domain({"/a/1"}), Instant{1s});
    bench.slow.hang("/a/1");
    bench.watch();
    CHECK(bench.read({"/elsewhere/1"}, 1h) < 1min);
    CHECK(bench.read({"/elsewhere/1"}, 1h) < 1min);
}

TEST_CASE("a disk of a guest is read when it is told of") {
    Bench bench(policy({"/a"}));
    bench.watch();
    (void)bench.read({"/a/1"});
    bench.guard.running(domain({"/a/1", "/a/2"}), Instant{1s});
    CHECK(bench.guard.report().host.allocated.at(storage) == 10 * gib);
    bench.storage_watch->look_at("web");
    bench.run_until([&] { return bench.guard.report().host.allocated.at(storage) == 20 * gib; });
}

TEST_CASE("what a guest discarded is not free as long as it is not seen to owe it again") {
    Bench bench(policy({"/a"}));
    bench.slow.set_image("/a/1", image_with(8));
    bench.slow.set_file_system("/a", file_system_with(50));
    bench.guard.running(domain({"/a/1"}), Instant{1s});
    bench.watch();
    const auto host = [&] { return bench.guard.report().host; };
    (void)bench.read({"/a/new"});
    CHECK(host().free.at(storage) == 48 * gib);
    bench.slow.set_image("/a/1", image_with(2));
    bench.slow.set_file_system("/a", file_system_with(44));
    (void)bench.read({"/a/new"});
    CHECK(host().free.at(storage) == 48 * gib);
    bench.slow.set_file_system("/a", file_system_with(53)); // another has written
    (void)bench.read({"/a/new"});
    CHECK(host().free.at(storage) == 45 * gib);
    bench.slow.set_file_system("/a", file_system_with(44));
    bench.storage_watch->look();
    bench.run_until([&] { return host().foreign.at(storage) == 44 * gib; });
    CHECK(host().free.at(storage) == 48 * gib);
}

TEST_CASE("what is discarded behind a look at all images stays used until the next") {
    Bench bench(policy({"/a"}));
    const core::FileSystem before{
        .path = "/a", .device = 1, .capacity = 100 * gib, .used = 50 * gib};
    bench.slow.set_file_system("/a", before);
    bench.guard.running(domain({"/a/1"}), Instant{1s});
    bench.watch();
    (void)bench.read({"/a/new"});
    const int known = bench.changes;
    bench.slow.hang("/a/1");
    bench.storage_watch->look();
    while (bench.slow.held() == 0)
        std::this_thread::sleep_for(1ms);
    core::FileSystem after = before;
    after.used = 44 * gib;
    bench.slow.set_file_system("/a", after);
    bench.slow.release();
    bench.run_until([&] { return bench.changes > known; });
    CHECK(bench.guard.report().host.foreign.at(storage) == 50 * gib);
    bench.run_until([&] {
        bench.storage_watch->look(); // nothing while the one before has not ended
        return bench.guard.report().host.foreign.at(storage) == 44 * gib;
    });
}

TEST_CASE("what a guest discarded counts only when images in all places were read since") {
    Bench bench(policy({"/a"}));
    bench.slow.set_image("/link/1", image_with(8)); // it leads to /a
    bench.slow.set_file_system("/a", file_system_with(50));
    bench.guard.running(domain({"/link/1"}), Instant{1s});
    bench.watch();
    const auto host = [&] { return bench.guard.report().host; };
    (void)bench.read({"/a/new"});
    CHECK(host().free.at(storage) == 48 * gib);
    bench.slow.set_image("/link/1", image_with(2));
    bench.slow.set_file_system("/a", file_system_with(44));
    SECTION("as with each look") {
        while (host().foreign.at(storage) != 44 * gib) {
            CHECK(host().free.at(storage) <= 48 * gib);
            bench.storage_watch->look();
            const int known = bench.changes;
            bench.run_until([&] { return bench.changes > known; });
        }
    }
    SECTION("as for who waits for it") {
        bool done = false;
        bench.storage_watch->read_all(1h, [&] { done = true; });
        bench.run_until([&] { return done; });
        CHECK(host().foreign.at(storage) == 44 * gib);
    }
    CHECK(host().free.at(storage) == 48 * gib);
}

TEST_CASE("who is about to be refused is let in when something was deleted") {
    Bench bench(policy({"/a", "/b"}));
    core::FileSystem a{.path = "/a", .device = 1, .capacity = 100 * gib, .used = 95 * gib};
    bench.slow.set_file_system("/a", a);
    bench.guard.running(domain({"/a/1", "/b/1"}), Instant{1s});
    bench.watch();
    (void)bench.read({"/a/new"});
    a.used = 0;
    bench.slow.set_file_system("/a", a);
    bool done = false;
    bench.storage_watch->read_all(1h, [&] { done = true; });
    bench.run_until([&] { return done; });
    CHECK(bench.guard.report().host.foreign.at(storage) == 0);
}

TEST_CASE("starts on what was mounted since the last look are counted") {
    Bench bench(policy({"/a"}));
    bench.watch();
    (void)bench.read({"/a/1"});
    bench.slow.set_file_system(
        "/a", core::FileSystem{.path = "/a", .device = 9, .capacity = 50 * gib, .used = 0});
    bench.slow.set_image("/a/2",
                         core::Image{.device = 9, .virtual_size = 60 * gib, .allocated = 0});
    (void)bench.read({"/a/2"});
    CHECK(bench.growth({"/a/2"}) == 60 * gib);
    CHECK(bench.capacity().at(storage) == 50 * gib);
}

TEST_CASE("a path that cannot be read at first may be what images are on") {
    Bench bench(policy({"/a"}));
    bench.slow.set_file_system("/a", fail(Errc::io, "Stale file handle"));
    bench.watch();
    (void)bench.read({"/a/1"});
    CHECK(bench.demand({"/a/1"}).notes ==
          Lines{"how much /a/1 may grow is not known: it may be on the file system of /a, which "
                "could not be read yet"});
    CHECK(bench.storage_watch->problems() == Lines{"storage: /a: Stale file handle"});
}

TEST_CASE("a file system is what its path says, as for a quota, and not what an image says") {
    const std::string path = GENERATE("/a/1", "/link/1");
    Bench bench(policy({"/a"}));
    bench.slow.set_file_system(
        "/a", core::FileSystem{.path = "/a", .device = 1, .capacity = 5 * gib, .used = gib});
    for (const auto* image : {"/a/1", "/link/1"}) {
        bench.slow.set_image(image, core::Image{.device = 1, .virtual_size = gib, .allocated = 0});
        bench.slow.set_file_system(
            image, core::FileSystem{.path = image, .device = 1, .capacity = 100 * gib, .used = 0});
    }
    bench.watch();
    (void)bench.read({path});
    CHECK(bench.capacity().at(storage) == 5 * gib);
    CHECK(bench.growth({path}) == gib);
}

TEST_CASE("a path that takes the place of another has nothing of it") {
    Bench bench(policy({"/a"}));
    bench.slow.set_file_system(
        "/a", core::FileSystem{.path = "/a", .device = 1, .capacity = 100 * gib, .used = 90 * gib});
    bench.watch();
    (void)bench.read({"/a/1"});
    bench.guard.apply(policy({"/b"}));
    bench.storage_watch->policy_changed();
    (void)bench.read({"/b/1"});
    CHECK(bench.guard.report().host.foreign[storage] == 0);
}

TEST_CASE("images of guests that count as nothing, as they cannot be read, are a problem") {
    Bench bench(policy({"/a"}));
    bench.guard.running(domain({"/a/1", "/a/2", "/a/3", "volume a of pool b"}), Instant{1s});
    for (const auto* path : {"/a/1", "/a/2", "volume a of pool b"})
        bench.slow.set_image(path, fail(Errc::io, "Permission denied"));
    bench.watch();
    (void)bench.read({"/a/new"});
    CHECK(bench.storage_watch->problems() ==
          Lines{"storage: how much 2 images of guests may grow is not known, such as /a/1: "
                "Permission denied"});
    bench.guard.released("web", Instant{2s});
    CHECK(bench.storage_watch->problems().empty());
}

TEST_CASE("two paths on one file system count once") {
    Bench bench(policy({"/a", "/a/b/", "/b"}));
    bench.watch();
    (void)bench.read({"/a/b/1"});
    CHECK(bench.capacity().at(storage) == 200 * gib);
    CHECK(bench.growth({"/a/b/1"}) == 10 * gib);
}

TEST_CASE("a path that is not there is a problem where a file names it") {
    const bool is_named = GENERATE(true, false);
    core::Policy of = policy({"/a"});
    if (!is_named)
        of.origins.clear();
    Bench bench(of);
    bench.slow.set_file_system("/a", fail(Errc::not_found, "No such file or directory"));
    bench.watch();
    (void)bench.read({"/a/1"});
    CHECK(bench.storage_watch->problems() ==
          (is_named ? Lines{"storage: /a: No such file or directory"} : Lines{}));
    CHECK_FALSE(bench.capacity().contains(storage));
    CHECK(bench.demand({"/a/1"}).notes.empty());
}

TEST_CASE("a file system that cannot be read any more counts as it was") {
    Bench bench(policy({"/a"}));
    bench.watch();
    (void)bench.read({"/a/1"});
    bench.slow.set_file_system("/a", fail(Errc::io, "Stale file handle"));
    bench.storage_watch->look();
    bench.run_until([&] { return !bench.storage_watch->problems().empty(); });
    CHECK(bench.storage_watch->problems() == Lines{"storage: /a: Stale file handle"});
    CHECK(bench.capacity().at(storage) == 100 * gib);
}

TEST_CASE("a policy with other paths counts those") {
    Bench bench(policy({"/a", "/b"}));
    bench.watch();
    (void)bench.read({"/a/1"});
    bench.guard.apply(policy({"/c", "/b"}));
    bench.storage_watch->policy_changed();
    CHECK(bench.capacity().at(storage) == 100 * gib);
    (void)bench.read({"/c/1"});
    CHECK(bench.capacity().at(storage) == 200 * gib);
    CHECK(bench.growth({"/a/1", "/c/1"}) == 10 * gib);
    bench.guard.apply(policy({}));
    bench.storage_watch->policy_changed();
    CHECK_FALSE(bench.capacity().contains(storage));
}

TEST_CASE("the threads end, but for one that hangs") {
    Bench bench(policy({"/a", "/b"}));
    const bool hangs = GENERATE(true, false);
    bench.watch();
    (void)bench.read({"/a/1"});
    if (hangs) {
        bench.slow.hang("/a/1");
        (void)bench.read({"/a/1"}, 10ms);
    }
    CHECK(bench.storage_watch->stop(hangs ? 50ms : 5000ms) == !hangs);
}
