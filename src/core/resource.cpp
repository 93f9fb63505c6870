// SPDX-License-Identifier: Apache-2.0
#include "core/resource.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/text.hpp"

namespace virtguard::core {

namespace {

constexpr std::string_view hugepages_prefix = "hugepages-";

/// Levenshtein's distance: how many letters to add, drop or change.
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
        }
    }
    return row.back();
}

std::string_view nearest_known(std::string_view name) {
    constexpr std::array<std::string_view, 4> known{"cpu", "memory", "hugepages-2Mi",
                                                    "hugepages-1Gi"};
    constexpr std::size_t longest_compared = 64;
    return *std::ranges::min_element(known, {}, [&](std::string_view candidate) {
        return distance(name.substr(0, longest_compared), candidate);
    });
}

} // namespace

Result<Resource> Resource::parse(std::string_view name) {
    if (name == "cpu")
        return cpu();
    if (name == "memory")
        return memory();
    if (name.starts_with(hugepages_prefix)) {
        const auto size = parse_size(name.substr(hugepages_prefix.size()));
        if (size && *size > 0)
            return hugepages(*size);
        return fail(Errc::invalid,
                    "{} does not name a page size: expected such as \"hugepages-2Mi\"",
                    quote(name));
    }
    return fail(Errc::not_found, "{} is not a resource; did you mean \"{}\"?", quote(name),
                nearest_known(name));
}

std::string Resource::name() const {
    switch (kind) {
    case Kind::cpu:
        return "cpu";
    case Kind::memory:
        return "memory";
    case Kind::hugepages:
        return fmt::format("{}{}", hugepages_prefix, format_iec(page_size));
    }
    std::unreachable();
}

} // namespace virtguard::core
