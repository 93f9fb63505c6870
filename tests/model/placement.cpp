// SPDX-License-Identifier: Apache-2.0
#include "model/placement.hpp"

#include <algorithm>
#include <cassert>

namespace virtguard::model {

namespace {

constexpr std::size_t none = static_cast<std::size_t>(-1);

} // namespace

Placement::Placement(const std::map<int, Int128>& room, std::span<const IdSet> sets) {
    split_groups(room, sets);
}

/// Partition refinement: all places start as one group, and each set splits the groups it cuts.
void Placement::split_groups(const std::map<int, Int128>& room, std::span<const IdSet> sets) {
    std::map<int, std::size_t> group_of;
    for (const auto& [place, amount] : room)
        group_of[place] = 0;
    std::vector<std::size_t> sizes{room.size()};
    for (const IdSet& set : sets) {
        std::map<std::size_t, std::size_t> inside;
        for (int place = set.first(); place >= 0; place = set.next(place))
            if (const auto found = group_of.find(place); found != group_of.end())
                ++inside[found->second];
        std::map<std::size_t, std::size_t> split;
        for (const auto& [group, count] : inside)
            if (count < sizes[group]) {
                split[group] = sizes.size();
                sizes[group] -= count;
                sizes.push_back(count);
            }
        for (int place = set.first(); place >= 0; place = set.next(place))
            if (const auto found = group_of.find(place); found != group_of.end())
                if (const auto moved = split.find(found->second); moved != split.end())
                    found->second = moved->second;
    }
    groups_.resize(sizes.size());
    for (const auto& [place, group] : group_of) {
        groups_[group].places.insert(place);
        groups_[group].room += room.at(place);
    }
}

std::vector<std::size_t> Placement::groups_in(const IdSet& places) const {
    std::vector<std::size_t> result;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
        if (!groups_[group].places.intersects(places))
            continue;
        assert(groups_[group].places.is_subset_of(places)); // the set was not announced
        result.push_back(group);
    }
    return result;
}

Placement::DemandIndex Placement::add(const IdSet& places, Int128 amount) {
    Demand demand;
    demand.groups = groups_in(places);
    demand.placed.resize(demand.groups.size());
    demand.missing = amount;
    use_own_room(demand);
    while (demand.missing > 0 && augment(demand)) {
    }
    demands_.push_back(std::move(demand));
    return demands_.size() - 1;
}

void Placement::use_own_room(Demand& demand) {
    for (std::size_t i = 0; i < demand.groups.size() && demand.missing > 0; ++i) {
        const Int128 moved = std::min(groups_[demand.groups[i]].room, demand.missing);
        groups_[demand.groups[i]].room -= moved;
        demand.placed[i] += moved;
        demand.missing -= moved;
    }
}

/// Breadth first from a demand's groups over whatever lies on them. Stops at a group with room and
/// names it in found; leaves found at none when there is none.
std::vector<Placement::Step> Placement::search(const Demand& from, std::size_t& found) const {
    std::vector<Step> steps(groups_.size());
    std::vector<bool> seen(demands_.size());
    std::vector<std::size_t> queue;
    found = none;
    const auto reach = [&](std::size_t group, Step step) {
        if (steps[group].reached || found != none)
            return;
        step.reached = true;
        steps[group] = step;
        queue.push_back(group);
        if (groups_[group].room > 0)
            found = group;
    };
    for (const std::size_t group : from.groups)
        reach(group, {.is_start = true});
    for (std::size_t next = 0; next < queue.size() && found == none; ++next) {
        const std::size_t group = queue[next];
        for (std::size_t i = 0; i < demands_.size(); ++i) {
            const Demand& demand = demands_[i];
            const auto at = std::ranges::lower_bound(demand.groups, group);
            if (seen[i] || at == demand.groups.end() || *at != group ||
                demand.placed[static_cast<std::size_t>(at - demand.groups.begin())] == 0)
                continue;
            seen[i] = true;
            for (const std::size_t other : demand.groups)
                reach(other, {.group = group, .demand = i});
        }
    }
    return steps;
}

Int128& Placement::placed_on(Demand& demand, std::size_t group) {
    const auto at = std::ranges::lower_bound(demand.groups, group);
    return demand.placed[static_cast<std::size_t>(at - demand.groups.begin())];
}

/// Moves as much as one path allows; false when there is no path.
bool Placement::augment(Demand& demand) {
    std::size_t found = none;
    const std::vector<Step> steps = search(demand, found);
    if (found == none)
        return false;
    Int128 amount = std::min(demand.missing, groups_[found].room);
    for (std::size_t at = found; !steps[at].is_start; at = steps[at].group)
        amount = std::min(amount, placed_on(demands_[steps[at].demand], steps[at].group));
    groups_[found].room -= amount;
    std::size_t at = found;
    for (; !steps[at].is_start; at = steps[at].group) {
        placed_on(demands_[steps[at].demand], at) += amount;
        placed_on(demands_[steps[at].demand], steps[at].group) -= amount;
    }
    placed_on(demand, at) += amount;
    demand.missing -= amount;
    return true;
}

IdSet Placement::tight_places(DemandIndex demand) const {
    IdSet result;
    if (demands_[demand].missing == 0)
        return result;
    std::size_t found = none;
    const std::vector<Step> steps = search(demands_[demand], found);
    for (std::size_t group = 0; group < groups_.size(); ++group)
        if (steps[group].reached)
            result |= groups_[group].places;
    return result;
}

Int128 Placement::carriable(const IdSet& places) const {
    Int128 most = 0;
    for (const Group& group : groups_)
        most += group.room;
    Placement trial = *this;
    const DemandIndex demand = trial.add(places, most);
    return most - trial.missing(demand);
}

} // namespace virtguard::model
