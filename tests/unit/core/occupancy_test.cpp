// SPDX-License-Identifier: Apache-2.0
//
// Occupancy, which is kept up to date, against Placement, which starts from scratch: the same
// holds, releases and questions on hosts of dozens of places.
#include <map>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "core/occupancy.hpp"
#include "model/placement.hpp"

using namespace virtguard;
using namespace virtguard::core;

namespace {

struct Held {
    IdSet places;
    bool whole = false;
    std::int64_t amount = 0;
};

/// That no pool has, though sets may name it: a node without memory.
const IdSet no_place{1};

/// A pool, what it holds, and both ways of answering.
class Pair {
  public:
    explicit Pair(unsigned seed) : random_(seed) {
        const int places = 2 + below(below(2) == 0 ? 3 : 40);
        for (int id = 0; id < places; ++id)
            allocatable_[id * 3] = below(4) == 0 ? 0 : 1 + below(9); // ids have gaps
        const std::vector<Weights> all{{1, 1, 1}, {3, 2, 3}, {23, 20, 23}, {1, 2, 2}};
        rules_.weights = all[static_cast<std::size_t>(below(4))];
        occupancy_ = Occupancy(allocatable_, rules_);
        most_held_ = static_cast<std::size_t>(2 + below(40));
        for (int i = 0; i < 12; ++i)
            sets_.push_back(random_set());
    }

    void step() {
        const int dice = below(10);
        if (dice < 4 && held_.size() < most_held_)
            hold(random_load());
        else if (dice < 6 && !held_.empty())
            release(static_cast<std::size_t>(below(static_cast<int>(held_.size()))));
        else
            ask();
    }

    void release_all() {
        while (!held_.empty())
            release(held_.size() - 1);
        for (const auto& [id, amount] : allocatable_)
            CHECK(occupancy_.state_of(IdSet{id}).held == 0);
        CHECK_FALSE(occupancy_.is_over());
    }

  private:
    int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

    IdSet random_set() {
        IdSet set;
        for (const auto& [id, amount] : allocatable_)
            if (below(3) == 0)
                set.insert(id);
        if (below(4) == 0 || set.empty())
            set = IdSet{3 * below(static_cast<int>(allocatable_.size()))};
        if (below(4) == 0)
            set |= no_place;
        return set;
    }
    Held random_load() {
        return {sets_[static_cast<std::size_t>(below(12))], below(3) == 0, 1 + below(6)};
    }
    void hold(const Held& load) {
        occupancy_.hold(load.places, load.whole, load.amount);
        held_.push_back(load);
    }
    void release(std::size_t at) {
        occupancy_.hold(held_[at].places, held_[at].whole, -held_[at].amount);
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(at));
    }

    Int128 scaled(const Held& load) const {
        return static_cast<Int128>(load.amount) * rules_.weights.of(load.whole);
    }

    /// A new question, or one that may have been answered already.
    std::vector<Held> question() {
        if (below(3) > 0 && questions_.size() > 2)
            return questions_[static_cast<std::size_t>(below(static_cast<int>(questions_.size())))];
        std::vector<Held> loads;
        for (int count = 1 + below(below(4) == 0 ? 30 : 3); count > 0; --count)
            loads.push_back(random_load());
        questions_.push_back(loads);
        return loads;
    }

    /// The same question to both; twice, as the second answer may be remembered.
    void ask() {
        const std::vector<Held> loads = question();
        std::map<int, Int128> room;
        for (const auto& [id, amount] : allocatable_)
            room[id] = static_cast<Int128>(amount) * rules_.weights.room;
        model::Placement placement(room, sets_);
        for (const Held& held : held_)
            placement.add(held.places, scaled(held));
        IdSet expected;
        std::vector<Load> asked;
        for (const Held& load : loads) {
            const auto demand = placement.add(load.places, scaled(load));
            expected |= placement.tight_places(demand);
            asked.push_back({&load.places, load.whole, load.amount});
        }
        for (int i = 0; i < 2; ++i) {
            IdSet found;
            for (const ShortPart& part : occupancy_.short_parts(asked)) {
                if (part.alone)
                    return; // another question, with a test of its own
                CHECK_FALSE(found.intersects(part.places));
                found |= part.places;
                const PartState now = occupancy_.state_of(part.places);
                CHECK(part.state.held == now.held);
                CHECK(part.state.slack == now.slack);
            }
            found -= no_place;
            // On a host that is over, what is not carried may be one thing or another: the parts
            // may differ then, but not whether there are any.
            if (occupancy_.is_over())
                CHECK(found.empty() == expected.empty());
            else
                CHECK(found == expected);
        }
        const IdSet& places = sets_[static_cast<std::size_t>(below(12))];
        model::Placement rest(room, sets_);
        for (const Held& held : held_)
            rest.add(held.places, scaled(held));
        CHECK(Int128{occupancy_.most_for(places)} ==
              rest.carriable(places) / rules_.weights.pageable);
    }

