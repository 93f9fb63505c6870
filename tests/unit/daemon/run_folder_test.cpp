// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "daemon/run_folder.hpp"

using namespace virtguard;
using namespace virtguard::daemon;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

bool somebody_listens(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::ranges::copy(path, address.sun_path);
    const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
           0;
}

/// A daemon's folder, which is kept, with a socket of its own or without. The daemon sleeps until
/// told() runs its loop, which can be done once.
class Bench {
  public:
    explicit Bench(bool with_socket = true) {
        above.write("above/other", "");
        kept = RunFolder::take(path()).value();
        if (with_socket)
            listener = kept->listen().value();
        REQUIRE(kept->keep(loop, {.on_socket =
                                      [this](UniqueFd fresh) {
                                          listener = std::move(fresh);
                                          note("socket");
                                      },
                                  .on_emptied = [this] { note("emptied"); },
                                  .on_taken = [this] { note("taken"); }})
                    .has_value());
    }

    /// What the daemon is told, as soon as that is `until`; whatever it is in some time where
    /// nothing is to be told.
    std::string told(const std::string& until) {
        until_ = until;
        auto end = loop.timer("end", [this] { loop.stop(0); }).value();
        end.arm_after(until.empty() ? 100ms : 20s);
        REQUIRE(loop.run().value() == 0);
        return told_;
    }
    [[nodiscard]] std::string path() const { return above.file("above/virtguard"); }
    [[nodiscard]] std::string socket() const { return path() + "/hook.sock"; }
    [[nodiscard]] std::string second_start() const {
        const auto second = RunFolder::take(path());
        return second ? "has the folder" : second.error().what;
    }

    Folder above;
    loop::Loop loop = loop::Loop::create().value();
    UniqueFd listener;
    std::unique_ptr<RunFolder> kept;
    std::function<void()> next_deed; ///< done once, when something was told
    std::function<void()> each_deed; ///< done whenever something was told

  private:
    void note(const std::string& word) {
        told_ += (told_.empty() ? "" : ", ") + word;
        if (auto deed = std::exchange(next_deed, {}))
            deed();
        if (each_deed)
            each_deed();
        if (told_ == until_)
            loop.stop(0);
    }

    std::string told_;
    std::string until_;
};

} // namespace

TEST_CASE("a daemon whose socket is deleted or replaced listens there again") {
    Bench bench;
    SECTION("deleted") {
        fs::remove(bench.socket());
    }
    SECTION("replaced by a file") {
        bench.above.write("file", "");
        fs::rename(bench.above.file("file"), bench.socket());
    }
    SECTION("replaced by a socket") {
        const auto other = listen_at(bench.above.file("other.sock"));
        REQUIRE(other.has_value());
        fs::rename(bench.above.file("other.sock"), bench.socket());
    }
    SECTION("renamed") {
        fs::rename(bench.socket(), bench.socket() + ".old");
    }
    CHECK(bench.told("socket") == "socket");
    CHECK(somebody_listens(bench.socket()));
}

TEST_CASE("a daemon whose folder is deleted makes it again, with lock and socket") {
    Bench bench;
    SECTION("deleted") {
        fs::remove_all(bench.path());
    }
    SECTION("renamed") {
        fs::rename(bench.path(), bench.path() + ".old");
    }
    SECTION("replaced") {
        fs::rename(bench.path(), bench.path() + ".old");
        fs::create_directory(bench.path());
    }
    SECTION("without its lock") {
        fs::remove_all(bench.path());
        fs::create_directory(bench.path());
        bench.above.write("above/virtguard/hook.sock", "");
    }
    CHECK(bench.told("socket, emptied") == "socket, emptied");
    CHECK(somebody_listens(bench.socket()));
    CHECK(bench.second_start() == bench.path() + "/lock: another virtguardd runs");
}

TEST_CASE("what is deleted again at once, in the new folder too, is made again") {
    Bench bench;
    bench.next_deed = [&] { fs::remove_all(bench.path()); };
    fs::remove_all(bench.path());
    CHECK(bench.told("socket, emptied, socket, emptied") == "socket, emptied, socket, emptied");
    CHECK(somebody_listens(bench.socket()));
}

TEST_CASE("what undoes every repair does not keep the daemon from all else") {
    Bench bench;
    int repairs = 0;
    bench.each_deed = [&] {
        ++repairs;
        fs::remove(bench.socket());
    };
    fs::remove(bench.socket());
    (void)bench.told("");
    CHECK(repairs > 0);
    CHECK(repairs <= 16);
}

TEST_CASE("a folder whose parent is deleted too is made as soon as that is there again") {
    Bench bench;
    fs::remove_all(bench.above.file("above"));
    std::optional<loop::Timer> later;
    later =
        bench.loop.timer("later", [&] { fs::create_directory(bench.above.file("above")); }).value();
    later->arm_after(50ms);
    CHECK(bench.told("socket, emptied") == "socket, emptied");
    CHECK(somebody_listens(bench.socket()));
}

TEST_CASE("of two daemons that take a folder deleted between them the second keeps it") {
    Bench bench;
    fs::remove_all(bench.path());
    const auto second = RunFolder::take(bench.path()); // before the first one could notice
    REQUIRE(second.has_value());
    const auto listener = (*second)->listen();
    REQUIRE(listener.has_value());
    CHECK(bench.told("taken") == "taken");
    CHECK(bench.second_start() == bench.path() + "/lock: another virtguardd runs");
    pollfd waiting{.fd = listener->get(), .events = POLLIN, .revents = 0};
    CHECK(somebody_listens(bench.socket()));
    CHECK(::poll(&waiting, 1, 0) == 1); // it is the second one's
}

TEST_CASE("where systemd has made the socket, none is made, and the lock is kept") {
    Bench bench(/*with_socket=*/false);
    fs::remove_all(bench.path());
    CHECK(bench.told("emptied") == "emptied");
    CHECK_FALSE(fs::exists(bench.socket()));
    CHECK(bench.second_start() == bench.path() + "/lock: another virtguardd runs");
}

TEST_CASE("what others do beside it concerns no daemon") {
    Bench bench;
    bench.above.write("above/virtguard/file", "");
    bench.above.write("above/virtguard/guests/file", "");
    fs::remove_all(bench.above.file("above/virtguard/guests"));
    CHECK(bench.told("") == "");
    CHECK(somebody_listens(bench.socket()));
}

TEST_CASE("a folder that cannot be made is an error by name") {
    const Folder folder;
    CHECK(RunFolder::take(folder.file("absent/virtguard")).error().what ==
          folder.file("absent/virtguard") + ": No such file or directory");
    folder.write("file", "");
    CHECK(RunFolder::take(folder.file("file")).error().what ==
          folder.file("file") + "/lock: Not a directory");
}

TEST_CASE("a socket replaces what a dead daemon left, and says where it cannot be") {
    const Folder folder;
    const std::string path = folder.path() / "hook.sock";
    REQUIRE(listen_at(path).has_value());
    REQUIRE(listen_at(path).has_value());
    const std::string absent = folder.path() / "absent/hook.sock";
    CHECK(listen_at(absent).error().what == absent + ": No such file or directory");
    const std::string longest(108, 'x');
    CHECK(listen_at(longest).error().what ==
          longest + ": too long for a socket, which has at most 107 bytes");
}
