// SPDX-License-Identifier: Apache-2.0
#include "daemon/capacity_watch.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>

#include "base/log.hpp"

namespace virtguard::daemon {

host::CapacityReadings read_at_start(FilesThread& files, const core::Policy& policy) {
    constexpr int patience_ms = 1000; // hooks wait for twice as long
    using Mail = loop::Mailbox<host::CapacityReadings>;
    if (policy.capacity_files().empty())
        return {};
    auto created = Mail::create(/*limit=*/1);
    if (!created)
        return {};
    const std::shared_ptr<Mail> mail = *std::move(created);
    if (!files.run([mail, policy] { (void)mail->push(host::read_capacities(policy)); }))
        return {};
    pollfd arrived{.fd = mail->fd(), .events = POLLIN, .revents = 0};
    (void)::poll(&arrived, 1, patience_ms);
    auto told = mail->drain();
    return told.empty() ? host::CapacityReadings{} : std::move(told.front());
}

Result<std::unique_ptr<CapacityWatch>> CapacityWatch::create(loop::Loop& loop, FilesThread& files,
                                                             Tell tell) {
    auto mail = Mail::create(/*limit=*/1);
    if (!mail)
        return std::unexpected(mail.error());
    std::unique_ptr<CapacityWatch> watch(new CapacityWatch(files, *std::move(mail)));
    auto arrived =
        loop.on_io("capacities", watch->mail_->fd(), EPOLLIN,
                   [raw = watch.get(), tell = std::move(tell)](std::uint32_t) {
                       for (const host::CapacityReadings& readings : raw->mail_->drain()) {
                           raw->under_way_ = false;
                           raw->note(readings);
                           tell(readings);
                           raw->arrive();
                       }
                   });
    if (!arrived)
        return std::unexpected(arrived.error());
    auto patience = loop.timer("capacities late", [raw = watch.get()] { raw->release_late(); });
    if (!patience)
        return std::unexpected(patience.error());
    watch->patience_ = *std::move(patience);
    watch->arrived_ = *std::move(arrived);
    return watch;
}

void CapacityWatch::note(const host::CapacityReadings& readings) {
    for (const auto& [file, reading] : readings) {
        const std::string problem = reading ? "" : reading.error().what;
        if (!problem.empty() && problems_[file] != problem)
            log(Level::error, "capacity: {}", problem);
        problems_[file] = problem;
    }
}

void CapacityWatch::look(const core::Policy& policy) {
    policy_ = policy;
    if (!under_way_ && !policy.capacity_files().empty())
        begin(policy);
}

void CapacityWatch::begin(const core::Policy& policy) {
    // Not taken by a thread that is too busy: the next look will be.
    under_way_ =
        files_.run([mail = mail_, policy] { (void)mail->push(host::read_capacities(policy)); });
}

void CapacityWatch::look(const core::Policy& policy, std::chrono::nanoseconds at_most, Then then) {
    const bool is_for_next = under_way_;
    look(policy);
    if (!under_way_)
        return then();
    waiting_.push_back(
        {.until = loop::now() + at_most, .then = std::move(then), .is_for_next = is_for_next});
    const auto next = std::ranges::min_element(waiting_, {}, &Waiting::until);
    patience_->arm(next->until);
}

void CapacityWatch::arrive() {
    release([](const Waiting& each) { return !each.is_for_next; });
    if (waiting_.empty() || under_way_)
        return;
    for (Waiting& each : waiting_)
        each.is_for_next = false;
    begin(policy_);
}

void CapacityWatch::release_late() {
    release([now = loop::now()](const Waiting& each) { return each.until <= now; });
}

template <class Is>
void CapacityWatch::release(Is is_released) {
    const auto due = std::ranges::stable_partition(waiting_, std::not_fn(is_released));
    std::vector<Waiting> released(std::make_move_iterator(due.begin()),
                                  std::make_move_iterator(due.end()));
    waiting_.erase(due.begin(), due.end());
    if (const auto next = std::ranges::min_element(waiting_, {}, &Waiting::until);
        next != waiting_.end())
        patience_->arm(next->until);
    for (Waiting& each : released)
        each.then();
}

std::vector<std::string> CapacityWatch::problems(const core::Policy& policy) const {
    std::vector<std::string> problems;
    for (const auto& [key, file] : policy.capacity_files()) {
        const auto problem = problems_.find(file);
        if (problem == problems_.end() || problem->second.empty())
            continue;
        const auto known = policy.readings.find(file);
        problems.push_back(
            known == policy.readings.end()
                ? fmt::format("{}: {}; what there is of it is not known", key, problem->second)
                : fmt::format("{}: {}; it stays {}", key, problem->second, known->second));
    }
    return problems;
}

} // namespace virtguard::daemon
