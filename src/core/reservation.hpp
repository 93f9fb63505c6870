// SPDX-License-Identifier: Apache-2.0
#pragma once
// Space that a scheduler takes before its guest arrives: what is asked for, and who may draw on it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/idset.hpp"
#include "base/instant.hpp"
#include "base/uuid.hpp"
#include "core/demand.hpp"
#include "core/domain.hpp"
#include "core/host.hpp"
#include "core/policy.hpp"
#include "core/question.hpp"
#include "core/resource.hpp"

namespace virtguard::core {

/// Of the host. Each start asks each of them whether it may draw on it.
inline constexpr std::size_t max_reservations = 256;
/// Pieces of all reservations together: what guests draw from is an IdSet of them. Half of what
/// that can have, as another policy may make more pieces of a domain.
inline constexpr std::size_t max_pieces_of_reservations = std::size_t{IdSet::limit} / 2;
/// Bytes of a reservation's name.
inline constexpr std::size_t max_reservation_name = 64;
/// Amounts of a reservation, or parts of the domain that stands for them.
inline constexpr std::size_t max_reserved_parts = 64;
/// Bytes of the domain that stands for amounts.
inline constexpr std::size_t max_reservation_xml = std::size_t{256} << 10;
/// Guests that a reservation names.
inline constexpr std::size_t max_reservation_uuids = 64;
/// Bytes of a match, and different matches of all reservations: each guest is kept with its answer
/// to each of them.
inline constexpr std::size_t max_match = 256;
inline constexpr std::size_t max_matches = 32;

/// What tells one reservation from another.
struct ReservationId {
    std::string owner; ///< a scheduler; "" of simulate's, which belong to nobody
    std::string name;

    friend bool operator==(const ReservationId&, const ReservationId&) = default;
    friend auto operator<=>(const ReservationId&, const ReservationId&) = default;
};

/// Errc::invalid: no name of a reservation, or of a scheduler.
[[nodiscard]] Result<> check(const ReservationId& id);

/// What an amount is of: a resource, of one node or of any that unbound guests may use.
struct ReservedPart {
    Resource resource;
    std::optional<int> node{};

    /// Reads "memory" and "memory@1". Errors say what was expected.
    [[nodiscard]] static Result<ReservedPart> parse(std::string_view text);
    [[nodiscard]] std::string text() const;

    friend bool operator==(const ReservedPart&, const ReservedPart&) = default;
    friend auto operator<=>(const ReservedPart&, const ReservedPart&) = default;
};
using ReservedAmounts = std::map<ReservedPart, std::int64_t>;

/// An amount as it is booked, in whole pages of hugepages. Errc::invalid: it is not above 0, or
/// more than any domain may have.
[[nodiscard]] Result<std::int64_t> reserved_amount(const Resource& resource, std::int64_t asked);

/// The places of a part on a host: of shared vCPUs, of pageable memory, of pages. Empty where it
/// has none.
[[nodiscard]] IdSet places_of(const ReservedPart& part, const Host& host);

/// What a scheduler asks for.
struct Booking {
    ReservedAmounts amounts{};
    std::optional<Domain> domain{}; ///< what this one would hold, in place of the amounts
    /// Who may draw on it, of the owner's guests: those of these UUIDs, and of those whose start is
    /// not older than it those that the match is true of; without either, all of these.
    std::set<Uuid> uuids{};
    std::string match{}; ///< XPath without prefixes, true or false; "": none
    /// When it was made first under its name; of one from before this boot the beginning of time.
    Instant made{};

    friend bool operator==(const Booking&, const Booking&) = default;
};

/// What a booking asks of each domain's XML. Bookings of equal matches ask the same.
[[nodiscard]] std::optional<Question> question_of(const Booking& booking);

/// The custom resources of a booking that the policy does not declare: nothing is booked of them.
[[nodiscard]] std::set<Resource> undeclared(const Booking& booking, const Policy& policy);

/// What is booked on this host, or why it cannot be.
[[nodiscard]] Demand make_demand(const Booking& booking, const Host& host, const Policy& policy);

} // namespace virtguard::core
