// SPDX-License-Identifier: Apache-2.0
#pragma once
// The journal's own protocol, in which a line has fields: one datagram per entry, as on
// https://systemd.io/JOURNAL_NATIVE_PROTOCOL. Without libsystemd, whose sd_journal_sendv() may
// wait.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace virtguard {

/// Names of A-Z, 0-9 and _; any values. A name may stand there several times.
using LogFields = std::vector<std::pair<std::string, std::string>>;

/// The datagram's bytes: what is common to all entries, then the fields.
[[nodiscard]] std::string journal_entry(int priority, std::string_view identifier,
                                        std::string_view message, const LogFields& fields);

} // namespace virtguard
