// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "daemon/status_watch.hpp"

using namespace virtguard;
using namespace virtguard::daemon;

namespace {

/// A folder as libvirt writes to it, and the names that the watch tells, until "end".
class Bench {
  public:
    void make_folder() const { std::filesystem::create_directory(folder.file("qemu")); }
    void write(const std::string& name) const {
        folder.write("qemu/" + name + ".new", "<domstatus/>");
        std::filesystem::rename(folder.file("qemu/" + name + ".new"), folder.file("qemu/" + name));
    }
    std::vector<std::string> names() {
        write("end.xml");
        REQUIRE(loop.run() == 0);
        return told;
    }

    Folder folder;
    std::vector<std::string> told;
    loop::Loop loop = loop::Loop::create().value();
    std::unique_ptr<StatusWatch> watch;

    void start() {
        watch = std::make_unique<StatusWatch>(loop, folder.path() / "qemu",
                                              [this](std::string_view name) {
                                                  if (name == "end")
                                                      loop.stop(0);
                                                  else
                                                      told.emplace_back(name);
                                              });
    }
};

} // namespace

TEST_CASE("a status file that is written is told by its domain's name, and other files are not") {
    Bench bench;
    bench.make_folder();
    bench.start();
    bench.write("web-1.xml");
    bench.write("web-1.pid");
    bench.write("odd name.xml.xml");
    bench.write(std::string(250, 'x'));
    CHECK(bench.names() == std::vector<std::string>{"web-1", "odd name.xml"});
}

TEST_CASE("a folder that libvirtd makes later is watched once that is asked for") {
    Bench bench;
    bench.start();
    bench.make_folder();
    bench.write("before.xml");
    for (int times = 0; times < 3; ++times)
        bench.watch->renew();
    bench.write("after.xml");
    CHECK(bench.names() == std::vector<std::string>{"after"});
}

TEST_CASE("more at once than is read at once is told all the same") {
    Bench bench;
    bench.make_folder();
    bench.start();
    for (int number = 0; number < 1000; ++number)
        bench.write(fmt::format("a-rather-long-name-of-a-guest-{}.xml", number));
    CHECK(bench.names().size() == 1000);
}
