// SPDX-License-Identifier: Apache-2.0
#include "host/capacity.hpp"

#include <string_view>

#include "base/file.hpp"
#include "base/text.hpp"
#include "core/domain.hpp"

namespace virtguard::host {

Result<std::int64_t> read_capacity(const std::filesystem::path& file) {
    constexpr std::size_t longest = 4096; // far more than a number
    const auto text = read_file(file, longest);
    if (!text)
        return std::unexpected(text.error());
    std::string_view digits = *text;
    digits = digits.substr(0, digits.find_last_not_of(" \t\r\n") + 1);
    const auto amount = parse_unsigned(digits);
    if (!amount || *amount > std::uint64_t{core::max_domain_bytes})
        return fail(Errc::invalid, "{}: {} is no capacity: expected a whole number, at most {}",
                    printable(file.native()), quote(digits), core::max_domain_bytes);
    return static_cast<std::int64_t>(*amount);
}

CapacityReadings read_capacities(const core::Policy& policy) {
    CapacityReadings readings;
    for (const auto& [key, file] : policy.capacity_files())
        if (!readings.contains(file))
            readings.emplace(file, read_capacity(file));
    return readings;
}

bool take_in(core::Policy& policy, const CapacityReadings& readings) {
    const auto before = policy.readings;
    for (const auto& [key, file] : policy.capacity_files())
        if (const auto reading = readings.find(file); reading != readings.end() && reading->second)
            policy.readings[file] = *reading->second;
    return policy.readings != before;
}

} // namespace virtguard::host
