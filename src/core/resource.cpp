// SPDX-License-Identifier: Apache-2.0
#include "core/resource.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace virtguard::core {

namespace {

constexpr std::string_view hugepages_prefix = "hugepages-";

std::string_view nearest_known(std::string_view name) {
    constexpr std::array<std::string_view, 4> known{"cpu", "memory", "hugepages-2Mi",
                                                    "hugepages-1Gi"};
    return *std::ranges::min_element(
        known, {}, [name](std::string_view candidate) { return edit_distance(name, candidate); });
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
