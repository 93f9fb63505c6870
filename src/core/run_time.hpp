// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is set while virtguardd runs, in place of what the policy's files say, until it is reset.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "base/ratio.hpp"
#include "core/policy.hpp"
#include "core/reservation.hpp"
#include "core/resource.hpp"

namespace virtguard::core {

/// Who set something, and when.
struct Setter {
    WallTime time;
    std::uint32_t uid = 0;
    std::string user; ///< "" where no name of that user is known

    friend bool operator==(const Setter&, const Setter&) = default;
};

/// The user's name, or "uid 1000".
[[nodiscard]] std::string user_text(const Setter& setter);
/// "2026-11-30 16:19:09 UTC"; of a time up to last_expiry.
[[nodiscard]] std::string time_text(WallTime time);
/// "run time by root at 2026-11-30 16:19:09 UTC"
[[nodiscard]] std::string origin_text(const Setter& setter);

struct RunTimeRatio {
    Ratio ratio;
    Setter by;

    friend bool operator==(const RunTimeRatio&, const RunTimeRatio&) = default;
};

struct RunTimeMode {
    std::optional<Mode> mode; ///< nothing: maintenance
    std::string message;      ///< of maintenance
    Setter by;

    friend bool operator==(const RunTimeMode&, const RunTimeMode&) = default;
};

struct RunTimeReservation {
    Booking booking;
    std::optional<WallTime> expiry; ///< nothing: never
    Setter by;
    /// In place of the expiry, by the clock of this boot, as long as the wall clock is not known to
    /// be right: of one that lasts for a span.
    std::optional<Instant> end{};

    friend bool operator==(const RunTimeReservation&, const RunTimeReservation&) = default;
};

struct RunTime {
    std::map<Resource, RunTimeRatio> overcommit;
    std::optional<RunTimeMode> mode;
    std::map<ReservationId, RunTimeReservation> reservations;

    friend bool operator==(const RunTime&, const RunTime&) = default;
};

/// What of the reservations the guard is to know.
[[nodiscard]] std::map<ReservationId, Booking> bookings(const RunTime& run_time);

/// The policy of the files, with what is set at run time in its place.
[[nodiscard]] Policy in_force(Policy files, const RunTime& run_time);

struct SetOvercommit {
    Resource resource; ///< of hugepages 1 is no error, as in a file, and changes nothing
    Ratio ratio;

    friend bool operator==(const SetOvercommit&, const SetOvercommit&) = default;
};
struct ResetOvercommit {
    std::optional<Resource> resource; ///< nothing: all that are set

    friend bool operator==(const ResetOvercommit&, const ResetOvercommit&) = default;
};
struct SetMode {
    std::optional<Mode> mode; ///< nothing: maintenance
    std::string message;      ///< of maintenance

    friend bool operator==(const SetMode&, const SetMode&) = default;
};
struct ResetMode {
    friend bool operator==(const ResetMode&, const ResetMode&) = default;
};

struct Never {
    friend bool operator==(const Never&, const Never&) = default;
};
/// When a reservation ends: so long after it is ordered, at a time, or never.
using Expiry = std::variant<std::chrono::microseconds, WallTime, Never>;
inline constexpr std::chrono::minutes default_lifetime{15};
/// The year 9999's end: what can be written as a date.
inline constexpr WallTime last_expiry{std::chrono::seconds(253'402'300'799)};

struct Reserve {
    ReservationId id;
    Booking booking{};
    /// Of the domain that the booking is to have, in place of amounts; who carries the order out
    /// reads it.
    std::string xml{};
    Expiry expiry = default_lifetime;
    bool force = false; ///< also where it does not fit

    friend bool operator==(const Reserve&, const Reserve&) = default;
};
struct RenewReservation {
    ReservationId id;
    Expiry expiry = default_lifetime;

    friend bool operator==(const RenewReservation&, const RenewReservation&) = default;
};
struct CancelReservation {
    ReservationId id;

    friend bool operator==(const CancelReservation&, const CancelReservation&) = default;
};

/// What those who may can have done.
using Order = std::variant<SetOvercommit, ResetOvercommit, SetMode, ResetMode, Reserve,
                           RenewReservation, CancelReservation>;

/// Orders from words. Errors say what was expected; whether a custom resource is declared is for
/// the policy in force to say.
[[nodiscard]] Result<Order> read_set_overcommit(std::string_view resource, std::string_view ratio);
/// "": all resources.
[[nodiscard]] Result<Order> read_reset_overcommit(std::string_view resource);

/// Of maintenance; bytes. In a refusal of 2,000 bytes there is room for other reasons beside it.
inline constexpr std::size_t max_message = 500;
/// "enforce", "observe", "off", "maintenance", or "reset", which is as the files say. A message, of
/// one line, is of maintenance only.
[[nodiscard]] Result<Order> read_set_mode(std::string_view mode, std::string_view message);

/// A Reserve as words and numbers. What is given and empty is an error: it would have meant fewer
/// guests, or another amount, than what is not given.
struct ReserveWords {
    ReservationId id;
    std::map<std::string, std::int64_t> amounts{}; ///< by "memory@1": vCPUs or bytes
    std::optional<std::string> xml{};
    std::optional<std::vector<std::string>> uuids{};
    std::optional<std::string> match{};
    Expiry expiry = default_lifetime;
    bool force = false;
};
/// What it may draw on is not asked of any XML yet: see QuestionCheck.
[[nodiscard]] Result<Order> read_reserve(ReserveWords words);
[[nodiscard]] Result<Order> read_renew(ReservationId id, Expiry expiry);
[[nodiscard]] Result<Order> read_cancel(ReservationId id);
/// Microseconds of the wall clock, 0: never.
[[nodiscard]] Result<Expiry> read_expiry(std::uint64_t microseconds);

/// What a booking may have at most, of the domain that was read for it too.
[[nodiscard]] Result<> check(const Booking& booking);

/// "overcommit.cpu = 1.5", "overcommit.cpu as in the files"
[[nodiscard]] std::string order_text(const Order& order);

/// What is set when the order has been carried out, now. A reservation that is renewed is there.
[[nodiscard]] RunTime carried_out(RunTime before, const Order& order, const Setter& by,
                                  Instant now = {});

/// A reservation that is not there, or one too many, keeps an order from being carried out. Errors:
/// not_found, limit.
[[nodiscard]] Result<> check(const RunTime& before, const Order& order);

/// The time of now; of day only where that is known to be right.
struct Now {
    Instant boot;
    std::optional<WallTime> wall{};
};
/// The reservations whose time is over.
[[nodiscard]] std::vector<ReservationId> expired(const RunTime& run_time, const Now& now);
/// How long until the next one's is, not below 0; nothing where all last for ever. What ends at a
/// time of day that is not known lasts long.
[[nodiscard]] std::optional<Span> time_to_expiry(const RunTime& run_time, const Now& now);
/// The wall clock is known to be right: what ends by the clock of this boot ends at a time of day.
void trust_wall_clock(RunTime& run_time, Instant boot, WallTime wall);

} // namespace virtguard::core
