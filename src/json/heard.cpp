// SPDX-License-Identifier: Apache-2.0
#include "json/heard.hpp"

#include "json/values.hpp"

namespace virtguard::json {

namespace {

Json event(std::string_view name, WallTime heard) {
    return {{"event", name}, {"time_us", heard.time_since_epoch().count()}};
}

} // namespace

std::string start_line(const core::HeardStart& start, WallTime heard) {
    Json json = event("start", heard);
    json["domain"] = start.name;
    json["uuid"] = start.uuid;
    json["scheduler"] = start.scheduler;
    json["verdict"] = core::verdict_name(start.verdict);
    json["reasons"] = Json::array();
    for (const core::HeardReason& reason : start.reasons)
        json["reasons"].push_back({{"code", reason.code},
                                   {"resource", reason.resource},
                                   {"nodes", IdSet::parse(reason.nodes).value_or(IdSet()).ids()},
                                   {"requested", reason.requested},
                                   {"free", reason.free},
                                   {"effective", reason.effective},
                                   {"mode", reason.mode},
                                   {"text", reason.text}});
    return dump_line(json);
}

std::string host_line(const core::HeardHost& host, WallTime heard) {
    Json json = event("host", heard);
    json["version"] = host.version;
    json["state"] = host.state;
    json["problems"] = host.problems;
    json["mode"] = host.mode;
    json["overcommit"] = host.overcommit;
    json["over_capacity"] = host.over_capacity;
    return dump_line(json);
}

std::string absent_line(std::string_view why, WallTime heard) {
    Json json = event("absent", heard);
    json["why"] = why;
    return dump_line(json);
}

} // namespace virtguard::json
