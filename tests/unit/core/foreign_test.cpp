// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "core/foreign.hpp"
#include "hosts.hpp"

using namespace virtguard;
using namespace virtguard::core;

namespace {

const Resource pages_2m = Resource::hugepages(page_2m);

/// Two nodes with 100 pages of 2 MiB each, of which the policy may hold some back for the host.
class Pages {
  public:
    explicit Pages(std::int64_t reserved_on_0 = 0) {
        Topology topology = equal_nodes(2, 2, 4 * gib);
        add_pages(topology, 0, page_2m, 100);
        add_pages(topology, 1, page_2m, 100);
        Policy policy = bare_policy();
        policy.reserve.nodes[0].hugepages[page_2m] = reserved_on_0 * page_2m;
        host_ = make_host(topology, policy);
    }

    void pending(std::int64_t pages, const IdSet& nodes) { hold(pages, nodes, &Share::pending); }
    void running(std::int64_t pages, const IdSet& nodes) { hold(pages, nodes, &Share::allocated); }
    /// Of what runs there, so many were seen not to be touched.
    void untouched(std::int64_t pages, const IdSet& nodes) {
        hold(pages, nodes, &Share::untouched);
    }
    void drop_pending(std::int64_t pages, const IdSet& nodes) {
        held_.add({{pages_2m, nodes, true, pages * page_2m}}, &Share::pending, -1);
    }
    void drop_running(std::int64_t pages, const IdSet& nodes) {
        held_.add({{pages_2m, nodes, true, pages * page_2m}}, &Share::allocated, -1);
    }
    void started(std::int64_t pages, const IdSet& nodes) {
        drop_pending(pages, nodes);
        running(pages, nodes);
    }

    /// "0: 5, 0-1: 2": pages by where they may lie.
    std::string foreign(std::int64_t used_on_0, std::int64_t used_on_1, std::int64_t untouched = 0,
                        ForeignPages::Seen seen = ForeignPages::Seen::before) {
        std::string text;
        for (const Piece& piece : pages_.update(host_, held_,
                                                {{0, page_2m, used_on_0 * page_2m},
                                                 {1, page_2m, used_on_1 * page_2m},
                                                 {PageUse::no_node, page_2m, untouched * page_2m}},
                                                seen))
            text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", piece.places.text(),
                                piece.amount / page_2m);
        return text;
    }

  private:
    void hold(std::int64_t pages, const IdSet& nodes, Share::Column column) {
        held_.add({{pages_2m, nodes, true, pages * page_2m}}, column);
    }

    Host host_;
    Holdings held_{host_};
    ForeignPages pages_;
};

} // namespace

TEST_CASE("pages in use that no guest explains are foreign, on their node") {
    Pages pages;
    CHECK(pages.foreign(0, 0).empty());
    CHECK(pages.foreign(7, 3) == "0: 7, 1: 3");
    CHECK(pages.foreign(2, 3) == "0: 2, 1: 3");
}

TEST_CASE("a running guest's pages are its own") {
    Pages pages;
    pages.running(10, {0});
    CHECK(pages.foreign(10, 0).empty());
    CHECK(pages.foreign(14, 2) == "0: 4, 1: 2");
}

TEST_CASE("what the policy holds back for the host is not foreign") {
    Pages pages(5);
    CHECK(pages.foreign(4, 1) == "1: 1");
    CHECK(pages.foreign(7, 1) == "0: 2, 1: 1");
}

TEST_CASE("an unused reserve on one node hides nothing on another") {
    Pages pages(5);
    CHECK(pages.foreign(0, 10) == "1: 10");
    pages.running(5, {0});
    CHECK(pages.foreign(5, 10) == "1: 10");
}

TEST_CASE("a start in flight is counted neither twice nor in place of what was foreign before") {
    Pages pages;
    CHECK(pages.foreign(6, 0) == "0: 6");
    pages.pending(10, {0});
    CHECK(pages.foreign(6, 0) == "0: 6");  // nothing touched yet
    CHECK(pages.foreign(11, 0) == "0: 6"); // half of it
    CHECK(pages.foreign(16, 0) == "0: 6"); // all of it
    pages.started(10, {0});
    CHECK(pages.foreign(16, 0) == "0: 6");
}

TEST_CASE("what grows or shrinks beside a start in flight is seen as soon as it is certain") {
    Pages pages;
    CHECK(pages.foreign(6, 0) == "0: 6");
    pages.pending(10, {0});
    CHECK(pages.foreign(19, 0) == "0: 9"); // more than the start can explain
    CHECK(pages.foreign(12, 0) == "0: 9"); // or the start has touched only three
    CHECK(pages.foreign(4, 0) == "0: 4");  // no more than there are
    pages.started(10, {0});
    CHECK(pages.foreign(10, 0).empty());
}

TEST_CASE("a claim that ends without a guest leaves nothing foreign behind") {
    Pages pages;
    pages.pending(10, {0});
    CHECK(pages.foreign(10, 0).empty());
    CHECK(pages.foreign(0, 0).empty());
    pages.drop_pending(10, {0});
    CHECK(pages.foreign(0, 0).empty());
}

TEST_CASE("pages reserved but not touched lie on no node yet") {
    Pages pages;
    CHECK(pages.foreign(0, 0, 4) == "0-1: 4");
    pages.pending(10, {0, 1});
    CHECK(pages.foreign(0, 0, 14) == "0-1: 4"); // the starting QEMU explains ten
    CHECK(pages.foreign(3, 3, 8) == "0-1: 4");
    pages.started(10, {0, 1});
    CHECK(pages.foreign(5, 5, 4) == "0-1: 4");
}

