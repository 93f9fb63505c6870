// SPDX-License-Identifier: Apache-2.0
#include "daemon/bus_link.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.hpp"
#include "bus/names.hpp"

namespace virtguard::daemon {

namespace {

/// A bus that was restarted is there again at once; one that does not want us stays so.
constexpr std::chrono::seconds first_retry{1};
constexpr std::chrono::seconds last_retry{60};

/// Of the main thread's time, working out pictures takes at most one part in so many.
constexpr int share_of_time = 20;

/// What a guest's XML has in bytes, about: in pins it may have the most.
std::size_t usual_size(const core::Domain& domain) {
    constexpr std::size_t without_pins = 4096;
    constexpr std::size_t of_pin = 60;
    return without_pins + of_pin * domain.vcpus.size();
}

/// A turn's share of announcements.
constexpr std::size_t starts_per_turn = 32;

/// How soon to look whether a bus that was behind has read what there is.
constexpr std::chrono::milliseconds behind_retry{100};

/// What a long answer takes, or less.
constexpr std::chrono::milliseconds answer_time{10};

} // namespace

BusLink::BusLink(loop::Loop& loop, std::string address, Service& service, Requests requests)
    : loop_(loop), address_(std::move(address)), service_(service), requests_(std::move(requests)),
      backoff_(first_retry, last_retry) {}

BusLink::~BusLink() {
    service_.set_on_change(nullptr);
}

Result<std::unique_ptr<BusLink>> BusLink::create(loop::Loop& loop, std::string address,
                                                 Service& service, Requests requests) {
    std::unique_ptr<BusLink> link(
        new BusLink(loop, std::move(address), service, std::move(requests)));
    BusLink* raw = link.get();
    using loop::Priority;
    auto reconnecting = loop.timer(
        "bus connection", [raw] { raw->connect(); }, Priority::last);
    auto waiting = loop.timer(
        "bus picture", [raw] { raw->update(); }, Priority::last);
    auto updating = loop.deferred(
        "bus signals", [raw] { raw->update(); }, Priority::last);
    auto answering = loop.deferred(
        "bus answers", [raw] { raw->answer(); }, Priority::spare);
    if (!reconnecting)
        return std::unexpected(reconnecting.error());
    if (!waiting)
        return std::unexpected(waiting.error());
    if (!updating)
        return std::unexpected(updating.error());
    auto slow_lane = SlowLane::create(loop);
    auto xml = XmlReader::create(loop);
    if (!answering)
        return std::unexpected(answering.error());
    if (!slow_lane)
        return std::unexpected(slow_lane.error());
    if (!xml)
        return std::unexpected(xml.error());
    link->slow_lane_ = *std::move(slow_lane);
    link->xml_ = *std::move(xml);
    link->answering_ = *std::move(answering);
    link->reconnecting_ = *std::move(reconnecting);
    link->waiting_ = *std::move(waiting);
    link->updating_ = *std::move(updating);
    service.set_on_change([raw] { raw->changed(); });
    link->connect();
    return link;
}

void BusLink::connect() {
    slow_lane_->forget();
    xml_->forget();
    connection_.reset();
    auto connection =
        bus::Connection::open(loop_.handle(), std::to_underlying(loop::Priority::last), address_,
                              {.picture = [this] { return bus_picture(service_, calendar_); },
                               .joined = [this] { joined(); },
                               .lost = [this](const std::string& why) { lost(why); },
                               .answers = {.begins = [this] { refresh_if_due(); },
                                           .waits = [this] { answering_->schedule(); }}},
                              actions());
    if (connection)
        connection_ = *std::move(connection);
    else
        lost(connection.error().what);
}

bus::Actions BusLink::actions() {
    return {.check =
                [this](std::string xml, std::string caller, bus::Actions::Checked done) {
                    check(std::move(xml), std::move(caller), std::move(done));
                },
            .explain =
                [this](std::string domain, std::string caller, bus::Actions::Checked done) {
                    explain(std::move(domain), std::move(caller), std::move(done));
                },
            .recent = [this](std::size_t most) { return service_.history().recent(most); },
            .order =
                [this](core::Order order, std::uint32_t user, bus::Actions::Done done) {
                    carry_out(std::move(order), user, std::move(done));
                },
            .reservations =
                [this] {
                    return core::reservation_reports(service_.run_time(), service_.guard().ledger(),
                                                     service_.guard().host());
                },
            .reload = requests_.reload,
            .resync = requests_.resync};
}

void BusLink::check(std::string xml, std::string caller, bus::Actions::Checked done) {
    auto text = std::make_shared<const std::string>(std::move(xml));
    const std::size_t size = text->size();
    auto work = [this, text = std::move(text),
                 done = std::move(done)](Result<SlowLane::Turn> turn) mutable {
        if (!turn)
            return done(std::unexpected(turn.error()));
        read_and_check(std::move(text), *std::move(turn), std::move(done));
    };
    slow_lane_->enter(std::move(caller), size, std::move(work));
}

void BusLink::read_and_check(std::shared_ptr<const std::string> xml, SlowLane::Turn turn,
                             bus::Actions::Checked done) {
    auto answer = [this, xml, turn = std::move(turn),
                   done = std::move(done)](const ReadDomain& read) mutable {
        const bool is_read = read.domain || read.domain.error().code == Errc::invalid;
        if (is_read && !read.answers(service_.guard().questions())) // a reload was faster
            return read_and_check(std::move(xml), std::move(turn), std::move(done));
        turn.begin();
        done(service_.check(read, Service::Fits::left_out));
    };
    xml_->read(std::move(xml), service_.guard().questions(), std::move(answer));
}

void BusLink::explain(std::string guest, std::string caller, bus::Actions::Checked done) {
    const core::Guest* known = service_.find(guest);
    const std::size_t size = known == nullptr ? 0 : usual_size(known->domain);
    auto work = [this, guest = std::move(guest),
                 done = std::move(done)](Result<SlowLane::Turn> turn) mutable {
        if (!turn)
            return done(std::unexpected(turn.error()));
        turn->begin();
        done(service_.explain(guest));
    };
    slow_lane_->enter(std::move(caller), size, std::move(work));
}

void BusLink::carry_out(core::Order order, std::uint32_t user, bus::Actions::Done done) {
    auto* reserve = std::get_if<core::Reserve>(&order);
    if (reserve == nullptr || reserve->xml.empty())
        return service_.carry_out(order, user, std::move(done));
    auto xml = std::make_shared<const std::string>(reserve->xml);
    auto answer = [this, order = std::move(order), user,
                   done = std::move(done)](const ReadDomain& read) mutable {
        if (!read.domain)
            return done(context(read.domain.error(), "xml"));
        if (!read.answers(service_.guard().questions())) // a reload was faster
            return carry_out(std::move(order), user, std::move(done));
        auto& booked = std::get<core::Reserve>(order);
        booked.xml.clear();
        booked.booking.domain = *read.domain;
        service_.carry_out(order, user, std::move(done));
    };
    xml_->read(std::move(xml), service_.guard().questions(), std::move(answer));
}

void BusLink::joined() {
    log(Level::notice, "bus: there as {}", bus::service_name);
    backoff_.reset();
    problem_.clear();
    announced_ = service_.history().latencies().count();
    changed(); // since the picture was worked out
}

void BusLink::lost(const std::string& why) {
    if (why != problem_)
        log(Level::warning, "{}; trying again", why);
    problem_ = why;
    reconnecting_->arm_after(backoff_.next());
}

void BusLink::changed() {
    if (connection_ == nullptr || !connection_->has_joined() || std::exchange(outdated_, true))
        return;
    if (loop::now() < next_picture_)
        waiting_->arm(next_picture_);
    else
        updating_->schedule();
}

void BusLink::update() {
    if (connection_ == nullptr)
        return;
    refresh_if_due();
    // Who hears of a start finds what it changed.
    const bus::Told told = connection_->tell();
    answering_->schedule(); // what it did not take when it was behind
    if (has_more(std::max(told, announce()), *updating_))
        return;
    if (outdated_)
        waiting_->arm(connection_->may_show() ? next_picture_ : loop::now() + answer_time);
}

/// Nothing new is shown while an answer is built.
void BusLink::refresh_if_due() {
    if (outdated_ && connection_->may_show() && loop::now() >= next_picture_)
        refresh();
}

/// While somebody waits for a long answer.
void BusLink::answer() {
    if (connection_ != nullptr)
        (void)has_more(connection_->answer(), *answering_);
}

/// Then it goes on: with the next turn, or, where the bus is behind, with the next update.
bool BusLink::has_more(bus::Told told, loop::Deferred& next_turn) {
    if (told == bus::Told::more)
        next_turn.schedule();
    if (told == bus::Told::behind)
        waiting_->arm_after(behind_retry);
    return told != bus::Told::all;
}

void BusLink::refresh() {
    outdated_ = false;
    const Instant began = loop::now();
    connection_->show(bus_picture(service_, calendar_));
    const Instant ended = loop::now();
    next_picture_ = ended + share_of_time * (ended - began);
}

/// Starts that were decided since, the oldest first. Those that the history has no more are not
/// announced; whoever wants all of them has the counters.
bus::Told BusLink::announce() {
    const core::History& history = service_.history();
    const std::uint64_t decided = history.latencies().count();
    const std::vector<core::DecidedStart> starts = history.recent(decided - announced_);
    for (std::size_t i = starts.size(); i > 0; --i) {
        if (starts.size() - i == starts_per_turn)
            return bus::Told::more;
        if (!connection_->announce(starts[i - 1]))
            return bus::Told::behind;
        announced_ = decided - (i - 1);
    }
    return bus::Told::all;
}

} // namespace virtguard::daemon
