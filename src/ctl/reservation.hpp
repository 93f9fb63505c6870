// SPDX-License-Identifier: Apache-2.0
#pragma once
// virtguardctl reservation: space for guests to come.

#include <string>
#include <vector>

#include "core/report.hpp"
#include "ctl/screen.hpp"

namespace virtguard::ctl {

struct ReservationOptions {
    std::string socket;
    std::string owner;
    std::string name;
    std::vector<std::string> amounts; ///< "memory@1=4Gi"
    std::string xml_file;
    std::vector<std::string> uuids;
    std::string match;
    std::string lifetime; ///< "15min", "never"; "": the default
    bool force = false;
    bool json = false;
    ColourWish colour = ColourWish::automatic;
};

/// What is reserved, what of it is left, and until when. Now is what time it is.
[[nodiscard]] std::string
reservations_text(const std::vector<core::ReservationReport>& reservations, WallTime now,
                  const Screen& screen);

[[nodiscard]] int add_reservation(const ReservationOptions& options);
[[nodiscard]] int renew_reservation(const ReservationOptions& options);
[[nodiscard]] int cancel_reservation(const ReservationOptions& options);
[[nodiscard]] int list_reservations(const ReservationOptions& options);

} // namespace virtguard::ctl