TEST_CASE("of a floating guest, foreign pages are known in sum though not by node") {
    Pages pages;
    pages.running(10, {0, 1});
    CHECK(pages.foreign(10, 0).empty());
    CHECK(pages.foreign(8, 8) == "0-1: 6");
    CHECK(pages.foreign(14, 2) == "0: 4, 0-1: 2");
}

TEST_CASE("pages that were foreign before a floating guest came are not when they are gone") {
    Pages pages;
    CHECK(pages.foreign(5, 0) == "0: 5");
    pages.pending(10, {0, 1});
    CHECK(pages.foreign(15, 0) == "0: 5");
    pages.started(10, {0, 1});
    CHECK(pages.foreign(15, 0) == "0: 5");
    CHECK(pages.foreign(10, 0).empty());
}

TEST_CASE("the sum of what is foreign is exact whenever no start is in flight") {
    Pages pages;
    CHECK(pages.foreign(5, 7) == "0: 5, 1: 7");
    pages.running(20, {0, 1});
    CHECK(pages.foreign(20, 12) == "0: 5, 1: 7");
    CHECK(pages.foreign(18, 10) == "0: 1, 1: 7"); // eight: the nodes cannot be told apart
    pages.drop_running(20, {0, 1});
    CHECK(pages.foreign(5, 3) == "0: 5, 1: 3");
}

TEST_CASE("sizes that the host has no pool of are left out") {
    ForeignPages pages;
    const Host host = make_host(equal_nodes(1, 1, gib), bare_policy());
    CHECK(pages.update(host, Holdings(host), {{0, page_2m, 8 * page_2m}}).empty());
    CHECK(pages.update(host, Holdings(host), {}).empty());
}

TEST_CASE("of a guest whose pages were seen, what is foreign is exact by node") {
    Pages pages;
    CHECK(pages.foreign(5, 0) == "0: 5");
    pages.running(10, {0, 1});
    CHECK(pages.foreign(9, 6) == "0: 5"); // any ten of them may be the guest's
    pages.drop_running(10, {0, 1});
    pages.running(7, {0});
    pages.running(3, {1});
    CHECK(pages.foreign(9, 6) == "0: 2, 1: 3");
}

TEST_CASE("pages that a guest was seen not to have touched hide nobody's") {
    constexpr auto now = ForeignPages::Seen::now;
    const IdSet nodes = GENERATE(IdSet{0}, IdSet{0, 1});
    Pages pages;
    pages.running(20, {0}); // of a virtio-mem device that may grow
    pages.running(60, nodes);
    pages.untouched(60, nodes);
    CHECK(pages.foreign(20, 0, 0, now).empty());
    CHECK(pages.foreign(26, 0).empty()); // it may have grown
    CHECK(pages.foreign(26, 0, 0, now) == "0: 6");
    CHECK(pages.foreign(26, 0) == "0: 6");
    CHECK(pages.foreign(22, 0) == "0: 2");
    CHECK(pages.foreign(22, 0, 50, now) == "0: 2"); // reserved for what it has not touched
    CHECK(pages.foreign(22, 0, 64, now) == "0: 2, 0-1: 4");
    pages.pending(10, {0, 1});
    CHECK(pages.foreign(28, 0, 64, now) == "0: 2, 0-1: 4"); // the start's, as far as it goes
    CHECK(pages.foreign(20, 0, 0, now).empty());
}

// Memory ----------------------------------------------------------------------------------------

TEST_CASE("memory in use that no guest was seen to occupy is foreign, beyond the reserve") {
    const auto [in_use, resident, foreign] =
        GENERATE(table<std::int64_t, std::int64_t, std::int64_t>({
            {0, 0, 0},
            {1000, 0, 700},
            {1000, 600, 100},
            {1000, 800, 0},
            {1000, 2000, 0},
            {INT64_MAX, 0, INT64_MAX - 300},
            {0, INT64_MAX, 0},
        }));
    Policy policy = bare_policy();
    policy.reserve.memory = 300;
    const Host host = make_host(equal_nodes(2, 2, gib), policy);
    ForeignMemory memory;
    CHECK(memory.beyond_reserve(host) == std::nullopt);
    memory.update(in_use, resident, 0);
    CHECK(memory.beyond_reserve(host) == foreign);
}

TEST_CASE("what a guest holds that was not seen is neither its own nor foreign") {
    const Host host = make_host(equal_nodes(2, 2, gib), bare_policy());
    ForeignMemory memory;
    memory.update(1000, 100, 400); // a guest that nothing tells of
    CHECK(memory.beyond_reserve(host) == 500);
    memory.update(1000, 300, 0);
    CHECK(memory.beyond_reserve(host) == 700);
    memory.update(1200, 300, 400); // a start in flight, half of it touched
    CHECK(memory.beyond_reserve(host) == 700);
    memory.update(1500, 300, 400); // more than it can explain
    CHECK(memory.beyond_reserve(host) == 800);
    memory.update(900, 300, 400);
    CHECK(memory.beyond_reserve(host) == 600);
    memory.update(900, 300, 4000);
    CHECK(memory.beyond_reserve(host) == 600);
    memory.update(0, 300, 4000);
    CHECK(memory.beyond_reserve(host) == 0);
}
