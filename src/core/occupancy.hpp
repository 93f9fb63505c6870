// SPDX-License-Identifier: Apache-2.0
#pragma once
// What of a pool is taken, and whether more fits: an exact, incremental flow.
//
// What is held is an amount that may be divided at will over the places of its set; a place takes
// only so much. That is a transport problem: a flow from what is held, through sets, to places. It
// is kept up to date by augmenting paths: an amount first takes the room its own places have left;
// when they are full a search, breadth first, looks for something lying on one of them that can
// move elsewhere, and so on until some place has room. When there is none, the places the search
// reached are a proof: all are full, and whatever lies there can lie nowhere else (Hall's
// condition; the tightest cut of the flow).
//
// An augmenting path moves what lies in its way but never takes from it. That gives the rule for a
// host that is over: first what is held, as much of it as can be carried; then a start on top.
//
// What is kept is one class per distinct set of places, not per guest, and bitsets over places;
// what is bound to a single place is a constant there. So the cost of a question depends on the
// number of sets and places. A search that found no room is remembered by what it asked for, and
// holds until something inside its proof changes.
//
// A ratio n/d enters as weights, so that all stays in integers: see Weights.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/checked.hpp"
#include "base/idset.hpp"
#include "core/host.hpp"

namespace virtguard::core {

/// How a pool's amounts weigh against each other in one flow. With a ratio of numerator/denominator
/// a place has room numerator per unit it has, a pageable unit (a shared vCPU) takes denominator of
/// it, and a whole one numerator; of memory below ratio 1 both take denominator.
struct Weights {
    std::int64_t room = 1;
    std::int64_t pageable = 1;
    std::int64_t whole = 1;

    [[nodiscard]] std::int64_t of(bool is_whole) const { return is_whole ? whole : pageable; }
};
[[nodiscard]] Weights weights_of(const Resource& resource, const Ratio& ratio);

/// The rules of a pool that its amounts follow.
struct PoolRules {
    Weights weights;
    /// Of cpu: whole amounts are places of their own (dedicated CPUs), counted once each.
    bool whole_is_a_place = false;
    IdSet always_whole; ///< places that take no ratio whether they are taken or not
};
[[nodiscard]] PoolRules rules_of(const Host& host, const Resource& resource);

/// What a part of a pool has and holds; what is held there can lie nowhere else.
struct PartState {
    std::int64_t allocatable = 0;
    std::int64_t effective = 0;
    std::int64_t held = 0;
    Int128 slack = 0; ///< room that is not held, in the unit of Weights::room; negative when over
};

/// A part of a pool in which loads do not fit.
struct ShortPart {
    IdSet places;       ///< without those that have no room, unless the loads name no other
    PartState state;    ///< without the loads
    bool alone = false; ///< nor would they if the pool were empty and took no ratio
};

/// An amount on a set of places.
struct Load {
    const IdSet* places = nullptr; ///< not owned; not empty
    bool whole = false;
    std::int64_t amount = 0; ///< above 0
};

class Occupancy {
  public:
    Occupancy() = default;
    /// allocatable: by place, at least 0.
    Occupancy(const std::map<int, std::int64_t>& allocatable, PoolRules rules);
    /// An empty pool of a host.
    Occupancy(const Host& host, const Resource& resource);

    /// Adds to what is held (amount above 0) or takes away from it (below 0; it must be held).
    /// Whatever does not fit is held all the same, and not carried.
    void hold(const IdSet& places, bool whole, std::int64_t amount);

    /// Where loads would not all be carried on top of what is held, or one guest cannot have them
    /// even of an empty pool: the parts of the pool that are short, the latter first, each by their
    /// lowest place; none when the loads fit. What is held stays as it was.
    [[nodiscard]] std::vector<ShortPart> short_parts(std::span<const Load> loads);

    /// The same of loads that are of several guests, each of which may have its part.
    [[nodiscard]] std::vector<ShortPart> short_together(std::span<const Load> loads);

    /// Whether short_parts() finds none.
    [[nodiscard]] bool fits(std::span<const Load> loads);

    /// Whether what may lie on the places can lie nowhere but in the part. A place without room (a
    /// node with no pages of this size) is no way out.
    [[nodiscard]] bool is_bound_to(const IdSet& part, const IdSet& places) const;

    /// No place of the pool lies outside the part.
    [[nodiscard]] bool is_whole_pool(const IdSet& part) const;

    /// What a part has, and what is bound to it.
    [[nodiscard]] PartState state_of(const IdSet& part) const;

    /// The most pageable units that one more load on these places would be given.
    [[nodiscard]] std::int64_t most_for(const IdSet& places) const;

    /// What a place of the pool has left beside all that is carried, in units that are whole.
    [[nodiscard]] std::int64_t room_on(int place) const;

