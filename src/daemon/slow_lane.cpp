// SPDX-License-Identifier: Apache-2.0
#include "daemon/slow_lane.hpp"

#include <algorithm>
#include <ctime>

namespace virtguard::daemon {

namespace {

using std::chrono::nanoseconds;

/// What this thread has had of a processor.
nanoseconds processor_time() {
    timespec time{};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

} // namespace

void SlowLane::Turn::begin() {
    began_ = processor_time();
}

SlowLane::Turn::~Turn() {
    if (lane_ != nullptr)
        lane_->leave(caller_, began_ ? processor_time() - *began_ : nanoseconds{0});
}

Result<std::unique_ptr<SlowLane>> SlowLane::create(loop::Loop& loop, nanoseconds patience) {
    std::unique_ptr<SlowLane> lane(new SlowLane(patience));
    auto timer = loop.timer(
        "slow lane", [raw = lane.get()] { raw->serve(); }, loop::Priority::last);
    if (!timer)
        return std::unexpected(timer.error());
    lane->timer_ = *std::move(timer);
    return lane;
}

void SlowLane::enter(std::string caller, std::size_t size, Work work) {
    constexpr std::size_t most = 1024 * std::size_t{most_for_size.count()};
    const std::chrono::milliseconds for_size{1000 * std::min(size, most) / 1024};
    waiting_.push_back({std::move(caller), loop::now(), for_size, std::move(work)});
    serve();
}

Instant SlowLane::rank(const Waiting& waiting) const {
    const auto due = due_.find(waiting.caller);
    return (due == due_.end() ? waiting.since : std::max(waiting.since, due->second)) +
           waiting.for_size;
}

void SlowLane::serve() {
    const Instant now = loop::now();
    give_up(now);
    if (taken_ || waiting_.empty())
        return;
    if (now < next_)
        return timer_->arm(next_);
    std::erase_if(due_, [&](const auto& due) { return due.second <= now; });
    const auto first =
        std::ranges::min_element(waiting_, {}, [&](const Waiting& each) { return rank(each); });
    Waiting chosen = std::move(*first);
    waiting_.erase(first);
    taken_ = true;
    chosen.work(Turn(*this, std::move(chosen.caller)));
}

/// Those who have waited too long, who came first.
void SlowLane::give_up(Instant now) {
    while (!waiting_.empty() && waiting_.front().since + patience_ <= now) {
        Work work = std::move(waiting_.front().work);
        waiting_.erase(waiting_.begin());
        work(fail(Errc::unavailable, "too many ask"));
    }
}

void SlowLane::leave(const std::string& caller, nanoseconds spent) {
    const nanoseconds pause = std::min<nanoseconds>(share_of_time * spent, longest_pause);
    taken_ = false;
    next_ = loop::now() + pause;
    due_[caller] = next_ + (pauses_of_caller - 1) * pause;
    timer_->arm(next_);
}

} // namespace virtguard::daemon
