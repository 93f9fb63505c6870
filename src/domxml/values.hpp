// SPDX-License-Identifier: Apache-2.0
#pragma once
// Texts of elements and attributes as numbers, sizes and sets, with libvirt's rules for them.

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/idset.hpp"
#include "domxml/document.hpp"

namespace virtguard::domxml {

/// "<cell memory>", or "<memory>" where no attribute is named: how messages name a place.
[[nodiscard]] std::string place(Element element, std::string_view attribute = {});

/// A whole number below 2^32 as libvirt takes it: spaces before it and a plus sign, nothing behind.
[[nodiscard]] Result<std::uint32_t> number_in(Element element, std::string_view text,
                                              std::string_view attribute = {});
/// Nothing where the attribute is absent; so with those below.
[[nodiscard]] Result<std::optional<std::uint32_t>> number_attribute(Element element,
                                                                    std::string_view attribute);

/// The element's text as bytes, in the unit its attribute "unit" names (KiB where it names none),
/// rounded up to KiB, at most core::max_domain_bytes. Nothing for none and for an empty text.
[[nodiscard]] Result<std::optional<std::int64_t>> size_in(Element element);
/// The same of an attribute, with the unit of the same element.
[[nodiscard]] Result<std::optional<std::int64_t>> size_attribute(Element element,
                                                                 std::string_view attribute);

/// A set of ids that is not empty.
[[nodiscard]] Result<IdSet> set_in(Element element, std::string_view text,
                                   std::string_view attribute = {});
[[nodiscard]] Result<std::optional<IdSet>> set_attribute(Element element,
                                                         std::string_view attribute);

} // namespace virtguard::domxml
