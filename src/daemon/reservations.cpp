// SPDX-License-Identifier: Apache-2.0
#include "daemon/reservations.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
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

/// What of a booking guests draw at once, of which a refusal does not speak: "; cpu: 100 vCPUs
/// asked for, 2 vCPUs of it drawn by guests at once"
std::string drawn_text(const core::Decision& decision, const core::Quantities& asked,
                       const core::Host& host) {
    std::string text;
    for (const core::Reason& reason : decision.reasons) {
        if (!reason.resource || !reason.nodes.empty() || reason.requested == 0)
            continue;
        const auto all = asked.find(*reason.resource);
        if (all == asked.end() || all->second <= reason.requested)
            continue;
        const auto amount = [&](std::int64_t value) {
            return core::amount_text(host, *reason.resource, value, Rounding::up);
        };
        text += fmt::format("; {}: {} asked for, {} of it drawn by guests at once",
                            reason.resource->name(), amount(all->second),
                            amount(all->second - reason.requested));
    }
    return text;
}

const core::Expiry* expiry_of(const core::Order& order) {
    if (const auto* reserve = std::get_if<core::Reserve>(&order))
        return &reserve->expiry;
    const auto* renew = std::get_if<core::RenewReservation>(&order);
    return renew == nullptr ? nullptr : &renew->expiry;
}

std::optional<core::RunTimeReservation> find(const core::RunTime& values,
                                             const core::ReservationId& id) {
    const auto found = values.reservations.find(id);
    return found == values.reservations.end() ? std::nullopt : std::optional(found->second);
}

/// Neither replaced nor renewed, whatever has become known of the clock and of who made it.
bool is_same(const core::RunTimeReservation& made, const core::RunTimeReservation& now) {
    const bool is_moved = made.end && !now.end;
    return made.booking == now.booking && made.by.time == now.by.time &&
           (is_moved || (made.end == now.end && made.expiry == now.expiry));
}

std::string name_of(const core::ReservationId& id) {
    return fmt::format("reservation {} of {}", printable(id.name), printable(id.owner));
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
    made->end_those_over();
    return made;
}

void Reservations::take_up() {
    guard_.reserve(core::bookings(store_.values()));
    arm();
}

bool Reservations::are_meant_by(const core::Order& order) {
    return std::holds_alternative<core::Reserve>(order) ||
           std::holds_alternative<core::RenewReservation>(order) ||
           std::holds_alternative<core::CancelReservation>(order);
}

/// The images of a domain are read first, as for a check.
void Reservations::carry_out(core::Order order, const core::Setter& by, RunTimeStore::Kept done) {
    auto* reserve = std::get_if<core::Reserve>(&order);
    if (reserve != nullptr)
        if (auto read = read_xml(*reserve); !read)
            return done(std::move(read));
    if (reserve == nullptr || storage_ == nullptr || !reserve->booking.domain ||
        reserve->booking.domain->disks.empty())
        return decide(std::move(order), by, std::move(done));
    const std::vector<core::Disk> disks = reserve->booking.domain->disks;
    storage_->read(disks, StorageWatch::patience,
                   [this, order = std::move(order), by, done = std::move(done)]() mutable {
                       decide(std::move(order), by, std::move(done));
                   });
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): its booking is completed
void Reservations::decide(core::Order order, const core::Setter& by, RunTimeStore::Kept done) {
    if (auto applied = apply(order); !applied)
        return done(std::move(applied));
    core::RunTime values = carried_out(store_.values(), order, by, loop::now());
    if (trusts_clock())
        core::trust_wall_clock(values, loop::now(), loop::wall_time());
    if (const auto* reserve = std::get_if<core::Reserve>(&order)) {
        auto before = find(store_.values(), reserve->id);
        done = or_undone(reserve->id, values.reservations.at(reserve->id), std::move(before),
                         std::move(done));
    }
    log(Level::notice, "run time: {}, by {}", core::order_text(order), core::user_text(by));
    changed_(); // guests first: see end_those_over()
    store_.set(std::move(values), std::move(done));
    arm();
}

/// The domain of a booking is asked what the policy asks, as what is custom is among that.
Result<> Reservations::read_xml(core::Reserve& order) const {
    if (order.xml.empty())
        return {};
    ReadDomain read = read_domain(std::exchange(order.xml, {}), guard_.policy().questions());
    if (!read.domain)
        return context(read.domain.error(), "xml");
    order.booking.domain = *std::move(read.domain);
    return {};
}

/// Who is told that it is not reserved need not find it reserved.
RunTimeStore::Kept Reservations::or_undone(core::ReservationId id, core::RunTimeReservation made,
                                           std::optional<core::RunTimeReservation> before,
                                           RunTimeStore::Kept done) {
    return [this, id = std::move(id), made = std::move(made), before = std::move(before),
            done = std::move(done)](Result<> kept) mutable {
        if (kept)
            return done(std::move(kept));
        std::string_view why = kept.error().what;
        if (why.starts_with(RunTimeStore::not_kept))
            why.remove_prefix(RunTimeStore::not_kept.size());
        auto failed = fail(kept.error().code, "not reserved: {}", why);
        undo(id, made, before);
        done(std::move(failed));
    };
}

