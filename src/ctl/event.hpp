// SPDX-License-Identifier: Apache-2.0
#pragma once
// The events of simulate, from arguments to values.

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "base/ratio.hpp"
#include "core/domain.hpp"
#include "core/host.hpp"
#include "core/ledger.hpp"
#include "core/reservation.hpp"
#include "core/resource.hpp"

namespace virtguard::ctl {

/// start:FILE, or running:FILE (already there: counted, not checked).
struct Start {
    bool already_runs = false;
    Result<core::Domain> domain; ///< Errc::invalid: a domain that no host could run
    core::Domain identity;       ///< then: its name and UUID, as far as they can be read
};
/// stop:NAME-or-UUID
struct Stop {
    std::string guest;
};
/// ratio:RESOURCE=VALUE
struct SetRatio {
    core::Resource resource;
    Ratio ratio;
};
/// reserve:NAME:RESOURCE[@NODE]=VALUE[,...][:NAME-or-UUID]
struct Reserve {
    struct Item {
        core::ReservedPart part;
        std::int64_t amount = 0;
    };
    std::string name;
    std::vector<Item> items;
    std::optional<std::string> guest;
};
using Event = std::variant<Start, Stop, SetRatio, Reserve>;

/// Reads an event and the file it names, of which the policy asks questions; the policy also
/// declares resources. The error says what was expected.
[[nodiscard]] Result<Event> parse_event(const std::string& argument,
                                        const core::Policy& policy = {});

/// Reads "RESOURCE[@NODE]=VALUE".
[[nodiscard]] Result<Reserve::Item> parse_reserved(std::string_view text);

/// The pieces of a reservation on this host: shared vCPUs, pageable memory, whole pages.
[[nodiscard]] Result<std::vector<core::Piece>> pieces_of(const Reserve& reserve,
                                                         const core::Host& host);

} // namespace virtguard::ctl
