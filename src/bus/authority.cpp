// SPDX-License-Identifier: Apache-2.0
#include "bus/authority.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "bus/kept_call.hpp"
#include "bus/names.hpp"
#include "bus/sender.hpp"

namespace virtguard::bus {

namespace {

/// polkit may have to ask a person.
constexpr std::chrono::microseconds polkit_patience = std::chrono::minutes(2);
constexpr const char* polkit_name = "org.freedesktop.PolicyKit1";
constexpr const char* polkit_path = "/org/freedesktop/PolicyKit1/Authority";
constexpr const char* polkit_interface = "org.freedesktop.PolicyKit1.Authority";
/// Of all that call again, or these are asked about once more.
constexpr std::size_t max_users = 1024;
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
    MessagePtr kept = kept_call(call);
    if (kept == nullptr)
        return -ENOMEM;
    Question& question = questions_.emplace_back(Question{.authority = this,
                                                          .number = ++asked_,
                                                          .call = std::move(kept),
                                                          .allowed = std::move(allowed)});
    if (const auto known = users_.find(std::string_view(sd_bus_message_get_sender(call)));
        known != users_.end()) {
        question.user = known->second;
        judge(question);
        return 1;
    }
    const int r = ask_user(question);
    if (r < 0)
        questions_.pop_back();
    else
        read_calls_(false);
    return r;
}

int Authority::ask_user(Question& question) {
    sd_bus_slot* slot = nullptr;
    const int r = sd_bus_call_method_async(asker_, &slot, bus_name, "/org/freedesktop/DBus",
                                           bus_name, "GetConnectionUnixUser", on_user, &question,
                                           "s", sd_bus_message_get_sender(question.call.get()));
    question.answer.reset(slot);
    return r < 0 ? r : 1;
}

int Authority::on_user(sd_bus_message* reply, void* userdata, sd_bus_error*) {
    auto& question = *static_cast<Question*>(userdata);
    Authority& self = *question.authority;
    self.read_calls_(true);
    if (sd_bus_message_is_method_error(reply, nullptr) > 0 ||
        sd_bus_message_read(reply, "u", &question.user) <= 0) {
        self.refuse(question);
        return 1;
    }
    if (self.users_.size() == max_users)
        self.users_.clear();
    self.users_.emplace(sd_bus_message_get_sender(question.call.get()), question.user);
    self.judge(question);
    return 1;
}

void Authority::judge(Question& question) {
    if (question.user == 0)
        allow(question);
    else
        consider(question);
}

/// Of who is not root.
void Authority::consider(Question& question) {
    const auto of_user =
        static_cast<std::size_t>(std::ranges::count(questions_, question.user, &Question::user));
    if (of_user > max_of_one || questions_.size() > max_of_all)
        (void)sd_bus_reply_method_errorf(take(question).call.get(), SD_BUS_ERROR_LIMITS_EXCEEDED,
                                         "too many calls wait for polkit");
    else if (watch_caller(question) < 0 || ask_polkit(question) < 0)
        refuse(question);
}

int Authority::watch_caller(Question& question) {
    // Names like these have one owner, ever.
    const std::string leaves =
        fmt::format("type='signal',sender='{0}',path='/org/freedesktop/DBus',interface='{0}',"
                    "member='NameOwnerChanged',arg0='{1}'",
                    bus_name, sd_bus_message_get_sender(question.call.get()));
    // Where the bus does not take it, the call waits for polkit's answer.
    const auto added = [](sd_bus_message*, void*, sd_bus_error*) { return 1; };
    sd_bus_slot* slot = nullptr;
    const int r = sd_bus_add_match_async(asker_, &slot, leaves.c_str(), on_end, added, &question);
    question.end.reset(slot);
    return r;
}

int Authority::ask_polkit(Question& question) {
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_method_call(asker_, &raw, polkit_name, polkit_path, polkit_interface,
                                           "CheckAuthorization");
    const MessagePtr check(raw);
    const bool may_ask_person =
        sd_bus_message_get_allow_interactive_authorization(question.call.get()) > 0;
    if (r >= 0)
        r = sd_bus_message_append(raw, "(sa{sv})sa{ss}us", "system-bus-name", 1, "name", "s",
                                  sd_bus_message_get_sender(question.call.get()), manage_action, 0,
                                  may_ask_person ? allow_user_interaction : 0,
                                  std::to_string(question.number).c_str());
    if (r < 0)
        return r;
    sd_bus_slot* slot = nullptr;
    r = sd_bus_call_async(asker_, &slot, raw, on_polkit, &question,
                          static_cast<std::uint64_t>(polkit_patience.count()));
    question.answer.reset(slot);
    return r;
}

int Authority::on_polkit(sd_bus_message* reply, void* userdata, sd_bus_error*) {
    auto& question = *static_cast<Question*>(userdata);
    Authority& self = *question.authority;
    if (is_authorized(reply)) {
        self.allow(question);
        return 1;
    }
    if (sd_bus_message_is_method_error(reply, SD_BUS_ERROR_NO_REPLY) > 0)
        self.cancel(question.number);
    self.refuse(question);
    return 1;
}

int Authority::on_end(sd_bus_message* signal, void* userdata, sd_bus_error*) {
    if (!is_from(signal, bus_name))
        return 0;
    auto& question = *static_cast<Question*>(userdata);
    Authority& self = *question.authority;
    self.cancel(self.take(question).number);
    return 0; // so that each of his calls hears it
}

/// Has polkit no longer ask a person for who is gone, or has his answer.
void Authority::cancel(std::uint64_t number) {
    (void)sd_bus_call_method_async(asker_, nullptr, polkit_name, polkit_path, polkit_interface,
                                   "CancelCheckAuthorization", nullptr, nullptr, "s",
                                   std::to_string(number).c_str());
}

void Authority::allow(Question& question) {
    Question allowed = take(question);
    allowed.allowed(std::move(allowed.call), allowed.user);
}

void Authority::refuse(Question& question) {
    (void)sd_bus_reply_method_errorf(take(question).call.get(), SD_BUS_ERROR_ACCESS_DENIED,
                                     "polkit does not allow %s", manage_action);
}

Authority::Question Authority::take(Question& question) {
    const auto at = std::ranges::find(questions_, &question, [](Question& each) { return &each; });
    Question taken = std::move(*at);
    questions_.erase(at);
    return taken;
}

} // namespace virtguard::bus
