// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/stat.h>

#include "../folder.hpp"
#include "base/file.hpp"
#include "base/unique.hpp"

using namespace virtguard;
namespace fs = std::filesystem;

TEST_CASE("a file is read up to a limit") {
    const Folder folder;
    folder.write("five", "12345");
    CHECK(read_file(folder.file("five"), 5) == "12345");
    const auto larger = read_file(folder.file("five"), 4);
    REQUIRE_FALSE(larger.has_value());
    CHECK(larger.error().code == Errc::limit);
    CHECK(larger.error().what == folder.file("five") + ": longer than 4 B");
    CHECK(read_stream("/dev/zero", 100'000).error().code == Errc::limit);
}

TEST_CASE("a file that cannot be read says why") {
    const Folder folder;
    const auto absent = read_file(folder.file("none"), 1);
    REQUIRE_FALSE(absent.has_value());
    CHECK(absent.error().code == Errc::not_found);
    CHECK(absent.error().what == folder.file("none") + ": No such file or directory");
    CHECK(read_stream("/", 1).error().what == "/: Is a directory");
}

TEST_CASE("what is no regular file is refused, and not waited for") {
    const Folder folder;
    REQUIRE(::mkfifo(folder.file("fifo").c_str(), 0600) == 0);
    REQUIRE(::mknod(folder.file("socket").c_str(), S_IFSOCK | 0600, 0) == 0);
    fs::create_symlink(folder.file("fifo"), folder.file("link"));
    for (const std::string& path : {folder.file("fifo"), folder.file("socket"), folder.file("link"),
                                    folder.path().native(), std::string("/dev/zero")}) {
        CAPTURE(path);
        const auto text = read_file(path, 100);
        REQUIRE_FALSE(text.has_value());
        CHECK(text.error().code == Errc::invalid);
        CHECK(text.error().what == path + ": not a regular file");
    }
    CHECK(read_file("/dev/null", 100) == "");
    CHECK(read_file("/proc/self/comm", 100) == "unit-base\n");
}

TEST_CASE("a file is replaced whole, with the mode asked for whatever the umask") {
    const Folder folder;
    const auto durability = GENERATE(Durability::volatile_, Durability::durable);
    const mode_t mask = ::umask(0077);
    for (const char* text : {"a longer one", "short"})
        REQUIRE(replace_file(folder.file("it"), text, durability, 0644).has_value());
    ::umask(mask);
    CHECK(folder.read("it") == "short");
    CHECK(fs::status(folder.file("it")).permissions() == fs::perms(0644));
    CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("what a crash has left beside a file is not written through") {
    const Folder folder;
    folder.write("other", "precious");
    fs::create_symlink(folder.file("other"), folder.file(".it.new"));
    REQUIRE(replace_file(folder.file("it"), "text", Durability::volatile_, 0600).has_value());
    CHECK(folder.read("other") == "precious");
    CHECK_FALSE(fs::is_symlink(folder.file("it")));
}

TEST_CASE("what cannot be written leaves the old text and nothing beside it") {
    const Folder folder;
    folder.write("taken/file", "");
    const auto failed = replace_file(folder.file("taken"), "text", Durability::volatile_, 0600);
    REQUIRE_FALSE(failed.has_value());
    CHECK(failed.error().code == Errc::io);
    CHECK(failed.error().what == folder.file("taken") + ": cannot be written: Is a directory");
    CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}
