// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <tuple>

#include <catch2/catch.hpp>
#include <sys/stat.h>

#include "../folder.hpp"
#include "wire/hook_conf.hpp"

using namespace virtguard;
using namespace virtguard::wire;
using namespace std::chrono_literals;

namespace {

std::string content(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

} // namespace

TEST_CASE("hook.conf is exactly two lines") {
    const auto [text, conf] = GENERATE(table<std::string, std::optional<HookConf>>({
        {"timeout-ms=2000\nunavailable=allow\n", HookConf{2000ms, false}},
        {"timeout-ms=1\nunavailable=deny\n", HookConf{1ms, true}},
        {"timeout-ms=600000\nunavailable=deny\n", HookConf{600'000ms, true}},
        {"timeout-ms=600001\nunavailable=deny\n", std::nullopt},
        {"timeout-ms=0\nunavailable=deny\n", std::nullopt},
        {"timeout-ms=-1\nunavailable=deny\n", std::nullopt},
        {"timeout-ms=2s\nunavailable=deny\n", std::nullopt},
        {"timeout-ms=18446744073709551617\nunavailable=deny\n", std::nullopt},
        {"timeout-ms=\nunavailable=deny\n", std::nullopt},
        {"timeout-ms=2000", std::nullopt},
        {"timeout-ms=2000\n", std::nullopt},
        {"timeout-ms=2000\nunavailable=deny", std::nullopt},
        {"timeout-ms=2000\nunavailable=deny\n\n", std::nullopt},
        {"timeout-ms=2000\nunavailable=maybe\n", std::nullopt},
        {"timeout-ms=2000\r\nunavailable=deny\r\n", std::nullopt},
        {"unavailable=deny\ntimeout-ms=2000\n", std::nullopt},
        {"", std::nullopt},
    }));
    CAPTURE(text);
    CHECK(parse_hook_conf(text) == conf);
}

TEST_CASE("what is written is read back, and replaces what was there") {
    const Folder folder;
    const std::string path = folder.file("hook.conf");
    CHECK(read_hook_conf(path.c_str()) == HookConf{});
    REQUIRE(write_hook_conf(path, {.timeout = 300ms, .unavailable_denies = true}).has_value());
    CHECK(content(path) == "timeout-ms=300\nunavailable=deny\n");
    CHECK(read_hook_conf(path.c_str()) == HookConf{300ms, true});
    REQUIRE(write_hook_conf(path, {}).has_value());
    CHECK(content(path) == "timeout-ms=2000\nunavailable=allow\n");
    CHECK_FALSE(std::filesystem::exists(folder.file(".hook.conf.new")));
}

TEST_CASE("a hook.conf that cannot be read gives the defaults, and does not hold the hook up") {
    const Folder folder;
    const std::string path = folder.file("hook.conf");
    SECTION("garbled") {
        std::ofstream(path) << std::string(1 << 20, 'x');
    }
    SECTION("a folder") {
        std::filesystem::create_directory(path);
    }
    SECTION("a FIFO") {
        REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    }
    CHECK(read_hook_conf(path.c_str()) == HookConf{});
}

TEST_CASE("what cannot be written is said, and changes nothing") {
    const Folder folder;
    const std::string path = folder.file("missing/hook.conf");
    const auto absent = write_hook_conf(path, {});
    REQUIRE_FALSE(absent.has_value());
    CHECK(absent.error().what == path + ": cannot be written: No such file or directory");
    const auto endless = write_hook_conf(folder.file("hook.conf"), {.timeout = 600'001ms});
    REQUIRE_FALSE(endless.has_value());
    CHECK(endless.error().what == "hook.timeout: 600001 ms is not between 1 ms and 10 minutes");
    CHECK_FALSE(std::filesystem::exists(folder.file("hook.conf")));
}
