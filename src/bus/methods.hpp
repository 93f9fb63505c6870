// SPDX-License-Identifier: Apache-2.0
#pragma once
// The methods and signals of org.virtguard1.Manager; docs/dbus.md says what they mean.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "bus/authority.hpp"
#include "bus/callers.hpp"
#include "bus/handles.hpp"
#include "bus/long_answers.hpp"
#include "bus/picture.hpp"
#include "core/history.hpp"
#include "core/report.hpp"
#include "core/run_time.hpp"

namespace virtguard::bus {

/// Who does what callers ask for. All run in the loop and wait for nothing.
struct Actions {
    using Done = std::move_only_function<void(Result<>)>;
    using Checked = std::move_only_function<void(Result<core::Outcome>)>;

    /// Tells, later, a caller what a start with this XML would be answered. Errors: syntax, limit,
    /// unavailable.
    std::function<void(std::string xml, std::string caller, Checked)> check;
    /// Tells, later, a caller what a start of this guest, by its name or UUID, would be answered.
    /// Errors: not_found, unavailable.
    std::function<void(std::string domain, std::string caller, Checked)> explain;
    /// The last starts, the latest first.
    std::function<std::vector<core::DecidedStart>(std::size_t most)> recent;
    /// Does what the user ordered. Errors: of a reservation as daemon::Reservations has them; when
    /// it is done but not kept: io, unavailable.
    std::function<void(core::Order, std::uint32_t user, Done)> order;
    std::function<std::vector<core::ReservationReport>()> reservations;
    /// Loads the policy anew. Errors: invalid (then it says what is wrong), unavailable.
    std::function<void(Done)> reload;
    /// Has libvirt asked soon what runs.
    std::function<void()> resync;
};

class Methods {
  public:
    /// Longer arguments are refused. libvirt writes a domain of a hundred disks in a fifth of it.
    static constexpr std::size_t max_xml = 256 << 10;
    /// Of a domain: names are parts of file names, which have at most 255 bytes.
    static constexpr std::size_t max_name = 255;

    /// Of the name of a resource, with a node, and of a ratio: as long as the longest.
    static constexpr std::size_t max_word = 324;

    /// What is referred to must outlive it. The asker and `read_calls` are for Authority.
    Methods(sd_bus* bus, const Picture& picture, LongAnswers& answers, Actions actions,
            sd_bus* asker, std::function<void(bool)> read_calls)
        : bus_(bus), picture_(picture), answers_(answers), actions_(std::move(actions)),
          authority_(asker, std::move(read_calls)) {}

    /// Has the methods answer as long as this lives.
    [[nodiscard]] Result<> add();

    /// Sends Admitted or Refused.
    [[nodiscard]] Result<> announce(const core::DecidedStart& start);

  private:
    template <auto Member>
    static int call(sd_bus_message* message, void* self, sd_bus_error*);
    static const sd_bus_vtable vtable[];

    [[nodiscard]] int check(sd_bus_message* message);
    [[nodiscard]] int explain(sd_bus_message* message);
    using Ask = std::function<void(std::string, std::string caller, Actions::Checked)>;
    [[nodiscard]] int ask(sd_bus_message* message, const Ask& ask, std::string about);
    [[nodiscard]] int list_domains(sd_bus_message* message);
    [[nodiscard]] int recent_decisions(sd_bus_message* message);
    [[nodiscard]] int set_overcommit(sd_bus_message* message);
    [[nodiscard]] int reset_overcommit(sd_bus_message* message);
    [[nodiscard]] int set_mode(sd_bus_message* message);
    [[nodiscard]] int reserve(sd_bus_message* message);
    [[nodiscard]] int renew_reservation(sd_bus_message* message);
    [[nodiscard]] int cancel_reservation(sd_bus_message* message);
    [[nodiscard]] int list_reservations(sd_bus_message* message);
    [[nodiscard]] int carry_out(sd_bus_message* message, Result<core::Order> order);
    [[nodiscard]] int reload(sd_bus_message* message);
    [[nodiscard]] int resync(sd_bus_message* message);

    sd_bus* bus_;
    const Picture& picture_;
    Callers callers_; ///< of Check and Explain
    LongAnswers& answers_;
    Actions actions_;
    Authority authority_;
    SlotPtr slot_;
};

} // namespace virtguard::bus
