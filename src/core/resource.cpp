// SPDX-License-Identifier: Apache-2.0
#include "core/resource.hpp"

#include <algorithm>
#include <vector>

#include "base/text.hpp"

namespace virtguard::core {

namespace {

constexpr std::string_view hugepages_prefix = "hugepages-";
constexpr std::string_view storage_name = "ephemeral-storage";

// Kubernetes' limits, so that its objects can carry the names.
constexpr std::size_t max_vendor_bytes = 253; ///< a host name's
constexpr std::size_t max_label_bytes = 63;

bool is_lower_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}
bool is_letter_or_digit(char c) {
    return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z');
}

/// 1 to max_label_bytes of `plain` characters, and of `inner` ones between them.
bool is_label(std::string_view text, bool (*plain)(char), std::string_view inner) {
    return !text.empty() && text.size() <= max_label_bytes && plain(text.front()) &&
           plain(text.back()) &&
           std::ranges::all_of(text, [&](char c) { return plain(c) || inner.contains(c); });
}

/// Labels of a host name.
bool is_vendor(std::string_view text) {
    if (text.size() > max_vendor_bytes)
        return false;
    for (;;) {
        const std::size_t dot = text.find('.');
        if (!is_label(text.substr(0, dot), is_lower_or_digit, "-"))
            return false;
        if (dot == std::string_view::npos)
            return true;
        text.remove_prefix(dot + 1);
    }
}

bool is_custom_name(std::string_view name) {
    const std::size_t slash = name.find('/');
    const bool has_vendor = slash != std::string_view::npos;
    return (!has_vendor || is_vendor(name.substr(0, slash))) &&
           is_label(has_vendor ? name.substr(slash + 1) : name, is_letter_or_digit, "-_.");
}

std::string nearest_known(std::string_view name, std::span<const std::string> declared) {
    std::vector<std::string> known{"cpu", "memory", "hugepages-2Mi", "hugepages-1Gi",
                                   std::string(storage_name)};
    known.insert(known.end(), declared.begin(), declared.end());
    return *std::ranges::min_element(
        known, {}, [name](std::string_view candidate) { return edit_distance(name, candidate); });
}

} // namespace

Result<Resource> Resource::parse(std::string_view name) {
    if (name == "cpu")
        return cpu();
    if (name == "memory")
        return memory();
    if (name == storage_name)
        return storage();
    if (name.starts_with(hugepages_prefix)) {
        const auto size = parse_size(name.substr(hugepages_prefix.size()));
        if (size && *size > 0)
            return hugepages(*size);
        return fail(Errc::invalid,
                    "{} does not name a page size: expected such as \"hugepages-2Mi\"",
                    quote(name));
    }
    if (is_custom_name(name))
        return custom(std::string(name));
    return fail(Errc::invalid,
                "{} is not a name of a resource: expected such as \"licences\" or "
                "\"example.org/gpu\", in each part 1 to {} letters, digits and, between them, -, _ "
                "or .",
                quote(name), max_label_bytes);
}

Result<Resource> Resource::parse_known(std::string_view name,
                                       std::span<const std::string> declared) {
    auto resource = parse(name);
    if (name.starts_with(hugepages_prefix) ||
        (resource &&
         (resource->kind != Kind::custom || std::ranges::find(declared, name) != declared.end())))
        return resource;
    return fail(Errc::not_found, "{} is not a resource; did you mean \"{}\"?", quote(name),
                nearest_known(name, declared));
}

std::string Resource::name() const {
    switch (kind) {
    case Kind::cpu:
        return "cpu";
    case Kind::memory:
        return "memory";
    case Kind::hugepages:
        return fmt::format("{}{}", hugepages_prefix, format_iec(page_size));
    case Kind::storage:
        return std::string(storage_name);
    case Kind::custom:
        return custom_name;
    }
    std::unreachable();
}

} // namespace virtguard::core