    /// How much of what is held cannot be carried, in the unit of Weights::room.
    [[nodiscard]] Int128 uncarried() const noexcept { return uncarried_; }
    /// Some of what is held cannot be carried.
    [[nodiscard]] bool is_over() const noexcept { return uncarried_ > 0; }

  private:
    using Words = std::vector<std::uint64_t>;
    using Index = std::uint32_t;

    struct Amounts {
        Int128 pageable = 0;
        Int128 whole = 0;

        [[nodiscard]] Int128 sum() const { return pageable + whole; }
    };
    struct Part {
        Index site = 0;
        Int128 amount = 0;
    };
    /// All that is held on one set of two or more sites. What the search reads stands first, on
    /// one line of the processor's cache.
    struct Class {
        std::size_t first_word = 0; ///< of sites, the words that are not all zero lie
        std::size_t end_word = 0;   ///< in [first_word, end_word)
        Words sites;
        IdSet places;
        Amounts held;
        Int128 missing = 0;         ///< of held, what is not carried
        std::vector<Part> parts;    ///< where the rest lies, by site, none empty
        std::uint64_t refusals = 0; ///< a bit per remembered refusal whose proof contains the set
    };
    struct Site {
        Int128 room = 0; ///< left of its capacity
        std::int64_t allocatable = 0;
        Amounts bound;              ///< held on this site alone
        Int128 missing = 0;         ///< of bound, what is not carried
        std::vector<Index> classes; ///< those with a part here
        std::uint64_t refusals = 0; ///< as of Class
    };
    struct Refusal {
        std::vector<std::pair<IdSet, bool>> asked; ///< the loads' sets and kinds
        std::vector<std::int64_t> amounts;
        std::vector<ShortPart> parts;
        std::vector<Words> proofs; ///< the parts' sites
        std::uint64_t version = 0; ///< of all that is held, when it was made
        bool inside_only = false;  ///< holds while nothing inside the parts changes
        bool used = false;

        /// What the class holds can lie nowhere but in one of the parts.
        [[nodiscard]] bool contains(const Class& held) const;
    };
    static constexpr std::size_t max_refusals = 64; ///< a bit each in a word
    /// Of more loads no refusal is remembered: strangers could have megabytes of them kept.
    static constexpr std::size_t max_remembered_loads = 64;
    /// A copy has none: what is tried on it is not asked again.
    struct Refusals {
        Refusals() = default;
        Refusals(const Refusals&) {}
        Refusals(Refusals&&) = default;
        Refusals& operator=(const Refusals&) = delete;
        Refusals& operator=(Refusals&&) = default;
        ~Refusals() = default;

        std::vector<Refusal> by_slot; ///< at most max_refusals
        std::size_t next = 0;
    };

    [[nodiscard]] Words words_of(const IdSet& places) const;
    [[nodiscard]] static IdSet part_of(const Words& sites, const IdSet& named);
    [[nodiscard]] Index add_class(const IdSet& places, Words sites);
    void change_class(Index index, bool whole, std::int64_t amount);
    void change_site(Index index, bool whole, std::int64_t amount);
    [[nodiscard]] Int128 carry_on_site(Index index, Int128 amount);
    void touch(std::uint64_t refusals);
    void carry_missing();

    Int128 take_room(Index index, Int128 amount);
    Int128 carry(const Words& from, Index index, Int128 amount);
    [[nodiscard]] std::ptrdiff_t search(const Words& from);
    void reach(Index class_index);
    Int128 move_along(Index found, const Words& from, Int128 amount);
    void put(Index class_index, Index site_index, Int128 amount);
    void use_room(Index site_index, Int128 amount);
    [[nodiscard]] Int128 part_on(Index class_index, Index site_index) const;
    void drop_class(Index index);

    const Refusal* find_refusal(std::span<const Load> loads);
    void remember(std::span<const Load> loads, const std::vector<ShortPart>& parts,
                  bool inside_only);
    [[nodiscard]] bool surely_fits_alone(std::span<const Load> loads) const;
    [[nodiscard]] std::vector<IdSet> short_alone(std::span<const Load> loads) const;
    std::vector<IdSet> try_out(std::span<const Load> loads, bool& none_carried);

    PoolRules rules_;
    std::vector<Site> sites_; ///< by place id
    Words known_;             ///< the places the pool has
    std::vector<Class> classes_;
    std::vector<Index> free_classes_;
    std::unordered_map<IdSet, Index> class_by_places_;
    Words open_; ///< sites with room
    Int128 uncarried_ = 0;
    std::uint64_t version_ = 0;
    bool trying_ = false; ///< what is done now will be undone
    Words closed_;        ///< where it was proven, while trying, that no room is to be had

    // The last search: what it reached, and from which class it came to a site and from which site
    // to a class. Small, since a search goes through all of it.
    std::vector<Index> queue_;
    Words reached_;
    Words reached_classes_;
    std::vector<Index> site_from_;
    std::vector<Index> class_from_;

    Refusals refusals_;
};

} // namespace virtguard::core
