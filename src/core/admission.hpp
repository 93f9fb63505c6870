// SPDX-License-Identifier: Apache-2.0
#pragma once
// May this domain start? Exactly when a placement exists.

#include "core/decision.hpp"
#include "core/demand.hpp"
#include "core/host.hpp"
#include "core/ledger.hpp"
#include "core/policy.hpp"

namespace virtguard::core {

/// Who owns a domain, and whether this host serves them.
struct Ownership {
    std::string scheduler; ///< the default scheduler where the domain names none
    bool accepted = false;
    std::optional<Mode> mode; ///< the scheduler's own mode
    std::string table;        ///< of [scheduler.accept]; "": it is in none
    /// The keys of recognisers that could not tell.
    std::vector<std::string> unanswered;
};
/// Whether the host serves a scheduler.
[[nodiscard]] bool is_accepted(const std::string& scheduler, const SchedulerPolicy& policy);
[[nodiscard]] Ownership ownership_of(const Domain& domain, const SchedulerPolicy& policy);

/// What the rules say of a domain.
struct Ruling {
    std::string name;           ///< of the first rule that matches
    const Rule* rule = nullptr; ///< of the policy; nothing where none does
    /// The keys of rules before it that could not tell.
    std::vector<std::string> unanswered;
};
[[nodiscard]] Ruling ruling_of(const Domain& domain, const Policy& policy);

/// Decides a start on top of what others hold (by_scheduler: the same by who owns it), which is
/// tried out and stays as it was. All reasons, each with its mode; those whose mode is off are left
/// out, and all where a rule exempts it.
[[nodiscard]] Decision decide(const Domain& domain, const Demand& demand, Holdings& others,
                              const HeldByScheduler& by_scheduler, const Host& host,
                              const Policy& policy);

/// What a start was answered, and what it asked for.
struct Answer {
    Decision decision;
    Demand demand;
    std::string scheduler;
};

/// The answer to a domain that no host could run.
[[nodiscard]] Decision refuse_invalid(const Error& error, const Policy& policy);

} // namespace virtguard::core
