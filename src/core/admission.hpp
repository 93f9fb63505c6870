// SPDX-License-Identifier: Apache-2.0
#pragma once
// May this domain start? Exactly when a placement exists.

#include "base/checked.hpp"
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
};
[[nodiscard]] Ownership ownership_of(const Domain& domain, const SchedulerPolicy& policy);

/// Decides a start on top of what others hold. All reasons, each with its mode; those whose mode is
/// off are left out.
[[nodiscard]] Decision decide(const Domain& domain, const Demand& demand, const Holdings& others,
                              const Host& host, const Policy& policy);

/// What a start was answered, and what it asked for.
struct Answer {
    Decision decision;
    Demand demand;
    std::string scheduler;
};

/// The answer to a domain that no host could run.
[[nodiscard]] Decision refuse_invalid(const Error& error, const Policy& policy);

/// How a pool's amounts weigh against each other in one flow. With a ratio of
/// numerator/denominator, a place has room numerator per unit, and a unit takes pageable or whole
/// of that.
struct Weights {
    std::int64_t room = 1;
    std::int64_t pageable = 1;
    std::int64_t whole = 1;

    [[nodiscard]] std::int64_t of(bool is_whole) const { return is_whole ? whole : pageable; }
};
[[nodiscard]] Weights weights_of(const Resource& resource, const Ratio& ratio);

/// The amounts of a part of a pool.
struct PartFigures {
    std::int64_t capacity = 0;
    std::int64_t reserved = 0;
    std::int64_t allocatable = 0;
    std::int64_t effective = 0;
    Share held;            ///< what can lie nowhere else
    std::int64_t free = 0; ///< effective - held: the identity of DESIGN section 1
    Int128 slack = 0;      ///< free room in the flow's unit; negative when over
};
[[nodiscard]] PartFigures figures_of(const Host& host, const Resource& resource,
                                     const IdSet& places, const Classes& held);

/// The most that further starts bound to these places could be given (shared vCPUs, pageable
/// memory, whole pages), beside what is held.
[[nodiscard]] std::int64_t most_for(const Host& host, const Resource& resource, const IdSet& places,
                                    const Classes& held);

} // namespace virtguard::core
