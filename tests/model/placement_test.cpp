// SPDX-License-Identifier: Apache-2.0
//
// Placement against two naive answers: Hall's condition over all subsets of places, and a
// depth-first maximum flow that moves a unit at a time.
#include <algorithm>
#include <array>
#include <climits>
#include <map>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "model/placement.hpp"

using namespace virtguard;
using namespace virtguard::model;

namespace {

struct Want {
    unsigned places = 0; ///< a bit per place
    int amount = 0;
};

struct Case {
    std::vector<int> room; ///< by place
    std::vector<Want> wants;
};

IdSet set_of(unsigned bits) {
    IdSet set;
    for (int id = 0; id < 32; ++id)
        if ((bits >> id & 1U) != 0)
            set.insert(id);
    return set;
}

unsigned bits_of(const IdSet& set) {
    unsigned bits = 0;
    for (const int id : set.ids())
        bits |= 1U << id;
    return bits;
}

/// The most that can be carried: the least, over all sets of places, of what the set has room for
/// and of all that need not lie in it.
int most_by_subsets(const Case& c, std::size_t wants) {
    int most = INT_MAX;
    for (unsigned subset = 0; subset < 1U << c.room.size(); ++subset) {
        int bound = 0;
        for (std::size_t place = 0; place < c.room.size(); ++place)
            bound += (subset >> place & 1U) != 0 ? c.room[place] : 0;
        for (std::size_t i = 0; i < wants; ++i)
            bound += (c.wants[i].places & ~subset) != 0 ? c.wants[i].amount : 0;
        most = std::min(most, bound);
    }
    return most;
}

/// A unit at a time: each finds a place, if need be by moving another one on.
class UnitFlow {
  public:
    explicit UnitFlow(const Case& c) : case_(c), lying_(c.room.size()) {}

    bool carry_one(std::size_t want) {
        std::vector<bool> seen(case_.room.size());
        return settle(want, seen);
    }

  private:
    bool settle(std::size_t want, std::vector<bool>& seen) {
        for (std::size_t place = 0; place < case_.room.size(); ++place) {
            if ((case_.wants[want].places >> place & 1U) == 0 || seen[place])
                continue;
            seen[place] = true;
            if (static_cast<int>(lying_[place].size()) < case_.room[place]) {
                lying_[place].push_back(want);
                return true;
            }
            for (std::size_t& other : lying_[place])
                if (settle(other, seen)) {
                    other = want;
                    return true;
                }
        }
        return false;
    }

    const Case& case_;
    std::vector<std::vector<std::size_t>> lying_;
};

int most_by_units(const Case& c, std::size_t wants) {
    UnitFlow flow(c);
    int carried = 0;
    for (std::size_t i = 0; i < wants; ++i)
        for (int unit = 0; unit < c.wants[i].amount; ++unit)
            carried += flow.carry_one(i) ? 1 : 0;
    return carried;
}

Case random_case(std::mt19937& random, int max_places, int max_wants) {
    const auto below = [&](int limit) {
        return static_cast<int>(random() % static_cast<unsigned>(limit));
    };
    Case c;
    const int places = 1 + below(max_places);
    for (int i = 0; i < places; ++i)
        c.room.push_back(below(3) == 0 ? 0 : below(9));
    const int wants = 1 + below(max_wants);
    for (int i = 0; i < wants; ++i)
        c.wants.push_back({static_cast<unsigned>(below(1 << places)), below(8)});
    return c;
}

Placement placement_for(const Case& c) {
    std::map<int, Int128> room;
    for (std::size_t i = 0; i < c.room.size(); ++i)
        room[static_cast<int>(i)] = c.room[i];
    std::vector<IdSet> sets;
    for (const Want& want : c.wants)
        sets.push_back(set_of(want.places));
    return {room, sets};
}

int missing(const Placement& placement, std::size_t demand) {
    return static_cast<int>(placement.missing(demand));
}

/// All that can lie nowhere but in the set, with the wants up to and including the last.
int bound_to(const Case& c, unsigned set, std::size_t wants) {
    int sum = 0;
    for (std::size_t i = 0; i < wants; ++i)
        sum += (c.wants[i].places & ~set) == 0 ? c.wants[i].amount : 0;
    return sum;
}

int room_in(const Case& c, unsigned set) {
    int sum = 0;
    for (std::size_t i = 0; i < c.room.size(); ++i)
        sum += (set >> i & 1U) != 0 ? c.room[i] : 0;
    return sum;
}

} // namespace

