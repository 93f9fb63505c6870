// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <systemd/sd-event.h>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "daemon/run_time_store.hpp"

using namespace virtguard;
using namespace virtguard::daemon;

namespace {

core::RunTime cpu_at(std::string_view ratio, std::uint32_t uid = 0) {
    return carried_out({}, core::read_set_overcommit("cpu", ratio).value(),
                       {.uid = uid, .user = uid == 0 ? "root" : ""});
}

class Bench {
  public:
    explicit Bench(const std::filesystem::path& file) : file_(file) { begin(); }

    /// In place of one that was killed.
    void begin() {
        store.reset();
        store = std::make_unique<RunTimeStore>(file_, *files);
        REQUIRE(store
                    ->watch(
                        loop, [this] { ++changes; }, [this] { ++late; })
                    .has_value());
    }
    void set(const core::RunTime& values) {
        store->set(values, [this](const Result<>& kept) {
            told.push_back(kept ? "kept" : kept.error().what);
        });
    }
    void run_until(const std::function<bool()>& is_so) {
        constexpr std::uint64_t microseconds = 1000;
        while (!is_so())
            REQUIRE(sd_event_run(loop.handle(), microseconds) >= 0);
    }
    void run_until_told(std::size_t count) {
        run_until([&] { return told.size() >= count; });
    }

    loop::Loop loop = loop::Loop::create().value();
    std::unique_ptr<FilesThread> files = FilesThread::start().value();
    std::unique_ptr<RunTimeStore> store;
    std::vector<std::string> told;
    int changes = 0;
    int late = 0; ///< readings of the file

  private:
    std::filesystem::path file_;
};

} // namespace

TEST_CASE("what is set holds at once, and for the next daemon when its setter was told") {
    const Folder folder;
    Bench bench(folder.path() / "run-time");
    CHECK(bench.store->values() == core::RunTime{});
    bench.set(cpu_at("2"));
    CHECK(bench.store->values() == cpu_at("2"));
    CHECK(bench.told.empty());
    bench.run_until_told(1);
    CHECK(bench.told == std::vector<std::string>{"kept"});
    bench.begin();
    CHECK(bench.store->values() == cpu_at("2"));
    CHECK(bench.store->problem().empty());
}

TEST_CASE("while storage hangs all is set at once, and written last as it was set last") {
    const Folder folder;
    Bench bench(folder.path() / "run-time");
    std::promise<void> storage;
    REQUIRE(bench.files->run([goes_on = storage.get_future()] { goes_on.wait(); }));
    constexpr int many = 1000; // more than the files thread takes
    for (int i = 1; i <= many; ++i)
        bench.set(cpu_at(std::to_string(i)));
    CHECK(bench.store->values() == cpu_at("1000"));
    CHECK(bench.told.empty());
    storage.set_value();
    bench.run_until_told(many);
    CHECK(bench.told == std::vector<std::string>(many, "kept"));
    bench.begin();
    CHECK(bench.store->values() == cpu_at("1000"));
}

TEST_CASE("what cannot be written is set, and a problem until it can") {
    const Folder folder;
    Bench bench(folder.path() / "state/run-time");
    bench.set(cpu_at("2"));
    bench.run_until_told(1);
    CHECK(bench.told.front().starts_with("set, but not kept: " + folder.file("state")));
    CHECK(bench.store->values() == cpu_at("2"));
    CHECK(bench.store->problem().ends_with("; what is set ends with this virtguardd"));
    CHECK(bench.changes == 1);
    folder.write("state/other", "");
    bench.set(cpu_at("3"));
    bench.run_until_told(2);
    CHECK(bench.told.back() == "kept");
    CHECK(bench.store->problem().empty());
    CHECK(bench.changes == 2);
}

TEST_CASE("a damaged file is set aside, and a problem until something is set") {
    const Folder folder;
    Bench bench(folder.path() / "run-time");
    bench.set(cpu_at("2"));
    bench.run_until_told(1);
    const std::string damaged = folder.read("run-time") + "x";
    folder.write("run-time", damaged);
    bench.begin();
    CHECK(bench.store->values() == core::RunTime{});
    CHECK(bench.store->problem().starts_with(folder.file("run-time")));
    CHECK(bench.store->problem().ends_with("; what was set at run time is lost"));
    CHECK(folder.read("run-time.damaged") == damaged);
    CHECK_FALSE(std::filesystem::exists(folder.file("run-time")));
    bench.set(cpu_at("3"));
    bench.run_until_told(2);
    CHECK(bench.store->problem().empty());
}

TEST_CASE("what could not be written was never tried again") {
    const Folder folder;
    Bench bench(folder.path() / "state/run-time");
    bench.set(cpu_at("2"));
    bench.run_until_told(1);
    CHECK_FALSE(bench.store->problem().empty());
    folder.write("state/other", "");
    bench.run_until([&] { return bench.store->problem().empty(); });
    bench.begin();
    CHECK(bench.store->values() == cpu_at("2"));
}

TEST_CASE("a good file that could not be read for a moment was called damaged") {
    const Folder folder;
    Bench bench(folder.path() / "run-time");
    core::RunTime good =
        carried_out(cpu_at("2"), core::read_set_overcommit("memory", "2").value(), {});
    good.reservations[{"cortex", "rack-7"}].booking.amounts = {
        {{core::Resource::cpu(), std::nullopt}, 4}};
    bench.set(good);
    bench.run_until_told(1);
    std::filesystem::rename(folder.file("run-time"), folder.file("good"));
    std::filesystem::create_symlink("run-time", folder.file("run-time")); // it leads to itself
    bench.begin();
    CHECK(bench.store->values() == core::RunTime{});
    CHECK(bench.store->problem().ends_with("; what was set at run time is not known"));
    CHECK_FALSE(std::filesystem::exists(folder.file("run-time.damaged")));
    bench.set(cpu_at("3"));
    bench.run_until_told(2);
    CHECK(bench.told.back().starts_with("set, but not kept: "));
    CHECK(bench.store->values() == cpu_at("3"));

    std::filesystem::remove(folder.file("run-time"));
    std::filesystem::rename(folder.file("good"), folder.file("run-time"));
    bench.run_until([&] { return bench.store->problem().empty(); });
    core::RunTime both =
        carried_out(cpu_at("3"), core::read_set_overcommit("memory", "2").value(), {});
    both.reservations = good.reservations;
    CHECK(bench.store->values() == both);
    CHECK(bench.late == 1);
    bench.set(both);
    bench.run_until_told(3);
    bench.begin();
    CHECK(bench.store->values() == both);
}

TEST_CASE("a user's name is found out after what was set is kept, and of none stays a number") {
    const Folder folder;
    Bench bench(folder.path() / "run-time");
    const auto user = [&] {
        return bench.store->values().overcommit.at(core::Resource::cpu()).by.user;
    };
    bench.set(cpu_at("2", /*uid=*/1));
    bench.run_until_told(1);
    CHECK(user().empty());
    CHECK(folder.read("run-time").contains("\"cpu\""));
    bench.run_until([&] { return user() == "daemon"; }); // of Debian's base-passwd, always
    bench.run_until([&] { return folder.read("run-time").contains("daemon"); });
    bench.begin();
    CHECK(user() == "daemon");
    bench.set(cpu_at("2", /*uid=*/4'000'000'000));
    bench.run_until_told(2);
    CHECK(user().empty());
}