/// Unless it was replaced, renewed or ended since.
void Reservations::undo(const core::ReservationId& id, const core::RunTimeReservation& made,
                        const std::optional<core::RunTimeReservation>& before) {
    core::RunTime values = store_.values();
    if (const auto now = find(values, id); !now || !is_same(made, *now))
        return;
    if (before) {
        (void)guard_.reserve(id, before->booking, core::Guard::IfShort::book);
        values.reservations[id] = *before;
    } else {
        guard_.cancel(id);
        values.reservations.erase(id);
    }
    log(Level::notice, "run time: {} is as it was before, as it could not be kept", name_of(id));
    changed_();
    store_.set(std::move(values), [](const Result<>&) {});
    arm();
}

Result<> Reservations::apply(core::Order& order) {
    if (auto possible = core::check(store_.values(), order); !possible)
        return possible;
    if (const core::Expiry* expiry = expiry_of(order))
        if (const auto* end = std::get_if<WallTime>(expiry);
            end != nullptr && *end <= loop::wall_time())
            return fail(Errc::invalid, "expiry: {} is past: it is {} here", core::time_text(*end),
                        core::time_text(loop::wall_time()));
    if (auto* reserve = std::get_if<core::Reserve>(&order))
        return book(*reserve);
    if (const auto* cancel = std::get_if<core::CancelReservation>(&order))
        guard_.cancel(cancel->id);
    return {};
}

Result<> Reservations::book(core::Reserve& order) {
    const auto before = find(store_.values(), order.id);
    order.booking.made = before ? before->booking.made : loop::now();
    if (auto checked = core::check(order.booking); !checked)
        return checked;
    for (const auto& [part, amount] : order.booking.amounts)
        if (const auto known = guard_.policy().find_resource(part.resource.name()); !known)
            return std::unexpected(known.error());
    if (const auto question = core::question_of(order.booking))
        if (auto checked = domxml::check_question(*question); !checked)
            return fail(Errc::invalid, "match: {}", checked.error().what);
    using IfShort = core::Guard::IfShort;
    const core::Demand asked = core::make_demand(order.booking, guard_.host(), guard_.policy());
    const auto decision =
        guard_.reserve(order.id, order.booking, order.force ? IfShort::book : IfShort::refuse);
    if (!decision)
        return std::unexpected(decision.error());
    if (!decision->admitted() && !order.force)
        return fail(Errc::refused, "{}{}", core::refusing_text(*decision),
                    drawn_text(*decision, asked.total(), guard_.host()));
    for (const core::Reason& reason : decision->reasons)
        log(Level::warning, "{} is made although {}", name_of(order.id), one_line(reason.text));
    return {};
}

bool Reservations::trusts_clock() {
    was_right_ = was_right_ || clock_is_right_();
    return was_right_;
}

void Reservations::end_those_over() {
    tell_overdue();
    core::RunTime values = store_.values();
    core::Now now{.boot = loop::now()};
    if (trusts_clock()) {
        now.wall = loop::wall_time();
        core::trust_wall_clock(values, now.boot, *now.wall);
    }
    // One in a turn of the loop: each may mean work on many guests.
    if (const auto over = core::expired(values, now); !over.empty()) {
        const core::ReservationId& id = over.front();
        log(Level::notice, "run time: {} has expired; what was left of it: {}", name_of(id),
            left_text(guard_.ledger().booked(id), guard_.host()));
        guard_.cancel(id);
        values.reservations.erase(id);
    }
    if (values != store_.values()) {
        // Guests first: what they drew from them is known before they are gone. A daemon that dies
        // in between leaves them to the next one, which may then book too much, never too little.
        changed_();
        store_.set(std::move(values), [](const Result<>&) {});
    }
    arm();
}

/// So that it is seen when one comes to be overdue, or no longer is.
void Reservations::tell_overdue() {
    if (auto now = overdue(); now != overdue_) {
        overdue_ = std::move(now);
        changed_();
    }
}

/// Those that would have ended by now, were the clock known to be right.
std::set<core::ReservationId> Reservations::overdue() const {
    std::set<core::ReservationId> found;
    if (was_right_ || clock_is_right_())
        return found;
    for (const auto& [id, each] : store_.values().reservations)
        if (!each.end && each.expiry && *each.expiry <= loop::wall_time())
            found.insert(id);
    return found;
}

void Reservations::arm() {
    core::Now now{.boot = loop::now()};
    if (trusts_clock())
        now.wall = loop::wall_time();
    const auto next = core::time_to_expiry(store_.values(), now);
    if (!next)
        return timer_->disarm();
    timer_->arm_after(std::min<std::chrono::nanoseconds>(*next, longest_wait));
}

std::vector<std::string> Reservations::problems() const {
    std::vector<std::string> problems;
    for (const core::ReservationId& id : overdue())
        problems.push_back(
            fmt::format("{}: its time is past, and it ends only when the kernel says that the "
                        "clock is synchronised",
                        name_of(id)));
    for (const auto& [id, each] : store_.values().reservations)
        for (const core::Resource& resource : core::undeclared(each.booking, guard_.policy()))
            problems.push_back(
                fmt::format("{}: nothing is booked of {}, which the policy does not declare",
                            name_of(id), resource.name()));
    return problems;
}

} // namespace virtguard::daemon
