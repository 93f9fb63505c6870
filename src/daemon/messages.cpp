// SPDX-License-Identifier: Apache-2.0
#include "daemon/messages.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "base/text.hpp"

namespace virtguard::daemon {

namespace {

constexpr const char* refused = "e03624a3bd184aba8812be2c02e0ac11";
constexpr const char* would_refuse = "fb80d245c17e44ce8a3d31499bd8f569";
constexpr const char* undecided = "0c934e4cbef04adbb90aa8cd1d0854a3";
constexpr const char* over_capacity = "8894d940f0e949ce89533558dd6ae434";

std::string reasons_line(const core::DecidedStart& start) {
    std::string line;
    for (const core::Reason& reason : start.reasons)
        line += fmt::format("{}{} ({})", line.empty() ? "" : "; ", reason.text,
                            core::code_name(reason.code));
    return line;
}

/// Unless it is there already: one that is short on two nodes is short once.
void add_new(LogFields& fields, std::string name, std::string value) {
    std::pair field(std::move(name), std::move(value));
    if (std::ranges::find(fields, field) == fields.end())
        fields.push_back(std::move(field));
}

LogFields identity_fields(const char* message, std::string_view name,
                          const std::optional<Uuid>& uuid) {
    LogFields fields{{"MESSAGE_ID", message}, {"VIRTGUARD_DOMAIN", std::string(name)}};
    if (uuid)
        fields.emplace_back("VIRTGUARD_UUID", uuid->text());
    return fields;
}

} // namespace

void log_start(const core::DecidedStart& start) {
    if (start.verdict == core::Verdict::admit)
        return;
    const bool is_refused = start.verdict == core::Verdict::refuse;
    LogFields fields = identity_fields(is_refused ? refused : would_refuse, start.name, start.uuid);
    fields.emplace_back("VIRTGUARD_SCHEDULER", start.scheduler);
    fields.emplace_back("VIRTGUARD_VERDICT", core::verdict_name(start.verdict));
    for (const core::Reason& reason : start.reasons)
        if (core::is_decisive(reason, start.verdict)) {
            add_new(fields, "VIRTGUARD_REASON", std::string(core::code_name(reason.code)));
            if (reason.resource)
                add_new(fields, "VIRTGUARD_RESOURCE", reason.resource->name());
        }
    log_line(Level::notice,
             fmt::format("{} {}: {}", is_refused ? "refused" : "would refuse",
                         start.name.empty() ? "a domain without a name" : printable(start.name),
                         reasons_line(start)),
             fields);
}

void log_undecided(const core::Domain& domain, std::string_view what) {
    log_line(Level::error, what, identity_fields(undecided, domain.name, domain.uuid));
}

void log_over_capacity(const core::Resource& resource) {
    log_line(Level::warning, fmt::format("over capacity: {}", resource.name()),
             {{"MESSAGE_ID", over_capacity}, {"VIRTGUARD_RESOURCE", resource.name()}});
}

} // namespace virtguard::daemon
