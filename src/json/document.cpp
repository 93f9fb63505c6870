// SPDX-License-Identifier: Apache-2.0
#include "json/document.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/text.hpp"
#include "json/values.hpp"

namespace virtguard::json {

namespace {

using core::Figures;
using core::Quantities;

// ------------------------------------------------------------------ writing

Json ids(const IdSet& set) {
    return set.ids();
}

Json quantities(const Quantities& amounts, bool with_zeros) {
    Json result = Json::object();
    for (const auto& [resource, amount] : amounts)
        if (with_zeros || amount != 0)
            result[resource.name()] = amount;
    return result;
}

struct Column {
    const char* name;
    Quantities Figures::*member;
};
constexpr std::array<Column, 9> columns{{{"capacity", &Figures::capacity},
                                         {"reserved", &Figures::reserved},
                                         {"allocatable", &Figures::allocatable},
                                         {"effective", &Figures::effective},
                                         {"allocated", &Figures::allocated},
                                         {"pending", &Figures::pending},
                                         {"booked", &Figures::booked},
                                         {"foreign", &Figures::foreign},
                                         {"free", &Figures::free}}};

void add_figures(Json& json, const Figures& figures) {
    for (const Column& column : columns)
        json[column.name] = quantities(figures.*column.member, /*with_zeros=*/true);
}

Json nodes_json(const std::vector<core::NodeReport>& nodes) {
    Json result = Json::array();
    for (const core::NodeReport& node : nodes) {
        Json json{{"id", node.id}, {"cpus", node.cpus.text()}};
        add_figures(json, node.figures);
        result.push_back(std::move(json));
    }
    return result;
}

Json reason_json(const core::Reason& reason) {
    return {{"code", core::code_name(reason.code)},
            {"resource", reason.resource ? reason.resource->name() : ""},
            {"nodes", ids(reason.nodes)},
            {"requested", reason.requested},
            {"free", reason.free},
            {"effective", reason.effective},
            {"mode", core::mode_name(reason.mode)},
            {"text", reason.text}};
}

Json fit_json(const core::Fit& fit, const Quantities& demand) {
    const auto asked = demand.find(fit.resource);
    Json json{{"resource", fit.resource.name()},
              {"largest", fit.largest},
              {"nodes", ids(nodes_for_all(fit, asked == demand.end() ? 0 : asked->second))},
              {"per_node", Json::array()}};
    for (const auto& [node, largest] : fit.per_node)
        json["per_node"].push_back({{"node", node}, {"largest", largest}});
    return json;
}

Json reasons_json(const std::vector<core::Reason>& reasons) {
    Json result = Json::array();
    for (const core::Reason& reason : reasons)
        result.push_back(reason_json(reason));
    return result;
}

void add_outcome(Json& json, const core::Outcome& outcome, bool decided) {
    json["domain"] = outcome.name;
    json["uuid"] = uuid_json(outcome.uuid);
    if (decided)
        json["verdict"] = outcome.admitted ? "admit" : "refuse";
    json["mode"] = core::mode_name(outcome.mode);
    json["scheduler"] = outcome.scheduler;
    json["demand"] = quantities(outcome.demand, /*with_zeros=*/false);
    json["overhead"] = outcome.overhead;
    json["pieces"] = Json::array();
    for (const core::ShownPiece& piece : outcome.pieces)
        json["pieces"].push_back({{"resource", piece.resource.name()},
                                  {"amount", piece.amount},
                                  {"nodes", ids(piece.nodes)},
                                  {"whole", piece.whole}});
    if (decided)
        json["reasons"] = reasons_json(outcome.reasons);
    if (!outcome.notes.empty())
        json["notes"] = outcome.notes;
    for (const core::Fit& fit : outcome.fits)
        json["fits"].push_back(fit_json(fit, outcome.demand));
}

Json domains_json(const std::vector<core::GuestReport>& guests) {
    Json result = Json::array();
    for (const core::GuestReport& guest : guests)
        result.push_back({{"name", guest.name},
                          {"uuid", uuid_json(guest.uuid)},
                          {"scheduler", guest.scheduler},
                          {"accepted", guest.is_accepted},
                          {"state", core::state_name(guest.state)},
                          {"demand", quantities(guest.demand, /*with_zeros=*/false)}});
    return result;
}

Json reservations_json(const std::vector<core::ReservationReport>& reservations) {
    Json result = Json::array();
    for (const core::ReservationReport& each : reservations) {
        Json json{{"owner", each.id.owner}, {"name", each.id.name},   {"asked", each.asked},
                  {"booked", each.booked},  {"uuids", Json::array()}, {"match", each.match},
                  {"origin", each.origin}};
        for (const Uuid& uuid : each.uuids)
            json["uuids"].push_back(uuid.text());
        if (each.expiry)
            json["expires_us"] = each.expiry->time_since_epoch().count();
        result.push_back(std::move(json));
    }
    return result;
}

Json setting_json(const core::Setting& setting) {
    return {{"key", setting.key}, {"value", setting.value}, {"origin", setting.origin}};
}

Json settings_json(const std::vector<core::Setting>& settings) {
    Json json = Json::array();
    for (const core::Setting& each : settings)
        json.push_back(setting_json(each));
    return json;
}

// ------------------------------------------------------------------ reading

/// The other end of our own socket wrote it.
constexpr std::string_view daemon = "virtguardd's document";

std::uint64_t read_count(const Json& json) {
    return static_cast<std::uint64_t>(read_amount(json));
}

IdSet read_ids(const Json& json) {
    IdSet result;
    for (const Json& id : require_array(json))
        result.insert(read_id(id));
    return result;
}

Quantities read_quantities(const Json& json) {
    Quantities result;
    for (const auto& [name, amount] : require_object(json).items())
        result[read_resource(name)] = read_integer(amount);
    return result;
}

Figures read_figures(const Json& json) {
    Figures figures;
    for (const Column& column : columns)
        figures.*column.member = read_quantities(json.at(column.name));
    return figures;
}

core::Mode read_mode(const Json& json) {
    for (const core::Mode mode : {core::Mode::off, core::Mode::observe, core::Mode::enforce})
        if (json.get<std::string>() == core::mode_name(mode))
            return mode;
    reject("a mode is unknown");
}

core::Code read_code(const Json& json) {
    for (int code = 0; code <= std::to_underlying(core::Code::not_ready); ++code)
        if (json.get<std::string>() == core::code_name(static_cast<core::Code>(code)))
            return static_cast<core::Code>(code);
    reject("a reason's code is unknown");
}

core::Reason read_reason(const Json& json) {
    core::Reason reason{.code = read_code(json.at("code")),
                        .nodes = read_ids(json.at("nodes")),
                        .requested = read_integer(json.at("requested")),
                        .free = read_integer(json.at("free")),
                        .effective = read_integer(json.at("effective")),
                        .mode = read_mode(json.at("mode")),
                        .text = json.at("text").get<std::string>()};
    if (const auto name = json.at("resource").get<std::string>(); !name.empty())
        reason.resource = read_resource(name);
    return reason;
}

std::vector<core::Reason> read_reasons(const Json& json) {
    std::vector<core::Reason> result;
    for (const Json& reason : require_array(json))
        result.push_back(read_reason(reason));
    return result;
}

WallTime read_time(const Json& json) {
    return WallTime(std::chrono::microseconds(read_amount(json)));
}

core::Verdict read_verdict(const Json& json) {
    for (const core::Verdict verdict : core::all_verdicts)
        if (json.get<std::string>() == core::verdict_name(verdict))
            return verdict;
    reject("a verdict is unknown");
}

core::DecidedStart read_start(const Json& json) {
    return {.time = read_time(json.at("time_us")),
            .name = json.at("domain").get<std::string>(),
            .uuid = read_uuid(json.at("uuid")),
            .scheduler = json.at("scheduler").get<std::string>(),
            .verdict = read_verdict(json.at("verdict")),
            .reasons = read_reasons(json.at("reasons"))};
}

/// Whether it is the first of two words; any third is an error.
bool is_first(const Json& json, std::string_view first, std::string_view second) {
    const auto word = json.get<std::string>();
    if (word != first && word != second)
        reject(fmt::format("{} is neither {} nor {}", quote(word), first, second));
    return word == first;
}

core::Fit read_fit(const Json& json) {
    core::Fit fit{.resource = read_resource(json.at("resource")),
                  .largest = read_integer(json.at("largest"))};
    for (const Json& there : require_array(json.at("per_node")))
        fit.per_node[read_id(there.at("node"))] = read_integer(there.at("largest"));
    return fit;
}

core::Outcome read_outcome(const Json& json) {
    core::Outcome outcome{.name = json.at("domain").get<std::string>(),
                          .uuid = read_uuid(json.at("uuid")),
                          .scheduler = json.at("scheduler").get<std::string>(),
                          .admitted = is_first(json.at("verdict"), "admit", "refuse"),
                          .mode = read_mode(json.at("mode")),
                          .demand = read_quantities(json.at("demand")),
                          .overhead = read_integer(json.at("overhead")),
                          .reasons = read_reasons(json.at("reasons"))};
    for (const Json& piece : require_array(json.at("pieces")))
        outcome.pieces.push_back({.resource = read_resource(piece.at("resource")),
                                  .amount = read_integer(piece.at("amount")),
                                  .nodes = read_ids(piece.at("nodes")),
                                  .whole = piece.at("whole").get<bool>()});
    if (json.contains("notes"))
        outcome.notes = json.at("notes").get<std::vector<std::string>>();
    if (json.contains("fits"))
        for (const Json& fit : require_array(json.at("fits")))
            outcome.fits.push_back(read_fit(fit));
    return outcome;
}

core::Report read_report(const Json& json) {
    core::Report report;
    report.host = read_figures(json.at("host"));
    for (const Json& node : require_array(json.at("nodes")))
        report.nodes.push_back({.id = read_id(node.at("id")),
                                .cpus = require(IdSet::parse(node.at("cpus").get<std::string>())),
                                .figures = read_figures(node)});
    for (const auto& [name, ratio] : require_object(json.at("overcommit")).items())
        report.overcommit[read_resource(name)] = require(Ratio::parse(ratio.get<std::string>()));
    if (json.contains("units"))
        for (const auto& [name, unit] : require_object(json.at("units")).items())
            report.units[read_resource(name)] = unit.get<std::string>();
    for (const Json& name : require_array(json.at("over_capacity")))
        report.over_capacity.push_back(read_resource(name));
    return report;
}

core::GuestReport read_guest(const Json& json) {
    return {.name = json.at("name").get<std::string>(),
            .uuid = read_uuid(json.at("uuid")),
            .scheduler = json.at("scheduler").get<std::string>(),
            .is_accepted = json.at("accepted").get<bool>(),
            .state = read_state(json.at("state")),
            .demand = read_quantities(json.at("demand"))};
}

core::ShownAmounts read_shown(const Json& json) {
    core::ShownAmounts amounts;
    for (const auto& [part, amount] : require_object(json).items())
        amounts[part] = read_integer(amount);
    return amounts;
}

core::ReservationReport read_reservation(const Json& json) {
    core::ReservationReport report{
        .id = {json.at("owner").get<std::string>(), json.at("name").get<std::string>()},
        .asked = read_shown(json.at("asked")),
        .booked = read_shown(json.at("booked")),
        .match = json.at("match").get<std::string>(),
        .origin = json.at("origin").get<std::string>()};
    for (const Json& uuid : require_array(json.at("uuids")))
        report.uuids.insert(read_uuid(uuid).value_or(Uuid{}));
    if (json.contains("expires_us"))
        report.expiry = read_time(json.at("expires_us"));
    return report;
}

std::vector<core::Setting> read_settings(const Json& json) {
    std::vector<core::Setting> settings;
    for (const Json& each : require_array(json))
        settings.push_back({.key = each.at("key").get<std::string>(),
                            .value = each.at("value").get<std::string>(),
                            .origin = each.at("origin").get<std::string>()});
    return settings;
}

} // namespace

std::string simulation_document(const std::vector<Event>& events, const core::Report& report) {
    Json json{{"events", Json::array()}};
    for (const Event& event : events) {
        Json one{{"event", event.event}};
        if (event.outcome)
            add_outcome(one, *event.outcome, event.decided);
        json["events"].push_back(std::move(one));
    }
    json["host"] = Json::object();
    add_figures(json["host"], report.host);
    json["nodes"] = nodes_json(report.nodes);
    return dump(json);
}

std::string ledger_document(std::size_t guests, const std::set<Difference>& found) {
    Json json{{"guests", guests}, {"differences", Json::array()}};
    for (const Difference& each : found)
        json["differences"].push_back({{"subject", each.subject}, {"what", each.what}});
    return dump(json);
}

std::string policy_document(const PolicyInForce& policy) {
    Json json{{"settings", settings_json(policy.settings)}, {"problems", policy.problems}};
    json["replaced"] = settings_json(policy.replaced);
    return dump(json);
}

std::string policy_check_document(const std::vector<std::string>& errors) {
    return dump({{"errors", errors}});
}

std::string policy_difference_document(const std::vector<PolicyChange>& changes) {
    const auto side = [](const std::optional<core::Setting>& setting) {
        return setting ? setting_json(*setting) : Json(nullptr);
    };
    Json json{{"changes", Json::array()}};
    for (const PolicyChange& each : changes)
        json["changes"].push_back(
            {{"in_force", side(each.in_force)}, {"in_files", side(each.in_files)}});
    return dump(json);
}

Result<PolicyInForce> parse_policy(std::string_view document) {
    return parse<PolicyInForce>(daemon, document, [](const Json& json) {
        PolicyInForce policy;
        policy.settings = read_settings(json.at("settings"));
        policy.problems = json.at("problems").get<std::vector<std::string>>();
        policy.replaced = read_settings(json.at("replaced"));
        return policy;
    });
}

std::string doctor_document(const std::vector<Finding>& findings) {
    Json json{{"ok", std::ranges::all_of(findings, &Finding::ok)}, {"findings", Json::array()}};
    for (const Finding& each : findings)
        json["findings"].push_back({{"subject", each.subject},
                                    {"ok", each.ok},
                                    {"text", each.text},
                                    {"remedy", each.remedy}});
    return dump(json);
}

std::string outcome_document(const core::Outcome& outcome) {
    Json json = Json::object();
    add_outcome(json, outcome, /*decided=*/true);
    return dump(json);
}

Result<core::Outcome> parse_outcome(std::string_view document) {
    return parse<core::Outcome>(daemon, document, read_outcome);
}

std::string status_document(const core::Status& status) {
    Json json{{"version", status.version},
              {"state", status.state},
              {"problems", status.problems},
              {"mode", core::mode_text(status)},
              {"decisions",
               {{"admitted", status.admitted},
                {"refused", status.refused},
                {"would_refuse", status.would_refuse}}}};
    if (status.maintenance)
        json["message"] = *status.maintenance;
    if (status.snapshot)
        json["snapshot_us"] = status.snapshot->time_since_epoch().count();
    json["overcommit"] = Json::object();
    for (const auto& [resource, ratio] : status.report.overcommit)
        json["overcommit"][resource.name()] = ratio.text();
    for (const auto& [resource, unit] : status.report.units)
        json["units"][resource.name()] = unit;
    json["over_capacity"] = Json::array();
    for (const core::Resource& resource : status.report.over_capacity)
        json["over_capacity"].push_back(resource.name());
    json["host"] = Json::object();
    add_figures(json["host"], status.report.host);
    json["nodes"] = nodes_json(status.report.nodes);
    if (status.foreign_memory)
        json["foreign_memory"] = *status.foreign_memory;
    json["domains"] = domains_json(status.guests);
    json["reservations"] = reservations_json(status.reservations);
    return dump(json);
}

std::string nodes_document(const core::Status& status) {
    return dump({{"nodes", nodes_json(status.report.nodes)}});
}

std::string domains_document(const core::Status& status) {
    return dump({{"domains", domains_json(status.guests)}});
}

std::string reservations_document(const core::Status& status) {
    return dump({{"reservations", reservations_json(status.reservations)}});
}

Result<core::Status> parse_status(std::string_view document) {
    return parse<core::Status>(daemon, document, [](const Json& json) {
        const Json& decisions = json.at("decisions");
        core::Status status{.version = json.at("version").get<std::string>(),
                            .state = json.at("state").get<std::string>(),
                            .problems = json.at("problems").get<std::vector<std::string>>(),
                            .admitted = read_count(decisions.at("admitted")),
                            .refused = read_count(decisions.at("refused")),
                            .would_refuse = read_count(decisions.at("would_refuse")),
                            .report = read_report(json)};
        if (json.at("mode") == "maintenance")
            status.maintenance = json.at("message").get<std::string>();
        else
            status.mode = read_mode(json.at("mode"));
        if (json.contains("snapshot_us"))
            status.snapshot = read_time(json.at("snapshot_us"));
        if (json.contains("foreign_memory"))
            status.foreign_memory = read_integer(json.at("foreign_memory"));
        for (const Json& guest : require_array(json.at("domains")))
            status.guests.push_back(read_guest(guest));
        if (json.contains("reservations")) // daemons before this one did not write them
            for (const Json& reservation : require_array(json.at("reservations")))
                status.reservations.push_back(read_reservation(reservation));
        return status;
    });
}

std::string history_document(const std::vector<core::DecidedStart>& starts) {
    Json json{{"starts", Json::array()}};
    for (const core::DecidedStart& start : starts)
        json["starts"].push_back({{"time_us", start.time.time_since_epoch().count()},
                                  {"domain", start.name},
                                  {"uuid", uuid_json(start.uuid)},
                                  {"scheduler", start.scheduler},
                                  {"verdict", core::verdict_name(start.verdict)},
                                  {"reasons", reasons_json(start.reasons)}});
    return dump(json);
}

Result<std::vector<core::DecidedStart>> parse_history(std::string_view document) {
    using Starts = std::vector<core::DecidedStart>;
    return parse<Starts>(daemon, document, [](const Json& json) {
        Starts starts;
        for (const Json& start : require_array(json.at("starts")))
            starts.push_back(read_start(start));
        return starts;
    });
}

} // namespace virtguard::json
