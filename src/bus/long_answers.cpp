// SPDX-License-Identifier: Apache-2.0
#include "bus/long_answers.hpp"

#include <utility>

#include "bus/kept_call.hpp"

namespace virtguard::bus {

void LongAnswers::ask(sd_bus_message* call, const char* element, Part part) {
    auto place = callers_.enter(call);
    if (!place)
        return;
    waiting_.push_back({*std::move(place), kept_call(call), element, std::move(part)});
    if (waiting_.size() == 1)
        handlers_.waits();
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
    if (r >= 0)
        r = sd_bus_message_close_container(answer.get());
    if (r >= 0)
        r = sd_bus_message_send(answer.get());
    if (r < 0)
        (void)sd_bus_reply_method_errno(answered.call.get(), r, nullptr);
}

} // namespace virtguard::bus
