// SPDX-License-Identifier: Apache-2.0
#pragma once
// A connection to a bus, from the first attempt to its end, with org.virtguard1 on it. Nothing
// here waits for the bus.
//
// A bus and its clients are strangers. What they ask is served one message a turn, below all else
// of the loop. What is written to a bus that does not read is kept here, so while some is unsent
// nothing is signalled, and whoever asks is refused, and then not answered at all: see the limits.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "bus/callers.hpp"
#include "bus/handles.hpp"
#include "bus/long_answers.hpp"
#include "bus/methods.hpp"
#include "bus/picture.hpp"

struct sd_event;

namespace virtguard::bus {

/// What came of a turn. more: there was too much for one turn of the loop; behind: the bus has not
/// read all there is.
enum class Told { all, more, behind };

class Connection {
  public:
    /// With so many messages unsent, calls are answered by an error. The largest answer, all
    /// objects of a host of 1000 guests, is about 1 MiB.
    static constexpr std::uint64_t max_unsent = 8;
    /// And with so many, errors of some 100 bytes, by nothing.
    static constexpr std::uint64_t max_unsent_errors = 1024;

    /// Run in the loop; none may destroy the connection.
    struct Handlers {
        std::function<Picture()> picture; ///< asked when the bus has taken us in
        std::function<void()> joined;     ///< the name is ours: tell changes from now on
        std::function<void(const std::string& why)> lost; ///< it ended; nothing more is run
        LongAnswers::Handlers answers; ///< begins: it may show() something newer first
    };

    /// Connects, as soon as something listens at the address. Smaller priorities of sd-event's are
    /// served first. The loop must outlive the connection.
    [[nodiscard]] static Result<std::unique_ptr<Connection>>
    open(sd_event* loop, std::int64_t priority, const std::string& address, Handlers handlers,
         Actions actions);
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection() = default;

    /// The name is ours.
    [[nodiscard]] bool has_joined() const { return joined_; }
    /// Shows this from then on. Not while may_show() says no: a long answer is of one picture.
    [[nodiscard]] bool may_show() const { return !answers_.is_amid(); }
    void show(Picture picture) { shown_ = std::move(picture); }
    /// Signals what has changed since it last was told, as far as the bus takes it.
    [[nodiscard]] Told tell();
    /// Signals that a start was decided. False: the bus has not read all there is, so later.
    [[nodiscard]] bool announce(const core::DecidedStart& start);

    /// Builds a part of a long answer, as far as the bus takes it. To be called while there are
    /// some, and nothing else waits.
    [[nodiscard]] Told answer();

  private:
    explicit Connection(Handlers handlers)
        : handlers_(std::move(handlers)), answers_(handlers_.answers) {}
    [[nodiscard]] int start(sd_event* loop, std::int64_t priority, const std::string& address);
    [[nodiscard]] int serve_calls();
    [[nodiscard]] int watch(sd_bus* bus, const char* event, sd_bus_message_handler_t handler);
    void read_calls(bool now);
    [[nodiscard]] int on_connected(sd_bus_message* signal);
    [[nodiscard]] int on_disconnected(sd_bus_message* signal);
    [[nodiscard]] int on_name(sd_bus_message* reply);
    [[nodiscard]] int filter(sd_bus_message* message);
    [[nodiscard]] int ask_for_objects(sd_bus_message* call);
    [[nodiscard]] std::uint64_t unsent() const;
    void end(const std::string& why);

    template <auto Member>
    static int call(sd_bus_message* message, void* self, sd_bus_error*);

    Handlers handlers_;
    Picture shown_;
    Picture told_; ///< what those who follow the signals know
    bool joined_ = false;
    bool ended_ = false;
    sd_event* loop_ = nullptr;
    int priority_ = 0; ///< in the loop
    BusPtr bus_;
    BusPtr asker_; ///< a connection of its own, to ask who calls
    LongAnswers answers_;
    std::unique_ptr<Methods> methods_;
    std::vector<SlotPtr> slots_; ///< they end before the bus, and that before what they show
};

} // namespace virtguard::bus
