// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the libvirt thread tells: which domains are active, and since when it may be believed.
// Events never appear here; they only make the thread look.

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "base/uuid.hpp"
#include "core/domain.hpp"

namespace virtguard::virt {

struct ActiveDomain {
    Uuid uuid;
    std::string name; ///< libvirt's, hence any bytes but NUL, '/' and line breaks
    /// From its live XML. An Error of code unavailable: libvirt did not give the XML; any other:
    /// the parser's.
    Result<core::Domain> domain;
};

/// A connection was made; a Look follows.
struct Connected {};

/// libvirt is asked what runs, or for a first connection; a Look, a DomainLook, Connected or Lost
/// follows when it answers.
struct Asked {
    Instant when;
};

/// There is no connection. Sent when one ends, and when connecting begins to fail or fails in
/// another way than before.
struct Lost {
    std::string why; ///< one line
};

/// All active domains. It may be believed for what is older than `began`, the time before libvirt
/// was asked.
struct Look {
    Instant began;
    std::vector<ActiveDomain> active; ///< one that is not listed was not active
};

/// One domain, looked at because libvirt said that something happened to it.
struct DomainLook {
    Instant began;
    Uuid uuid;
    std::optional<ActiveDomain> active; ///< nothing: it is not active, or not known at all
};

using Message = std::variant<Connected, Asked, Lost, Look, DomainLook>;

} // namespace virtguard::virt
