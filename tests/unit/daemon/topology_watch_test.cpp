// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/epoll.h>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "daemon/topology_watch.hpp"

using namespace virtguard;
using namespace virtguard::daemon;

namespace {

/// The CPUs that guests may use as a watch tells them: of hwloc's view of this machine, and of the
/// kernel's files of a folder, where each text in turn is the machine.slice's cpuset.
class Bench {
  public:
    explicit Bench(std::vector<std::string> texts) : texts_(std::move(texts)) {
        folder_.write("proc/meminfo", "MemTotal: 1000 kB\n");
        watch_ = TopologyWatch::create(loop_, *files_, folder_.path(),
                                       [this](const core::Topology& topology) {
                                           told_.back().push_back(topology.allowed);
                                       })
                     .value();
    }

    /// What the look after each text told.
    std::vector<std::vector<IdSet>> run() {
        auto looked = loop_.on_io(
            "looked", looked_->fd(), EPOLLIN, [this](std::uint32_t) { next(); },
            loop::Priority::idle);
        REQUIRE(looked.has_value());
        next();
        REQUIRE(loop_.run() == 0);
        return told_;
    }

  private:
    void next() {
        (void)looked_->drain();
        if (told_.size() == texts_.size())
            return loop_.stop(0);
        folder_.write("sys/fs/cgroup/machine.slice/cpuset.cpus.effective", texts_[told_.size()]);
        told_.emplace_back();
        watch_->look();
        REQUIRE(files_->run([this] { (void)looked_->push(0); }));
    }

    std::vector<std::string> texts_;
    std::vector<std::vector<IdSet>> told_;
    Folder folder_;
    loop::Loop loop_ = loop::Loop::create().value();
    std::unique_ptr<loop::Mailbox<int>> looked_ = loop::Mailbox<int>::create().value();
    std::unique_ptr<FilesThread> files_ = FilesThread::start().value();
    std::unique_ptr<TopologyWatch> watch_;
};

} // namespace

TEST_CASE("CPUs that guests are given, or no longer, are told once, and never what is no list") {
    using Told = std::vector<IdSet>;
    const Told zero{IdSet{0}};
    CHECK(Bench({"0\n", "0\n", "none at all\n", "none at all\n", "0\n"}).run() ==
          std::vector<Told>{zero, {}, {}, {}, zero});
}

TEST_CASE("CPUs that came while nothing could be read are told by the first look that can read") {
    Folder folder;
    folder.write("proc/meminfo", "MemTotal: 1000 kB\nHugepagesize: lots\n");
    loop::Loop loop = loop::Loop::create().value();
    const auto files = FilesThread::start().value();
    std::vector<IdSet> told;
    const auto watch =
        TopologyWatch::create(loop, *files, folder.path(), [&](const core::Topology& topology) {
            told.push_back(topology.allowed);
            loop.stop(0);
        }).value();
    folder.write("sys/fs/cgroup/machine.slice/cpuset.cpus.effective", "0\n");
    watch->look(); // fails
    const auto failed = loop::Mailbox<int>::create().value();
    auto heard = loop.on_io("failed", failed->fd(), EPOLLIN, [&](std::uint32_t) {
        (void)failed->drain();
        folder.write("proc/meminfo", "MemTotal: 1000 kB\nHugepagesize: 2048 kB\n");
        watch->look();
    });
    REQUIRE(heard.has_value());
    REQUIRE(files->run([&] { (void)failed->push(0); }));
    REQUIRE(loop.run() == 0);
    CHECK(told == std::vector<IdSet>{IdSet{0}});
}
