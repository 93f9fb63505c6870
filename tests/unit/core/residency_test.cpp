// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "base/text.hpp"
#include "core/residency.hpp"
#include "hosts.hpp"

using namespace virtguard;
using namespace virtguard::core;

namespace {

const Resource memory = Resource::memory();
const Resource pages_2m = Resource::hugepages(page_2m);

constexpr bool whole = true;
constexpr bool pageable = false;

/// Nodes 0 to 3, pages of 2 MiB on 0 and 1.
Host four_nodes() {
    Topology topology = equal_nodes(4, 2, 4 * gib);
    add_pages(topology, 0, page_2m, 100);
    add_pages(topology, 1, page_2m, 100);
    return make_host(topology, bare_policy());
}

/// "0: 5, 0-1: 2 whole"
std::string shown(const std::vector<Piece>& pieces) {
    std::string text;
    for (const Piece& piece : pieces)
        text += fmt::format("{}{}: {}{}", text.empty() ? "" : ", ", piece.places.text(),
                            piece.amount, piece.whole ? " whole" : "");
    return text;
}

} // namespace

TEST_CASE("what is resident is bound to its node, the rest may lie where its piece may") {
    struct Row {
        std::string name;
        std::vector<Piece> pieces;
        std::map<int, std::int64_t> resident;
        std::string held;
    };
    const IdSet all = IdSet::range(0, 3);
    const auto row = GENERATE_COPY(values<Row>({
        {"nothing touched", {{memory, all, pageable, 10}}, {}, "0-3: 10"},
        {"some", {{memory, all, pageable, 10}}, {{0, 3}, {2, 4}}, "0: 3, 2: 4, 0-3: 3"},
        {"all", {{memory, all, pageable, 10}}, {{1, 10}}, "1: 10"},
        {"more than it holds", {{memory, all, pageable, 10}}, {{1, 8}, {3, 8}}, "1: 8, 3: 2"},
        {"bound where it lies", {{memory, {1}, pageable, 10}}, {{1, 4}}, "1: 10"},
        {"outside its set",
         {{memory, {0, 1}, pageable, 10}},
         {{1, 3}, {2, 4}},
         "1: 3, 0-1: 3, 2: 4"},
        {"its set first", {{memory, {2}, pageable, 10}}, {{0, 8}, {2, 6}}, "0: 4, 2: 6"},
        {"a narrow piece first",
         {{memory, {0, 1}, pageable, 4}, {memory, {0}, pageable, 8}},
         {{0, 10}},
         "0: 10, 0-1: 2"},
        {"a whole piece first",
         {{memory, all, pageable, 4}, {memory, all, whole, 8}},
         {{0, 5}, {1, 4}},
         "0: 5 whole, 1: 1, 1: 3 whole, 0-3: 3"},
        {"as much as possible where it may lie",
         {{memory, {0, 1}, pageable, 10}, {memory, {1, 2}, pageable, 10}},
         {{1, 10}, {2, 10}},
         "1: 10, 2: 10"},
        {"and so by handing on",
         {{memory, {0, 1}, pageable, 10}, {memory, {0, 2}, pageable, 10}},
         {{0, 10}, {1, 10}},
         "0: 10, 1: 10"},
        {"on nodes that the host has not", {{memory, all, pageable, 10}}, {{7, 5}}, "0-3: 10"},
        {"on nodes without such pages", {{pages_2m, {0, 1}, whole, 10}}, {{3, 5}}, "0-1: 10 whole"},
        {"a negative figure", {{memory, all, pageable, 10}}, {{0, -5}}, "0-3: 10"},
    }));
    CAPTURE(row.name);
    const Residency residency{{row.pieces.front().resource, row.resident}};
    CHECK(shown(bind_resident(row.pieces, residency, four_nodes()).pieces) == row.held);
}

TEST_CASE("resources that were not read stay divisible") {
    const std::vector<Piece> pieces{{Resource::cpu(), {0, 1}, pageable, 2},
                                    {memory, {0, 1}, pageable, 8},
                                    {pages_2m, {0, 1}, whole, 4 * page_2m}};
    const Host host = four_nodes();
    CHECK(bind_resident(pieces, {}, host).pieces == pieces);
    CHECK(bind_resident(pieces, {}, host).untouched.empty());
    const BoundPieces bound =
        bind_resident(pieces, {{memory, {{0, 2}}}, {pages_2m, {{1, 3 * page_2m}}}}, host);
    CHECK(bound.pieces == std::vector<Piece>{pieces[0],
                                             {memory, {0}, pageable, 2},
                                             {memory, {0, 1}, pageable, 6},
                                             {pages_2m, {1}, whole, 3 * page_2m},
                                             {pages_2m, {0, 1}, whole, page_2m}});
    CHECK(bound.untouched == std::vector<Piece>{{pages_2m, {0, 1}, whole, page_2m}});
    CHECK(bind_resident({{Resource::hugepages(gib), {}, whole, gib}},
                        {{Resource::hugepages(gib), {{0, gib}}}}, host)
              .pieces == std::vector<Piece>{{Resource::hugepages(gib), {}, whole, gib}});
}

TEST_CASE("binding makes a guest neither larger nor smaller, and explains all that it can") {
    std::mt19937 random(1);
    const auto below = [&](int limit) {
        return static_cast<int>(random() % static_cast<unsigned>(limit));
    };
    const Host host = four_nodes();
    for (int round = 0; round < 20000; ++round) {
        std::vector<Piece> pieces;
        for (int count = 1 + below(4); count > 0; --count) {
            IdSet places{below(4)};
            for (int node = 0; node < 4; ++node)
                if (below(3) == 0)
                    places.insert(node);
            pieces.push_back({memory, places, below(3) == 0, 1 + below(9)});
        }
        merge_pieces(pieces);
        std::map<int, std::int64_t> resident;
        for (int node = 0; node < 4; ++node)
            if (below(2) == 0)
                resident[node] = below(12);
        std::int64_t before = 0;
        std::int64_t whole_before = 0;
        for (const Piece& piece : pieces) {
            before += piece.amount;
            whole_before += piece.whole ? piece.amount : 0;
        }
        std::int64_t after = 0;
        std::int64_t whole_after = 0;
        std::map<int, std::int64_t> bound;
        for (const Piece& piece : bind_resident(pieces, {{memory, resident}}, host).pieces) {
            REQUIRE(piece.amount > 0);
            after += piece.amount;
            whole_after += piece.whole ? piece.amount : 0;
            if (piece.places.count() == 1)
                bound[piece.places.first()] += piece.amount;
        }
        REQUIRE(after == before);
        REQUIRE(whole_after == whole_before);
        std::int64_t sum = 0;
        std::int64_t explained = 0;
        for (const auto& [node, amount] : resident) {
            sum += amount;
            explained += std::min(amount, bound[node]);
        }
        REQUIRE(explained == std::min(sum, before));
    }
}
