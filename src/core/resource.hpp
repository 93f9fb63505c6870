// SPDX-License-Identifier: Apache-2.0
#pragma once
// The names of what a host has and a guest asks for.

#include <bit>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

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

/// "cpu", "memory", "hugepages-2Mi", "ephemeral-storage", and what a policy declares: "licences",
/// "example.org/gpu". The order is the one reasons and reports are listed in: cpu, memory,
/// hugepages by size, storage, custom ones by name.
struct Resource {
    enum class Kind { cpu, memory, hugepages, storage, custom };

    Kind kind = Kind::cpu;
    std::int64_t page_size = 0;   ///< bytes; of hugepages only, else 0
    std::string custom_name = {}; ///< of custom ones only, else ""

    [[nodiscard]] static Resource cpu() { return {Kind::cpu}; }
    [[nodiscard]] static Resource memory() { return {Kind::memory}; }
    [[nodiscard]] static Resource hugepages(std::int64_t page_size) {
        return {Kind::hugepages, page_size};
    }
    [[nodiscard]] static Resource storage() { return {Kind::storage}; }
    /// The name must be one that custom resources may have.
    [[nodiscard]] static Resource custom(std::string name) {
        return {Kind::custom, 0, std::move(name)};
    }

    /// Reads the name of any resource there could be.
    [[nodiscard]] static Result<Resource> parse(std::string_view name);
    /// The same, but a custom one must be of the declared, by name. The error suggests the nearest
    /// known name.
    [[nodiscard]] static Result<Resource> parse_known(std::string_view name,
                                                      std::span<const std::string> declared = {});
    [[nodiscard]] std::string name() const;
    /// Amounts of it are sizes; of others they are counts.
    [[nodiscard]] bool is_bytes() const { return kind != Kind::cpu && kind != Kind::custom; }

    friend bool operator==(const Resource&, const Resource&) = default;
    friend auto operator<=>(const Resource&, const Resource&) = default;
};

/// Amounts by resource: vCPUs for cpu, bytes for memory, hugepages and storage, and for custom ones
/// what the policy counts. May be negative where it says so.
using Quantities = std::map<Resource, std::int64_t>;

} // namespace virtguard::core
