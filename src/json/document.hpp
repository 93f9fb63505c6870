// SPDX-License-Identifier: Apache-2.0
#pragma once
// The JSON documents that virtguardctl shows and virtguardd sends it: docs/json.md has their
// schema. Names are those of DESIGN section 7; bytes and vCPUs are integers, sets of nodes arrays.

#include <compare>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "core/history.hpp"
#include "core/report.hpp"

namespace virtguard::json {

/// One event of simulate: the argument as given and, of a domain's event, what came of it.
struct Event {
    std::string event;
    std::optional<core::Outcome> outcome;
    bool decided = false;       ///< it was a start, which has a verdict
    bool found_nothing = false; ///< a stop of what does not run; not in the document
};

[[nodiscard]] std::string simulation_document(const std::vector<Event>& events,
                                              const core::Report& report);

/// Something that virtguardd, libvirt and the kernel do not agree on.
struct Difference {
    std::string subject; ///< the name of a domain, else of a resource
    std::string what;

    friend auto operator<=>(const Difference&, const Difference&) = default;
};
[[nodiscard]] std::string ledger_document(std::size_t guests, const std::set<Difference>& found);

/// What policy is in force, and what is wrong with the files, which are not then.
struct PolicyInForce {
    std::vector<core::Setting> settings;
    std::vector<std::string> problems;
    /// Of what is set at run time: as the files have it.
    std::vector<core::Setting> replaced{};

    friend bool operator==(const PolicyInForce&, const PolicyInForce&) = default;
};
[[nodiscard]] std::string policy_document(const PolicyInForce& policy);
[[nodiscard]] Result<PolicyInForce> parse_policy(std::string_view document);

/// All that is wrong with a policy's files.
[[nodiscard]] std::string policy_check_document(const std::vector<std::string>& errors);

/// A key whose value in the files is another than in force; nothing where it has none.
struct PolicyChange {
    std::optional<core::Setting> in_force;
    std::optional<core::Setting> in_files;
};
[[nodiscard]] std::string policy_difference_document(const std::vector<PolicyChange>& changes);

/// Something that doctor looked at.
struct Finding {
    std::string subject; ///< "hook", "policy", a resource's name
    bool ok = true;
    std::string text;
    std::string remedy; ///< what to do; "" where there is nothing to do
};
[[nodiscard]] std::string doctor_document(const std::vector<Finding>& findings);

[[nodiscard]] std::string outcome_document(const core::Outcome& outcome);
[[nodiscard]] Result<core::Outcome> parse_outcome(std::string_view document);

[[nodiscard]] std::string status_document(const core::Status& status);
/// The parts of it that nodes, domains and reservations show.
[[nodiscard]] std::string nodes_document(const core::Status& status);
[[nodiscard]] std::string domains_document(const core::Status& status);
[[nodiscard]] std::string reservations_document(const core::Status& status);
[[nodiscard]] Result<core::Status> parse_status(std::string_view document);

/// In the order given.
[[nodiscard]] std::string history_document(const std::vector<core::DecidedStart>& starts);
[[nodiscard]] Result<std::vector<core::DecidedStart>> parse_history(std::string_view document);

} // namespace virtguard::json
