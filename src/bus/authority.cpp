// SPDX-License-Identifier: Apache-2.0
#include "bus/authority.hpp"

#include <cerrno>
#include <chrono>
#include <utility>

#include "bus/kept_call.hpp"
#include "bus/names.hpp"

namespace virtguard::bus {

namespace {

/// polkit may have to ask a person.
constexpr std::chrono::microseconds polkit_patience = std::chrono::minutes(2);
constexpr std::uint32_t allow_user_interaction = 1; // of polkit's CheckAuthorizationFlags

/// Whether polkit said yes; an error is a no.
bool is_authorized(sd_bus_message* reply) {
    int authorized = 0;
    return sd_bus_message_is_method_error(reply, nullptr) <= 0 &&
           sd_bus_message_enter_container(reply, SD_BUS_TYPE_STRUCT, "bba{ss}") > 0 &&
           sd_bus_message_read(reply, "b", &authorized) > 0 && authorized != 0;
}

} // namespace

int Authority::ask(sd_bus_message* call, Allowed allowed) {
    if (questions_.size() >= max_pending)
        return sd_bus_reply_method_errorf(call, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                          "too many calls wait for polkit");
    MessagePtr kept = kept_call(call);
    if (kept == nullptr)
        return -ENOMEM;
    Question& question = questions_.emplace_back(
        Question{.authority = this, .call = std::move(kept), .allowed = std::move(allowed)});
    sd_bus_slot* slot = nullptr;
    const int r = sd_bus_call_method_async(
        bus_, &slot, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus",
        "GetConnectionUnixUser", on_user, &question, "s", sd_bus_message_get_sender(call));
    question.slot.reset(slot);
    if (r < 0)
        questions_.pop_back();
    return r < 0 ? r : 1;
}

int Authority::on_user(sd_bus_message* reply, void* userdata, sd_bus_error*) {
    auto& question = *static_cast<Question*>(userdata);
    const bool is_known = sd_bus_message_is_method_error(reply, nullptr) <= 0 &&
                          sd_bus_message_read(reply, "u", &question.user) > 0;
    if (is_known && question.user == 0)
        question.authority->settle(question, true);
    else if (!is_known || question.authority->ask_polkit(question) < 0)
        question.authority->settle(question, false);
    return 1;
}

int Authority::ask_polkit(Question& question) {
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_method_call(
        bus_, &raw, "org.freedesktop.PolicyKit1", "/org/freedesktop/PolicyKit1/Authority",
        "org.freedesktop.PolicyKit1.Authority", "CheckAuthorization");
    const MessagePtr check(raw);
    const bool may_ask_person =
        sd_bus_message_get_allow_interactive_authorization(question.call.get()) > 0;
    if (r >= 0)
        r = sd_bus_message_append(raw, "(sa{sv})sa{ss}us", "system-bus-name", 1, "name", "s",
                                  sd_bus_message_get_sender(question.call.get()), manage_action, 0,
                                  may_ask_person ? allow_user_interaction : 0, "");
    if (r < 0)
        return r;
    sd_bus_slot* slot = nullptr;
    r = sd_bus_call_async(bus_, &slot, raw, on_polkit, &question,
                          static_cast<std::uint64_t>(polkit_patience.count()));
    question.slot.reset(slot);
    return r;
}

int Authority::on_polkit(sd_bus_message* reply, void* userdata, sd_bus_error*) {
    auto& question = *static_cast<Question*>(userdata);
    question.authority->settle(question, is_authorized(reply));
    return 1;
}

void Authority::settle(Question& question, bool is_allowed) {
    MessagePtr call = std::move(question.call);
    Allowed allowed = std::move(question.allowed);
    const std::uint32_t user = question.user;
    questions_.remove_if([&](const Question& each) { return &each == &question; });
    if (is_allowed)
        return allowed(std::move(call), user);
    (void)sd_bus_reply_method_errorf(call.get(), SD_BUS_ERROR_ACCESS_DENIED,
                                     "polkit does not allow %s", manage_action);
}

} // namespace virtguard::bus
