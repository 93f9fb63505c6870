// SPDX-License-Identifier: Apache-2.0
#include "ctl/reservation.hpp"

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "core/run_time.hpp"
#include "ctl/amounts.hpp"
#include "ctl/ask.hpp"
#include "ctl/event.hpp"
#include "ctl/file.hpp"
#include "ctl/show.hpp"
#include "ctl/table.hpp"
#include "loop/loop.hpp"
#include "json/document.hpp"

namespace virtguard::ctl {

namespace {

Result<core::Expiry> read_lifetime(const std::string& text) {
    if (text.empty())
        return core::default_lifetime;
    if (text == "never")
        return core::Never{};
    const auto span = parse_duration(text);
    if (!span)
        return context(span.error(), "--expires");
    return *span;
}

/// The command line takes nothing that is empty.
template <class T>
std::optional<T> given(const T& value) {
    return value.empty() ? std::nullopt : std::optional(value);
}

Result<core::Order> read_add(const ReservationOptions& options) {
    const auto expiry = read_lifetime(options.lifetime);
    if (!expiry)
        return std::unexpected(expiry.error());
    core::ReserveWords words{.id = {options.owner, options.name},
                             .uuids = given(options.uuids),
                             .match = given(options.match),
                             .expiry = *expiry,
                             .force = options.force};
    for (const std::string& text : options.amounts) {
        const auto item = parse_reserved(text);
        if (!item)
            return std::unexpected(item.error());
        if (!words.amounts.emplace(item->part.text(), item->amount).second)
            return fail(Errc::invalid, "{} is there twice", item->part.text());
    }
    if (!options.xml_file.empty()) {
        auto xml = read_input(options.xml_file, core::max_reservation_xml);
        if (!xml)
            return std::unexpected(xml.error());
        words.xml = *std::move(xml);
    }
    return core::read_reserve(std::move(words));
}

/// "cpu 4, memory@1 3.5 GiB", "nothing"
std::string shown_text(const core::ShownAmounts& amounts) {
    std::string text;
    for (const auto& [part, value] : amounts) {
        const auto resource = core::Resource::parse(part.substr(0, part.find('@')));
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", printable(part),
                            resource ? amount(*resource, value, Rounding::up)
                                     : fmt::format("{}", value));
    }
    return text.empty() ? "nothing" : text;
}

std::string for_text(const core::ReservationReport& reservation) {
    std::string text;
    for (const Uuid& uuid : reservation.uuids)
        text += fmt::format("{}{}", text.empty() ? "" : ", ", uuid.text());
    if (!reservation.match.empty())
        text += fmt::format("{}{}", text.empty() ? "" : ", ", one_line(reservation.match));
    return text.empty() ? "any of its guests" : text;
}

/// One that is past is still there where virtguardd does not trust the clock.
Cell expiry_cell(const core::ReservationReport& reservation, WallTime now) {
    if (!reservation.expiry)
        return "never";
    const std::string time = core::time_text(*reservation.expiry);
    return *reservation.expiry > now ? Cell(time) : Cell(time + " (past)", Ink::warning);
}

} // namespace

std::string reservations_text(const std::vector<core::ReservationReport>& reservations,
                              WallTime now, const Screen& screen) {
    if (reservations.empty() && screen.width > 0)
        return "no reservations\n";
    Table table({{"OWNER"},
                 {"NAME"},
                 {"ASKED", Align::left, Shown::always, /*wraps=*/true},
                 {"STILL BOOKED", Align::left, Shown::always, /*wraps=*/true},
                 {"EXPIRES", Align::left, Shown::always, /*wraps=*/true},
                 {"FOR", Align::left, Shown::always, /*wraps=*/true}});
    for (const core::ReservationReport& each : reservations)
        table.add({printable(each.id.owner), printable(each.id.name), shown_text(each.asked),
                   shown_text(each.booked), expiry_cell(each, now), for_text(each)});
    return table.text(screen);
}

int add_reservation(const ReservationOptions& options) {
    return give_order(options.socket, read_add(options));
}

int renew_reservation(const ReservationOptions& options) {
    const auto expiry = read_lifetime(options.lifetime);
    return expiry ? give_order(options.socket,
                               core::read_renew({options.owner, options.name}, *expiry))
                  : failure(expiry.error());
}

int cancel_reservation(const ReservationOptions& options) {
    return give_order(options.socket, core::read_cancel({options.owner, options.name}));
}

int list_reservations(const ReservationOptions& options) {
    const auto status = ask_status(options.socket);
    if (!status)
        return failure(status.error());
    print(options.json ? json::reservations_document(status->content) + "\n"
                       : reservations_text(status->content.reservations, loop::wall_time(),
                                           standard_output(options.colour)));
    return exit_ok;
}

} // namespace virtguard::ctl
