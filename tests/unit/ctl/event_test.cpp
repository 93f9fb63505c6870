// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>

#include <catch2/catch.hpp>

#include "base/unique.hpp"
#include "ctl/event.hpp"
#include "ctl/file.hpp"
#include "domxml/parse.hpp"

using namespace virtguard;
using namespace virtguard::ctl;
using core::Resource;

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t gib = std::int64_t{1} << 30;

/// A file for a test, gone with it.
class File {
  public:
    explicit File(const std::string& text) {
        std::string name = std::filesystem::temp_directory_path() / "virtguard-ctl-XXXXXX";
        const UniqueFd fd(::mkstemp(name.data()));
        REQUIRE(fd);
        path_ = name;
        std::ofstream(path_) << text;
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() { std::filesystem::remove(path_); }

    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
};

Event parsed(const std::string& argument) {
    auto event = parse_event(argument);
    CAPTURE(argument);
    if (!event)
        FAIL(event.error().what);
    return *event;
}

/// Two nodes of 8 GiB and two CPUs each, the second without CPUs for guests, the third (HBM beside
/// the first) with hugepages only.
core::Host host() {
    core::Topology topology{.nodes = {{.id = 0, .pus = {0, 1}, .memory = 8 * gib},
                                      {.id = 1, .pus = {2, 3}, .memory = 8 * gib},
                                      {.id = 2,
                                       .pus = {0, 1},
                                       .memory = gib,
                                       .pools = {{.page_size = 2 * mib, .pages = 512}}}},
                            .cores = {{0}, {1}, {2}, {3}},
                            .online = {0, 1, 2, 3},
                            .allowed = {0, 1, 2, 3}};
    core::Policy policy;
    policy.reserve.cpus = {2, 3};
    return core::make_host(topology, policy);
}

} // namespace

TEST_CASE("a domain's file is a start, by its kind or by itself") {
    domxml::initialise();
    const File file("<domain><name>web</name><memory>1024</memory></domain>");
    const auto [prefix, runs] =
        GENERATE(table<std::string, bool>({{"", false}, {"start:", false}, {"running:", true}}));
    const auto start = std::get<Start>(parsed(prefix + file.path()));
    CHECK(start.already_runs == runs);
    REQUIRE(start.domain.has_value());
    CHECK(start.domain->name == "web");
}

TEST_CASE("an impossible domain is a start to be refused, and no running guest") {
    domxml::initialise();
    const File file("<domain><name>web</name><memory>0</memory></domain>");
    const auto start = std::get<Start>(parsed(file.path()));
    REQUIRE_FALSE(start.domain.has_value());
    CHECK(start.domain.error().code == Errc::invalid);
    CHECK_FALSE(parse_event("running:" + file.path()).has_value());
}

TEST_CASE("a guest is named by name or by UUID, in any case") {
    const std::string uuid = "6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b11";
    const auto [argument, guest] = GENERATE_COPY(table<std::string, std::string>({
        {"stop:web", "web"},
        {"stop:a:b", "a:b"},
        {"stop:" + uuid, uuid},
        {"stop:6F1C1ED5-40E5-4BB5-8F4E-5F0A3C0E9B11", uuid},
        {"stop:6F1C1ED540E54BB58F4E5F0A3C0E9B11", "6F1C1ED540E54BB58F4E5F0A3C0E9B11"},
    }));
    CHECK(std::get<Stop>(parsed(argument)).guest == guest);
}

TEST_CASE("a ratio names its resource") {
    const auto set = std::get<SetRatio>(parsed("ratio:memory=1.25"));
    CHECK(set.resource == Resource::memory());
    CHECK(set.ratio.text() == "1.25");
    CHECK(std::get<SetRatio>(parsed("ratio:hugepages-1Gi=1")).ratio.is_one());
}

TEST_CASE("a reservation is read item by item") {
    const auto reserve =
        std::get<Reserve>(parsed("reserve:r1:cpu=2000,memory@1=1.5Gi,hugepages-2Mi@0=3MiB:web:1"));
    CHECK(reserve.name == "r1");
    CHECK(reserve.guest == "web:1");
    REQUIRE(reserve.items.size() == 3);
    CHECK(reserve.items[0].part.resource == Resource::cpu());
    CHECK(reserve.items[0].part.node == std::nullopt);
    CHECK(reserve.items[0].amount == 2000);
    CHECK(reserve.items[1].part.node == 1);
    CHECK(reserve.items[1].amount == 1536 * mib);
    CHECK(reserve.items[2].part.resource == Resource::hugepages(2 * mib));
    CHECK(reserve.items[2].amount == 4 * mib);
    CHECK(std::get<Reserve>(parsed("reserve:r:cpu=0")).guest == std::nullopt);
}

