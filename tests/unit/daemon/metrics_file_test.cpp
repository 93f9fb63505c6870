// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>
#include <string>

#include <sys/stat.h>
#include <systemd/sd-event.h>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "daemon/metrics_file.hpp"

using namespace virtguard;
using namespace virtguard::daemon;
using namespace std::chrono_literals;

namespace {

/// Metrics whose text is how often they were asked for.
class Bench {
  public:
    explicit Bench(Span pause)
        : metrics_(MetricsFile::create(
                       loop_, *files_, [this] { return fmt::format("{}\n", ++asked_); }, pause)
                       .value()) {}

    MetricsFile& metrics() { return *metrics_; }
    /// Until they were asked for so often in all.
    void run_until(int asked) {
        const Instant deadline = loop::now() + 20s;
        while (asked_ < asked && loop::now() < deadline)
            turn(deadline);
        REQUIRE(asked_ == asked);
    }
    void run_for(Span span) {
        for (const Instant end = loop::now() + span; loop::now() < end;)
            turn(end);
    }
    /// Waits for what the files thread was given.
    void finish_jobs() {
        std::promise<void> done;
        REQUIRE(files_->run([&] { done.set_value(); }));
        done.get_future().wait();
    }
    void finish_files() { files_.reset(); }
    FilesThread& files() { return *files_; }
    [[nodiscard]] int asked() const { return asked_; }

  private:
    /// Loop::run() can be done only once.
    void turn(Instant until) {
        const auto left =
            std::chrono::ceil<std::chrono::microseconds>(std::max(until - loop::now(), Span(0)));
        REQUIRE(sd_event_run(loop_.handle(), static_cast<std::uint64_t>(left.count())) >= 0);
    }

    int asked_ = 0;
    loop::Loop loop_ = loop::Loop::create().value();
    std::unique_ptr<FilesThread> files_ = FilesThread::start().value();
    std::unique_ptr<MetricsFile> metrics_;
};

} // namespace

TEST_CASE("without a folder no metrics are worked out") {
    Bench bench(1ms);
    bench.metrics().note_change();
    bench.metrics().set_folder("");
    bench.metrics().note_change();
    bench.run_for(50ms);
    CHECK(bench.asked() == 0);
}

TEST_CASE("metrics are written for all to read, with nothing left beside them") {
    const Folder folder;
    Bench bench(1h);
    bench.metrics().set_folder(folder.path());
    bench.run_until(1);
    bench.finish_files();
    CHECK(folder.read("virtguard.prom") == "1\n");
    struct stat status {};
    REQUIRE(::stat(folder.file("virtguard.prom").c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0644);
    const std::filesystem::directory_iterator files(folder.path());
    CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("metrics are not written again before a pause, and then once for all changes") {
    const Folder folder;
    const bool paused = GENERATE(true, false);
    Bench bench(paused ? 1h : 50ms);
    bench.metrics().set_folder(folder.path());
    bench.run_until(1);
    for (int i = 0; i < 5; ++i)
        bench.metrics().note_change();
    if (!paused)
        bench.run_until(2);
    bench.run_for(100ms);
    bench.finish_files();
    CHECK(folder.read("virtguard.prom") == (paused ? "1\n" : "2\n"));
}

TEST_CASE("metrics that go elsewhere, or nowhere, are not left behind") {
    const Folder folder;
    std::filesystem::create_directory(folder.path() / "other");
    Bench bench(0ms);
    bench.metrics().set_folder(folder.path());
    bench.run_until(1);
    bench.finish_jobs();
    const bool off = GENERATE(false, true);
    bench.metrics().set_folder(off ? "" : folder.file("other"));
    if (!off)
        bench.run_until(2);
    bench.finish_files();
    CHECK(folder.read("virtguard.prom").empty());
    CHECK(folder.read("other/virtguard.prom") == (off ? "" : "2\n"));
}

TEST_CASE("metrics are written again when their folder is there again") {
    const Folder folder;
    Bench bench(0ms);
    bench.metrics().set_folder(folder.file("later"));
    bench.run_until(1);
    bench.finish_jobs();
    std::filesystem::create_directory(folder.path() / "later");
    bench.metrics().note_change();
    bench.run_until(2);
    bench.finish_files();
    CHECK(folder.read("later/virtguard.prom") == "2\n");
}

TEST_CASE("while storage hangs no more is given to it") {
    const Folder folder;
    Bench bench(0ms);
    std::promise<void> hang;
    REQUIRE(bench.files().run([&] { hang.get_future().wait(); }));
    bench.metrics().set_folder(folder.path());
    bench.run_until(1);
    bench.metrics().note_change();
    bench.run_for(50ms);
    CHECK(bench.asked() == 1);
    hang.set_value();
    bench.finish_files();
    CHECK(folder.read("virtguard.prom") == "1\n");
}
