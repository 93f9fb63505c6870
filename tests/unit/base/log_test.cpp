// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/log.hpp"
#include "base/unique.hpp"

using namespace virtguard;

namespace {

/// A pipe or socket in place of stderr, and its other end; neither is non-blocking.
class Stderr {
  public:
    explicit Stderr(bool is_socket) {
        std::array<int, 2> ends{};
        REQUIRE((is_socket ? ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data())
                           : ::pipe(ends.data())) == 0);
        reader_ = UniqueFd(ends[0]);
        const UniqueFd writer(ends[1]);
        saved_ = UniqueFd(::dup(STDERR_FILENO));
        REQUIRE(::dup2(writer.get(), STDERR_FILENO) == STDERR_FILENO);
        ::unsetenv("JOURNAL_STREAM"); // a test's may be there
    }
    Stderr(const Stderr&) = delete;
    Stderr& operator=(const Stderr&) = delete;
    ~Stderr() {
        ::dup2(saved_.get(), STDERR_FILENO);
        ::unsetenv("JOURNAL_STREAM");
    }

    /// As systemd names the connection to the journal.
    [[nodiscard]] static std::string stream() {
        struct stat status {};
        REQUIRE(::fstat(STDERR_FILENO, &status) == 0);
        return fmt::format("{}:{}", status.st_dev, status.st_ino);
    }

    /// What is there to read now.
    [[nodiscard]] std::string read() const {
        std::string text;
        std::array<char, 65536> chunk;
        REQUIRE(::fcntl(reader_.get(), F_SETFL, O_NONBLOCK) == 0);
        for (ssize_t count = 0; (count = ::read(reader_.get(), chunk.data(), chunk.size())) > 0;)
            text.append(chunk.data(), static_cast<std::size_t>(count));
        return text;
    }

  private:
    UniqueFd reader_;
    UniqueFd saved_;
};

void set_journal_stream(const std::string& stream) {
    ::setenv("JOURNAL_STREAM", stream.c_str(), /*overwrite=*/1);
}

} // namespace

TEST_CASE("a line for the journal begins with its level") {
    const Stderr log_reader(/*is_socket=*/true);
    set_journal_stream(Stderr::stream());
    log(Level::error, "policy: {}", "a\nb");
    log(Level::info, "ends");
    CHECK(log_reader.read() == "<3>policy: a\\x0ab\n<6>ends\n");
}

TEST_CASE("a terminal and a file were shown the levels that only the journal reads") {
    const std::string journal = Stderr::stream(); // what stderr was before it was redirected
    const Stderr log_reader(/*is_socket=*/false);
    log(Level::error, "policy: {}", "a\nb");
    CHECK(log_reader.read() == "policy: a\\x0ab\n");
    for (const std::string& stream :
         {journal, Stderr::stream() + "0", std::string("1"), std::string()}) {
        CAPTURE(stream);
        set_journal_stream(stream);
        log(Level::info, "ends");
        CHECK(log_reader.read() == "ends\n");
    }
}

TEST_CASE("a log that nobody reads keeps nobody waiting, and says later how much was lost") {
    const bool is_socket = GENERATE(false, true);
    CAPTURE(is_socket);
    const Stderr log_reader(is_socket);
    constexpr int count = 20'000; // more than either holds
    for (int i = 0; i < count; ++i)
        log(Level::info, "line {}", i);
    const std::string got = log_reader.read();
    CHECK(got.starts_with("line 0\nline 1\n"));
    CHECK(got.ends_with("\n"));
    const auto lost = count - std::ranges::count(got, '\n');
    REQUIRE(lost > 0);
    log(Level::info, "last");
    CHECK(log_reader.read() ==
          fmt::format("log: lines that could not be written before this one: {}\nlast\n", lost));
    log(Level::info, "more");
    CHECK(log_reader.read() == "more\n");
}

TEST_CASE("a line of which only a part fits is ended before the next, and counts as lost") {
    const Stderr log_reader(/*is_socket=*/false);
    set_journal_stream(Stderr::stream());
    log(Level::info, "{}", std::string(100'000, 'x'));
    const std::string part = log_reader.read();
    CHECK(part.starts_with("<6>xxx"));
    CHECK_FALSE(part.ends_with("\n"));
    log(Level::info, "next");
    CHECK(log_reader.read() ==
          "\n<4>log: lines that could not be written before this one: 1\n<6>next\n");
}

TEST_CASE("stderr stays blocking for those who share it") {
    const Stderr log_reader(/*is_socket=*/false);
    log(Level::info, "line");
    CHECK(log_reader.read() == "line\n");
    CHECK((::fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK) == 0);
}
