// SPDX-License-Identifier: Apache-2.0
#include "core/run_time.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <fmt/chrono.h>

#include "base/text.hpp"

namespace virtguard::core {

namespace {

void carry_out(RunTime& run_time, const SetOvercommit& order, const Setter& by, Instant) {
    if (order.resource.kind != Resource::Kind::hugepages) // theirs is 1, as it would be without
        run_time.overcommit[order.resource] = {order.ratio, by};
}

void carry_out(RunTime& run_time, const ResetOvercommit& order, const Setter&, Instant) {
    if (order.resource)
        run_time.overcommit.erase(*order.resource);
    else
        run_time.overcommit.clear();
}

void carry_out(RunTime& run_time, const SetMode& order, const Setter& by, Instant) {
    run_time.mode = {order.mode, order.message, by};
}

void carry_out(RunTime& run_time, const ResetMode&, const Setter&, Instant) {
    run_time.mode.reset();
}

std::optional<WallTime> end_of(const Expiry& expiry, WallTime ordered) {
    if (const auto* lifetime = std::get_if<std::chrono::microseconds>(&expiry))
        return ordered + *lifetime;
    const auto* end = std::get_if<WallTime>(&expiry);
    return end == nullptr ? std::nullopt : std::optional(*end);
}

std::optional<Instant> end_by_boot(const Expiry& expiry, Instant now) {
    const auto* lifetime = std::get_if<std::chrono::microseconds>(&expiry);
    return lifetime == nullptr ? std::nullopt : std::optional(now + *lifetime);
}

void carry_out(RunTime& run_time, const Reserve& order, const Setter& by, Instant now) {
    run_time.reservations[order.id] = {order.booking, end_of(order.expiry, by.time), by,
                                       end_by_boot(order.expiry, now)};
}

void carry_out(RunTime& run_time, const RenewReservation& order, const Setter& by, Instant now) {
    RunTimeReservation& renewed = run_time.reservations.at(order.id);
    renewed.expiry = end_of(order.expiry, by.time);
    renewed.end = end_by_boot(order.expiry, now);
}

void carry_out(RunTime& run_time, const CancelReservation& order, const Setter&, Instant) {
    run_time.reservations.erase(order.id);
}

std::string text_of(const ReservationId& id) {
    return fmt::format("reservation {} of {}", printable(id.name), printable(id.owner));
}

std::string text_of(const Expiry& expiry) {
    if (const auto* lifetime = std::get_if<std::chrono::microseconds>(&expiry))
        return fmt::format(
            "for {}",
            format_duration(std::chrono::duration_cast<std::chrono::milliseconds>(*lifetime)));
    const auto* end = std::get_if<WallTime>(&expiry);
    return end == nullptr ? "for ever" : fmt::format("until {}", time_text(*end));
}

std::string text_of(const Reserve& order) {
    std::string what;
    for (const auto& [part, amount] : order.booking.amounts)
        what += fmt::format("{}{} = {}", what.empty() ? "" : ", ", part.text(), amount);
    return fmt::format("{}: {} {}{}", text_of(order.id), what.empty() ? "a domain" : what,
                       text_of(order.expiry), order.force ? ", by force" : "");
}

std::string text_of(const RenewReservation& order) {
    return fmt::format("{} {}", text_of(order.id), text_of(order.expiry));
}

std::string text_of(const CancelReservation& order) {
    return fmt::format("{} cancelled", text_of(order.id));
}

std::string text_of(const SetOvercommit& order) {
    return fmt::format("overcommit.{} = {}", toml_key(order.resource.name()), order.ratio.text());
}

std::string text_of(const ResetOvercommit& order) {
    return fmt::format("overcommit{} as in the files",
                       order.resource ? "." + order.resource->name() : "");
}

std::string text_of(const SetMode& order) {
    if (order.mode)
        return fmt::format("mode = {}", mode_name(*order.mode));
    return fmt::format("mode = maintenance{}{}", order.message.empty() ? "" : ": ", order.message);
}

std::string text_of(const ResetMode&) {
    return "mode as in the files";
}

Result<> check_none_empty(const ReserveWords& words) {
    if (words.xml && words.xml->empty())
        return fail(Errc::invalid, "xml: empty: expected the XML of a domain");
    if (words.uuids && words.uuids->empty())
        return fail(Errc::invalid, "uuids: empty: expected 1 to {} UUIDs", max_reservation_uuids);
    if (words.match && words.match->empty())
        return fail(Errc::invalid, "match: empty: expected an XPath expression");
    return {};
}

Result<Booking> read_booking(const ReserveWords& words) {
    Booking booking{
        .amounts = {}, .domain = std::nullopt, .uuids = {}, .match = words.match.value_or("")};
    for (const auto& [text, asked] : words.amounts) {
        const auto part = ReservedPart::parse(text);
        if (!part)
            return std::unexpected(part.error());
        const auto amount = reserved_amount(part->resource, asked);
        if (!amount)
            return context(amount.error(), part->text());
        if (!booking.amounts.emplace(*part, *amount).second) // "hugepages-2048Ki"
            return fail(Errc::invalid, "{} is there twice", part->text());
    }
    for (const std::string& text : words.uuids.value_or(std::vector<std::string>{})) {
        const auto uuid = Uuid::parse(text);
        if (!uuid)
            return fail(Errc::invalid, "uuids: {} is no UUID", quote(text));
        booking.uuids.insert(*uuid);
    }
    return booking;
}

/// As text, what the domain of a booking names may be large.
std::size_t size_of_texts(const Domain& domain) {
    std::size_t size = 0;
    for (const VcpuGroup& group : domain.vcpus)
        size += group.cpus ? group.cpus->text().size() : 0;
    for (const Disk& disk : domain.disks)
        size += disk.image.path.size() + disk.image.format.size();
    for (const MemoryPart& part : domain.memory)
        size += part.bound_to ? part.bound_to->text().size() : 0;
    return size;
}

/// What may have a ratio, or once had.
Result<Resource> read_ratios_resource(std::string_view name) {
    auto resource = Resource::parse(name);
    if (resource && resource->kind == Resource::Kind::hugepages &&
        !is_page_size(resource->page_size))
        return fail(Errc::invalid,
                    "{}: no page has that size: expected a power of two from {} to {}",
                    resource->name(), format_iec(min_page_size), format_iec(max_page_size));
    return resource;
}

Result<> check_lifetime(const Expiry& expiry) {
    const auto* lifetime = std::get_if<std::chrono::microseconds>(&expiry);
    constexpr std::chrono::days longest{366};
    if (lifetime != nullptr && (lifetime->count() <= 0 || *lifetime > longest))
        return fail(Errc::invalid, "expiry: expected above 0, at most a year, or never");
    return {};
}

Result<> check_order(const RunTime& before, const Reserve& order) {
    std::size_t reservations = 1;
    std::set<std::string_view> matches{order.booking.match};
    for (const auto& [id, each] : before.reservations)
        if (id != order.id) {
            ++reservations;
            matches.insert(each.booking.match);
        }
    matches.erase("");
    if (reservations > max_reservations)
        return fail(Errc::limit, "there are {} reservations, which is the most", max_reservations);
    if (matches.size() > max_matches)
        return fail(Errc::limit, "there are {} different matches, which is the most", max_matches);
    return {};
}

Result<> check_there(const RunTime& before, const ReservationId& id) {
    if (before.reservations.contains(id))
        return {};
    return fail(Errc::not_found, "{} has no reservation {}", quote(id.owner), quote(id.name));
}

Result<> check_order(const RunTime& before, const RenewReservation& order) {
    return check_there(before, order.id);
}

Result<> check_order(const RunTime& before, const CancelReservation& order) {
    return check_there(before, order.id);
}

template <class Other>
Result<> check_order(const RunTime&, const Other&) {
    return {};
}

} // namespace

std::string time_text(WallTime time) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
    return fmt::format("{:%F %T} UTC", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)));
}

