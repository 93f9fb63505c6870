// SPDX-License-Identifier: Apache-2.0
#include "core/guard.hpp"

#include <algorithm>
#include <set>

namespace virtguard::core {

Guard::Guard(Topology topology, Policy policy)
    : topology_(std::move(topology)), policy_(std::move(policy)),
      host_(make_host(topology_, policy_)) {}

Answer Guard::check(const Domain& domain) const {
    Answer answer;
    answer.demand = make_demand(domain, host_, policy_);
    answer.scheduler = ownership_of(domain, policy_.scheduler).scheduler;
    answer.decision = decide(domain, answer.demand, ledger_.held_by_others(domain, answer.demand),
                             host_, policy_);
    return answer;
}

Answer Guard::admit(const Domain& domain, Instant when) {
    Answer answer = check(domain);
    if (answer.decision.admitted() && !is_older(identity_of(domain), when))
        record(domain, GuestState::pending, when);
    return answer;
}

Answer Guard::start_at_once(const Domain& domain) {
    Answer answer = check(domain);
    if (answer.decision.admitted())
        record(domain, GuestState::running, Instant{});
    return answer;
}

void Guard::claim(const Domain& domain, Instant when) {
    if (!is_older(identity_of(domain), when))
        record(domain, GuestState::pending, when);
}

void Guard::started(const std::string& identity, Instant when) {
    if (const Guest* guest = ledger_.find(identity))
        running(Domain(guest->domain), when);
}

void Guard::running(const Domain& domain, Instant when) {
    if (!is_older(identity_of(domain), when))
        record(domain, GuestState::running, when);
}

void Guard::released(const std::string& identity, Instant when) {
    if (!is_older(identity, when)) {
        ledger_.erase(identity);
        account_foreign();
    }
}

void Guard::reconcile(const Look& look) {
    std::set<std::string> seen(look.unreadable.begin(), look.unreadable.end());
    for (const Domain& domain : look.active) {
        seen.insert(identity_of(domain));
        running(domain, look.began);
    }
    if (!look.complete)
        return;
    std::vector<std::string> gone;
    for (const auto& [identity, guest] : ledger_.guests())
        if (!seen.contains(identity))
            gone.push_back(identity);
    for (const std::string& identity : gone)
        reconcile(identity, std::nullopt, look.began);
}

void Guard::reconcile(const std::string& identity, const std::optional<Domain>& active,
                      Instant began) {
    if (active)
        return running(*active, began);
    const Guest* guest = ledger_.find(identity);
    if (guest == nullptr || is_older(identity, began))
        return;
    // A start in flight may not be active yet: its claim lasts until its release or its lease's
    // end.
    if (guest->state == GuestState::pending && began - guest->changed < policy_.claim.lease)
        return;
    released(identity, began);
}

void Guard::apply(Policy policy) {
    policy_ = std::move(policy);
    recompute();
}

void Guard::apply(Topology topology) {
    topology_ = std::move(topology);
    recompute();
}

void Guard::set_page_use(std::vector<PageUse> use) {
    page_use_ = std::move(use);
    account_foreign();
}

void Guard::reserve(const std::string& name, Reservation reservation) {
    ledger_.reserve(name, std::move(reservation));
}

void Guard::account_foreign() {
    if (!page_use_.empty())
        ledger_.set_foreign(foreign_pages_.update(host_, ledger_.holdings(), page_use_));
}

void Guard::recompute() {
    host_ = make_host(topology_, policy_);
    ledger_.recompute(host_, policy_);
    account_foreign();
}

bool Guard::is_older(const std::string& identity, Instant when) const {
    const Guest* guest = ledger_.find(identity);
    return guest != nullptr && when < guest->changed;
}

void Guard::record(const Domain& domain, GuestState state, Instant when) {
    ledger_.put({.domain = domain,
                 .scheduler = ownership_of(domain, policy_.scheduler).scheduler,
                 .state = state,
                 .changed = when,
                 .demand = make_held_demand(domain, host_, policy_)});
    account_foreign();
}

} // namespace virtguard::core
