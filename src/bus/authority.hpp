// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who may change anything: root, and those that polkit lets. Both questions are put to the bus, and
// nothing waits for the answers but the call that they are about.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>

#include "bus/handles.hpp"

namespace virtguard::bus {

class Authority {
  public:
    /// Calls whose answers are awaited at once, each perhaps for a person who types a password.
    static constexpr std::size_t max_pending = 64;

    /// Gets the call back, to be answered with what came of it, and the uid of who made it.
    using Allowed = std::move_only_function<void(MessagePtr call, std::uint32_t user)>;

    explicit Authority(sd_bus* bus) : bus_(bus) {}
    Authority(const Authority&) = delete;
    Authority& operator=(const Authority&) = delete;
    /// Calls that still wait get no answer.
    ~Authority() = default;

    /// Runs `allowed`, later, if the caller may have things changed; else answers the call by
    /// AccessDenied. A negative errno of sd-bus's where that could not be asked.
    [[nodiscard]] int ask(sd_bus_message* call, Allowed allowed);

  private:
    struct Question {
        Authority* authority;
        MessagePtr call;
        Allowed allowed;
        std::uint32_t user = 0;
        SlotPtr slot{}; ///< of the answer that is awaited
    };

    static int on_user(sd_bus_message* reply, void* question, sd_bus_error*);
    static int on_polkit(sd_bus_message* reply, void* question, sd_bus_error*);
    [[nodiscard]] int ask_polkit(Question& question);
    void settle(Question& question, bool is_allowed);

    sd_bus* bus_;
    std::list<Question> questions_;
};

} // namespace virtguard::bus
