// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>
#include <tuple>

#include <catch2/catch.hpp>

#include "base/checked.hpp"
#include "base/idset.hpp"
#include "base/ratio.hpp"
#include "base/text.hpp"
#include "base/uuid.hpp"

using namespace virtguard;

TEST_CASE("a size is read as Kubernetes, IEC and SI write it") {
    const auto [text, bytes] = GENERATE(table<std::string, std::int64_t>({
        {"0", 0},
        {"512", 512},
        {"512B", 512},
        {"4Gi", 4294967296},
        {"4GiB", 4294967296},
        {"4G", 4000000000},
        {"4GB", 4000000000},
        {"1k", 1000},
        {"1K", 1000},
        {"1Ki", 1024},
        {"1.5Gi", 1610612736},
        {"0.5Ki", 512},
        {"0.1Ki", 103}, // 102.4 rounds up
        {"1e3", 1000},
        {"1E3", 1000},
        {"7Ei", 8070450532247928832},
        {"1E", 1000000000000000000},
        {"9223372036854775807", std::numeric_limits<std::int64_t>::max()},
    }));
    CAPTURE(text);
    REQUIRE(parse_size(text).has_value());
    CHECK(*parse_size(text) == bytes);
}

TEST_CASE("what is not a size is refused with what was expected") {
    const auto text = GENERATE(as<std::string>{}, "", "GiB", "-1", "+1", "4 GiB", " 4Gi", "4gi",
                               "4GiBB", "1.", ".5Gi", "1.5.5", "8Ei", "9223372036854775808",
                               "99999999999999999999", "1e20", "0x10", "4Gi\n", "1e", "1e-3");
    CAPTURE(text);
    const auto size = parse_size(text);
    REQUIRE_FALSE(size.has_value());
    CHECK(size.error().what ==
          quote(text) + " is not a size: expected a number of bytes such as \"512MiB\", \"4Gi\" or "
                        "\"4GB\", below 8 EiB");
}

TEST_CASE("a count is digits alone, and was rounded, scaled and taken in units") {
    CHECK(parse_count("48").value() == 48);
    CHECK(parse_count("0").value() == 0);
    CHECK(parse_count("9223372036854775807").value() == std::numeric_limits<std::int64_t>::max());
    const auto text = GENERATE(as<std::string>{}, "", "-1", "+1", "1.5", "1.0", "1e3", "2k", "1Gi",
                               "1B", " 1", "9223372036854775808", "18446744073709551616");
    CAPTURE(text);
    CHECK(parse_count(text).error().what ==
          quote(text) + " is not a count: expected a whole number such as 48");
}

TEST_CASE("a byte count is shown with two decimals, rounded as asked") {
    const auto [bytes, up, down] = GENERATE(table<std::int64_t, std::string, std::string>({
        {0, "0", "0"},
        {1023, "1023 B", "1023 B"},
        {1024, "1 KiB", "1 KiB"},
        {3221225472, "3 GiB", "3 GiB"},
        {1610612736, "1.5 GiB", "1.5 GiB"},
        {3221225473, "3.01 GiB", "3 GiB"},
        {-1, "-1 B", "-1 B"},
        {-3221225473, "-3 GiB", "-3.01 GiB"},
        {std::numeric_limits<std::int64_t>::min(), "-8 EiB", "-8 EiB"},
    }));
    CHECK(format_bytes(bytes, Rounding::up) == up);
    CHECK(format_bytes(bytes, Rounding::down) == down);
}

TEST_CASE("a byte count in a name is exact") {
    CHECK(format_iec(0) == "0");
    CHECK(format_iec(1536) == "1536");
    CHECK(format_iec(2048) == "2Ki");
    CHECK(format_iec(std::int64_t{5} << 20) == "5Mi");
    CHECK(format_iec(std::int64_t{16} << 30) == "16Gi");
}

TEST_CASE("the distance of two names counts added, dropped and changed letters") {
    CHECK(edit_distance("", "") == 0);
    CHECK(edit_distance("cpu", "cpu") == 0);
    CHECK(edit_distance("", "cpu") == 3);
    CHECK(edit_distance("memroy", "memory") == 2);
    CHECK(edit_distance("kitten", "sitting") == 3);
    CHECK(edit_distance(std::string(100000, 'a'), std::string(100000, 'b')) == 64);
}