std::string user_text(const Setter& setter) {
    return setter.user.empty() ? fmt::format("uid {}", setter.uid) : printable(setter.user);
}

std::string origin_text(const Setter& setter) {
    return fmt::format("run time by {} at {}", user_text(setter), time_text(setter.time));
}

std::map<ReservationId, Booking> bookings(const RunTime& run_time) {
    std::map<ReservationId, Booking> bookings;
    for (const auto& [id, each] : run_time.reservations)
        bookings.emplace(id, each.booking);
    return bookings;
}

Policy in_force(Policy files, const RunTime& run_time) {
    for (const auto& [resource, set] : run_time.overcommit) {
        files.overcommit[resource] = set.ratio;
        files.origins[fmt::format("overcommit.{}", toml_key(resource.name()))] =
            origin_text(set.by);
    }
    if (const auto& set = run_time.mode) {
        if (set->mode)
            files.mode = *set->mode;
        else
            files.maintenance = set->message;
        files.origins["mode"] = origin_text(set->by);
    }
    return files;
}

Result<Order> read_set_overcommit(std::string_view resource, std::string_view ratio) {
    const auto known = read_ratios_resource(resource);
    if (!known)
        return std::unexpected(known.error());
    const auto read = Ratio::parse(ratio);
    if (!read)
        return context(read.error(), known->name());
    if (known->kind == Resource::Kind::hugepages && !read->is_one())
        return fail(Errc::invalid, "{}: hugepages take no ratio", known->name());
    return SetOvercommit{*known, *read};
}

Result<Order> read_reset_overcommit(std::string_view resource) {
    if (resource.empty())
        return ResetOvercommit{};
    const auto known = read_ratios_resource(resource);
    if (!known)
        return std::unexpected(known.error());
    return ResetOvercommit{*known};
}