TEST_CASE("what is carried is the most there can be, and never less of what came before") {
    std::mt19937 random(20250101);
    for (int round = 0; round < 20000; ++round) {
        const Case c = random_case(random, 7, 7);
        Placement placement = placement_for(c);
        std::vector<int> missing_before;
        int carried = 0;
        for (std::size_t i = 0; i < c.wants.size(); ++i) {
            const auto demand = placement.add(set_of(c.wants[i].places), Int128{c.wants[i].amount});
            carried += c.wants[i].amount - missing(placement, demand);
            REQUIRE(carried == most_by_subsets(c, i + 1));
            for (std::size_t j = 0; j < i; ++j)
                REQUIRE(missing(placement, j) == missing_before[j]);
            missing_before.push_back(missing(placement, demand));
        }
    }
}

TEST_CASE("a unit at a time finds no more than Placement") {
    std::mt19937 random(7);
    for (int round = 0; round < 2000; ++round) {
        const Case c = random_case(random, 5, 5);
        Placement placement = placement_for(c);
        int carried = 0;
        for (const Want& want : c.wants)
            carried += want.amount -
                       missing(placement, placement.add(set_of(want.places), Int128{want.amount}));
        REQUIRE(carried == most_by_units(c, c.wants.size()));
    }
}

TEST_CASE("the tight places prove that a demand does not fit") {
    std::mt19937 random(42);
    int short_ones = 0;
    for (int round = 0; round < 20000; ++round) {
        const Case c = random_case(random, 7, 7);
        Placement placement = placement_for(c);
        for (std::size_t i = 0; i < c.wants.size(); ++i) {
            const auto demand = placement.add(set_of(c.wants[i].places), Int128{c.wants[i].amount});
            const unsigned tight = bits_of(placement.tight_places(demand));
            if (missing(placement, demand) == 0) {
                REQUIRE(tight == 0);
                continue;
            }
            ++short_ones;
            REQUIRE((c.wants[i].places & ~tight) == 0);
            // Full of what is bound to them alone: that is more than their room by all that is
            // missing of it.
            int missing_inside = 0;
            for (std::size_t j = 0; j <= i; ++j)
                if ((c.wants[j].places & ~tight) == 0)
                    missing_inside += missing(placement, j);
            REQUIRE(bound_to(c, tight, i + 1) == room_in(c, tight) + missing_inside);
        }
    }
    CHECK(short_ones > 1000);
}

TEST_CASE("whatever is added later, no tight set grows") {
    std::mt19937 random(43);
    for (int round = 0; round < 5000; ++round) {
        const Case c = random_case(random, 6, 6);
        Placement placement = placement_for(c);
        std::vector<IdSet> tight;
        for (const Want& want : c.wants)
            tight.push_back(
                placement.tight_places(placement.add(set_of(want.places), Int128{want.amount})));
        for (std::size_t i = 0; i < c.wants.size(); ++i)
            REQUIRE(placement.tight_places(i).is_subset_of(tight[i]));
    }
}

TEST_CASE("carriable is what a further demand would be given, and changes nothing") {
    std::mt19937 random(44);
    for (int round = 0; round < 5000; ++round) {
        Case c = random_case(random, 6, 6);
        c.wants.back().amount = 1000; // more than there is
        Placement placement = placement_for(c);
        for (std::size_t i = 0; i + 1 < c.wants.size(); ++i)
            (void)placement.add(set_of(c.wants[i].places), Int128{c.wants[i].amount});
        const auto most = static_cast<int>(placement.carriable(set_of(c.wants.back().places)));
        REQUIRE(most ==
                most_by_subsets(c, c.wants.size()) - most_by_subsets(c, c.wants.size() - 1));
        const auto last =
            placement.add(set_of(c.wants.back().places), Int128{c.wants.back().amount});
        REQUIRE(missing(placement, last) == c.wants.back().amount - most);
    }
}

TEST_CASE("places that the pool lacks take nothing") {
    const std::array sets{IdSet{0, 9}, IdSet{9}};
    Placement placement({{0, 4}}, sets);
    CHECK(missing(placement, placement.add(IdSet{0, 9}, 3)) == 0);
    CHECK(missing(placement, placement.add(IdSet{9}, 2)) == 2);
    CHECK(placement.tight_places(1).empty());
    CHECK(static_cast<int>(placement.carriable(IdSet{0, 9})) == 1);
    CHECK(static_cast<int>(placement.carriable(IdSet{})) == 0);
}

TEST_CASE("amounts near 2^63 times the largest numerator are exact") {
    const Int128 huge = static_cast<Int128>(INT64_MAX) * 1'000'000'000;
    const std::array sets{IdSet{0, 1}, IdSet{0}};
    Placement placement({{0, huge}, {1, huge}}, sets);
    CHECK(placement.missing(placement.add(IdSet{0, 1}, huge + 1)) == 0);
    CHECK(placement.missing(placement.add(IdSet{0}, huge)) == 1);
    CHECK(placement.tight_places(1) == IdSet{0, 1});
}