TEST_CASE("a ratio is an exact decimal") {
    const auto [text, numerator, denominator, shown] =
        GENERATE(table<std::string, std::int64_t, std::int64_t, std::string>({
            {"1", 1, 1, "1"},
            {"1.15", 23, 20, "1.15"},
            {"0.000001", 1, 1000000, "0.000001"},
            {"1000", 1000, 1, "1000"},
            {"1.500000", 3, 2, "1.5"},
            {"1.50000000", 3, 2, "1.5"},
            {"16.0", 16, 1, "16"},
        }));
    CAPTURE(text);
    const auto ratio = Ratio::parse(text);
    REQUIRE(ratio.has_value());
    CHECK(ratio->numerator() == numerator);
    CHECK(ratio->denominator() == denominator);
    CHECK(ratio->text() == shown);
}

TEST_CASE("what is not a ratio is refused with what was expected") {
    const auto text =
        GENERATE(as<std::string>{}, "", "0", "0.0", "-1", "abc", "1e9", "1.0000001", "1000.000001",
                 "1001", "1.", ".5", "nan", "inf", "1,5", " 1", "1 ", "99999999999999999999999");
    CAPTURE(text);
    const auto ratio = Ratio::parse(text);
    REQUIRE_FALSE(ratio.has_value());
    CHECK(ratio.error().what == quote(text) + " is not a ratio: expected a decimal above 0 and at "
                                              "most 1000 with at most 6 decimals, such as 1.5");
}

TEST_CASE("a duration is read and shown with its unit") {
    const auto [text, milliseconds, shown] = GENERATE(table<std::string, int, std::string>({
        {"2s", 2000, "2s"},
        {"500ms", 500, "500ms"},
        {"10min", 600000, "10min"},
        {"1h", 3600000, "60min"},
        {"0s", 0, "0s"},
    }));
    REQUIRE(parse_duration(text).has_value());
    CHECK(parse_duration(text)->count() == milliseconds);
    CHECK(format_duration(*parse_duration(text)) == shown);
}

TEST_CASE("what is not a duration is refused") {
    const auto text = GENERATE(as<std::string>{}, "", "2", "s", "-2s", "2 s", "1.5s", "2sec",
                               "18446744073709551616s", "1844674407370955162s", "400d");
    CHECK_FALSE(parse_duration(text).has_value());
}

TEST_CASE("a list of ids is read as the kernel and libvirt write it") {
    const auto [text, shown] = GENERATE(table<std::string, std::string>({
        {"", ""},
        {"0", "0"},
        {"0-3,8", "0-3,8"},
        {"3,1,2", "1-3"},
        {"1-3,5,^2", "1,3,5"},
        {"0-3,^1-2", "0,3"},
        {"0-   1", "0-1"},
        {" 63-64\n", "63-64"},
        {"16383", "16383"},
    }));
    CAPTURE(text);
    REQUIRE(IdSet::parse(text).has_value());
    CHECK(IdSet::parse(text)->text() == shown);
}

TEST_CASE("a range of ids has both its ends and nothing beyond them") {
    const auto [first, last] = GENERATE(table<int, int>(
        {{0, 0}, {0, 63}, {0, 64}, {5, 5}, {63, 64}, {64, 127}, {65, 130}, {1, 16383}}));
    CAPTURE(first, last);
    IdSet expected;
    for (int id = first; id <= last; ++id)
        expected.insert(id);
    CHECK(IdSet::range(first, last) == expected);
    CHECK(IdSet::range(last + 1, last).empty());
}

TEST_CASE("what is not a list of ids is refused") {
    const auto text = GENERATE(as<std::string>{}, "a", "-1", "1-", "3-1", "1,,2", "1,", "16384",
                               "0-4294967295", "1;2", "^", "0x1", "1 2");
    CAPTURE(text);
    REQUIRE_FALSE(IdSet::parse(text).has_value());
    CHECK(IdSet::parse(text).error().what ==
          quote(text) + " is not a list of ids: expected such as \"0-3,8\", each below 16384");
}

