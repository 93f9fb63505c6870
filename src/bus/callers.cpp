// SPDX-License-Identifier: Apache-2.0
#include "bus/callers.hpp"

#include <utility>

namespace virtguard::bus {

Callers::Place::Place(Callers& callers, std::string caller)
    : callers_(&callers), caller_(std::move(caller)) {
    ++callers_->waiting_[caller_];
    ++callers_->all_;
}

Callers::Place::Place(Place&& other) noexcept
    : callers_(std::exchange(other.callers_, nullptr)), caller_(std::move(other.caller_)) {}

Callers::Place::~Place() {
    if (callers_ == nullptr)
        return;
    const auto known = callers_->waiting_.find(caller_);
    if (--known->second == 0)
        callers_->waiting_.erase(known);
    --callers_->all_;
}

std::optional<Callers::Place> Callers::enter(sd_bus_message* call) {
    std::string caller = sd_bus_message_get_sender(call);
    const auto known = waiting_.find(caller);
    if (known != waiting_.end() && known->second >= max_of_one) {
        (void)sd_bus_reply_method_errorf(call, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                         "%zu calls of yours wait for their answers", max_of_one);
        return std::nullopt;
    }
    if (all_ >= max_of_all) {
        (void)sd_bus_reply_method_errorf(call, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                         "too many calls wait for their answers");
        return std::nullopt;
    }
    return std::optional<Place>(std::in_place, *this, std::move(caller));
}

} // namespace virtguard::bus
