// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>

#include <fcntl.h>
#include <sys/socket.h>
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
    }
    Stderr(const Stderr&) = delete;
    Stderr& operator=(const Stderr&) = delete;
    ~Stderr() { ::dup2(saved_.get(), STDERR_FILENO); }

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

} // namespace

TEST_CASE("a log that nobody reads keeps nobody waiting, and says later how much was lost") {
    const bool is_socket = GENERATE(false, true);
    CAPTURE(is_socket);
    const Stderr log_reader(is_socket);
    constexpr int count = 20'000; // more than either holds
    for (int i = 0; i < count; ++i)
        log(Level::info, "line {}", i);
    const std::string got = log_reader.read();
    CHECK(got.starts_with("<6>line 0\n<6>line 1\n"));
    CHECK(got.ends_with("\n"));
    const auto lost = count - std::ranges::count(got, '\n');
    REQUIRE(lost > 0);
    log(Level::info, "last");
    CHECK(log_reader.read() ==
          fmt::format("<4>log: lines that could not be written before this one: {}\n<6>last\n",
                      lost));
    log(Level::info, "more");
    CHECK(log_reader.read() == "<6>more\n");
}

TEST_CASE("a line of which only a part fits is ended before the next, and counts as lost") {
    const Stderr log_reader(/*is_socket=*/false);
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
    CHECK(log_reader.read() == "<6>line\n");
    CHECK((::fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK) == 0);
}
