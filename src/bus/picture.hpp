// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the objects on the bus show.

#include <map>
#include <string>
#include <vector>

#include "base/instant.hpp"
#include "core/report.hpp"

namespace virtguard::bus {

struct DomainPicture {
    core::GuestReport guest; ///< its UUID is known
    std::vector<core::ShownPiece> pieces;
    WallTime since; ///< when it came into its state

    friend bool operator==(const DomainPicture&, const DomainPicture&) = default;
};

struct Picture {
    core::Status status; ///< but for its guests and nodes, which are objects of their own
    std::vector<std::string> schedulers; ///< globs of those that the host serves
    std::vector<std::string> policy_files;
    std::map<std::string, core::NodeReport> nodes; ///< by object path, as the next
    std::map<std::string, DomainPicture> domains;
};

} // namespace virtguard::bus
