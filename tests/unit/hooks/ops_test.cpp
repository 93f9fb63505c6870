// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <tuple>

#include <catch2/catch.hpp>

#include "hooks/ops.hpp"

using namespace virtguard;
using namespace virtguard::hooks;

TEST_CASE("one operation is asked, three are told, all others are nothing to the hook") {
    using wire::Operation;
    const auto [operation, sub_operation, step] = GENERATE(table<std::string, std::string, Step>({
        {"prepare", "begin", {Action::ask, Operation::prepare}},
        {"started", "begin", {Action::tell, Operation::started}},
        {"release", "end", {Action::tell, Operation::release}},
        {"reconnect", "begin", {Action::tell, Operation::reconnect}},
        {"start", "begin", {}},
        {"stopped", "end", {}},
        {"migrate", "begin", {}},
        {"restore", "begin", {}},
        {"attach", "begin", {}},
        {"prepare", "end", {}},
        {"prepare", "", {}},
        {"prepare", "begin ", {}},
        {"Prepare", "begin", {}},
        {"started", "end", {}},
        {"release", "begin", {}},
        {"reconnect", "end", {}},
        {"teleport", "begin", {}},
        {"", "", {}},
    }));
    CAPTURE(operation, sub_operation);
    CHECK(step_for(operation, sub_operation) == step);
}

TEST_CASE("an outcome has one exit status, and one line where the operator looks for it") {
    struct Want {
        int status;
        std::string error_output;
        std::string journal;
    };
    const auto [outcome, denies, text, want] = GENERATE(table<Outcome, bool, std::string, Want>({
        {Outcome::admitted, false, "", {0, "", ""}},
        {Outcome::admitted, true, "", {0, "", ""}},
        {Outcome::refused,
         false,
         "virtguard: refused web 3: no",
         {1, "virtguard: refused web 3: no", ""}},
        {Outcome::refused,
         true,
         "virtguard: refused web 3: no",
         {1, "virtguard: refused web 3: no", ""}},
        {Outcome::refused, false, "", {1, "virtguard: refused web 3", ""}},
        {Outcome::unanswered,
         false,
         "why",
         {0, "",
          "virtguard: let start unchecked web 3: virtguardd did not answer (why) and "
          "hook.unavailable is \"allow\""}},
        {Outcome::unanswered,
         true,
         "why",
         {1,
          "virtguard: refused web 3: virtguardd did not answer (why) and hook.unavailable is "
          "\"deny\"",
          ""}},
    }));
    CAPTURE(static_cast<int>(outcome), denies, text);
    const Ending ending = ending_for(outcome, denies, "web 3", text);
    CHECK(ending.exit_status == want.status);
    CHECK(ending.error_output.text() == want.error_output);
    CHECK(ending.journal.text() == want.journal);
}

TEST_CASE("a line shows what could break or turn it as \\xNN, and keeps other characters") {
    const auto [text, shown] = GENERATE(table<std::string, std::string>({
        {"plain ~", "plain ~"},
        {"a\nb\r\tc\x1b[0m\x7f", "a\\x0ab\\x0d\\x09c\\x1b[0m\\x7f"},
        {std::string("nul\0end", 7), "nul\\x00end"},
        {"\xc3\xbc \xe2\x82\xac \xf0\x9f\x90\xa7", "\xc3\xbc \xe2\x82\xac \xf0\x9f\x90\xa7"},
        {"\xc2\x85", "\\xc2\\x85"},                   // U+0085, next line
        {"\xc2\xa0", "\xc2\xa0"},                     // U+00A0, the first after C1
        {"\xe2\x80\xa8", "\\xe2\\x80\\xa8"},          // U+2028, line separator
        {"\xe2\x80\xae", "\\xe2\\x80\\xae"},          // U+202E, right to left
        {"\xe2\x81\xa7", "\\xe2\\x81\\xa7"},          // U+2067, the same as an isolate
        {"\xc0\x8a", "\\xc0\\x8a"},                   // overlong newline
        {"\xe0\x80\x8a", "\\xe0\\x80\\x8a"},          // the same in three bytes
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          // surrogate
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, // above U+10FFFF
        {"\xff\xc3", "\\xff\\xc3"},
        {"\xe2\x82", "\\xe2\\x82"}, // its end is missing
    }));
    CHECK(Line().append(text).text() == shown);
}

TEST_CASE("a line ends before the first character that does not fit") {
    const auto [last, size] = GENERATE(table<std::string, std::size_t>({
        {"ab", wire::max_line},
        {"\xc3\xbc", wire::max_line - 1},
        {"\n", wire::max_line - 1},
    }));
    CAPTURE(last);
    const Line line = Line().append(std::string(wire::max_line - 1, 'x')).append(last);
    CHECK(line.text().size() == size);
}

TEST_CASE("a long name is cut, so that the reason still fits") {
    const Ending ending = ending_for(Outcome::unanswered, true, std::string(5000, 'n'), "why");
    CHECK(ending.error_output.text() ==
          "virtguard: refused " + std::string(120, 'n') +
              "...: virtguardd did not answer (why) and hook.unavailable is \"deny\"");
}