Result<Order> read_set_mode(std::string_view mode, std::string_view message) {
    if (mode != "maintenance" && !message.empty())
        return fail(Errc::invalid, "message: expected none but for maintenance");
    if (message.size() > max_message)
        return fail(Errc::invalid, "message: longer than {} bytes", max_message);
    if (has_control(message))
        return fail(Errc::invalid, "message: expected one line without control characters");
    if (mode == "maintenance")
        return SetMode{std::nullopt, std::string(message)};
    if (mode == "reset")
        return ResetMode{};
    for (const Mode each : {Mode::enforce, Mode::observe, Mode::off})
        if (mode == mode_name(each))
            return SetMode{each, {}};
    return fail(Errc::invalid, "mode: {}: expected enforce, observe, off, maintenance or reset",
                quote(mode));
}

Result<Order> read_reserve(ReserveWords words) {
    if (auto checked = check(words.id); !checked)
        return std::unexpected(checked.error());
    if (auto checked = check_none_empty(words); !checked)
        return std::unexpected(checked.error());
    if (words.amounts.empty() != words.xml.has_value())
        return fail(Errc::invalid, "expected either amounts or the XML of a domain");
    std::string xml = std::move(words.xml).value_or("");
    if (xml.size() > max_reservation_xml)
        return fail(Errc::invalid, "xml: longer than {} bytes", max_reservation_xml);
    auto booking = read_booking(words);
    if (!booking)
        return std::unexpected(booking.error());
    if (auto checked = check(*booking); !checked)
        return std::unexpected(checked.error());
    if (auto checked = check_lifetime(words.expiry); !checked)
        return std::unexpected(checked.error());
    return Reserve{std::move(words.id), *std::move(booking), std::move(xml), words.expiry,
                   words.force};
}

Result<> check(const Booking& booking) {
    if (booking.amounts.size() > max_reserved_parts)
        return fail(Errc::invalid, "more than {} amounts", max_reserved_parts);
    if (booking.uuids.size() > max_reservation_uuids)
        return fail(Errc::invalid, "uuids: more than {}", max_reservation_uuids);
    if (booking.match.size() > max_match)
        return fail(Errc::invalid, "match: longer than {} bytes", max_match);
    if (has_control(booking.match))
        return fail(Errc::invalid, "match: expected one line without control characters");
    constexpr std::size_t max_texts = 8192;
    if (const auto& domain = booking.domain;
        domain &&
        (domain->vcpus.size() + domain->memory.size() + domain->disks.size() > max_reserved_parts ||
         size_of_texts(*domain) > max_texts))
        return fail(
            Errc::invalid,
            "xml: a domain of more than {} kinds of vCPUs, cells and disks, or with long names",
            max_reserved_parts);
    return {};
}

Result<Order> read_renew(ReservationId id, Expiry expiry) {
    if (auto checked = check(id); !checked)
        return std::unexpected(checked.error());
    if (auto checked = check_lifetime(expiry); !checked)
        return std::unexpected(checked.error());
    return RenewReservation{std::move(id), expiry};
}

Result<Order> read_cancel(ReservationId id) {
    if (auto checked = check(id); !checked)
        return std::unexpected(checked.error());
    return CancelReservation{std::move(id)};
}

Result<Expiry> read_expiry(std::uint64_t microseconds) {
    if (microseconds == 0)
        return Never{};
    if (microseconds > static_cast<std::uint64_t>(last_expiry.time_since_epoch().count()))
        return fail(Errc::invalid,
                    "expiry: expected microseconds since 1970, before the year 10000");
    return WallTime(std::chrono::microseconds(microseconds));
}

std::string order_text(const Order& order) {
    return std::visit([](const auto& each) { return text_of(each); }, order);
}

Result<> check(const RunTime& before, const Order& order) {
    return std::visit([&](const auto& each) { return check_order(before, each); }, order);
}

std::vector<ReservationId> expired(const RunTime& run_time, const Now& now) {
    std::vector<ReservationId> over;
    for (const auto& [id, each] : run_time.reservations)
        if (each.end ? *each.end <= now.boot : each.expiry && now.wall && *each.expiry <= *now.wall)
            over.push_back(id);
    return over;
}

std::optional<Span> time_to_expiry(const RunTime& run_time, const Now& now) {
    constexpr std::chrono::days most{366}; // what is later need not fit into a Span
    std::optional<Span> next;
    for (const auto& [id, each] : run_time.reservations) {
        if (!each.end && !each.expiry)
            continue;
        Span left = most;
        if (each.end)
            left = *each.end - now.boot;
        else if (now.wall && *each.expiry - most < *now.wall)
            left = *each.expiry - *now.wall;
        next = std::max(Span(0), std::min(left, next.value_or(left)));
    }
    return next;
}

void trust_wall_clock(RunTime& run_time, Instant boot, WallTime wall) {
    for (auto& [id, each] : run_time.reservations)
        if (const auto end = std::exchange(each.end, std::nullopt))
            each.expiry = wall + std::chrono::floor<WallTime::duration>(*end - boot);
}

RunTime carried_out(RunTime before, const Order& order, const Setter& by, Instant now) {
    std::visit([&](const auto& each) { carry_out(before, each, by, now); }, order);
    return before;
}

} // namespace virtguard::core