    std::mt19937 random_;
    std::map<int, std::int64_t> allocatable_;
    PoolRules rules_;
    Occupancy occupancy_;
    std::vector<IdSet> sets_;
    std::vector<Held> held_;
    std::size_t most_held_ = 0; ///< few, so that sets come and go
    std::vector<std::vector<Held>> questions_;
};

} // namespace

TEST_CASE("what is kept up to date answers as what starts from scratch") {
    for (unsigned seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        Pair pair(seed);
        for (int i = 0; i < 100; ++i)
            pair.step();
        pair.release_all();
    }
}

TEST_CASE("what one guest can have is asked of an empty pool at ratio 1") {
    Occupancy occupancy({{0, 4}, {1, 4}}, {.weights = {3, 1, 3}});
    const IdSet first{0};
    const IdSet both{0, 1};
    const auto short_on = [&](const std::vector<Load>& loads) {
        const std::vector<ShortPart> parts = occupancy.short_parts(loads);
        REQUIRE(parts.size() == 1);
        CHECK(parts.front().alone);
        return parts.front().places;
    };
    CHECK(occupancy.short_parts(std::vector<Load>{{&first, false, 4}, {&both, false, 4}}).empty());
    CHECK(short_on({{&first, false, 4}, {&both, false, 5}}) == both);
    CHECK(short_on({{&first, true, 5}, {&both, false, 1}}) == first);
}

TEST_CASE("parts that are short are one when a load may lie in both") {
    Occupancy occupancy({{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 9}}, PoolRules{});
    const IdSet left{0, 1};
    const IdSet right{2, 3};
    const IdSet middle{1, 2};
    const IdSet elsewhere{3, 4};
    std::vector<Load> loads{
        {&left, false, 3}, {&right, false, 3}, {&elsewhere, false, 2}, {&left, true, 1}};
    const auto parts = [&] {
        std::vector<IdSet> places;
        for (const ShortPart& part : occupancy.short_parts(loads))
            places.push_back(part.places);
        return places;
    };
    CHECK(parts() == std::vector{left, right});
    loads.push_back({&middle, false, 1});
    CHECK(parts() == std::vector{left | right});
}

TEST_CASE("a refusal is not remembered beyond what it stands on") {
    Occupancy occupancy({{0, 2}, {1, 2}}, PoolRules{});
    const IdSet first{0};
    const IdSet both{0, 1};
    const std::vector<Load> ask{{&first, false, 1}};
    occupancy.hold(first, false, 2);
    CHECK(occupancy.short_parts(ask).size() == 1);
    occupancy.hold(both, false, 2); // outside the proof
    CHECK(occupancy.short_parts(ask).size() == 1);
    occupancy.hold(first, false, -1);
    CHECK(occupancy.short_parts(ask).empty());
}

TEST_CASE("a copy of a pool remembers no refusal, and may change") {
    Occupancy occupancy({{0, 1}, {1, 1}}, PoolRules{});
    const IdSet both{0, 1};
    const std::vector<Load> ask{{&both, false, 1}};
    occupancy.hold(both, false, 2);
    CHECK(occupancy.short_parts(ask).size() == 1);
    Occupancy copy = occupancy;
    copy.hold(both, false, -1);
    CHECK(copy.short_parts(ask).empty());
    CHECK(occupancy.short_parts(ask).size() == 1);
}

TEST_CASE("a refusal that is remembered counts what came since and can lie nowhere else") {
    Occupancy occupancy({{0, 2}, {1, 2}}, PoolRules{});
    const IdSet both{0, 1};
    const IdSet beyond{0, 1, 7}; // 7 has no room: a node without memory
    const std::vector<Load> ask{{&both, false, 1}};
    const auto slack = [&] {
        const std::vector<ShortPart> parts = occupancy.short_parts(ask);
        REQUIRE(parts.size() == 1);
        return static_cast<int>(parts.front().state.slack);
    };
    occupancy.hold(both, false, 4);
    CHECK(slack() == 0);
    occupancy.hold(beyond, false, 3);
    CHECK(slack() == -3);
    occupancy.hold(beyond, false, -1);
    CHECK(slack() == -2);
}
