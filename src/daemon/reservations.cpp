// SPDX-License-Identifier: Apache-2.0
#include "daemon/reservations.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.hpp"
#include "base/text.hpp"
#include "core/wording.hpp"
#include "daemon/read_domain.hpp"
#include "domxml/parse.hpp"

namespace virtguard::daemon {

namespace {

/// The wall clock jumps, and nothing tells when it is put right.
constexpr std::chrono::minutes longest_wait{1};

/// What is left, for people: "4 vCPUs, 8 GiB of memory".
std::string left_text(const std::vector<core::Piece>& booked, const core::Host& host) {
    core::Demand demand;
    std::ranges::copy_if(booked, std::back_inserter(demand.pieces),
                         [](const core::Piece& piece) { return piece.amount > 0; });
    std::string text;
    for (const auto& [resource, amount] : demand.total())
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", resource.name(),
                            core::amount_text(host, resource, amount, Rounding::up));
    return text.empty() ? "nothing" : text;
}

const core::Expiry* expiry_of(const core::Order& order) {
    if (const auto* reserve = std::get_if<core::Reserve>(&order))
        return &reserve->expiry;
    const auto* renew = std::get_if<core::RenewReservation>(&order);
    return renew == nullptr ? nullptr : &renew->expiry;
}

/// The domain of a booking is asked nothing: it is not there.
Result<> read_xml(core::Reserve& order) {
    if (order.xml.empty())
        return {};
    ReadDomain read = read_domain(std::exchange(order.xml, {}), {});
    if (!read.domain)
        return context(read.domain.error(), "xml");
    order.booking.domain = *std::move(read.domain);
    return {};
}

} // namespace

Result<std::unique_ptr<Reservations>> Reservations::create(loop::Loop& loop, core::Guard& guard,
                                                           RunTimeStore& store,
                                                           ClockIsRight clock_is_right,
                                                           std::function<void()> changed) {
    std::unique_ptr<Reservations> made(
        new Reservations(guard, store, clock_is_right, std::move(changed)));
    auto timer = loop.timer("reservations", [raw = made.get()] { raw->end_those_over(); });
    if (!timer)
        return std::unexpected(timer.error());
    made->timer_ = *std::move(timer);
    made->take_up();
    return made;
}

void Reservations::take_up() {
    std::map<core::ReservationId, core::Booking> kept;
    for (const auto& [id, each] : store_.values().reservations)
        kept.emplace(id, each.booking);
    guard_.reserve(kept);
    arm();
}

bool Reservations::are_meant_by(const core::Order& order) {
    return std::holds_alternative<core::Reserve>(order) ||
           std::holds_alternative<core::RenewReservation>(order) ||
           std::holds_alternative<core::CancelReservation>(order);
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the XML in it is let go of
void Reservations::carry_out(core::Order order, const core::Setter& by, RunTimeStore::Kept done) {
    if (auto applied = apply(order); !applied)
        return done(std::move(applied));
    store_.set(carried_out(store_.values(), order, by), std::move(done));
    log(Level::notice, "run time: {}, by {}", core::order_text(order), core::user_text(by));
    arm();
    changed_();
}

Result<> Reservations::apply(core::Order& order) {
    if (auto possible = core::check(store_.values(), order); !possible)
        return possible;
    if (const core::Expiry* expiry = expiry_of(order))
        if (const auto* end = std::get_if<WallTime>(expiry);
            end != nullptr && *end <= loop::wall_time() && trusts_clock())
            return fail(Errc::invalid, "expiry: {} is past", core::time_text(*end));
    if (auto* reserve = std::get_if<core::Reserve>(&order))
        return book(*reserve);
    if (const auto* cancel = std::get_if<core::CancelReservation>(&order))
        guard_.cancel(cancel->id);
    return {};
}

Result<> Reservations::book(core::Reserve& order) {
    if (auto read = read_xml(order); !read)
        return read;
    if (auto checked = core::check(order.booking); !checked)
        return checked;
    for (const auto& [part, amount] : order.booking.amounts)
        if (const auto known = guard_.policy().find_resource(part.resource.name()); !known)
            return std::unexpected(known.error());
    if (const auto question = core::question_of(order.booking))
        if (auto checked = domxml::check_question(*question); !checked)
            return fail(Errc::invalid, "match: {}", checked.error().what);
    using IfShort = core::Guard::IfShort;
    const core::Decision decision =
        guard_.reserve(order.id, order.booking, order.force ? IfShort::book : IfShort::refuse);
    if (!decision.admitted() && !order.force)
        return fail(Errc::refused, "{}", core::refusing_text(decision));
    for (const core::Reason& reason : decision.reasons)
        log(Level::warning, "reservation {} of {} is made although {}", printable(order.id.name),
            printable(order.id.owner), one_line(reason.text));
    return {};
}

bool Reservations::trusts_clock() {
    was_right_ = was_right_ || clock_is_right_();
    return was_right_;
}

void Reservations::end_those_over() {
    core::RunTime values = store_.values();
    const std::vector<core::ReservationId> over = trusts_clock()
                                                      ? core::expired(values, loop::wall_time())
                                                      : std::vector<core::ReservationId>{};
    for (const core::ReservationId& id : over) {
        log(Level::notice, "run time: reservation {} of {} has expired; what was left of it: {}",
            printable(id.name), printable(id.owner),
            left_text(guard_.ledger().booked(id), guard_.host()));
        guard_.cancel(id);
        values.reservations.erase(id);
    }
    if (!over.empty()) {
        store_.set(std::move(values), [](const Result<>&) {}); // else the next daemon ends them
        changed_();
    }
    arm();
}

void Reservations::arm() {
    const auto next = core::next_expiry(store_.values());
    if (!next)
        return timer_->disarm();
    std::chrono::nanoseconds wait = longest_wait;
    if (trusts_clock())
        wait = std::clamp<std::chrono::nanoseconds>(*next - std::min(*next, loop::wall_time()),
                                                    std::chrono::nanoseconds(0), longest_wait);
    timer_->arm_after(wait);
}

} // namespace virtguard::daemon
