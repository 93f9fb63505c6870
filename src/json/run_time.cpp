// SPDX-License-Identifier: Apache-2.0
#include "json/run_time.hpp"

#include <limits>
#include <utility>

#include "json/values.hpp"

namespace virtguard::json {

namespace {

constexpr const char* set_overcommit = "set-overcommit";
constexpr const char* reset_overcommit = "reset-overcommit";
constexpr const char* set_mode = "set-mode";
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

core::Order read_order(const Json& json) {
    const auto text = [&](const char* name) { return json.at(name).get<std::string>(); };
    const std::string order = text("order");
    if (order == set_overcommit)
        return require(core::read_set_overcommit(text("resource"), text("ratio")));
    if (order == reset_overcommit)
        return require(core::read_reset_overcommit(text("resource")));
    if (order == set_mode)
        return require(core::read_set_mode(text("mode"), text("message")));
    reject("an order is unknown");
}

} // namespace

std::string run_time_document(const core::RunTime& run_time) {
    Json json{{"overcommit", Json::object()}};
    for (const auto& [resource, set] : run_time.overcommit)
        json["overcommit"][resource.name()] = {{"ratio", set.ratio.text()},
                                               {"by", setter_json(set.by)}};
    if (const auto& set = run_time.mode)
        json["mode"] = {
            {"mode", word_of(set->mode)}, {"message", set->message}, {"by", setter_json(set->by)}};
    return dump(json);
}

Result<core::RunTime> parse_run_time(std::string_view document) {
    return parse<core::RunTime>("what is set at run time", document, [](const Json& json) {
        core::RunTime run_time;
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
        return run_time;
    });
}

std::string order_document(const core::Order& order) {
    return dump(std::visit([](const auto& each) { return order_json(each); }, order));
}

Result<core::Order> parse_order(std::string_view document) {
    return parse<core::Order>("order", document, read_order);
}

} // namespace virtguard::json
