// SPDX-License-Identifier: Apache-2.0
#pragma once
// A set of small ids: PUs or NUMA nodes, by the number the kernel gives them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace virtguard {

/// A bit per id. Equal sets are equal values (no trailing empty words), so it can be a map's key.
class IdSet {
  public:
    /// Ids are below this: libvirt's own limit for a CPU mask (VIR_DOMAIN_CPUMASK_LEN), twice what
    /// Linux can be built for.
    static constexpr int limit = 16384;

    IdSet() = default;
    IdSet(std::initializer_list<int> ids);

    /// first to last, both included; both below limit.
    [[nodiscard]] static IdSet range(int first, int last);

    /// Reads the list form of the kernel and libvirt: "0-3,8", with libvirt's exclusions "0-7,^3"
    /// (they apply to what stands before them). Spaces around numbers are allowed, as libvirt does.
    /// The empty text is the empty set.
    [[nodiscard]] static Result<IdSet> parse(std::string_view text);

    /// "0-3,8"; the empty set is "".
    [[nodiscard]] std::string text() const;

    /// id is in [0, limit).
    void insert(int id);
    void erase(int id) noexcept;
    [[nodiscard]] bool contains(int id) const noexcept;
    [[nodiscard]] bool empty() const noexcept { return words_.empty(); }
    [[nodiscard]] int count() const noexcept;
    /// The smallest id, or -1 of the empty set.
    [[nodiscard]] int first() const noexcept { return next(-1); }
    /// The smallest id above the given one, or -1: for (int i = s.first(); i >= 0; i = s.next(i))
    [[nodiscard]] int next(int id) const noexcept;
    /// All ids, ascending.
    [[nodiscard]] std::vector<int> ids() const;

    [[nodiscard]] bool intersects(const IdSet& other) const noexcept;
    [[nodiscard]] bool is_subset_of(const IdSet& other) const noexcept;

    IdSet& operator|=(const IdSet& other);
    IdSet& operator&=(const IdSet& other);
    IdSet& operator-=(const IdSet& other);
    friend IdSet operator|(IdSet a, const IdSet& b) { return a |= b; }
    friend IdSet operator&(IdSet a, const IdSet& b) { return a &= b; }
    friend IdSet operator-(IdSet a, const IdSet& b) { return a -= b; }
    friend bool operator==(const IdSet&, const IdSet&) = default;
    friend auto operator<=>(const IdSet&, const IdSet&) = default;

    [[nodiscard]] std::size_t hash() const noexcept;

    /// A bit per id, 64 to a word, without trailing zero words; and back.
    [[nodiscard]] const std::vector<std::uint64_t>& words() const noexcept { return words_; }
    [[nodiscard]] static IdSet from_words(std::vector<std::uint64_t> words);

  private:
    void trim() noexcept;

    std::vector<std::uint64_t> words_;
};

} // namespace virtguard

template <>
struct std::hash<virtguard::IdSet> {
    std::size_t operator()(const virtguard::IdSet& set) const noexcept { return set.hash(); }
};
