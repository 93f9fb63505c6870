// SPDX-License-Identifier: Apache-2.0
#include "daemon/bus_picture.hpp"

#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "bus/names.hpp"
#include "loop/loop.hpp"

namespace virtguard::daemon {

namespace {

using std::chrono::microseconds;

/// Globs of the schedulers whose domains may start.
std::vector<std::string> accepted_schedulers(const core::SchedulerPolicy& policy) {
    std::set<std::string> accepted;
    if (policy.accept_default)
        accepted.insert(policy.default_name);
    if (policy.accept_any)
        accepted.insert("*");
    for (const auto& [name, scheduler] : policy.accept)
        accepted.insert(scheduler.match);
    return {accepted.begin(), accepted.end()};
}

/// The files that set something.
std::vector<std::string> policy_files(const core::Policy& policy) {
    std::set<std::string> files;
    for (const auto& [key, origin] : policy.origins)
        files.insert(origin.substr(0, origin.rfind(':')));
    return {files.begin(), files.end()};
}

} // namespace

WallTime Calendar::time_of(Instant when) {
    // Two clocks cannot be read at once; what differs by more was set.
    constexpr microseconds inaccuracy = std::chrono::seconds(1);
    const auto since_boot = [](Instant instant) {
        return std::chrono::floor<microseconds>(instant.time_since_epoch());
    };
    const WallTime booted = loop::wall_time() - since_boot(loop::now());
    if (std::chrono::abs(booted - booted_) > inaccuracy)
        booted_ = booted;
    return booted_ + since_boot(when);
}

bus::Picture bus_picture(const Service& service, Calendar& calendar) {
    const core::Guard& guard = service.guard();
    bus::Picture picture{.status = service.status(),
                         .schedulers = accepted_schedulers(guard.policy().scheduler),
                         .policy_files = policy_files(service.policy().of_files())};
    for (core::NodeReport& node : std::exchange(picture.status.report.nodes, {}))
        picture.nodes.emplace(bus::node_path(node.id), std::move(node));
    // libvirt gives each domain a UUID. Only who talks to the hook's socket by hand leaves it out.
    for (core::GuestReport& guest : std::exchange(picture.status.guests, {})) {
        if (!guest.uuid)
            continue;
        const core::Guest& known = *guard.ledger().find(guest.uuid->text());
        bus::DomainPicture& domain = picture.domains[bus::domain_path(*guest.uuid)];
        domain.pieces = core::shown_pieces(guard.host(), known.demand);
        domain.since = calendar.time_of(known.since);
        domain.guest = std::move(guest);
    }
    return picture;
}

} // namespace virtguard::daemon
