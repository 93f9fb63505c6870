// SPDX-License-Identifier: Apache-2.0
#pragma once
// The names of what a host has and a guest asks for.

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace virtguard::core {

inline constexpr std::int64_t min_page_size = std::int64_t{4} << 10;
inline constexpr std::int64_t max_page_size = std::int64_t{16} << 30;

/// Whether some architecture of Linux has pages of so many bytes: a power of two between the
/// smallest base page and the largest hugepage (that of arm64, powerpc and sparc).
[[nodiscard]] constexpr bool is_page_size(std::int64_t bytes) noexcept {
    return bytes >= min_page_size && bytes <= max_page_size &&
           std::has_single_bit(static_cast<std::uint64_t>(bytes));
}

/// "cpu", "memory", "hugepages-2Mi". The order is the one reasons and reports are listed in: cpu,
/// memory, hugepages by size.
struct Resource {
    enum class Kind { cpu, memory, hugepages };

    Kind kind = Kind::cpu;
    std::int64_t page_size = 0; ///< bytes; of hugepages only, else 0

    [[nodiscard]] static constexpr Resource cpu() { return {Kind::cpu, 0}; }
    [[nodiscard]] static constexpr Resource memory() { return {Kind::memory, 0}; }
    [[nodiscard]] static constexpr Resource hugepages(std::int64_t page_size) {
        return {Kind::hugepages, page_size};
    }

    /// Reads a name; that of an unknown one is an error which suggests the nearest known name.
    [[nodiscard]] static Result<Resource> parse(std::string_view name);
    [[nodiscard]] std::string name() const;

    friend bool operator==(const Resource&, const Resource&) = default;
    friend auto operator<=>(const Resource&, const Resource&) = default;
};

/// Amounts by resource: vCPUs for cpu, bytes for the others. May be negative where it says so.
using Quantities = std::map<Resource, std::int64_t>;

} // namespace virtguard::core
