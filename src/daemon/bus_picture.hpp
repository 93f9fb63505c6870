// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the service knows, as the bus shows it.

#include "base/instant.hpp"
#include "bus/picture.hpp"
#include "daemon/service.hpp"

namespace virtguard::daemon {

/// Tells the time of day of an instant: always the same one of the same instant, until somebody
/// sets the clock.
class Calendar {
  public:
    [[nodiscard]] WallTime time_of(Instant when);

  private:
    WallTime booted_{}; ///< by the clock as it was set
};

/// Dear on large hosts, as core::make_report() is.
[[nodiscard]] bus::Picture bus_picture(const Service& service, Calendar& calendar);

} // namespace virtguard::daemon
