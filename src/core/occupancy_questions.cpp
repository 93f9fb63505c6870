// SPDX-License-Identifier: Apache-2.0
// Occupancy's answers, and the refusals it remembers; what it keeps is in occupancy.cpp.
#include "core/occupancy.hpp"

#include <algorithm>
#include <utility>

#include "core/bits.hpp"

namespace virtguard::core {

/// The sites as a part; where there are none, the places without room that a load names.
IdSet Occupancy::part_of(const Words& sites, const IdSet& named) {
    return has_any(sites) ? IdSet::from_words(sites) : named;
}

namespace {

/// Parts of a pool that have no place in common: those that meet become one.
class DisjointParts {
  public:
    using Words = std::vector<std::uint64_t>;

    explicit DisjointParts(std::size_t sites) : part_at_(sites, none) {}

    /// At least one site; joined with the parts that it meets.
    void add(const Words& sites) {
        const std::size_t fresh = parts_.size();
        parts_.emplace_back(sites);
        for_each_bit(sites, [&](std::uint32_t site) {
            const std::size_t met = std::exchange(part_at_[site], fresh);
            if (met != none && met != fresh)
                join(met, fresh);
            return true;
        });
    }
    /// Whether all of them, at least one, are of the same part.
    [[nodiscard]] bool has_in_one(const Words& sites) const {
        const std::size_t part = part_at_[*first_common_bit(sites, sites, 0, sites.size())];
        return part != none && is_within(sites, parts_[part], 0, sites.size());
    }
    [[nodiscard]] std::vector<IdSet> sets() const {
        std::vector<IdSet> sets;
        for (const Words& part : parts_)
            if (has_any(part))
                sets.push_back(IdSet::from_words(part));
        return sets;
    }

  private:
    static constexpr std::size_t none = SIZE_MAX;

    void join(std::size_t from, std::size_t into) {
        for_each_bit(parts_[from], [&](std::uint32_t site) {
            part_at_[site] = into;
            return true;
        });
        unite(parts_[into], std::exchange(parts_[from], Words(parts_[from].size())));
    }

