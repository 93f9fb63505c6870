// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the tests of ledger and guard share: guests by number, and what must always hold.

#include <chrono>
#include <map>
#include <string>

#include "core/guard.hpp"
#include "hosts.hpp"

namespace virtguard::core {

inline Instant at(std::chrono::milliseconds since_boot) {
    return Instant{since_boot};
}

inline Domain guest(int number, std::int64_t size = gib) {
    Domain domain = with_memory(fmt::format("guest-{}", number), {ram(size)});
    domain.uuid = Uuid{};
    domain.uuid->bytes[15] = static_cast<std::uint8_t>(number);
    return domain;
}

inline std::string id(int number) {
    return identity_of(guest(number));
}

/// No kept places, so that what is released is free at once.
inline Policy plain_policy() {
    Policy policy = bare_policy();
    policy.claim.return_hold = std::chrono::milliseconds(0);
    return policy;
}

inline Guard plain_guard() {
    return {equal_nodes(2, 4, 16 * gib), plain_policy()};
}

/// As the daemon asks: decided and claimed in one step.
inline bool admit(Guard& guard, const Domain& domain, Instant when) {
    return guard.admit(domain, when, IfKept::refuse).value().decision.admitted();
}

/// What is wrong with a ledger; "" when all that must hold does.
inline std::string broken_invariant(const Ledger& ledger) {
    Holdings sum{Host{}};
    for (const auto& [identity, entry] : ledger.guests()) {
        if (identity != identity_of(entry.domain))
            return "a guest is filed under another's identity";
        sum.add(entry.held(),
                entry.state == GuestState::running ? &Share::allocated : &Share::pending);
        if (entry.bound)
            sum.add(entry.bound->untouched, &Share::untouched);
    }
    HeldByScheduler owned;
    for (const auto& [identity, entry] : ledger.guests())
        for (const Piece& piece : entry.demand.pieces)
            owned[entry.scheduler][piece.resource] += piece.amount;
    for (const auto& [booking, reservation] : ledger.reservations())
        for (const Piece& piece : ledger.booked(booking))
            if (!booking.owner.empty() && piece.amount > 0)
                owned[booking.owner][piece.resource] += piece.amount;
    if (owned != ledger.held_by_scheduler())
        return "what a scheduler holds is not what its guests hold and what it has booked";
    std::map<Resource, Int128> booked;
    for (const auto& [resource, classes] : ledger.holdings().by_resource()) {
        if (classes.empty())
            return "a resource without classes";
        for (const auto& [piece_class, share] : classes) {
            const Classes& summed = sum.of(resource);
            const auto own = summed.find(piece_class);
            const Share expected = own == summed.end() ? Share{} : own->second;
            if (share.allocated != expected.allocated || share.pending != expected.pending ||
                share.untouched != expected.untouched)
                return "what is held is not what guests hold";
            if (share == Share{} || share.booked < 0 || share.foreign < 0)
                return "a class of nothing, or less";
            booked[resource] += share.booked;
        }
    }
    for (const auto& [resource, classes] : sum.by_resource())
        for (const auto& [piece_class, share] : classes)
            if (!ledger.holdings().of(resource).contains(piece_class))
                return "what a guest holds is missing";
    std::map<Resource, Int128> asked;
    for (const auto& [booking, reservation] : ledger.reservations())
        for (const Piece& piece : reservation.pieces)
            asked[piece.resource] += piece.amount;
    for (const auto& [resource, amount] : booked)
        if (amount > asked[resource])
            return "more is booked than was asked";
    return "";
}

} // namespace virtguard::core
