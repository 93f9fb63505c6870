// SPDX-License-Identifier: Apache-2.0
//
// For each resource two questions are asked. Alone: would the start's pieces fit an empty host at
// ratio 1? Together: do they fit on top of all that is held? Where the answer is no, the parts of
// the pool that are short are the reasons.
#include "core/admission.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "core/occupancy.hpp"
#include "core/wording.hpp"

namespace virtguard::core {

namespace {

Shortage shortage_in(const Resource& resource, const Pool& pool, const Occupancy& occupancy,
                     const ShortPart& part, std::span<const Load> loads) {
    const Weights weights = weights_of(resource, pool.ratio);
    Int128 needed = 0;
    Shortage shortage{.resource = resource, .places = part.places};
    for (const Load& load : loads)
        if (occupancy.is_bound_to(part.places, *load.places)) {
            shortage.requested += load.amount;
            needed += static_cast<Int128>(load.amount) * weights.of(load.whole);
        }
    shortage.is_all = occupancy.is_whole_pool(part.places);
    // The part of the request, its kinds in proportion, that would still fit.
    shortage.free = saturate(multiply_divide(part.state.slack, shortage.requested, needed));
    shortage.effective = part.state.effective;
    shortage.allocatable = part.state.allocatable;
    shortage.alone = part.alone;
    return shortage;
}

/// The host if what could not be read of a resource were as much as anything may need.
Host with_plenty(const Resource& resource, Host host) {
    Pool& pool = host.pools.at(resource);
    for (const auto& [place, key] : pool.unread)
        pool.places.at(place).capacity = max_domain_bytes;
    return host;
}

/// Who is to have what is asked for.
enum class For { one_guest, many };

/// Why what is asked of each pool does not fit.
void check_pools(const Demand& demand, For whom, Holdings& others, const Host& host,
                 std::vector<Reason>& reasons) {
    std::vector<Load> loads;
    for (std::size_t i = 0; i < demand.pieces.size();) {
        const Resource& resource = demand.pieces[i].resource;
        loads.clear();
        for (; i < demand.pieces.size() && demand.pieces[i].resource == resource; ++i)
            if (const Piece& piece = demand.pieces[i]; !piece.places.empty())
                loads.push_back({&piece.places, piece.whole, piece.amount});
        Occupancy* occupancy = others.occupancy(resource);
        if (occupancy == nullptr || loads.empty())
            continue;
        const Pool& pool = *host.pool(resource);
        const auto check = [&] {
            const std::vector<ShortPart> parts = whom == For::one_guest
                                                     ? occupancy->short_parts(loads)
                                                     : occupancy->short_together(loads);
            for (const ShortPart& part : parts)
                reasons.push_back(
                    shortage_reason(host, shortage_in(resource, pool, *occupancy, part, loads)));
        };
        const std::size_t before = reasons.size();
        check();
        if (reasons.size() == before || pool.unread.empty())
            continue;
        // Short is what would be so whatever the files say.
        reasons.erase(reasons.begin() + static_cast<std::ptrdiff_t>(before), reasons.end());
        others.resize(resource, with_plenty(resource, host));
        check();
        others.resize(resource, host);
        if (reasons.size() == before)
            reasons.push_back(not_ready(pool.unread.begin()->second,
                                        {.problem = "could not be read yet"}, resource));
    }
}

/// Whom the host serves: some of them where they are many.
std::string accepted_text(const SchedulerPolicy& policy) {
    constexpr std::size_t most = 5;
    std::vector<std::string> accepted;
    if (policy.accept_default)
        accepted.push_back(printable(policy.default_name));
    for (const auto& [name, entry] : policy.accept)
        accepted.push_back(printable(entry.match));
    if (accepted.empty())
        return "none";
    const std::size_t others = accepted.size() - std::min(accepted.size(), most);
    accepted.resize(accepted.size() - others);
    return fmt::format("{}{}", fmt::join(accepted, ", "),
                       others == 0 ? "" : fmt::format(" and {} more", others));
}

Reason foreign_scheduler(const std::string& scheduler, const SchedulerPolicy& policy) {
    return {.code = Code::foreign_scheduler,
            .text = fmt::format("it belongs to scheduler {}, and this host serves {}",
                                quote(scheduler), accepted_text(policy))};
}

/// Whatever the modes say: it is asked for in so many words.
void add_maintenance(std::vector<Reason>& reasons, const Policy& policy) {
    if (!policy.maintenance)
        return;
    const std::string_view joint = policy.maintenance->empty() ? "" : ": ";
    reasons.push_back(
        {.code = Code::policy_rule,
         .mode = Mode::enforce,
         .text = fmt::format("the host is in maintenance{}{}", joint, *policy.maintenance)});
}

/// A domain that virtguard's own metadata gives to nobody, by the marks of others: by name.
void recognise(const Domain& domain, const SchedulerPolicy& policy, Ownership& owner) {
    for (const auto& [name, recogniser] : policy.recognise) {
        std::string key = recognise_key(name);
        const Fact& fact = domain.fact(key);
        if (!fact.problem.empty())
            owner.unanswered.push_back(std::move(key));
        else if (fact.value != 0) {
            owner.scheduler = name;
            return;
        }
    }
}

Reason refused_by(const Ruling& ruling) {
    const std::string rule = fmt::format("rule {}", printable(ruling.name));
    return {.code = Code::policy_rule,
            .text = ruling.rule->message.empty()
                        ? fmt::format("{} refuses it", rule)
                        : fmt::format("{} ({})", ruling.rule->message, rule)};
}

bool applies(const Ruling& ruling, Rule::Action action) {
    return ruling.rule != nullptr && ruling.rule->action == action;
}

/// What the policy has against a start, whatever it needs.
std::vector<Reason> reasons_of_policy(const Domain& domain, const Ruling& ruling,
                                      const Ownership& owner, const Policy& policy) {
    std::vector<Reason> reasons;
    if (!owner.accepted)
        reasons.push_back(foreign_scheduler(owner.scheduler, policy.scheduler));
    if (applies(ruling, Rule::Action::refuse))
        reasons.push_back(refused_by(ruling));
    for (const auto* unanswered : {&ruling.unanswered, &owner.unanswered})
        for (const std::string& key : *unanswered)
            reasons.push_back(not_ready(key, domain.fact(key)));
    return reasons;
}

Mode mode_for(const Reason& reason, const Ruling& ruling, const Ownership& owner,
              const Policy& policy) {
    if (applies(ruling, Rule::Action::observe))
        return Mode::observe;
    if (owner.mode)
        return *owner.mode;
    if (reason.resource) {
        const auto own = policy.resource_mode.find(*reason.resource);
        if (own != policy.resource_mode.end())
            return own->second;
    }
    return policy.mode;
}

/// Where hooks let in what we do not answer, what we do not know refuses nothing: nor does what a
/// rule might have lifted that could not tell. But what is not known of storage is there only if
/// the policy refuses it.
Mode mode_of(const Reason& reason, const Ruling& ruling, const Ownership& owner,
             const Policy& policy) {
    const Mode mode = mode_for(reason, ruling, owner, policy);
    const bool is_ignorance =
        (reason.code == Code::not_ready && reason.resource != Resource::storage()) ||
        ruling.might_be_lenient;
    return is_ignorance && !policy.hook.unavailable_denies ? std::min(mode, Mode::observe) : mode;
}

/// The table of [scheduler.accept] that a scheduler is in: the first by name.
auto table_of(const std::string& scheduler, const SchedulerPolicy& policy) {
    return std::ranges::find_if(policy.accept, [&](const auto& entry) {
        return glob_matches(entry.second.match, scheduler);
    });
}

std::int64_t limit_of(const Quota& quota, const Resource& resource, const Holdings& others,
                      const Host& host) {
    if (!quota.percent)
        return quota.amount;
    const Occupancy* occupancy = others.occupancy(resource);
    if (occupancy == nullptr)
        return 0;
    constexpr Int128 hundred = 100;
    return saturate(multiply_divide(occupancy->state_of(host.pool(resource)->all()).effective,
                                    quota.percent->numerator(),
                                    hundred * quota.percent->denominator()));
}

/// What a scheduler's guests would hold together, theirs who share its table included.
void check_quotas(const Ownership& owner, const Demand& demand, const Holdings& others,
                  const HeldByScheduler& by_scheduler, const Host& host, const Policy& policy,
                  std::vector<Reason>& reasons) {
    const auto table = policy.scheduler.accept.find(owner.table);
    if (table == policy.scheduler.accept.end() || table->second.quota.empty())
        return;
    std::map<Resource, Int128> held;
    for (const auto& [scheduler, amounts] : by_scheduler)
        if (glob_matches(table->second.match, scheduler) && // cheaper, and seldom true
            table_of(scheduler, policy.scheduler) == table)
            for (const auto& [resource, amount] : amounts)
                held[resource] += amount;
    for (const auto& [resource, asked] : demand.total()) {
        const auto quota = table->second.quota.find(resource);
        if (quota == table->second.quota.end())
            continue;
        const std::int64_t limit = limit_of(quota->second, resource, others, host);
        const std::int64_t left = saturate(limit - held[resource]);
        if (asked > left)
            reasons.push_back(over_quota(host, resource, table->first, asked, left, limit));
    }
}

/// Whether this host serves who owns something, and how.
void look_up(Ownership& owner, const SchedulerPolicy& policy) {
    owner.accepted = is_accepted(owner.scheduler, policy);
    if (const auto table = table_of(owner.scheduler, policy); table != policy.accept.end()) {
        owner.mode = table->second.mode;
        owner.table = table->first;
    }
}

/// Gives each reason its mode, and brings them into their order.
void conclude(std::vector<Reason>& reasons, const Ruling& ruling, const Ownership& owner,
              const Policy& policy) {
    for (Reason& reason : reasons)
        reason.mode = mode_of(reason, ruling, owner, policy);
    std::erase_if(reasons, [](const Reason& reason) { return reason.mode == Mode::off; });
    add_maintenance(reasons, policy);
    std::ranges::stable_sort(reasons, {}, [](const Reason& reason) {
        return std::make_tuple(reason.code, reason.resource, reason.nodes.first());
    });
}

} // namespace

bool is_accepted(const std::string& scheduler, const SchedulerPolicy& policy) {
    return policy.accept_any || (policy.accept_default && scheduler == policy.default_name) ||
           table_of(scheduler, policy) != policy.accept.end();
}

Ownership ownership_of(const Domain& domain, const SchedulerPolicy& policy) {
    Ownership owner{.scheduler = domain.scheduler};
    if (owner.scheduler.empty())
        recognise(domain, policy, owner);
    const bool is_known = !owner.scheduler.empty() || owner.unanswered.empty();
    if (owner.scheduler.empty())
        owner.scheduler = policy.default_name;
    if (is_known)
        look_up(owner, policy);
    else
        owner.accepted = true;
    return owner;
}

Ownership ownership_of(std::string scheduler, const SchedulerPolicy& policy) {
    Ownership owner{.scheduler = std::move(scheduler)};
    look_up(owner, policy);
    return owner;
}

Ruling ruling_of(const Domain& domain, const Policy& policy) {
    using Entry = std::pair<const std::string, Rule>;
    const auto order = [](const Entry* entry) {
        return std::make_pair(entry->second.priority, std::string_view(entry->first));
    };
    const Entry* first = nullptr;
    std::vector<const Entry*> untold;
    for (const Entry& entry : policy.rules) {
        const Fact& fact = domain.fact(rule_key(entry.first));
        if (!fact.problem.empty())
            untold.push_back(&entry);
        else if (fact.value != 0 && (first == nullptr || order(&entry) < order(first)))
            first = &entry;
    }
    std::ranges::sort(untold, {}, order);
    Ruling ruling;
    for (const Entry* entry : untold) {
        if (first != nullptr && order(first) < order(entry))
            break;
        ruling.unanswered.push_back(rule_key(entry->first));
        ruling.might_be_lenient |= entry->second.action != Rule::Action::refuse;
    }
    if (first != nullptr) {
        ruling.name = first->first;
        ruling.rule = &first->second;
    }
    return ruling;
}

Standing standing_of(const Domain& domain, const Policy& policy) {
    return {.owner = ownership_of(domain, policy.scheduler), .ruling = ruling_of(domain, policy)};
}

Decision decide(const Domain& domain, const Standing& standing, const Demand& demand,
                Holdings& others, const HeldByScheduler& by_scheduler, const Host& host,
                const Policy& policy) {
    Decision decision;
    std::vector<Reason>& reasons = decision.reasons;
    const auto& [owner, ruling] = standing;
    if (applies(ruling, Rule::Action::exempt))
        return decision;
    reasons = reasons_of_policy(domain, ruling, owner, policy);
    reasons.insert(reasons.end(), demand.impossible.begin(), demand.impossible.end());

    check_pools(demand, For::one_guest, others, host, reasons);
    check_quotas(owner, demand, others, by_scheduler, host, policy, reasons);
    conclude(reasons, ruling, owner, policy);
    return decision;
}

Decision decide_reservation(const std::string& owner_name, const Demand& demand,
                            bool is_of_one_guest, Holdings& others,
                            const HeldByScheduler& by_scheduler, const Host& host,
                            const Policy& policy) {
    Decision decision;
    std::vector<Reason>& reasons = decision.reasons;
    const Ownership owner = ownership_of(owner_name, policy.scheduler);
    if (!owner.accepted)
        reasons.push_back(foreign_scheduler(owner.scheduler, policy.scheduler));
    reasons.insert(reasons.end(), demand.impossible.begin(), demand.impossible.end());
    check_pools(demand, is_of_one_guest ? For::one_guest : For::many, others, host, reasons);
    check_quotas(owner, demand, others, by_scheduler, host, policy, reasons);
    conclude(reasons, Ruling{}, owner, policy);
    // What is not known of a domain that is not there yet will be known when it starts.
    for (Reason& reason : reasons)
        if (std::ranges::find(demand.impossible, reason.text, &Reason::text) !=
                demand.impossible.end() &&
            reason.code == Code::not_ready)
            reason.mode = std::min(reason.mode, Mode::observe);
    return decision;
}

Answer answer_invalid(const Domain& identity, const Error& error, const Policy& policy) {
    const auto [owner, ruling] = standing_of(identity, policy);
    Answer answer{.scheduler = owner.scheduler};
    if (std::string note = note_of(ruling); !note.empty())
        answer.demand.notes.push_back(std::move(note));
    if (applies(ruling, Rule::Action::exempt))
        return answer;
    std::vector<Reason>& reasons = answer.decision.reasons;
    reasons = reasons_of_policy(identity, ruling, owner, policy);
    reasons.push_back(
        {.code = Code::invalid_domain, .text = fmt::format("invalid domain: {}", error.what)});
    conclude(reasons, ruling, owner, policy);
    return answer;
}

Answer answer_unread(const Policy& policy) {
    Answer answer;
    add_maintenance(answer.decision.reasons, policy);
    return answer;
}

std::string note_of(const Ruling& ruling) {
    if (ruling.rule == nullptr || ruling.rule->action == Rule::Action::refuse)
        return "";
    return fmt::format("rule {} {}", printable(ruling.name),
                       applies(ruling, Rule::Action::exempt)
                           ? "exempts it from all checks"
                           : "has what it is refused for only observed");
}

} // namespace virtguard::core
