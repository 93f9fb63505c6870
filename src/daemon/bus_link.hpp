// SPDX-License-Identifier: Apache-2.0
#pragma once
// Keeps virtguardd on the bus, as far as there is one: it may come later, go and come back, and
// nothing but the bus depends on it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "bus/connection.hpp"
#include "daemon/bus_picture.hpp"
#include "daemon/service.hpp"
#include "daemon/slow_lane.hpp"
#include "daemon/xml_reader.hpp"
#include "loop/loop.hpp"
#include "virt/backoff.hpp"

namespace virtguard::daemon {

class BusLink {
  public:
    /// What is done outside of the service, as in bus::Actions.
    struct Requests {
        std::function<void(CurrentPolicy::Reloaded)> reload;
        std::function<void()> resync;
    };

    /// Has the service's changes told from then on. Loop and service must outlive the link.
    [[nodiscard]] static Result<std::unique_ptr<BusLink>>
    create(loop::Loop& loop, std::string address, Service& service, Requests requests);
    BusLink(const BusLink&) = delete;
    BusLink& operator=(const BusLink&) = delete;
    ~BusLink();

  private:
    BusLink(loop::Loop& loop, std::string address, Service& service, Requests requests);
    void connect();
    [[nodiscard]] bus::Actions actions();
    void check(std::string xml, std::string caller, bus::Actions::Checked done);
    void read_and_check(std::shared_ptr<const std::string> xml, SlowLane::Turn turn,
                        bus::Actions::Checked done);
    void explain(std::string guest, std::string caller, bus::Actions::Checked done);
    void carry_out(core::Order order, std::uint32_t user, bus::Actions::Done done);
    void joined();
    void lost(const std::string& why);
    void changed();
    void update();
    void refresh();
    void refresh_if_due();
    void answer();
    bool has_more(bus::Told told, loop::Deferred& next_turn);
    [[nodiscard]] bus::Told announce();

    loop::Loop& loop_;
    std::string address_;
    Service& service_;
    Requests requests_;
    Calendar calendar_;
    std::uint64_t announced_ = 0; ///< starts, of all that were decided
    virt::Backoff backoff_;
    std::string problem_;   ///< why there is no connection, as it was logged; else ""
    bool outdated_ = false; ///< the connection shows an old picture
    Instant next_picture_;  ///< not before then
    std::optional<loop::Timer> reconnecting_;
    std::optional<loop::Timer> waiting_; ///< for the next update
    std::optional<loop::Deferred> updating_;
    std::optional<loop::Deferred> answering_;
    std::unique_ptr<bus::Connection> connection_;
    // After the connection, which has a place for each caller that waits in them.
    std::unique_ptr<SlowLane> slow_lane_;
    std::unique_ptr<XmlReader> xml_; ///< after the lane, as who is read has a turn
};

} // namespace virtguard::daemon
