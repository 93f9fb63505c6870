// SPDX-License-Identifier: Apache-2.0
#include "bus/long_answers.hpp"

#include <utility>

namespace virtguard::bus {

int LongAnswers::ask(sd_bus_message* call, const char* element, Part part) {
    const std::string caller = sd_bus_message_get_sender(call);
    const auto known = callers_.find(caller);
    if (known != callers_.end() && known->second >= max_of_one)
        return sd_bus_reply_method_errorf(call, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                          "%zu calls of yours wait for their answers", max_of_one);
    if (waiting_.size() >= max_of_all)
        return sd_bus_reply_method_errorf(call, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                          "too many calls wait for their answers");
    ++callers_[caller];
    waiting_.push_back({MessagePtr(sd_bus_message_ref(call)), element, std::move(part)});
    if (waiting_.size() == 1)
        handlers_.waits();
    return 1;
}

void LongAnswers::go_on() {
    if (waiting_.empty())
        return;
    const int r = is_amid() ? build() : begin();
    if (r <= 0)
        end(r);
}

int LongAnswers::begin() {
    handlers_.begins();
    sd_bus_message* raw = nullptr;
    const int r = sd_bus_message_new_method_return(waiting_.front().call.get(), &raw);
    answer_.reset(raw);
    if (r < 0)
        return r;
    const int opened =
        sd_bus_message_open_container(raw, SD_BUS_TYPE_ARRAY, waiting_.front().element);
    return opened < 0 ? opened : 1;
}

int LongAnswers::build() {
    return waiting_.front().part(answer_.get());
}

/// Sends what was built, or that it was not.
void LongAnswers::end(int r) {
    const Waiting answered = std::move(waiting_.front());
    waiting_.pop_front();
    const MessagePtr answer = std::move(answer_);
    const auto caller = callers_.find(sd_bus_message_get_sender(answered.call.get()));
    if (--caller->second == 0)
        callers_.erase(caller);
    if (r >= 0)
        r = sd_bus_message_close_container(answer.get());
    if (r >= 0)
        r = sd_bus_message_send(answer.get());
    if (r < 0)
        (void)sd_bus_reply_method_errno(answered.call.get(), r, nullptr);
}

} // namespace virtguard::bus
