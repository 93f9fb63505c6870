// SPDX-License-Identifier: Apache-2.0
#include "base/journal.hpp"

#include <cstdint>

#include <fmt/format.h>

namespace virtguard {

namespace {

/// "NAME=value", or where that would end too early: NAME, the length as eight bytes with the lowest
/// first, the value; each ended by a newline.
void add(std::string& entry, std::string_view name, std::string_view value) {
    if (value.find('\n') == std::string_view::npos) {
        entry += fmt::format("{}={}\n", name, value);
        return;
    }
    entry += fmt::format("{}\n", name);
    for (std::uint64_t rest = value.size(), byte = 0; byte < 8; ++byte, rest >>= 8)
        entry += static_cast<char>(rest & 0xff);
    entry += value;
    entry += '\n';
}

} // namespace

std::string journal_entry(int priority, std::string_view identifier, std::string_view message,
                          const LogFields& fields) {
    std::string entry;
    add(entry, "MESSAGE", message);
    add(entry, "PRIORITY", std::to_string(priority));
    add(entry, "SYSLOG_IDENTIFIER", identifier);
    for (const auto& [name, value] : fields)
        add(entry, name, value);
    return entry;
}

} // namespace virtguard
