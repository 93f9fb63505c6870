// SPDX-License-Identifier: Apache-2.0
#include <csignal>

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "daemon/policy_store.hpp"

using namespace virtguard;
using namespace virtguard::daemon;
namespace fs = std::filesystem;

namespace {

core::Topology topology() {
    return {.nodes = {{.id = 0, .pus = {0, 1}, .memory = std::int64_t{8} << 30}},
            .cores = {{0}, {1}},
            .online = {0, 1},
            .allowed = {0, 1}};
}

/// The operator's folder and the daemon's.
struct Places {
    Folder policy;
    Folder state;

    [[nodiscard]] StartPolicy at_start() const {
        return policy_at_start(policy.path(), state.path(), topology());
    }
    [[nodiscard]] Result<> keep() const {
        return keep_as_last_good(policy.path(), state.path(),
                                 load_checked(policy.path(), topology()).value());
    }
};

} // namespace

TEST_CASE("the operator's policy is in force when it is good") {
    Places places;
    places.policy.write("virtguard.toml", "[overcommit]\ncpu = 3\n");
    places.policy.write("conf.d/10-more.toml", "mode = \"observe\"\n");
    const StartPolicy start = places.at_start();
    CHECK(start.errors.empty());
    CHECK(start.in_force == places.policy.path());
    CHECK(start.policy.mode == core::Mode::observe);
    CHECK(start.policy.ratio_of(core::Resource::cpu()).text() == "3");
}

TEST_CASE("an empty folder is the built-in defaults, in force") {
    const StartPolicy start = Places().at_start();
    CHECK(start.errors.empty());
    CHECK(start.policy.mode == core::Mode::enforce);
}

TEST_CASE("what is impossible on this host is as bad as what cannot be read") {
    Places places;
    places.policy.write("virtguard.toml", "[reserve]\nmemory = \"9GiB\"\n");
    const auto loaded = load_checked(places.policy.path(), topology());
    REQUIRE_FALSE(loaded.has_value());
    REQUIRE(loaded.error().size() == 1);
    CHECK(loaded.error().front().starts_with(places.policy.path().string() + "/virtguard.toml:2"));
}

TEST_CASE("a bad policy at start means the last good one, and without one observing defaults") {
    Places places;
    places.policy.write("virtguard.toml", "[overcommit]\ncpu = 3\n");
    places.policy.write("conf.d/50-x.toml", "[overcommit]\nmemory = 2\n");
    const bool has_last_good = GENERATE(false, true);
    if (has_last_good)
        REQUIRE(places.keep());
    places.policy.write("virtguard.toml", "[overcommit]\ncpu = 0\nnosuch = 1\n");
    const StartPolicy start = places.at_start();
    CHECK(start.errors.size() == 2);
    if (has_last_good) {
        CHECK(start.policy.mode == core::Mode::enforce);
        CHECK(start.policy.ratio_of(core::Resource::cpu()).text() == "3");
        CHECK(start.policy.ratio_of(core::Resource::memory()).text() == "2");
        CHECK(start.in_force ==
              "the last good policy, " + (places.state.path() / "last-good-policy").string());
    } else {
        CHECK(start.policy.mode == core::Mode::observe);
        CHECK(start.in_force == "the built-in defaults, which only observe");
    }
}

TEST_CASE("a last good policy that has become bad is not used") {
    Places places;
    places.policy.write("virtguard.toml", "nosuch = 1\n");
    places.state.write("last-good-policy/virtguard.toml", "nosuch = 2\n");
    CHECK(places.at_start().in_force == "the built-in defaults, which only observe");
}

TEST_CASE("keeping replaces the whole copy, whatever a crash has left") {
    Places places;
    places.policy.write("virtguard.toml", "mode = \"observe\"\n");
    places.policy.write("conf.d/10-a.toml", "[overcommit]\ncpu = 2\n");
    places.state.write("last-good-policy.new/conf.d/99-left.toml", "nosuch = 1\n");
    REQUIRE(places.keep());
    CHECK(places.state.read("last-good-policy/virtguard.toml") == "mode = \"observe\"\n");
    fs::remove(places.policy.path() / "conf.d/10-a.toml");
    places.policy.write("conf.d/20-b.toml", "[overcommit]\ncpu = 4\n");
    places.policy.write("conf.d/README", "not a policy");
    fs::create_symlink("/dev/null", places.policy.path() / "conf.d/30-masked.toml");
    REQUIRE(places.keep());
    CHECK(places.state.read("last-good-policy/conf.d/20-b.toml") == "[overcommit]\ncpu = 4\n");
    CHECK_FALSE(fs::exists(places.state.path() / "last-good-policy/conf.d/10-a.toml"));
    CHECK_FALSE(fs::exists(places.state.path() / "last-good-policy/conf.d/README"));
    CHECK_FALSE(fs::exists(places.state.path() / "last-good-policy.new"));
}

TEST_CASE("what is no longer the policy in force is not kept") {
    Places places;
    places.policy.write("virtguard.toml", "mode = \"observe\"\n");
    const core::Policy in_force = load_checked(places.policy.path(), topology()).value();
    REQUIRE(places.keep());
    const auto text = GENERATE(as<std::string>(), "mode = \"off\"\n", "nosuch = 1\n");
    places.policy.write("virtguard.toml", text);
    const auto kept = keep_as_last_good(places.policy.path(), places.state.path(), in_force);
    REQUIRE_FALSE(kept.has_value());
    CHECK(kept.error().what ==
          places.policy.path().string() + ": no longer the policy that is in force");
    CHECK(places.state.read("last-good-policy/virtguard.toml") == "mode = \"observe\"\n");
    CHECK_FALSE(fs::exists(places.state.path() / "last-good-policy.new"));
}

TEST_CASE("a state folder that is not there is an error and not a crash") {
    Places places;
    places.policy.write("virtguard.toml", "");
    const fs::path state = places.state.path() / "file";
    places.state.write("file", "");
    const auto kept = keep_as_last_good(places.policy.path(), state, core::Policy{});
    REQUIRE_FALSE(kept.has_value());
    CHECK(kept.error().what == (state / "last-good-policy.new").string() + ": Not a directory");
}

TEST_CASE("a full state folder was blamed on the policy's own file") {
    Places places;
    places.policy.write("virtguard.toml", "mode = \"observe\"\n");
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
    const rlimit low{.rlim_cur = 3, .rlim_max = limit.rlim_max};
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN); // so that it is an error
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
    const auto kept = places.keep();
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    std::signal(SIGXFSZ, old_handler);
    REQUIRE_FALSE(kept.has_value());
    CHECK(kept.error().what == places.state.file("last-good-policy.new/virtguard.toml") +
                                   ": cannot be written: File too large");
}
