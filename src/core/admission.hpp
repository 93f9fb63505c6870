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
    std::string scheduler;    ///< the default scheduler where the domain names none
    bool accepted = false;    ///< also where it is not known whose it is
    std::optional<Mode> mode; ///< the scheduler's own mode
    std::string table;        ///< of [scheduler.accept]; "": it is in none
    /// The keys of recognisers that could not tell.
    std::vector<std::string> unanswered;
};
/// Whether the host serves a scheduler.
[[nodiscard]] bool is_accepted(const std::string& scheduler, const SchedulerPolicy& policy);
[[nodiscard]] Ownership ownership_of(const Domain& domain, const SchedulerPolicy& policy);
/// Of what belongs to a scheduler by name.
[[nodiscard]] Ownership ownership_of(std::string scheduler, const SchedulerPolicy& policy);

/// What the rules say of a domain.
struct Ruling {
    std::string name;           ///< of the first rule that matches
    const Rule* rule = nullptr; ///< of the policy; nothing where none does
    /// The keys of rules before it that could not tell.
    std::vector<std::string> unanswered;
    bool might_be_lenient = false; ///< one of those exempts or observes
};
[[nodiscard]] Ruling ruling_of(const Domain& domain, const Policy& policy);

/// What a domain is to a policy.
struct Standing {
    Ownership owner;
    Ruling ruling;
};
[[nodiscard]] Standing standing_of(const Domain& domain, const Policy& policy);

/// Decides a start on top of what others hold (by_scheduler: the same by who owns it), which is
/// tried out and stays as it was. All reasons, each with its mode; those whose mode is off are left
/// out, and all where a rule exempts it.
[[nodiscard]] Decision decide(const Domain& domain, const Standing& standing, const Demand& demand,
                              Holdings& others, const HeldByScheduler& by_scheduler,
                              const Host& host, const Policy& policy);

/// Decides whether its scheduler may have what it asks to reserve, as decide() does a start. An
/// amount that is for several guests may be more than one guest can have.
[[nodiscard]] Decision decide_reservation(const std::string& owner, const Demand& demand,
                                          bool is_of_one_guest, Holdings& others,
                                          const HeldByScheduler& by_scheduler, const Host& host,
                                          const Policy& policy);

/// What a start was answered, and what it asked for.
struct Answer {
    Decision decision;
    Demand demand;
    std::string scheduler;
};

/// The answer to a domain that no host could run, of which there is who it is, who owns it and what
/// the policy asked of it.
[[nodiscard]] Answer answer_invalid(const Domain& identity, const Error& error,
                                    const Policy& policy);

/// The answer to a start of which nothing can be read: refused in maintenance. Else it is admitted,
/// and for hook.unavailable to decide.
[[nodiscard]] Answer answer_unread(const Policy& policy);

/// What a rule does about what a start is refused for; "" where that is nothing.
[[nodiscard]] std::string note_of(const Ruling& ruling);

} // namespace virtguard::core
