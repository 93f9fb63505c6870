// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "json/guest.hpp"

using namespace virtguard;
using namespace virtguard::core;

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;

/// Nothing in it is at its default.
Guest guest() {
    return {
        .domain = {.name = "web \"1\" ü",
                   .uuid = Uuid::parse("5105105a-0000-4000-8000-000000000001"),
                   .scheduler = "cortex",
                   .unknown_metadata = "schedular",
                   .vcpus = {{.cpus = IdSet{2, 3, 7}, .current = 2, .maximum = 4},
                             {.cpus = std::nullopt, .current = 1, .maximum = 1},
                             {.cpus = IdSet{}, .current = 1, .maximum = 1}},
                   .memory = {{.kind = MemoryPart::Kind::ram,
                               .size = 3 * mib,
                               .requested = 3 * mib,
                               .pages = PagesOf{2 * mib},
                               .bound_to = IdSet{0, 63}},
                              {.kind = MemoryPart::Kind::dimm,
                               .size = 2 * mib,
                               .requested = 2 * mib,
                               .pages = DefaultHugepages{},
                               .bound_to = std::nullopt},
                              {.kind = MemoryPart::Kind::virtio_mem,
                               .size = max_domain_bytes,
                               .requested = mib,
                               .pages = BasePages{},
                               .bound_to = std::nullopt}},
                   .current_memory = 2 * mib,
                   .locked = true,
                   .preallocated = true,
                   .confidential = true,
                   .file_backed = true,
                   .vfio_devices = 3,
                   .iothreads = 4,
                   .video_ram = 5 * mib,
                   .tpm = true,
                   .disks = {{.image = {"/a \"b\"", "raw"}, .begins_anew = false},
                             {.image = {"/c", "qcow2"}, .begins_anew = true}},
                   .facts = {{"rule.a.match", {.value = 1, .question = 7}},
                             {"rule.\"b c\".match", {.problem = "is no XPath", .question = 8}}}},
        .state = GuestState::returning,
        .changed = Instant{Span{123'456'789'012'345}},
        .since = Instant{Span{123'000'000'000'000}},
        .claimed = Instant{Span{122'000'000'000'000}},
        .absent = Span{987},
        .spent = {{Resource::cpu(), IdSet{0, 3}, false, 2},
                  {Resource::hugepages(2 * mib), IdSet{1}, true, 4 * mib}},
        .written = {{Resource::storage(), IdSet{1}, false, 3 * mib}}};
}

/// The document with one text in place of another.
std::string altered(std::string_view from, std::string_view to) {
    std::string text = json::guest_document(guest());
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

} // namespace

TEST_CASE("a guest is read back as it was written") {
    const auto read = json::parse_guest(json::guest_document(guest()));
    REQUIRE(read.has_value());
    CHECK(read->domain == guest().domain);
    CHECK(read->state == GuestState::returning);
    CHECK(read->changed == guest().changed);
    CHECK(read->since == guest().since);
    CHECK(read->claimed == guest().claimed);
    CHECK(read->absent == guest().absent);
    CHECK(read->spent == guest().spent);
    CHECK(read->written == guest().written);
}

TEST_CASE("what is known of a guest's images is kept with it, and nothing of others'") {
    const core::Image image{.device = 1ULL << 63, .virtual_size = 7 * mib, .allocated = 5};
    const core::KnownImage other{.image = core::Image{.virtual_size = 1}, .problem = ""};
    const core::Images images{{{"/b", "raw"}, other},
                              {{"/c", "qcow2"}, {.image = image, .problem = "gone"}}};
    const auto read = json::parse_guest(json::guest_document(guest(), images));
    REQUIRE(read.has_value());
    CHECK(read->domain == guest().domain);
    CHECK(read->images == core::Images{{{"/c", "qcow2"}, {.image = image, .problem = ""}}});
    CHECK(json::parse_guest(json::guest_document(guest()))->images.empty());
}

TEST_CASE("a guest written by a daemon that did not know since when has changed last then") {
    const auto read = json::parse_guest(altered(R"("since":123000000000000,)", ""));
    REQUIRE(read.has_value());
    CHECK(read->since == guest().changed);
}

TEST_CASE("a guest written by a daemon that did not know its start started when it came to be so") {
    const auto read = json::parse_guest(altered(R"("claimed":122000000000000,)", ""));
    REQUIRE(read.has_value());
    CHECK(read->claimed == guest().since);
}

TEST_CASE("an answer of which no daemon wrote what was asked is none") {
    const auto read = json::parse_guest(altered(R"({"value":1,"question":7})", "1"));
    REQUIRE(read.has_value());
    CHECK_FALSE(read->domain.facts.contains("rule.a.match"));
    CHECK(read->domain.facts.size() == 1);
}

TEST_CASE("a name that is no UTF-8 does not keep a guest from being written") {
    Guest odd = guest();
    odd.domain.name = "web-\xff";
    const auto read = json::parse_guest(json::guest_document(odd));
    REQUIRE(read.has_value());
    CHECK(read->domain.uuid == odd.domain.uuid);
}

TEST_CASE("a field that a newer daemon has added is ignored") {
    CHECK(json::parse_guest(altered(R"("locked")", R"("colour":"red","locked")")).has_value());
}

TEST_CASE("a document that is no guest is an error, not a crash") {
    const auto [from, to, what] = GENERATE(table<std::string, std::string, std::string>({
        {R"("locked":true)", R"("locked":1)", "type must be boolean"},
        {R"("locked")", R"("blocked")", "key 'locked' not found"},
        {R"("state":"returning")", R"("state":"asleep")", "a domain's state is unknown"},
        {R"("kind":"dimm")", R"("kind":"tape")", "a kind of memory is unknown"},
        {R"("current":2)", R"("current":-2)", "an amount is negative"},
        {R"("current":2)", R"("current":2.5)", "a number is no integer below 2^63"},
        {R"("current":2)", R"("current":9223372036854775808)", "a number is no integer below 2^63"},
        {R"("2-3,7")", R"("2-3,x")", "is not a list of ids"},
        {R"("5105105a-)", R"("x-)", "a UUID is none"},
        {R"("memory":[)", R"("memory":{},"unknown":[)", "a list is none"},
        {"{", "", "syntax error"},
    }));
    const auto read = json::parse_guest(altered(from, to));
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().code == Errc::invalid);
    CHECK_THAT(read.error().what, Catch::Contains(what));
}
