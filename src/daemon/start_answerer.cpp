// SPDX-License-Identifier: Apache-2.0
#include "daemon/start_answerer.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "daemon/messages.hpp"
#include "daemon/read_domain.hpp"
#include "loop/service.hpp"

namespace virtguard::daemon {

namespace {

/// The hook has given up waiting: what it does now follows hook.unavailable.
bool is_too_late(const wire::RequestHeader& header) {
    return loop::now() > exec_time(header) + header.wait;
}

/// Left of a hook's patience for the answer to reach it.
constexpr std::chrono::milliseconds answer_margin{100};

Instant end_of_wait(const wire::RequestHeader& header) {
    return exec_time(header) + header.wait - answer_margin;
}

/// That is left. None where the hook's patience is at its end.
std::chrono::nanoseconds time_for_images(const wire::RequestHeader& header, Instant arrived) {
    const Instant end = std::min<Instant>(arrived + StorageWatch::patience, end_of_wait(header));
    return std::max<std::chrono::nanoseconds>(end - loop::now(), std::chrono::nanoseconds(0));
}

/// A file may say more by now, or say it at all.
bool is_short_of_what_files_say(const core::Decision& decision, const core::Policy& policy) {
    const auto is_in_file = [](const core::CustomResource& custom) {
        return (custom.host && !custom.host->file.empty()) ||
               std::ranges::any_of(
                   custom.nodes, [](const auto& of_node) { return !of_node.second.file.empty(); });
    };
    return std::ranges::any_of(decision.reasons, [&](const core::Reason& reason) {
        const auto custom =
            reason.resource ? policy.resources.find(*reason.resource) : policy.resources.end();
        return custom != policy.resources.end() && is_in_file(custom->second);
    });
}

} // namespace

/// Nobody was exec'd later than now: a time ahead of ours would outlive all that is told after it.
Instant exec_time(const wire::RequestHeader& header) {
    return std::min(header.exec_time, loop::now());
}

Result<> StartAnswerer::watch(loop::Loop& loop) {
    auto timer = loop.timer("kept places", [this] { end_returns(); });
    if (!timer)
        return std::unexpected(timer.error());
    timer_ = *std::move(timer);
    places_changed(); // those that were kept before this daemon began
    return {};
}

void StartAnswerer::answer(const wire::Request& request, Reply reply) {
    Parked start{.xml = request.body,
                 .header = request.header,
                 .reply = std::move(reply),
                 .arrived = loop::now()};
    if (read(start))
        read_and_decide(std::move(start));
}

/// Reads its XML. Where there is nothing to decide, it is answered, and false.
bool StartAnswerer::read(Parked& start) {
    ReadDomain read = read_domain(start.xml, guard_.questions());
    if (read.domain) {
        start.domain = *std::move(read.domain);
        return true;
    }
    const Error& error = read.domain.error();
    if (error.code == Errc::invalid)
        keep_and_answer(read.identity, core::answer_invalid(read.identity, error, guard_.policy()),
                        exec_time(start.header), start.reply);
    else
        answer_unread(error, start);
    return false;
}

/// It is for hook.unavailable to say what becomes of it, but in maintenance, which is no matter of
/// what it needs. A guest that may be returning has what it had.
void StartAnswerer::answer_unread(const Error& error, Parked& start) {
    core::Domain unread;
    unread.uuid = wire::find_uuid(start.xml);
    const Instant when = exec_time(start.header);
    const core::Answer given = core::answer_unread(guard_.policy());
    if (!given.decision.admitted() &&
        !(unread.uuid && guard_.keeps_place_of(core::identity_of(unread), when)))
        return keep_and_answer(unread, given, when, start.reply);
    log_undecided({}, fmt::format("a start was not decided: {}", error.what));
    start.reply(wire::encode_reply(wire::Operation::prepare, wire::Verdict::error, error.what));
}

void StartAnswerer::read_and_decide(Parked start) {
    if (storage_ == nullptr)
        return decide_anew(std::move(start));
    if (guard_.has_its_place(start.domain, exec_time(start.header))) {
        const std::string identity = core::identity_of(start.domain);
        decide_anew(std::move(start)); // its place might not be kept for as long as storage takes
        return storage_->look_at(identity);
    }
    const std::vector<core::Disk> disks = start.domain.disks;
    const auto at_most = time_for_images(start.header, start.arrived);
    storage_->read(disks, at_most,
                   [this, start = std::move(start)]() mutable { decide_anew(std::move(start)); });
}

void StartAnswerer::decide_anew(Parked start) {
    pages_.read_again(); // ordinary memory is what they leave
    decide(std::move(start));
    places_changed();
}

void StartAnswerer::decide(Parked start) {
    // While it waited, a reload may have come that asks something else.
    if (!core::answer_all(start.domain.facts, guard_.questions()) && !read(start))
        return;
    const Instant when = exec_time(start.header);
    if (is_too_late(start.header)) {
        const bool denied = guard_.policy().hook.unavailable_denies;
        log_undecided(start.domain,
                      fmt::format("{} was {} by its hook, which did not wait for the answer",
                                  printable(start.domain.name), denied ? "refused" : "let in"));
        if (!denied)
            guard_.claim(start.domain, when);
        save_();
        return start.reply({});
    }
    guard_.expire(loop::now());
    const bool may_wait = loop::now() < end_of_wait(start.header);
    const auto given =
        guard_.admit(start.domain, when, may_wait ? core::IfKept::wait : core::IfKept::refuse);
    if (!given)
        return parked_.push_back(std::move(start));
    const auto at_most = time_for_images(start.header, start.arrived);
    const bool admitted = given->decision.admitted();
    if (!admitted && has_capacities_read(start, given->decision, at_most))
        return;
    if (storage_ == nullptr || start.has_all_images || at_most.count() == 0 ||
        !given->decision.is_short_of(core::Resource::storage())) {
        if (start.has_claim && !admitted) // the policy enforces now what it only observed
            guard_.released(core::identity_of(start.domain), when);
        return keep_and_answer(start.domain, *given, when, start.reply);
    }
    // Guests that have written since their images were read owe less than they seem to, which
    // matters, too, where it is only observed.
    start.has_all_images = true;
    start.has_claim = admitted;
    storage_->read_all(
        at_most, [this, start = std::move(start)]() mutable { decide_anew(std::move(start)); });
}

/// Once, and then the start is decided anew.
bool StartAnswerer::has_capacities_read(Parked& start, const core::Decision& refused,
                                        std::chrono::nanoseconds at_most) {
    if (start.has_capacities || !read_capacities_ || at_most.count() == 0 ||
        !is_short_of_what_files_say(refused, guard_.policy()))
        return false;
    start.has_capacities = true;
    read_capacities_(at_most,
                     [this, start = std::move(start)]() mutable { decide_anew(std::move(start)); });
    return true;
}

void StartAnswerer::keep_and_answer(const core::Domain& domain, const core::Answer& answer,
                                    Instant exec, Reply& reply) {
    save_(); // first: a daemon that ends here has promised nothing it does not know of
    note(domain, answer, exec);
    const bool admitted = answer.decision.admitted();
    reply(wire::encode_reply(
        wire::Operation::prepare, admitted ? wire::Verdict::admitted : wire::Verdict::refused,
        admitted ? std::string() : core::refusal_line(domain.name, answer.decision)));
}

/// No place is kept any more, or one less, or some start cannot wait longer: decide those that wait
/// anew.
void StartAnswerer::end_returns() {
    pages_.read_again();
    guard_.expire(loop::now());
    std::list<Parked> waiting;
    waiting.swap(parked_);
    for (Parked& start : waiting)
        decide(std::move(start));
    save_();
    places_changed();
}

void StartAnswerer::places_changed() {
    std::optional<Instant> next = guard_.next_return_end();
    if (!next && !parked_.empty())
        return timer_->arm(loop::now()); // the guest whose place they wait for has returned
    for (const Parked& start : parked_) {
        const Instant end = end_of_wait(start.header);
        next = next ? std::min(*next, end) : end;
    }
    if (next)
        timer_->arm(*next);
}

void StartAnswerer::note(const core::Domain& domain, const core::Answer& answer, Instant exec) {
    for (const std::string& note : answer.demand.notes)
        log(Level::warning, "{}: {}", printable(domain.name), note);
    log_start(history_.note(domain, answer, loop::wall_time(), loop::now() - exec));
}

} // namespace virtguard::daemon
