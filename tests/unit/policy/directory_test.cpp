// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <stdlib.h>
#include <sys/stat.h>

#include "../folder.hpp"
#include "policy/load.hpp"

using namespace virtguard;
using namespace virtguard::core;
using namespace virtguard::policy;
namespace fs = std::filesystem;

namespace {

using Lines = std::vector<std::string>;

Lines errors_of(const Loaded& loaded) {
    return loaded ? Lines{} : loaded.error();
}

} // namespace

TEST_CASE("a directory without files is the defaults") {
    const Folder folder;
    CHECK(load_directory(folder.path()) == Policy{});
    fs::create_directory(folder.path() / "conf.d");
    CHECK(load_directory(folder.path()) == Policy{});
}

TEST_CASE("a directory that is absent, or none, is an error") {
    const Folder folder;
    folder.write("file", "");
    CHECK(errors_of(load_directory(folder.path() / "absent")) ==
          Lines{folder.file("absent") + ": cannot be read: No such file or directory"});
    CHECK(errors_of(load_directory(folder.path() / "file")) ==
          Lines{folder.file("file") + ": cannot be read: Not a directory"});
}

TEST_CASE("drop-ins are read after the main file, by name, and without leftovers") {
    const Folder folder;
    folder.write("virtguard.toml", "mode = 'off'\nclaim.return = '2s'\nclaim.lease = '1s'");
    folder.write("conf.d/20.toml", "claim.lease = '20s'");
    folder.write("conf.d/10.toml", "claim.lease = '10s'\nclaim.return = '10s'");
    for (const char* ignored : {".hidden.toml", "30.toml~", "30.toml.dpkg-old", "30.dpkg-new.toml",
                                "30.conf", "README", "toml"})
        folder.write(std::string("conf.d/") + ignored, "not TOML");
    const auto loaded = load_directory(folder.path());
    CHECK(errors_of(loaded) == Lines{});
    CHECK(loaded->origins == std::map<std::string, std::string>{
                                 {"mode", folder.file("virtguard.toml:1")},
                                 {"claim.lease", folder.file("conf.d/20.toml:1")},
                                 {"claim.return", folder.file("conf.d/10.toml:2")},
                             });
    CHECK(loaded->claim.lease == std::chrono::seconds(20));
}

TEST_CASE("drop-ins need no main file, and a link to /dev/null empties one") {
    const Folder folder;
    folder.write("conf.d/10.toml", "mode = 'observe'");
    fs::create_symlink("/dev/null", folder.path() / "conf.d/20.toml");
    const auto loaded = load_directory(folder.path());
    CHECK(errors_of(loaded) == Lines{});
    CHECK(loaded->mode == Mode::observe);
}

TEST_CASE("what cannot be read is told beside what is wrong in the rest") {
    const Folder folder;
    folder.write("virtguard.toml", "mode = 1");
    fs::create_directory(folder.path() / "conf.d");
    fs::create_directory(folder.path() / "conf.d/10.toml");
    fs::create_symlink("absent", folder.path() / "conf.d/20.toml");
    REQUIRE(::mkfifo(folder.file("conf.d/30.toml").c_str(), 0600) == 0);
    CHECK(errors_of(load_directory(folder.path())) ==
          Lines{folder.file("conf.d/10.toml") + ": not a regular file",
                folder.file("conf.d/20.toml") + ": No such file or directory",
                folder.file("conf.d/30.toml") + ": not a regular file",
                folder.file("virtguard.toml") +
                    ":1:8: mode: 1 is an integer: expected \"enforce\", \"observe\" or \"off\""});
}

TEST_CASE("the main file must be a file where there is one") {
    const Folder folder;
    fs::create_directory(folder.path() / "virtguard.toml");
    folder.write("conf.d", "");
    CHECK(errors_of(load_directory(folder.path())) ==
          Lines{folder.file("virtguard.toml") + ": not a regular file",
                folder.file("conf.d") + ": cannot be read: Not a directory"});
}

TEST_CASE("a link to nowhere is an error, not an absent file") {
    const Folder folder;
    fs::create_symlink("absent", folder.path() / "virtguard.toml");
    fs::create_symlink("absent", folder.path() / "conf.d");
    CHECK(errors_of(load_directory(folder.path())) ==
          Lines{folder.file("virtguard.toml") + ": No such file or directory",
                folder.file("conf.d") + ": cannot be read: No such file or directory"});
}

TEST_CASE("too many files and too large ones are refused") {
    const Folder folder;
    for (std::size_t i = 0; i < max_files; ++i)
        folder.write("conf.d/" + std::to_string(i) + ".toml", "");
    CHECK(load_directory(folder.path()) == Policy{});
    folder.write("conf.d/more.toml", "");
    folder.write("virtguard.toml", std::string(2 * max_file_bytes, '#'));
    CHECK(errors_of(load_directory(folder.path())) ==
          Lines{folder.file("virtguard.toml") + ": longer than 1 MiB",
                folder.file("conf.d") + ": more than 256 files"});
}

TEST_CASE("a single file must be there") {
    const Folder folder;
    folder.write("p.toml", "mode = 'off'");
    CHECK(load_file(folder.file("p.toml"))->mode == Mode::off);
    CHECK(load_file("/dev/null") == Policy{});
    CHECK(errors_of(load_file(folder.file("absent"))) ==
          Lines{folder.file("absent") + ": No such file or directory"});
    CHECK(errors_of(load_file(folder.path())) ==
          Lines{folder.path().native() + ": Is a directory"});
}
