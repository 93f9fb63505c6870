// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "image/read.hpp"

using namespace virtguard;
using namespace std::string_literals;

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t ten_mib = 10 * mib;

/// Bytes by offset, zeros elsewhere.
std::string file_of(std::size_t size,
                    const std::vector<std::pair<std::size_t, std::string>>& parts) {
    std::string file(size, '\0');
    for (const auto& [offset, part] : parts)
        file.replace(offset, part.size(), part);
    return file;
}

std::string big(std::uint64_t value, std::size_t bytes) {
    std::string result(bytes, '\0');
    for (std::size_t i = bytes; i-- > 0; value >>= 8)
        result[i] = static_cast<char>(value & 0xff);
    return result;
}
std::string little(std::uint64_t value, std::size_t bytes) {
    const std::string reversed = big(value, bytes);
    return {reversed.rbegin(), reversed.rend()};
}

// As qemu-img writes them.
std::string qcow(std::uint32_t version, std::uint64_t size, std::uint64_t incompatible = 0) {
    return file_of(
        512,
        {{0, "QFI\xfb"}, {4, big(version, 4)}, {24, big(size, 8)}, {72, big(incompatible, 8)}});
}
std::string qed(std::uint64_t size) {
    return file_of(512, {{0, "QED\0"s}, {48, little(size, 8)}});
}
std::string vmdk(std::uint64_t sectors) {
    return file_of(512, {{0, "KDMV"}, {4, little(1, 4)}, {12, little(sectors, 8)}});
}
std::string vmdk3(std::uint32_t sectors) {
    return file_of(512, {{0, "COWD"}, {12, little(sectors, 4)}});
}
std::string vdi(std::uint64_t size) {
    return file_of(1024, {{0, "<<< QEMU VM Virtual Disk Image >>>\n"},
                          {64, little(0xbeda107f, 4)},
                          {368, little(size, 8)}});
}
/// What is in front of the footer is the guest's.
std::string vpc(std::uint64_t size, const std::string& guests) {
    return guests + file_of(512, {{0, "conectix"}, {48, big(size, 8)}});
}

class Bench {
  public:
    [[nodiscard]] Result<core::Image> read(const std::string& format,
                                           const std::string& path = "/images/a") const {
        return image::read(folder.path(), {path, format});
    }
    [[nodiscard]] std::string problem(const std::string& format,
                                      const std::string& path = "/images/a") const {
        const auto read_image = read(format, path);
        return read_image ? fmt::format("{} bytes", read_image->virtual_size)
                          : read_image.error().what;
    }
    void write(const std::string& bytes) const { folder.write("images/a", bytes); }

    Folder folder;
};

} // namespace

TEST_CASE("the size that a guest sees is read from the header of the format that is named") {
    const auto [format, bytes] = GENERATE(table<std::string, std::string>({
        {"qcow", qcow(1, ten_mib)},
        {"qcow2", qcow(2, ten_mib)},
        {"qcow2", qcow(3, ten_mib)},
        {"qcow2", qcow(2, ten_mib, 4)}, // which version 2 does not have
        {"qed", qed(ten_mib)},
        {"vmdk", vmdk(ten_mib / 512)},
        {"vmdk", vmdk3(ten_mib / 512)},
        {"vdi", vdi(ten_mib)},
        {"vpc", vpc(ten_mib, "")},
        {"vpc", vpc(ten_mib, vpc(512 * mib, std::string(1000, 'x')))},
    }));
    CAPTURE(format);
    const Bench bench;
    bench.write(bytes);
    const auto image = bench.read(format);
    REQUIRE(image.has_value());
    CHECK(image->virtual_size == ten_mib);
}

TEST_CASE("what a guest wrote into a raw disk is no header") {
    const Bench bench;
    bench.write(qcow(3, 512 * mib));
    CHECK(bench.read("raw").value().virtual_size == 512);
    CHECK(bench.read("iso").value().virtual_size == 512);
}

TEST_CASE("what a file has already is told, and holes are not") {
    const Bench bench;
    bench.write(std::string(64 * 1024, 'x'));
    std::filesystem::resize_file(bench.folder.file("images/a"), ten_mib);
    const auto image = bench.read("raw").value();
    struct stat info = {};
    REQUIRE(::stat(bench.folder.file("images/a").c_str(), &info) == 0);
    CHECK(image.virtual_size == ten_mib);
    CHECK(image.allocated == info.st_blocks * 512);
    CHECK(image.allocated < mib);
    CHECK(image.device == info.st_dev);
}

TEST_CASE("what an image has is owed again where snapshots inside keep it") {
    const auto [snapshots, is_kept] = GENERATE(table<std::uint64_t, bool>({{0, false}, {1, true}}));
    const Bench bench;
    std::string bytes = qcow(3, ten_mib) + std::string(64 * 1024, 'x');
    bytes.replace(60, 4, big(snapshots, 4));
    bench.write(bytes);
    const auto image = bench.read("qcow2").value();
    CHECK(image.virtual_size == ten_mib);
    CHECK((image.allocated == 0) == is_kept);
}

