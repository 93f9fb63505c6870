// SPDX-License-Identifier: Apache-2.0
#include "core/history.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/text.hpp"

namespace virtguard::core {

std::string_view verdict_name(Verdict verdict) {
    switch (verdict) {
    case Verdict::admit:
        return "admit";
    case Verdict::refuse:
        return "refuse";
    case Verdict::would_refuse:
        return "would-refuse";
    }
    std::unreachable();
}

Verdict verdict_of(const Decision& decision) {
    if (!decision.admitted())
        return Verdict::refuse;
    return decision.would_refuse() ? Verdict::would_refuse : Verdict::admit;
}

bool is_decisive(const Reason& reason, Verdict verdict) {
    return verdict != Verdict::refuse || reason.mode == Mode::enforce;
}

namespace {

/// The lowest so many of them.
IdSet lowest(const IdSet& ids, int count) {
    IdSet result;
    for (int id = ids.first(); id >= 0 && count > 0; id = ids.next(id), --count)
        result.insert(id);
    return result;
}

} // namespace

void Latencies::add(Nanoseconds latency) {
    const auto bound = std::ranges::lower_bound(bounds, latency);
    ++counts[static_cast<std::size_t>(bound - bounds.begin())];
    sum += latency;
}

std::uint64_t Latencies::count() const {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

/// Where the next start is written, in place of the oldest when there are enough.
DecidedStart& History::next() {
    if (starts_.size() < max_starts)
        return starts_.emplace_back();
    DecidedStart& taken = starts_[oldest_];
    oldest_ = (oldest_ + 1) % max_starts;
    return taken;
}

const DecidedStart& History::note(const Domain& domain, const Answer& answer, WallTime time,
                                  Span latency) {
    const std::vector<Reason>& reasons = answer.decision.reasons;
    DecidedStart& start = next();
    start.time = time;
    start.name = cut_text(domain.name, max_name);
    start.uuid = domain.uuid;
    start.scheduler = cut_text(answer.scheduler, max_name);
    start.verdict = verdict_of(answer.decision);
    const std::size_t kept = std::min(reasons.size(), max_reasons);
    start.reasons.assign(reasons.begin(), reasons.begin() + static_cast<std::ptrdiff_t>(kept));
    for (Reason& reason : start.reasons) {
        reason.text.resize(cut_text(reason.text, max_text).size());
        if (reason.nodes.count() > max_nodes)
            reason.nodes = lowest(reason.nodes, max_nodes);
    }

    ++counts_[static_cast<std::size_t>(std::to_underlying(start.verdict))];
    std::set<ReasonKind> kinds;
    for (const Reason& reason : reasons)
        if (is_decisive(reason, start.verdict))
            kinds.insert({start.verdict, reason.code, reason.resource});
    for (const ReasonKind& kind : kinds)
        ++reasons_[kind];
    latencies_.add(latency);
    return start;
}

std::vector<DecidedStart> History::recent(std::size_t max) const {
    const std::size_t count = std::min(max, starts_.size());
    std::vector<DecidedStart> result;
    result.reserve(count);
    for (std::size_t back = 1; back <= count; ++back)
        result.push_back(starts_[(oldest_ + starts_.size() - back) % starts_.size()]);
    return result;
}

std::uint64_t History::count(Verdict verdict) const {
    return counts_[static_cast<std::size_t>(std::to_underlying(verdict))];
}

} // namespace virtguard::core