TEST_CASE("sets that hold the same ids are equal however they came about") {
    IdSet a{1, 200};
    a.erase(200);
    CHECK(a == IdSet{1});
    CHECK((IdSet{1, 200} & IdSet{1}) == IdSet{1});
    CHECK((IdSet{1, 200} - IdSet{200, 7}) == IdSet{1});
    CHECK((IdSet{1} | IdSet{200}).count() == 2);
    CHECK(IdSet{5, 70}.ids() == std::vector<int>{5, 70});
    CHECK(IdSet{}.first() == -1);
    CHECK(IdSet::from_words({0, 0b10, 0}) == IdSet{65});
    CHECK(IdSet{65}.words() == std::vector<std::uint64_t>{0, 0b10});
    CHECK(IdSet{1}.is_subset_of(IdSet{1, 99}));
    CHECK_FALSE(IdSet{1, 99}.is_subset_of(IdSet{1}));
    CHECK(IdSet{}.is_subset_of(IdSet{}));
    CHECK(IdSet{1, 99}.intersects(IdSet{99}));
    CHECK_FALSE(IdSet{1}.intersects(IdSet{99}));
}

TEST_CASE("a UUID is read with and without hyphens and shown with them") {
    const std::string text = "c7a5fdbd-edaf-9455-926a-d65c16db1809";
    REQUIRE(Uuid::parse(text).has_value());
    CHECK(Uuid::parse(text)->text() == text);
    CHECK(Uuid::parse("C7A5FDBDEDAF9455926AD65C16DB1809") == Uuid::parse(text));
    CHECK_FALSE(Uuid::parse("c7a5fdbd").has_value());
    CHECK_FALSE(Uuid::parse(text + "0").has_value());
    CHECK_FALSE(Uuid::parse("g7a5fdbd-edaf-9455-926a-d65c16db1809").has_value());
}

TEST_CASE("foreign text is shown on one line, bounded") {
    CHECK(quote("a\nb\x1b") == "\"a\\x0ab\\x1b\"");
    CHECK(quote(std::string(500, 'x')).size() == 125);
    CHECK(printable(std::string(119, 'x') + "\xc3\xbc") == std::string(119, 'x') + "...");
}

TEST_CASE("names are shown as they are written, and nothing of them turns the line") {
    CHECK(printable("b\xc3\xbc"
                    "ro \xe6\x97\xa5") == "b\xc3\xbc"
                                          "ro \xe6\x97\xa5");
    const auto [text, shown] = GENERATE(table<std::string, std::string>({
        {"\xe2\x80\xae", "\\xe2\\x80\\xae"}, // U+202E, right to left
        {"\xe2\x81\xa6", "\\xe2\\x81\\xa6"}, // U+2066, an isolate
        {"\xe2\x80\x8f", "\\xe2\\x80\\x8f"}, // U+200F, a mark
        {"\xc2\x9b", "\\xc2\\x9b"},          // U+009B, which begins sequences
        {"\xc3", "\\xc3"},
        {"\xff", "\\xff"},
    }));
    CHECK(printable("a" + text + "b") == "a" + shown + "b");
    CHECK(one_line("a" + text + "b") == "a" + shown + "b");
}

TEST_CASE("checked arithmetic says when it overflows") {
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    CHECK(checked_add<std::int64_t>(most, 0) == most);
    CHECK_FALSE(checked_add<std::int64_t>(most, 1).has_value());
    CHECK_FALSE(checked_multiply<std::int64_t>(most, 2).has_value());
    CHECK(checked_round_up<std::int64_t>(5, 4) == 8);
    CHECK(checked_round_up<std::int64_t>(8, 4) == 8);
    CHECK_FALSE(checked_round_up<std::int64_t>(most, 4).has_value());
    CHECK(floor_divide(-1, 2) == -1);
    CHECK(floor_divide(-4, 2) == -2);
    CHECK(floor_divide(3, 2) == 1);
    CHECK(multiply_divide(7, 3, 2) == 10);
    CHECK(multiply_divide(-7, 3, 2) == -11);
    CHECK(multiply_divide(static_cast<Int128>(1) << 100, most, static_cast<Int128>(1) << 100) ==
          most);
    CHECK(saturate(static_cast<Int128>(most) + 1) == most);
}