TEST_CASE("an image that cannot be read says what is wrong with it") {
    const auto [format, bytes, expected] = GENERATE(table<std::string, std::string, std::string>({
        {"qcow2", "QFI\xfb", "it is too short for a qcow2 image"},
        {"qcow2", "", "it is too short for a qcow2 image"},
        {"vpc", std::string(511, 'x'), "it is too short for a vpc image"},
        {"qcow2", std::string(512, 'x'), "it is no qcow2 image"},
        {"qcow2", qcow(1, mib), "it is qcow of version 1: expected 2 or 3"},
        {"qcow2", qcow(0xffffffff, mib), "it is qcow of version 4294967295: expected 2 or 3"},
        {"qcow2", qcow(3, mib, 4), "its data is in a file of its own"},
        {"qcow", qcow(2, mib), "it is no qcow image"},
        {"qed", qcow(2, mib), "it is no qed image"},
        {"vmdk", qed(mib), "it is no vmdk image"},
        {"vmdk", "# Disk DescriptorFile\nversion=1\n", "its data is in files of their own"},
        {"vdi", std::string(1024, '\xff'), "it is no vdi image"},
        {"vpc", vpc(mib, "") + "x", "it is no vpc image"},
        {"vhdx", std::string(1024, 'x'), "images of format \"vhdx\" are not read"},
        {"RAW", "", "images of format \"RAW\" are not read"},
        {"", "", "images of format \"\" are not read"},
    }));
    CAPTURE(format);
    const Bench bench;
    bench.write(bytes);
    CHECK(bench.problem(format) == expected);
}

TEST_CASE("an image that claims an absurd size counts as the largest there is, not as nothing") {
    static constexpr std::uint64_t most = core::max_image_bytes;
    const auto [format, bytes, size] = GENERATE(table<std::string, std::string, std::uint64_t>({
        {"qcow2", qcow(3, UINT64_MAX), most},
        {"qcow2", qcow(3, most + 1), most},
        {"qcow2", qcow(3, most - 1), most - 1},
        {"qcow2", qcow(3, 0), 0},
        {"vmdk", vmdk(UINT64_MAX), most},
        {"vmdk", vmdk(std::uint64_t{1} << 55), most},
    }));
    CAPTURE(format);
    const Bench bench;
    bench.write(bytes);
    CHECK(bench.problem(format) == fmt::format("{} bytes", size));
}

TEST_CASE("an image that is not there is not found") {
    const Bench bench;
    CHECK(bench.problem("raw") == "No such file or directory");
    CHECK(bench.read("raw").error().code == Errc::not_found);
    CHECK(bench.problem("raw", "volume a of pool b") == "only libvirt knows where it is");
    CHECK(bench.problem("raw", "/" + std::string(5000, 'a')) == "File name too long");
}

TEST_CASE("a link to an image is that image") {
    const Bench bench;
    bench.write(qcow(3, ten_mib));
    std::filesystem::create_symlink("a", bench.folder.file("images/link"));
    CHECK(bench.read("qcow2", "/images/link").value() == bench.read("qcow2").value());
    std::filesystem::create_symlink("loop", bench.folder.file("images/loop"));
    CHECK(bench.problem("qcow2", "/images/loop") == "Too many levels of symbolic links");
}

TEST_CASE("a device that the unit hides does not grow, nor what leads to it") {
    Bench bench;
    std::filesystem::create_directories(bench.folder.path() / "images");
    std::filesystem::create_symlink("/dev/vg/web", bench.folder.file("images/volume"));
    std::filesystem::create_symlink("../images/volume", bench.folder.file("images/again"));
    std::filesystem::create_symlink("again-and-again", bench.folder.file("images/nowhere"));
    for (const auto* path : {"/dev/vg/web", "/images/volume", "/images/again"}) {
        const auto image = bench.read("raw", path);
        REQUIRE(image.has_value());
        CHECK(*image == core::Image{});
    }
    for (const auto* path : {"/images/nowhere", "/images/../dev/shm/web", "/devices/web"})
        CHECK(bench.problem("raw", path) == "No such file or directory");
}

TEST_CASE("what is no regular file does not grow, and is not opened") {
    const Bench bench;
    bench.write("");
    // Who opens a FIFO to write waits for a reader: there must never be one.
    REQUIRE(::mkfifo(bench.folder.file("images/fifo").c_str(), 0600) == 0);
    std::filesystem::create_symlink("/dev/zero", bench.folder.file("images/device"));
    for (const auto* path : {"/images", "/images/fifo", "/images/device"}) {
        CAPTURE(path);
        CHECK(bench.read("qcow2", path).value() == core::Image{});
    }
}

TEST_CASE("a file system is what its counters say") {
    const Bench bench;
    bench.write("");
    const auto found = image::read_file_system(bench.folder.path(), "/images").value();
    struct statvfs counts = {};
    REQUIRE(::statvfs(bench.folder.path().c_str(), &counts) == 0);
    const auto blocks = static_cast<std::int64_t>(counts.f_blocks);
    CHECK(found.path == "/images");
    CHECK(found.device == bench.read("raw").value().device);
    CHECK(found.capacity == blocks * static_cast<std::int64_t>(counts.f_frsize));
    CHECK(found.used >= 0);
    CHECK(found.used <= found.capacity);
    const auto absent = image::read_file_system(bench.folder.path(), "/absent");
    CHECK(absent.error().code == Errc::not_found);
}

TEST_CASE("a file system that has no blocks is not full") {
    const auto found = image::read_file_system("/", "/proc"); // as FUSE without statfs
    REQUIRE_FALSE(found.has_value());
    CHECK(found.error().code == Errc::io);
    CHECK(found.error().what == "it does not tell how large it is");
}

TEST_CASE("file systems are mounted where the kernel says") {
    const Bench bench;
    CHECK(image::mount_points(bench.folder.path()).empty());
    bench.folder.write("proc/self/mountinfo",
                       "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
                       "40 22 0:35 / /srv/my\\040images rw - nfs4 server:/images rw\n"
                       "cut\n"
                       "41 22 0:36 /a /mnt rw master:1 - fuse.x x rw\n");
    CHECK(image::mount_points(bench.folder.path()) ==
          std::vector<std::string>{"/srv/my images", "/mnt"});
}
