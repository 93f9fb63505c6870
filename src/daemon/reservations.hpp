// SPDX-License-Identifier: Apache-2.0
#pragma once
// Makes, renews, cancels and ends what schedulers reserve: in the guard at once, and in what is
// kept of what is set at run time.

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "core/guard.hpp"
#include "core/run_time.hpp"
#include "daemon/run_time_store.hpp"
#include "daemon/storage_watch.hpp"
#include "loop/loop.hpp"

namespace virtguard::daemon {

class Reservations {
  public:
    /// Whether the wall clock can be trusted. Once it could, it is.
    using ClockIsRight = bool (*)();

    /// Takes up what the store has. Loop, guard and store must outlive it. `changed` runs when
    /// something was reserved or has ended.
    [[nodiscard]] static Result<std::unique_ptr<Reservations>>
    create(loop::Loop& loop, core::Guard& guard, RunTimeStore& store, ClockIsRight clock_is_right,
           std::function<void()> changed);
    Reservations(const Reservations&) = delete;
    Reservations& operator=(const Reservations&) = delete;
    ~Reservations() = default;

    /// Takes up what the store has, again: a file that could not be read at first may have some.
    void take_up();

    /// Images of a domain that is to be reserved for are read from then on. It must outlive this.
    void set_storage(StorageWatch& storage) { storage_ = &storage; }

    [[nodiscard]] static bool are_meant_by(const core::Order& order);

    /// Carries out such an order; `done` runs when that is on the disk, or with why it was not
    /// carried out (syntax, invalid, not_found, refused, limit), or is not kept, which a
    /// reservation that is made then is not.
    void carry_out(core::Order order, const core::Setter& by, RunTimeStore::Kept done);

    /// What of the reservations is not booked, which do not end, and why, a line each.
    [[nodiscard]] std::vector<std::string> problems() const;

  private:
    Reservations(core::Guard& guard, RunTimeStore& store, ClockIsRight clock_is_right,
                 std::function<void()> changed)
        : guard_(guard), store_(store), clock_is_right_(clock_is_right),
          changed_(std::move(changed)) {}
    void decide(core::Order order, const core::Setter& by, RunTimeStore::Kept done);
    [[nodiscard]] Result<> read_xml(core::Reserve& order) const;
    [[nodiscard]] Result<> apply(core::Order& order);
    [[nodiscard]] RunTimeStore::Kept or_undone(core::ReservationId id,
                                               core::RunTimeReservation made,
                                               std::optional<core::RunTimeReservation> before,
                                               RunTimeStore::Kept done);
    void undo(const core::ReservationId& id, const core::RunTimeReservation& made,
              const std::optional<core::RunTimeReservation>& before);
    [[nodiscard]] Result<> book(core::Reserve& order);
    [[nodiscard]] bool trusts_clock();
    void end_those_over();
    void tell_overdue();
    [[nodiscard]] std::set<core::ReservationId> overdue() const;
    void arm();

    core::Guard& guard_;
    RunTimeStore& store_;
    StorageWatch* storage_ = nullptr;
    ClockIsRight clock_is_right_;
    bool was_right_ = false;
    std::set<core::ReservationId> overdue_; ///< as they were last told
    std::function<void()> changed_;
    std::optional<loop::Timer> timer_;
};

} // namespace virtguard::daemon
