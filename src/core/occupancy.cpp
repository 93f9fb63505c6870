// SPDX-License-Identifier: Apache-2.0
#include "core/occupancy.hpp"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "core/bits.hpp"

namespace virtguard::core {

Weights weights_of(const Resource& resource, const Ratio& ratio) {
    const bool whole_is_stretched = resource == Resource::memory() && ratio.is_below_one();
    return {.room = ratio.numerator(),
            .pageable = ratio.denominator(),
            .whole = whole_is_stretched ? ratio.denominator() : ratio.numerator()};
}

PoolRules rules_of(const Host& host, const Resource& resource) {
    const Pool* pool = host.pool(resource);
    PoolRules rules{.weights = weights_of(resource, pool == nullptr ? Ratio{} : pool->ratio)};
    if (resource == Resource::cpu()) {
        rules.whole_is_a_place = true;
        if (host.cpus_are_split)
            rules.always_whole = host.dedicated_cpus;
    }
    return rules;
}

Occupancy::Occupancy(const std::map<int, std::int64_t>& allocatable, PoolRules rules)
    : rules_(std::move(rules)) {
    const int last = allocatable.empty() ? 0 : allocatable.rbegin()->first;
    sites_.resize(static_cast<std::size_t>(last) + 1);
    known_.resize(sites_.size() / word_bits + 1);
    open_.resize(known_.size());
    closed_.resize(known_.size());
    reached_.resize(known_.size());
    site_from_.resize(sites_.size());
    for (const auto& [place, amount] : allocatable) {
        const auto at = static_cast<std::size_t>(place);
        sites_[at].allocatable = amount;
        sites_[at].room = static_cast<Int128>(amount) * rules_.weights.room;
        set(known_, at);
        if (amount > 0)
            set(open_, at);
    }
}

Occupancy::Occupancy(const Host& host, const Resource& resource)
    : Occupancy(
          [&] {
              std::map<int, std::int64_t> allocatable;
              if (const Pool* pool = host.pool(resource))
                  for (const auto& [id, place] : pool->places)
                      if (place.allocatable() > 0)
                          allocatable[id] = place.allocatable();
              return allocatable;
          }(),
          rules_of(host, resource)) {}

// ------------------------------------------------------------------ what is held

void Occupancy::hold(const IdSet& places, bool whole, std::int64_t amount) {
    ++version_;
    if (const auto known = class_by_places_.find(places); known != class_by_places_.end())
        change_class(known->second, whole, amount);
    else if (Words sites = words_of(places); const std::optional<Index> only = only_bit(sites))
        change_site(*only, whole, amount);
    else
        change_class(add_class(places, std::move(sites)), whole, amount);
    if (amount < 0 && uncarried_ > 0 && !trying_)
        carry_missing();
}

void Occupancy::change_class(Index index, bool whole, std::int64_t amount) {
    Class& held = classes_[index];
    touch(held.refusals);
    (whole ? held.held.whole : held.held.pageable) += amount;
    assert(held.held.whole >= 0 && held.held.pageable >= 0);
    const Int128 scaled = static_cast<Int128>(amount) * rules_.weights.of(whole);
    if (amount > 0) {
        const Int128 missing = scaled - carry(held.sites, index, scaled);
        held.missing += missing;
        uncarried_ += missing;
        return;
    }
    Int128 less = -scaled;
    const Int128 uncarried = std::min(less, held.missing);
    held.missing -= uncarried;
    uncarried_ -= uncarried;
    less -= uncarried;
    while (less > 0) {
        const Part part = held.parts.back();
        const Int128 freed = std::min(less, part.amount);
        put(index, part.site, -freed);
        use_room(part.site, -freed);
        less -= freed;
    }
    if (held.held.sum() == 0)
        drop_class(index);
}

void Occupancy::change_site(Index index, bool whole, std::int64_t amount) {
    Site& site = sites_[index];
    touch(site.refusals);
    (whole ? site.bound.whole : site.bound.pageable) += amount;
    assert(site.bound.whole >= 0 && site.bound.pageable >= 0);
    const Int128 scaled = static_cast<Int128>(amount) * rules_.weights.of(whole);
    if (amount > 0) {
        const Int128 missing = scaled - carry_on_site(index, scaled);
        site.missing += missing;
        uncarried_ += missing;
        return;
    }
    const Int128 uncarried = std::min(-scaled, site.missing);
    site.missing -= uncarried;
    uncarried_ -= uncarried;
    use_room(index, scaled + uncarried);
}

/// Room became free while something was not carried: it may be, now.
void Occupancy::carry_missing() {
    for (Index i = 0; i < sites_.size() && has_any(open_); ++i)
        if (Site& site = sites_[i]; site.missing > 0) {
            const Int128 carried = carry_on_site(i, site.missing);
            site.missing -= carried;
            uncarried_ -= carried;
        }
    for (Index i = 0; i < classes_.size() && has_any(open_); ++i)
        if (Class& held = classes_[i]; held.missing > 0) {
            const Int128 carried = carry(held.sites, i, held.missing);
            held.missing -= carried;
            uncarried_ -= carried;
        }
}

Occupancy::Words Occupancy::words_of(const IdSet& places) const {
    Words words = places.words();
    words.resize(known_.size());
    for (std::size_t i = 0; i < words.size(); ++i)
        words[i] &= known_[i];
    return words;
}

Occupancy::Index Occupancy::add_class(const IdSet& places, Words sites) {
    Index index = static_cast<Index>(classes_.size());
    if (free_classes_.empty()) {
        classes_.emplace_back();
        class_from_.emplace_back();
        reached_classes_.resize(classes_.size() / word_bits + 1);
    } else {
        index = free_classes_.back();
        free_classes_.pop_back();
    }
    Class& fresh = classes_[index];
    fresh = {.sites = std::move(sites), .places = places};
    while (fresh.first_word < fresh.sites.size() && fresh.sites[fresh.first_word] == 0)
        ++fresh.first_word;
    fresh.end_word = fresh.sites.size();
    while (fresh.end_word > fresh.first_word && fresh.sites[fresh.end_word - 1] == 0)
        --fresh.end_word;
    for (std::size_t slot = 0; slot < refusals_.by_slot.size(); ++slot)
        if (const Refusal& refusal = refusals_.by_slot[slot];
            refusal.used && refusal.contains(fresh))
            fresh.refusals |= std::uint64_t{1} << slot;
    class_by_places_.emplace(places, index);
    return index;
}

void Occupancy::drop_class(Index index) {
    class_by_places_.erase(classes_[index].places);
    classes_[index] = {};
    free_classes_.push_back(index);
}

// ------------------------------------------------------------------ the flow

/// Takes up to an amount of a site's room; how much.
Int128 Occupancy::take_room(Index index, Int128 amount) {
    const Int128 taken = std::min(amount, sites_[index].room);
    if (taken > 0)
        use_room(index, taken);
    return taken;
}

void Occupancy::use_room(Index site_index, Int128 amount) {
    Site& site = sites_[site_index];
    site.room -= amount;
    assert(site.room >= 0);
    site.room > 0 ? set(open_, site_index) : clear(open_, site_index);
}

/// Changes what of a class lies on a site.
void Occupancy::put(Index class_index, Index site_index, Int128 amount) {
    std::vector<Part>& parts = classes_[class_index].parts;
    auto at = std::ranges::lower_bound(parts, site_index, {}, &Part::site);
    if (at == parts.end() || at->site != site_index) {
        at = parts.insert(at, {.site = site_index});
        sites_[site_index].classes.push_back(class_index);
    }
    at->amount += amount;
    assert(at->amount >= 0);
    if (at->amount > 0)
        return;
    parts.erase(at);
    std::vector<Index>& here = sites_[site_index].classes;
    *std::ranges::find(here, class_index) = here.back();
    here.pop_back();
}

Int128 Occupancy::part_on(Index class_index, Index site_index) const {
    const std::vector<Part>& parts = classes_[class_index].parts;
    return std::ranges::lower_bound(parts, site_index, {}, &Part::site)->amount;
}

/// Carries as much of a class's amount as possible; how much.
Int128 Occupancy::carry(const Words& from, Index index, Int128 amount) {
    Int128 left = amount;
    const auto fill = [&] {
        for_each_common_bit(from, open_, [&](Index site) {
            const Int128 taken = take_room(site, left);
            put(index, site, taken);
            left -= taken;
            return left > 0;
        });
    };
    fill();
    for (std::ptrdiff_t found = 0; left > 0 && (found = search(from)) >= 0;) {
        // Frees room on one of our sites, and takes it.
        (void)move_along(static_cast<Index>(found), from, left);
        fill();
    }
    return amount - left;
}

/// The same for what is bound to one site.
Int128 Occupancy::carry_on_site(Index index, Int128 amount) {
    Int128 left = amount - take_room(index, amount);
    Words from(open_.size());
    set(from, index);
    for (std::ptrdiff_t found = 0; left > 0 && (found = search(from)) >= 0;) {
        (void)move_along(static_cast<Index>(found), from, left);
        left -= take_room(index, left);
    }
    return amount - left;
}

/// Breadth first from sites that are full, over what lies on them and can move; the site with room
/// that it found, or -1 when there is none: then reached_ is what it reached.
std::ptrdiff_t Occupancy::search(const Words& from) {
    reached_ = from;
    std::ranges::fill(reached_classes_, 0);
    queue_.clear();
    for_each_bit(from, [&](Index site) {
        queue_.push_back(site);
        return true;
    });
    for (std::size_t next = 0; next < queue_.size(); ++next) {
        if (has(closed_, queue_[next]))
            continue;
        for (const Index class_index : sites_[queue_[next]].classes) {
            if (has(reached_classes_, class_index))
                continue;
            set(reached_classes_, class_index);
            class_from_[class_index] = queue_[next];
            const Class& held = classes_[class_index];
            if (const auto found =
                    first_common_bit(held.sites, open_, held.first_word, held.end_word)) {
                site_from_[*found] = class_index;
                return *found;
            }
            reach(class_index);
        }
    }
    return -1;
}

/// Queues the sites of a class that were not reached yet.
void Occupancy::reach(Index class_index) {
    const Class& held = classes_[class_index];
    for (std::size_t i = held.first_word; i < held.end_word; ++i) {
        std::uint64_t fresh = held.sites[i] & ~reached_[i];
        reached_[i] |= fresh;
        for (; fresh != 0; fresh &= fresh - 1) {
            const Index site = bit_at(i, fresh);
            site_from_[site] = class_index;
            queue_.push_back(site);
        }
    }
}

/// Moves what lies on the way to a found site one step on, up to an amount; that much room is free
/// then on one of the sites the search began with.
Int128 Occupancy::move_along(Index found, const Words& from, Int128 amount) {
    amount = std::min(amount, sites_[found].room);
    for (Index site = found; !has(from, site);) {
        const Index class_index = site_from_[site];
        site = class_from_[class_index];
        amount = std::min(amount, part_on(class_index, site));
    }
    use_room(found, amount);
    Index site = found;
    while (!has(from, site)) {
        const Index class_index = site_from_[site];
        const Index previous = class_from_[class_index];
        put(class_index, site, amount);
        put(class_index, previous, -amount);
        site = previous;
    }
    use_room(site, -amount);
    return amount;
}

} // namespace virtguard::core