TEST_CASE("an event that is none says what was expected") {
    const std::string form = "expected reserve:NAME:RESOURCE[@NODE]=VALUE[,...][:NAME-or-UUID]";
    const std::string missing =
        "No such file or directory, and the event is none of start:, running:, stop:, ratio:, "
        "reserve:";
    const auto [argument, what] = GENERATE_COPY(table<std::string, std::string>({
        {"", "expected a domain XML file"},
        {"start:", "expected a domain XML file"},
        {"/nonexistent", "/nonexistent: No such file or directory"},
        {"/nonexistent:x", "/nonexistent:x: " + missing},
        {"stop:", "expected stop:NAME-or-UUID"},
        {"ratio:cpu", "expected ratio:RESOURCE=VALUE"},
        {"ratio:hugepages-2Mi=2", "hugepages-2Mi takes no ratio other than 1"},
        {"ratio:memry=2", "\"memry\" is not a resource; did you mean \"memory\"?"},
        {"reserve:", form},
        {"reserve:r:cpu=1:", form},
        {"reserve:r:cpu=1,,cpu=1", "\"\": expected RESOURCE[@NODE]=VALUE"},
        {"reserve:r:cpu@=1", "\"\" is not a node: expected a number"},
        {"reserve:r:cpu@16384=1", "\"16384\" is not a node: expected a number"},
        {"reserve:r:memory=5Pi", "memory: \"5Pi\" is too large: expected at most 4Pi"},
        {"reserve:r:hugepages-0=1",
         "\"hugepages-0\" does not name a page size: expected such as \"hugepages-2Mi\""},
    }));
    CAPTURE(argument);
    const auto event = parse_event(argument);
    REQUIRE_FALSE(event.has_value());
    CHECK(event.error().what == "event \"" + argument + "\": " + what);
}

TEST_CASE("a hostile name is shown on one line") {
    CHECK(parse_event("/no\n\x1b[31m").error().what ==
          "event \"/no\\x0a\\x1b[31m\": /no\\x0a\\x1b[31m: No such file or directory");
}

TEST_CASE("a reservation's pieces are those of a pageable guest with shared vCPUs") {
    const auto pieces =
        pieces_of(std::get<Reserve>(
                      parsed("reserve:r:cpu=1,cpu@2=1,memory@1=1Gi,memory=1,hugepages-2Mi=2Mi")),
                  host());
    REQUIRE(pieces.has_value());
    CHECK(*pieces == std::vector<core::Piece>{
                         {Resource::cpu(), {0, 1}, false, 1},
                         {Resource::cpu(), {0, 1}, false, 1},
                         {Resource::memory(), {1}, false, gib},
                         {Resource::memory(), {0, 1}, false, 1},
                         {Resource::hugepages(2 * mib), {2}, true, 2 * mib},
                     });
}

TEST_CASE("a reservation must lie somewhere on the host") {
    const auto [items, what] = GENERATE(table<std::string, std::string>({
        {"cpu@1=1", "node 1 has no cpu that shared vCPUs may use"},
        {"cpu@7=1", "this host has no node 7"},
        {"hugepages-1Gi=1Gi", "this host has no hugepages-1Gi"},
        {"hugepages-2Mi@0=2Mi", "node 0 has no hugepages-2Mi"},
    }));
    const auto pieces = pieces_of(std::get<Reserve>(parsed("reserve:r:" + items)), host());
    REQUIRE_FALSE(pieces.has_value());
    CHECK(pieces.error().what == what);
}

TEST_CASE("a file is read up to a limit") {
    const File file("12345");
    CHECK(read_input(file.path(), 5).value() == "12345");
    const auto larger = read_input(file.path(), 4);
    REQUIRE_FALSE(larger.has_value());
    CHECK(larger.error().code == Errc::limit);
    CHECK(larger.error().what == file.path() + ": longer than 4 B");
    CHECK(read_input("/dev/zero", 100'000).error().code == Errc::limit);
    CHECK(read_input("/", 4).error().what == "/: Is a directory");
}
