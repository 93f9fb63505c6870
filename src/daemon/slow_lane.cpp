// SPDX-License-Identifier: Apache-2.0
#include "daemon/slow_lane.hpp"

namespace virtguard::daemon {

SlowLane::Turn::~Turn() {
    if (lane_ != nullptr)
        lane_->leave(began_ ? loop::now() - *began_ : std::chrono::nanoseconds{0});
}

Result<std::unique_ptr<SlowLane>> SlowLane::create(loop::Loop& loop) {
    std::unique_ptr<SlowLane> lane(new SlowLane);
    auto timer = loop.timer(
        "slow lane", [raw = lane.get()] { raw->serve(); }, loop::Priority::last);
    if (!timer)
        return std::unexpected(timer.error());
    lane->timer_ = *std::move(timer);
    return lane;
}

void SlowLane::enter(std::size_t size, Work work) {
    const std::chrono::milliseconds later{1000 * size / bytes_per_second};
    waiting_.emplace(loop::now() + later, std::move(work));
    serve();
}

void SlowLane::serve() {
    if (taken_ || waiting_.empty())
        return;
    if (loop::now() < next_)
        return timer_->arm(next_);
    taken_ = true;
    Work work = std::move(waiting_.extract(waiting_.begin()).mapped());
    work(Turn(*this));
}

void SlowLane::leave(std::chrono::nanoseconds spent) {
    taken_ = false;
    next_ = loop::now() + share_of_time * spent;
    timer_->arm(next_);
}

} // namespace virtguard::daemon
