// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>

#include <catch2/catch.hpp>

#include "../journal.hpp"

using namespace virtguard;
using namespace std::string_literals;

namespace {

const LogFields fields{{"VIRTGUARD_DOMAIN", "web-1"}, {"VIRTGUARD_REASON", "a"}};

} // namespace

TEST_CASE(
    "an entry of the journal has its fields, and what would end a line in a form that does not") {
    CHECK(journal_entry(5, "virtguardd", "refused", {{"A", "x=y"}, {"A", ""}, {"B", "1\n2"}}) ==
          "MESSAGE=refused\nPRIORITY=5\nSYSLOG_IDENTIFIER=virtguardd\nA=x=y\nA=\n"
          "B\n\3\0\0\0\0\0\0\0001\n2\n"s);
}

TEST_CASE("a line with fields goes to the journal's socket, one without to stderr") {
    const Journal journal;
    log_line(Level::notice, "refused\nweb-1", fields);
    log(Level::info, "ends");
    CHECK(journal.entry() == fmt::format("MESSAGE=refused\\x0aweb-1\nPRIORITY=5\n"
                                         "SYSLOG_IDENTIFIER={}\n"
                                         "VIRTGUARD_DOMAIN=web-1\nVIRTGUARD_REASON=a\n",
                                         program_invocation_short_name));
    CHECK(journal.entry() == std::nullopt);
    CHECK(journal.lines() == "<6>ends\n");
}

TEST_CASE("where stderr is not the journal's, a line with fields goes there without them") {
    const Journal journal;
    ::setenv("JOURNAL_STREAM", "1:1", 1);
    log_line(Level::notice, "refused", fields);
    CHECK(journal.entry() == std::nullopt);
    CHECK(journal.lines() == "refused\n");
}

TEST_CASE("a line that the journal's socket does not take goes to stderr without its fields") {
    Journal journal;
    SECTION("it is gone") {
        journal.go_away();
        log_line(Level::notice, "refused", fields);
        CHECK(journal.lines() == "<5>refused\n");
    }
    SECTION("its path is too long") {
        set_journal_socket("/" + std::string(200, 'x'));
        log_line(Level::notice, "refused", fields);
        CHECK(journal.lines() == "<5>refused\n");
    }
    SECTION("the entry is too long") {
        log_line(Level::notice, "refused", {{"LONG", std::string(16 << 20, 'x')}});
        CHECK(journal.lines() == "<5>refused\n");
    }
    CHECK(journal.entry() == std::nullopt);
}

TEST_CASE("a journal that does not read keeps nobody waiting, and lines are lost and counted") {
    const Journal journal;
    constexpr int count = 20'000; // more than both sockets hold
    const std::string text(100, 'x');
    for (int i = 0; i < count; ++i)
        log_line(Level::notice, text, fields);
    int entries = 0;
    while (journal.entry())
        ++entries;
    CHECK(entries > 0);
    const std::string lines = journal.lines();
    CHECK(lines.starts_with("<5>xxx"));
    log(Level::info, "last");
    CHECK(journal.lines().find("log: lines that could not be written before this one: ") !=
          std::string::npos);
}
