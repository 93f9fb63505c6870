// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <sys/stat.h>

#include "../folder.hpp"
#include "state/file.hpp"

using namespace virtguard;

namespace {

constexpr std::size_t limit = 1 << 20;
constexpr std::string_view content = "what was known\nof web-1";

/// A folder with one state file, and what reading it gives once its text is another.
class Kept {
  public:
    Kept() { REQUIRE(state::write(path(), content, Durability::volatile_).has_value()); }

    [[nodiscard]] std::string path() const { return folder.file("guest"); }
    [[nodiscard]] std::string text() const { return folder.read("guest"); }
    [[nodiscard]] std::string defect_of(const std::string& text) const {
        folder.write("guest", text);
        const auto read = state::read(path(), limit);
        return read ? "none" : read.error().what.substr(path().size() + 2);
    }

    Folder folder;
};

} // namespace

TEST_CASE("what is written is read back, and replaces what was there") {
    const auto durability = GENERATE(Durability::volatile_, Durability::durable);
    const Kept kept;
    CHECK(state::read(kept.path(), limit) == content);
    for (const std::string& text : {std::string(), std::string("\0\n\xff", 3)}) {
        REQUIRE(state::write(kept.path(), text, durability).has_value());
        CHECK(state::read(kept.path(), limit) == text);
    }
    CHECK(std::distance(std::filesystem::directory_iterator(kept.folder.path()), {}) == 1);
}

TEST_CASE("what is kept can be read by root alone") {
    const Kept kept;
    struct stat status {};
    REQUIRE(::stat(kept.path().c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("a file cut at any byte is damaged, and so is one with something added") {
    const Kept kept;
    const std::string text = kept.text();
    for (std::size_t length = 0; length < text.size(); ++length) {
        INFO("cut after " << length);
        CHECK(kept.defect_of(text.substr(0, length)) != "none");
    }
    CHECK(kept.defect_of(text + '\0') == "damaged");
    CHECK(kept.defect_of(text) == "none");
}

TEST_CASE("a file with any bit flipped is not believed") {
    const Kept kept;
    const std::string text = kept.text();
    for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
        std::string flipped = text;
        flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
        INFO("bit " << bit);
        CHECK(kept.defect_of(flipped) != "none");
    }
}

TEST_CASE("a file that cannot be used says why") {
    const Kept kept;
    const std::string text = kept.text();
    CHECK(kept.defect_of("") == "not a state file");
    CHECK(kept.defect_of(std::string(4096, '\0')) == "not a state file");
    CHECK(kept.defect_of("virtguard-state") == "not a state file");
    CHECK(kept.defect_of("virtguard-state 2 {} of a kind not known yet\n") ==
          "written by a newer version");
    CHECK(kept.defect_of("virtguard-state 1 00000000\n" + std::string(content)) == "damaged");
    kept.folder.write("guest", text);
    CHECK(state::read(kept.path(), text.size()).has_value());
    CHECK(state::read(kept.path(), text.size() - 1).error().code == Errc::limit);
    CHECK(state::read(kept.folder.file("other"), limit).error().code == Errc::not_found);
    CHECK(state::read(kept.folder.path(), limit).error().code == Errc::invalid);
}

TEST_CASE("what cannot be written leaves what was there") {
    const Kept kept;
    const auto absent = state::write(kept.folder.file("no/guest"), content, Durability::durable);
    REQUIRE_FALSE(absent.has_value());
    CHECK(absent.error().what ==
          kept.folder.file("no/guest") + ": cannot be written: No such file or directory");
    const auto full = state::write("/dev/full/guest", content, Durability::volatile_);
    CHECK(full.error().code == Errc::io);
    CHECK(state::read(kept.path(), limit) == content);
}

TEST_CASE("a file that is set aside is kept for people, one of them") {
    const Kept kept;
    for (const char* text : {"one", "two"}) {
        kept.folder.write("guest", text);
        REQUIRE(state::set_aside(kept.path()).has_value());
        CHECK(state::read(kept.path(), limit).error().code == Errc::not_found);
        CHECK(kept.folder.read("guest.damaged") == text);
    }
    CHECK(state::set_aside(kept.path()).error().code == Errc::not_found);
    kept.folder.write("guest/file", "in a folder, whatever the older one was");
    REQUIRE(state::set_aside(kept.path()).has_value());
    CHECK(kept.folder.read("guest.damaged/file").starts_with("in a folder"));
}
