// SPDX-License-Identifier: Apache-2.0
#pragma once
// Divides demands over places, exactly and from scratch: the check on core's Occupancy where hosts
// are too large for brute force.
//
// A demand is an amount that may be divided at will over the places of its set; a place takes only
// so much. That is a transport problem: a flow from demands through their sets to places. It is
// solved by augmenting paths: a demand first takes the room its own places have left; when they are
// full it looks, breadth first, for a demand lying on one of them that can move elsewhere, and so
// on until some place has room. A demand that is never carried in full has, in the set of places
// this search reached, a proof: all of them are full, and whatever lies there can lie nowhere else
// (Hall's condition; the tightest cut of the flow).
//
// Adding a demand never takes from those added before (they may move, but stay carried as far as
// they were): an augmenting path changes only where things lie. That gives the rule for a host that
// is over: first what is held, as much of it as can be carried; then the new start on top.
//
// Places that no set tells apart are treated as one, so that the cost depends on the sets, not on
// the number of PUs.

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "base/checked.hpp"
#include "base/idset.hpp"

namespace virtguard::model {

class Placement {
  public:
    /// room: what each place takes, in any unit (at least 0). sets: every set that add() and
    /// carriable() will be asked about.
    Placement(const std::map<int, Int128>& room, std::span<const IdSet> sets);

    using DemandIndex = std::size_t;

    /// Carries as much of the amount (at least 0) as possible and returns the demand's index.
    DemandIndex add(const IdSet& places, Int128 amount);

    /// What of a demand is not carried; 0 when it fits.
    [[nodiscard]] Int128 missing(DemandIndex demand) const { return demands_[demand].missing; }

    /// The places that prove why a demand is not carried in full: all full, and all that lies there
    /// can lie nowhere else. Empty for one that is carried.
    [[nodiscard]] IdSet tight_places(DemandIndex demand) const;

    /// The most that a further demand on these places would be given.
    [[nodiscard]] Int128 carriable(const IdSet& places) const;

  private:
    struct Group {
        IdSet places;
        Int128 room = 0;
    };
    struct Demand {
        std::vector<std::size_t> groups; ///< where it may lie
        std::vector<Int128> placed;      ///< what of it lies there, in the same order
        Int128 missing = 0;
    };
    /// How the search came to a group: from `group`, whose part of `demand` can move on.
    struct Step {
        bool reached = false;
        std::size_t group = 0;
        std::size_t demand = 0;
        bool is_start = false;
    };

    void split_groups(const std::map<int, Int128>& room, std::span<const IdSet> sets);
    [[nodiscard]] std::vector<std::size_t> groups_in(const IdSet& places) const;
    [[nodiscard]] std::vector<Step> search(const Demand& from, std::size_t& found) const;
    void use_own_room(Demand& demand);
    bool augment(Demand& demand);
    static Int128& placed_on(Demand& demand, std::size_t group);

    std::vector<Group> groups_;
    std::vector<Demand> demands_;
};

} // namespace virtguard::model
