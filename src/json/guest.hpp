// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is kept of a guest for the next daemon.

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "core/ledger.hpp"

namespace virtguard::json {

/// A guest with what was known of its images.
struct KeptGuest : core::Guest {
    core::Images images;
};

/// The guest without what follows from policy and host (owner, demand, bound pieces), with those of
/// the images that are its own.
[[nodiscard]] std::string guest_document(const core::Guest& guest, const core::Images& images = {});
/// A field that is not known is ignored: a newer daemon may have written it.
[[nodiscard]] Result<KeptGuest> parse_guest(std::string_view document);

} // namespace virtguard::json