    std::vector<Words> parts_;         ///< empty where it was joined with another
    std::vector<std::size_t> part_at_; ///< by site
};

/// Adds a set to those of places without room, joined with the ones that it meets, or with all.
void add_set(std::vector<IdSet>& sets, IdSet added, bool joins_all) {
    std::erase_if(sets, [&](const IdSet& other) {
        const bool joined = joins_all || other.intersects(added);
        if (joined)
            added |= other;
        return joined;
    });
    sets.push_back(std::move(added));
}

} // namespace

/// Holds loads and takes them away again; the parts in which they did not fit. Where a part has no
/// room to be had, nothing more is tried and no search goes through it again, so that thousands of
/// loads that do not fit cost no more searches in vain than there are places.
std::vector<IdSet> Occupancy::try_out(std::span<const Load> loads, bool& none_carried) {
    DisjointParts parts(sites_.size());
    std::vector<IdSet> without_room;
    std::vector<const Load*> held;
    trying_ = true;
    none_carried = true;
    const std::uint64_t version = version_;
    for (const Load& load : loads) {
        if (const Words sites = words_of(*load.places);
            has_any(sites) && is_within(sites, closed_, 0, sites.size())) {
            if (!parts.has_in_one(sites))
                parts.add(sites);
            continue;
        }
        const Int128 before = uncarried_;
        held.push_back(&load);
        hold(*load.places, load.whole, load.amount);
        const Int128 missing = uncarried_ - before;
        none_carried &= missing == static_cast<Int128>(load.amount) * rules_.weights.of(load.whole);
        if (missing == 0)
            continue;
        // Its last search found no room: what it reached is the proof.
        unite(closed_, reached_);
        if (has_any(reached_))
            parts.add(reached_);
        else
            add_set(without_room, *load.places, /*joins_all=*/!has_any(known_));
    }
    std::ranges::fill(closed_, 0);
    for (const Load* load : held)
        hold(*load->places, load->whole, -load->amount);
    version_ = version;
    trying_ = false;
    std::vector<IdSet> sets = parts.sets();
    sets.insert(sets.end(), without_room.begin(), without_room.end());
    std::ranges::sort(sets, {}, &IdSet::first);
    return sets;
}

namespace {

/// Whether a short part tells nothing beyond those that are too small even when empty: it overlaps
/// one, and each load that can lie nowhere else is one of theirs.
bool is_told(const IdSet& places, std::span<const ShortPart> alone, std::span<const Load> loads) {
    const auto overlaps = [&](const ShortPart& part) { return part.places.intersects(places); };
    const auto is_of_alone = [&](const Load& load) {
        return std::ranges::any_of(
            alone, [&](const ShortPart& part) { return load.places->is_subset_of(part.places); });
    };
    return std::ranges::any_of(alone, overlaps) &&
           std::ranges::all_of(loads, [&](const Load& load) {
               return !load.places->is_subset_of(places) || is_of_alone(load);
           });
}

} // namespace

std::vector<ShortPart> Occupancy::short_parts(std::span<const Load> loads) {
    if (const Refusal* known = find_refusal(loads))
        return known->parts;
    std::vector<ShortPart> parts;
    for (IdSet& places : short_alone(loads)) {
        const PartState state = state_of(places);
        parts.push_back({std::move(places), state, /*alone=*/true});
    }
    const std::size_t alone = parts.size();
    bool none_carried = false;
    for (IdSet& places : try_out(loads, none_carried)) {
        if (is_told(places, std::span(parts).first(alone), loads))
            continue;
        const PartState state = state_of(places);
        parts.push_back({std::move(places), state});
    }
    if (!parts.empty())
        remember(loads, parts, alone == 0 && none_carried && loads.size() == 1);
    return parts;
}

std::vector<ShortPart> Occupancy::short_together(std::span<const Load> loads) {
    std::vector<ShortPart> parts;
    bool none_carried = false;
    for (IdSet& places : try_out(loads, none_carried)) {
        const PartState state = state_of(places);
        parts.push_back({std::move(places), state});
    }
    return parts;
}

bool Occupancy::fits(std::span<const Load> loads) {
    bool none_carried = false;
    return short_alone(loads).empty() && try_out(loads, none_carried).empty();
}

std::vector<IdSet> Occupancy::short_alone(std::span<const Load> loads) const {
    if (surely_fits_alone(loads))
        return {};
    if (loads.size() == 1)
        return {part_of(words_of(*loads.front().places), *loads.front().places)};
    std::map<int, std::int64_t> allocatable;
    for_each_bit(known_, [&](Index site) {
        allocatable[static_cast<int>(site)] = sites_[site].allocatable;
        return true;
    });
    Occupancy empty(allocatable, {});
    bool none_carried = false;
    return empty.try_out(loads, none_carried);
}

/// Enough, though not needed: each load that is bound to one place fits there, and each other set
/// has room, beside those, for all others together. For a single load that is all there is to it.
bool Occupancy::surely_fits_alone(std::span<const Load> loads) const {
    Int128 together = 0;
    std::map<int, Int128> bound;
    for (const Load& load : loads)
        (load.places->count() == 1 ? bound[load.places->first()] : together) += load.amount;
    const auto allocatable = [&](int place) -> std::int64_t {
        const auto at = static_cast<std::size_t>(place);
        return at < sites_.size() ? sites_[at].allocatable : 0;
    };
    for (const auto& [place, amount] : bound)
        if (amount > allocatable(place))
            return false;
    return std::ranges::all_of(loads, [&](const Load& load) {
        if (load.places->count() == 1)
            return true;
        Int128 lacking = together;
        for (const auto& [place, amount] : bound)
            lacking += load.places->contains(place) ? amount : 0;
        for_each_bit(words_of(*load.places), [&](Index site) {
            lacking -= sites_[site].allocatable;
            return lacking > 0;
        });
        return lacking <= 0;
    });
}

bool Occupancy::is_bound_to(const IdSet& part, const IdSet& places) const {
    bool has_sites = false; // without the words_of() of each: it is asked of many
    for (std::size_t i = 0; i < std::min(places.words().size(), known_.size()); ++i) {
        const std::uint64_t sites = places.words()[i] & known_[i];
        if ((sites & ~(i < part.words().size() ? part.words()[i] : 0)) != 0)
            return false;
        has_sites |= sites != 0;
    }
    return has_sites || places.is_subset_of(part);
}

bool Occupancy::is_whole_pool(const IdSet& part) const {
    return is_within(known_, words_of(part), 0, known_.size());
}

PartState Occupancy::state_of(const IdSet& places) const {
    const Words part = words_of(places);
    Int128 allocatable = 0;
    Int128 whole = 0;
    Int128 held = 0;
    Int128 used = 0;
    const auto add = [&](const Amounts& amounts) {
        held += amounts.sum();
        used += amounts.pageable * rules_.weights.pageable + amounts.whole * rules_.weights.whole;
        if (!rules_.whole_is_a_place)
            whole += amounts.whole;
    };
    for_each_bit(part, [&](Index index) {
        const Site& site = sites_[index];
        allocatable += site.allocatable;
        add(site.bound);
        if (rules_.whole_is_a_place &&
            (site.bound.whole > 0 || rules_.always_whole.contains(static_cast<int>(index))))
            whole += 1;
        return true;
    });
    for (const Class& each : classes_)
        if (each.held.sum() > 0 &&
            (each.first_word < each.end_word
                 ? is_within(each.sites, part, each.first_word, each.end_word)
                 : each.places.is_subset_of(places)))
            add(each.held);
    if (rules_.weights.whole == rules_.weights.pageable)
        whole = 0; // both kinds weigh the same: memory below ratio 1, and all at ratio 1
    return {.allocatable = saturate(allocatable),
            .effective = saturate(
                floor_divide((allocatable - whole) * rules_.weights.room, rules_.weights.pageable) +
                whole),
            .held = saturate(held),
            .slack = allocatable * rules_.weights.room - used};
}

std::int64_t Occupancy::room_on(int place) const {
    return saturate(sites_[static_cast<std::size_t>(place)].room / rules_.weights.whole);
}

std::int64_t Occupancy::most_for(const IdSet& places) const {
    Occupancy trial = *this;
    Int128 room = 0;
    for (const Site& site : sites_)
        room += site.room;
    const std::int64_t more = saturate(room / rules_.weights.pageable + 1);
    trial.hold(places, /*whole=*/false, more);
    const Int128 missing = trial.uncarried_ - uncarried_;
    return saturate(floor_divide(static_cast<Int128>(more) * rules_.weights.pageable - missing,
                                 rules_.weights.pageable));
}

// ------------------------------------------------------------------ remembered refusals

bool Occupancy::Refusal::contains(const Class& held) const {
    return std::ranges::any_of(proofs, [&](const Words& proof) {
        return is_within(held.sites, proof, held.first_word, held.end_word);
    });
}

/// What lies inside the proofs of these has changed.
void Occupancy::touch(std::uint64_t refusals) {
    if (trying_)
        return;
    for (; refusals != 0; refusals &= refusals - 1)
        if (const auto slot = static_cast<std::size_t>(std::countr_zero(refusals));
            slot < refusals_.by_slot.size()) // a copy has none
            refusals_.by_slot[slot].used = false;
}

const Occupancy::Refusal* Occupancy::find_refusal(std::span<const Load> loads) {
    const auto is_asked = [&](const Refusal& refusal) {
        if (!refusal.used || refusal.asked.size() != loads.size())
            return false;
        for (std::size_t i = 0; i < loads.size(); ++i)
            if (refusal.amounts[i] != loads[i].amount ||
                refusal.asked[i].second != loads[i].whole ||
                refusal.asked[i].first != *loads[i].places)
                return false;
        return refusal.inside_only || refusal.version == version_;
    };
    const auto found = std::ranges::find_if(refusals_.by_slot, is_asked);
    return found == refusals_.by_slot.end() ? nullptr : &*found;
}

void Occupancy::remember(std::span<const Load> loads, const std::vector<ShortPart>& parts,
                         bool inside_only) {
    if (loads.size() > max_remembered_loads)
        return;
    const std::size_t slot = refusals_.next++ % max_refusals;
    const std::uint64_t bit = std::uint64_t{1} << slot;
    if (slot == refusals_.by_slot.size())
        refusals_.by_slot.emplace_back();
    Refusal& refusal = refusals_.by_slot[slot];
    refusal = {.parts = parts, .version = version_, .inside_only = inside_only, .used = true};
    for (const Load& load : loads) {
        refusal.asked.emplace_back(*load.places, load.whole);
        refusal.amounts.push_back(load.amount);
    }
    for (const ShortPart& part : parts)
        refusal.proofs.push_back(words_of(part.places));
    for (Class& held : classes_)
        if (held.held.sum() > 0)
            held.refusals = (held.refusals & ~bit) | (refusal.contains(held) ? bit : 0);
    for (Index i = 0; i < sites_.size(); ++i) {
        const bool inside =
            std::ranges::any_of(refusal.proofs, [&](const Words& proof) { return has(proof, i); });
        sites_[i].refusals = (sites_[i].refusals & ~bit) | (inside ? bit : 0);
    }
}

} // namespace virtguard::core
