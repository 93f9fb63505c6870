// SPDX-License-Identifier: Apache-2.0
#pragma once
// What virtguardd tells whoever follows it on the bus, as a client hears it: words, as it may be
// newer than the client.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/history.hpp"

namespace virtguard::core {

struct HeardReason {
    std::string code;
    std::string resource;
    std::string nodes; ///< as IdSet has them
    std::int64_t requested = 0;
    std::int64_t free = 0;
    std::int64_t effective = 0;
    std::string mode;
    std::string text;

    friend bool operator==(const HeardReason&, const HeardReason&) = default;
};

struct HeardStart {
    std::string name;
    std::string uuid;
    std::string scheduler;
    Verdict verdict = Verdict::admit;
    std::vector<HeardReason> reasons;

    friend bool operator==(const HeardStart&, const HeardStart&) = default;
};

/// What of the host is followed.
struct HeardHost {
    std::string version;
    std::string mode;
    std::string state;
    std::vector<std::string> problems;
    std::map<std::string, std::string> overcommit; ///< ratios, by resource
    std::vector<std::string> over_capacity;

    friend bool operator==(const HeardHost&, const HeardHost&) = default;
};

} // namespace virtguard::core
