// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a service says to systemd and gets from it. Without systemd the notes go nowhere, which is
// no failure, and no socket is passed. To be called from one thread.

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/unique.hpp"

namespace virtguard::loop {

void notify_ready(std::string_view status);  ///< start-up or reload is done
void notify_status(std::string_view status); ///< the line in `systemctl status`, if it is another
void notify_reloading();                     ///< to be followed by notify_ready()
void notify_stopping();

struct PassedSocket {
    std::string name; ///< FileDescriptorName= of the socket unit, such as "hook"
    UniqueFd fd;      ///< close-on-exec and non-blocking
};

/// The sockets this process was started with; to be called once, as it forgets them. Empty where
/// it was not started by a socket unit.
[[nodiscard]] Result<std::vector<PassedSocket>> listen_fds();

} // namespace virtguard::loop
