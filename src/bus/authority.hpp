// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who may change anything: root, and those that polkit lets. Both questions are put to the bus.
//
// Who it is that calls for the first time is known a moment later, and until then no further call
// is read, so that none has to be kept, or refused, of whom nothing is known. Root goes on then,
// whoever else waits. All others wait for polkit, within limits, and nothing else waits with them.
//
// The questions have a connection of their own: on that of the calls, the answers would stand
// behind all that others have sent.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "bus/handles.hpp"

namespace virtguard::bus {

class Authority {
  public:
    /// Calls that wait for polkit, each perhaps for a person who types a password, and each with an
    /// order of up to 0.3 MiB: of one user, over all his connections, and of all users together. A
    /// dbus-daemon lets a connection ask no more at once (max_replies_per_connection).
    static constexpr std::size_t max_of_one = 64;
    static constexpr std::size_t max_of_all = 128;

    /// Gets what was kept of the call, to be answered with what came of it, and who made it.
    using Allowed = std::move_only_function<void(MessagePtr call, std::uint32_t user)>;

    /// On this connection the bus and polkit are asked; `read_calls` has calls read, or not.
    Authority(sd_bus* asker, std::function<void(bool)> read_calls)
        : asker_(asker), read_calls_(std::move(read_calls)) {}
    Authority(const Authority&) = delete;
    Authority& operator=(const Authority&) = delete;
    /// Calls that still wait get no answer.
    ~Authority() = default;

    /// Runs `allowed`, perhaps later, if the caller may have things changed; else answers the call
    /// by AccessDenied, or by LimitsExceeded. One that leaves the bus is forgotten. A negative
    /// errno of sd-bus's where that could not be asked.
    [[nodiscard]] int ask(sd_bus_message* call, Allowed allowed);

  private:
    struct Question {
        Authority* authority;
        std::uint64_t number; ///< polkit's name for it
        MessagePtr call;
        Allowed allowed;
        std::uint32_t user = 0; ///< not known before it waits for polkit
        SlotPtr answer{};       ///< that is awaited
        SlotPtr end{};          ///< of the caller's connection, told by the bus
    };

    [[nodiscard]] int ask_user(Question& question);
    static int on_user(sd_bus_message* reply, void* question, sd_bus_error*);
    static int on_polkit(sd_bus_message* reply, void* question, sd_bus_error*);
    static int on_end(sd_bus_message* signal, void* question, sd_bus_error*);
    void judge(Question& question);
    void consider(Question& question);
    [[nodiscard]] int watch_caller(Question& question);
    [[nodiscard]] int ask_polkit(Question& question);
    void cancel(std::uint64_t number);
    void allow(Question& question);
    void refuse(Question& question);
    [[nodiscard]] Question take(Question& question);

    sd_bus* asker_;
    std::function<void(bool)> read_calls_;
    std::uint64_t asked_ = 0;
    std::list<Question> questions_;
    std::map<std::string, std::uint32_t, std::less<>> users_; ///< by unique name: one owner, ever
};

} // namespace virtguard::bus
