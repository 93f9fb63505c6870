// SPDX-License-Identifier: Apache-2.0
#include "ctl/doctor.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "ctl/ask.hpp"
#include "ctl/host_checks.hpp"
#include "ctl/show.hpp"
#include "loop/loop.hpp"
#include "virt/domains.hpp"
#include "json/document.hpp"

namespace virtguard::ctl {

namespace {

void add(std::vector<Finding>& findings, std::vector<Finding> more) {
    std::ranges::move(more, std::back_inserter(findings));
}

/// A choice, and no problem: but who thinks that the host is guarded, or open, should know.
std::string mode_sentence(const core::Status& status) {
    if (status.maintenance)
        return fmt::format(
            "maintenance: no new start is admitted, but by a rule that exempts it{}{}",
            status.maintenance->empty() ? "" : ": ", *status.maintenance);
    if (status.mode == core::Mode::enforce)
        return "enforce";
    return fmt::format("{}: no start is refused ({} would have been)", core::mode_name(status.mode),
                       status.would_refuse);
}

std::vector<Finding> check_daemon(const Result<Said<core::Status>>& said) {
    if (!said)
        return {{.subject = "virtguardd",
                 .ok = false,
                 .text = said.error().what,
                 .remedy = "as root: systemctl restart virtguardd.socket virtguardd; journalctl -u "
                           "virtguardd"}};
    const core::Status& status = said->content;
    // Its problems, which follow, are what degraded means.
    const bool is_degraded = status.state == "degraded";
    std::vector<Finding> findings{
        {.subject = "virtguardd",
         .text = fmt::format("{} answers{}{}", status.version, is_degraded ? "" : ", ",
                             is_degraded ? "" : status.state)}};
    for (const std::string& problem : status.problems)
        findings.push_back({.subject = "virtguardd",
                            .ok = false,
                            .text = problem,
                            .remedy = "the journal may say more: journalctl -u virtguardd"});
    findings.push_back({.subject = "mode", .text = mode_sentence(status)});
    for (const core::Resource& resource : status.report.over_capacity)
        findings.push_back({.subject = resource.name(),
                            .ok = false,
                            .text = "guests hold more than there is",
                            .remedy =
                                "virtguardctl nodes says where; move or stop some of them, or "
                                "raise the ratio or the pool"});
    return findings;
}

Finding check_libvirt(const DoctorOptions& options) {
    const auto domains =
        ask_libvirt([uri = options.libvirt_uri] { return virt::live_domains(uri); });
    if (domains)
        return {.subject = "libvirt",
                .text = fmt::format("answers, and runs {} guest{}", domains->size(),
                                    domains->size() == 1 ? "" : "s")};
    return {.subject = "libvirt",
            .ok = false,
            .text = domains.error().what,
            .remedy = "systemctl status libvirtd"};
}

/// Where a time of day is to end something: that is judged only by a clock that is right.
std::vector<Finding> check_clock(const core::Status& status) {
    const bool is_used =
        std::ranges::any_of(status.reservations, [](const core::ReservationReport& each) {
            return each.expiry.has_value();
        });
    if (!is_used || loop::is_wall_time_synchronised())
        return {};
    return {{.subject = "clock",
             .text = "the kernel does not say that it is synchronised: a reservation ends by the "
                     "clock of this boot, and at a time of day that was given not before it is"}};
}

/// What virtguardd says of something that was looked at here, too, and was found no better.
bool says_again(const Finding& of_daemon, const std::vector<Finding>& findings) {
    return std::ranges::any_of(findings, [&](const Finding& own) {
        const std::string prefix = own.subject + ": ";
        return !own.ok && of_daemon.text.starts_with(prefix) &&
               (own.subject == "libvirt" || of_daemon.text == prefix + own.text);
    });
}

std::vector<Finding> examined(const DoctorOptions& options) {
    const auto status = ask_status(options.socket);
    const bool any_decided = status && status->content.admitted + status->content.refused > 0;
    std::vector<Finding> findings = check_hook(options.root);
    findings.push_back(check_hook_is_seen(options.root, any_decided));
    std::vector<Finding> of_daemon = check_daemon(status);
    std::vector<Finding> more;
    if (status)
        add(more, check_clock(status->content));
    more.push_back(check_bus(options.root));
    add(more, check_policy(options.policy_folder));
    more.push_back(check_libvirt(options));
    add(more, check_hugepages(options.root));
    for (Finding& finding : more) // an error may begin with whose it is
        if (finding.text.starts_with(finding.subject + ": "))
            finding.text.erase(0, finding.subject.size() + 2);
    std::erase_if(of_daemon, [&](const Finding& each) { return says_again(each, more); });
    add(findings, std::move(of_daemon));
    add(findings, std::move(more));
    return findings;
}

std::string finding_text(const Finding& finding, const Screen& screen) {
    std::string line = fmt::format("{}: {}", finding.subject, one_line(finding.text));
    std::string text = fmt::format("{} {}\n",
                                   finding.ok ? inked(screen, Ink::good, "ok     ")
                                              : inked(screen, Ink::bad, "problem"),
                                   std::string_view(folded(screen, 8, line)).substr(8));
    if (!finding.remedy.empty())
        text += fmt::format("{}\n", folded(screen, 10, "> " + finding.remedy));
    return text;
}

} // namespace

int doctor(const DoctorOptions& options) {
    const std::vector<Finding> findings = examined(options);
    const bool well = std::ranges::all_of(findings, &Finding::ok);
    if (options.json) {
        print(json::doctor_document(findings) + "\n");
        return well ? exit_ok : exit_refused;
    }
    const Screen screen = standard_output(options.colour);
    for (const Finding& finding : findings)
        print(finding_text(finding, screen));
    return well ? exit_ok : exit_refused;
}

} // namespace virtguard::ctl
