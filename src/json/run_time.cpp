// SPDX-License-Identifier: Apache-2.0
#include "json/run_time.hpp"

#include <chrono>
#include <limits>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "json/values.hpp"

namespace virtguard::json {

namespace {

constexpr const char* set_overcommit = "set-overcommit";
constexpr const char* reset_overcommit = "reset-overcommit";
constexpr const char* set_mode = "set-mode";
constexpr const char* reserve = "reserve";
constexpr const char* renew_reservation = "renew-reservation";
constexpr const char* cancel_reservation = "cancel-reservation";
constexpr const char* maintenance = "maintenance";

Json setter_json(const core::Setter& setter) {
    return {{"time_us", setter.time.time_since_epoch().count()},
            {"uid", setter.uid},
            {"user", setter.user}};
}

core::Setter read_setter(const Json& json) {
    const std::int64_t uid = read_amount(json.at("uid"));
    if (uid > std::numeric_limits<std::uint32_t>::max())
        reject("a uid is none");
    return {.time = WallTime(WallTime::duration(read_amount(json.at("time_us")))),
            .uid = static_cast<std::uint32_t>(uid),
            .user = json.at("user").get<std::string>()};
}

Json order_json(const core::SetOvercommit& order) {
    return {{"order", set_overcommit},
            {"resource", order.resource.name()},
            {"ratio", order.ratio.text()}};
}

Json order_json(const core::ResetOvercommit& order) {
    return {{"order", reset_overcommit},
            {"resource", order.resource ? order.resource->name() : ""}};
}

std::string_view word_of(const std::optional<core::Mode>& mode) {
    return mode ? core::mode_name(*mode) : maintenance;
}

Json order_json(const core::SetMode& order) {
    return {{"order", set_mode}, {"mode", word_of(order.mode)}, {"message", order.message}};
}

Json order_json(const core::ResetMode&) {
    return {{"order", set_mode}, {"mode", "reset"}, {"message", ""}};
}

Json amounts_json(const core::ReservedAmounts& amounts) {
    Json json = Json::object();
    for (const auto& [part, amount] : amounts)
        json[part.text()] = amount;
    return json;
}

Json uuids_json(const std::set<Uuid>& uuids) {
    Json json = Json::array();
    for (const Uuid& uuid : uuids)
        json.push_back(uuid.text());
    return json;
}

/// A time is "expires_us", 0 of never; a span "lasts_us".
void add_expiry(Json& json, const core::Expiry& expiry) {
    if (const auto* lifetime = std::get_if<std::chrono::microseconds>(&expiry))
        json["lasts_us"] = lifetime->count();
    else if (const auto* end = std::get_if<WallTime>(&expiry))
        json["expires_us"] = end->time_since_epoch().count();
    else
        json["expires_us"] = 0;
}

core::Expiry read_expiry(const Json& json) {
    if (json.contains("lasts_us"))
        return std::chrono::microseconds(read_amount(json.at("lasts_us")));
    return require(
        core::read_expiry(static_cast<std::uint64_t>(read_amount(json.at("expires_us")))));
}

Json id_json(const char* order, const core::ReservationId& id) {
    return {{"order", order}, {"owner", id.owner}, {"name", id.name}};
}

core::ReservationId read_reservation_id(const Json& json) {
    return {json.at("owner").get<std::string>(), json.at("name").get<std::string>()};
}

Json order_json(const core::Reserve& order) {
    Json json = id_json(reserve, order.id);
    json["amounts"] = amounts_json(order.booking.amounts);
    json["xml"] = order.xml;
    json["uuids"] = uuids_json(order.booking.uuids);
    json["match"] = order.booking.match;
    json["force"] = order.force;
    add_expiry(json, order.expiry);
    return json;
}

Json order_json(const core::RenewReservation& order) {
    Json json = id_json(renew_reservation, order.id);
    add_expiry(json, order.expiry);
    return json;
}

Json order_json(const core::CancelReservation& order) {
    return id_json(cancel_reservation, order.id);
}

/// What is empty in our own documents is not given.
template <class T>
std::optional<T> read_given(const Json& json) {
    auto value = json.get<T>();
    return value.empty() ? std::nullopt : std::optional(std::move(value));
}

core::ReserveWords read_words(const Json& json) {
    core::ReserveWords words{.id = read_reservation_id(json),
                             .uuids = read_given<std::vector<std::string>>(json.at("uuids")),
                             .match = read_given<std::string>(json.at("match")),
                             .expiry = read_expiry(json)};
    for (const auto& [part, amount] : require_object(json.at("amounts")).items())
        words.amounts[part] = read_amount(amount);
    return words;
}

core::Order read_reserve(const Json& json) {
    core::ReserveWords words = read_words(json);
    words.xml = read_given<std::string>(json.at("xml"));
    words.force = json.at("force").get<bool>();
    return require(core::read_reserve(std::move(words)));
}

Json reservation_json(const core::ReservationId& id, const core::RunTimeReservation& made) {
    Json json{{"owner", id.owner},
              {"name", id.name},
              {"amounts", amounts_json(made.booking.amounts)},
              {"uuids", uuids_json(made.booking.uuids)},
              {"match", made.booking.match},
              {"by", setter_json(made.by)}};
    if (made.booking.domain)
        json["domain"] = domain_json(*made.booking.domain);
    json["made_ns"] = made.booking.made.time_since_epoch().count();
    if (made.end)
        json["end_ns"] = made.end->time_since_epoch().count();
    add_expiry(json, made.expiry ? core::Expiry(*made.expiry) : core::Never{});
    return json;
}

/// What stands for a domain that was read already.
constexpr const char* any_xml = "<domain/>";

/// The boot clock of another boot says nothing: what was made then is older than all guests of now,
/// and what was to last for a span, by that clock, lasts as long from the beginning of this one.
void read_reservation(core::RunTime& run_time, const Json& json, bool is_of_this_boot) {
    core::ReserveWords words = read_words(json);
    if (json.contains("domain"))
        words.xml = any_xml;
    core::Order order = require(core::read_reserve(std::move(words)));
    if (json.contains("domain"))
        std::get<core::Reserve>(order).booking.domain = read_domain(json.at("domain"));
    const core::Setter by = read_setter(json.at("by"));
    const Span made{read_amount(json.at("made_ns"))};
    std::optional<Instant> end;
    if (json.contains("end_ns"))
        end = Instant{Span{read_amount(json.at("end_ns"))}} - (is_of_this_boot ? Span{} : made);
    if (const auto room = core::check(run_time, order); !room)
        reject(room.error().what);
    run_time = carried_out(std::move(run_time), order, by);
    core::RunTimeReservation& read = run_time.reservations.at(std::get<core::Reserve>(order).id);
    read.booking.made = Instant{is_of_this_boot ? made : Span{}};
    read.end = end;
}

std::string text_of(const Json& json, const char* name) {
    return json.is_object() && json.contains(name) && json.at(name).is_string()
               ? json.at(name).get<std::string>()
               : "?";
}

/// One that cannot be is left out; the others stand.
void read_reservations(const Json& json, bool is_of_this_boot, ReadRunTime& read) {
    for (const Json& made : require_array(json)) {
        try {
            read_reservation(read.values, made, is_of_this_boot);
        } catch (const Json::exception& error) {
            read.dropped.push_back(fmt::format("reservation {} of {}: {}",
                                               printable(text_of(made, "name")),
                                               printable(text_of(made, "owner")), error.what()));
        }
    }
}

core::Order read_order(const Json& json) {
    const auto text = [&](const char* name) { return json.at(name).get<std::string>(); };
    const std::string order = text("order");
    if (order == set_overcommit)
        return require(core::read_set_overcommit(text("resource"), text("ratio")));
    if (order == reset_overcommit)
        return require(core::read_reset_overcommit(text("resource")));
    if (order == set_mode)
        return require(core::read_set_mode(text("mode"), text("message")));
    if (order == reserve)
        return read_reserve(json);
    if (order == renew_reservation)
        return require(core::read_renew(read_reservation_id(json), read_expiry(json)));
    if (order == cancel_reservation)
        return require(core::read_cancel(read_reservation_id(json)));
    reject("an order is unknown");
}

} // namespace

std::string run_time_document(const core::RunTime& run_time, std::string_view boot) {
    Json json{{"boot", boot}, {"overcommit", Json::object()}};
    for (const auto& [resource, set] : run_time.overcommit)
        json["overcommit"][resource.name()] = {{"ratio", set.ratio.text()},
                                               {"by", setter_json(set.by)}};
    if (const auto& set = run_time.mode)
        json["mode"] = {
            {"mode", word_of(set->mode)}, {"message", set->message}, {"by", setter_json(set->by)}};
    json["reservations"] = Json::array();
    for (const auto& [id, made] : run_time.reservations)
        json["reservations"].push_back(reservation_json(id, made));
    return dump(json);
}

Result<ReadRunTime> parse_run_time(std::string_view document, std::string_view boot) {
    return parse<ReadRunTime>("what is set at run time", document, [&](const Json& json) {
        ReadRunTime read;
        core::RunTime& run_time = read.values;
        for (const auto& [name, set] : require_object(json.at("overcommit")).items()) {
            const auto order =
                require(core::read_set_overcommit(name, set.at("ratio").get<std::string>()));
            run_time = carried_out(std::move(run_time), order, read_setter(set.at("by")));
        }
        if (json.contains("mode")) {
            const Json& set = json.at("mode");
            const auto order = require(core::read_set_mode(set.at("mode").get<std::string>(),
                                                           set.at("message").get<std::string>()));
            run_time = carried_out(std::move(run_time), order, read_setter(set.at("by")));
        }
        if (json.contains("reservations")) // daemons before this one did not write them
            read_reservations(json.at("reservations"),
                              json.contains("boot") && json.at("boot") == boot, read);
        return read;
    });
}

std::string order_document(const core::Order& order) {
    return dump(std::visit([](const auto& each) { return order_json(each); }, order));
}

Result<core::Order> parse_order(std::string_view document) {
    return parse<core::Order>("order", document, read_order);
}

} // namespace virtguard::json
