// SPDX-License-Identifier: Apache-2.0
#include "ctl/ledger_check.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "base/text.hpp"
#include "ctl/amounts.hpp"
#include "ctl/ask.hpp"
#include "ctl/progress.hpp"
#include "ctl/show.hpp"
#include "host/hugepages.hpp"
#include "host/residency.hpp"
#include "virt/domains.hpp"

namespace virtguard::ctl {

namespace {

using json::Difference;

constexpr int looks = 3;
constexpr std::chrono::seconds between_looks{1};

/// Every resource of either.
std::set<core::Resource> resources_of(const core::Quantities& a, const core::Quantities& b) {
    std::set<core::Resource> resources;
    for (const core::Quantities* quantities : {&a, &b})
        for (const auto& [resource, amount] : *quantities)
            resources.insert(resource);
    return resources;
}

class Comparison {
  public:
    explicit Comparison(const LedgerViews& views) : views_(views) {
        for (const core::GuestReport& guest : views.ledger.guests)
            if (guest.uuid)
                guests_[*guest.uuid] = &guest;
        compare_guests();
        compare_processes();
        compare_sums();
        compare_hugepages();
    }

    std::set<Difference> take() && { return std::move(found_); }

  private:
    template <class... Args>
    void add(const std::string& subject, fmt::format_string<Args...> what, Args&&... args) {
        found_.insert({subject, fmt::format(what, std::forward<Args>(args)...)});
    }

    void compare_guests() {
        for (const auto& [uuid, live] : views_.libvirt) {
            const auto guest = guests_.find(uuid);
            if (guest == guests_.end())
                add(live.name, "libvirt runs it, and virtguardd does not count it");
            else
                compare_demand(*guest->second, live);
        }
        for (const auto& [uuid, guest] : guests_)
            if (guest->state == core::GuestState::running && !views_.libvirt.contains(uuid))
                add(guest->name, "virtguardd counts it as running, and libvirt does not run it");
    }

    void compare_demand(const core::GuestReport& guest, const LiveGuest& live) {
        for (const core::Resource& resource : resources_of(guest.demand, live.demand)) {
            const std::int64_t counted = amount_of(guest.demand, resource);
            const std::int64_t now = amount_of(live.demand, resource);
            if (counted != now)
                add(guest.name, "{}: virtguardd counts {}, its domain has {} now", resource.name(),
                    amount(resource, counted), amount(resource, now));
        }
    }

    void compare_processes() {
        for (const auto& [uuid, live] : views_.libvirt)
            if (!views_.processes.contains(uuid))
                add(live.name, "libvirt runs it, and no QEMU of it is there");
        for (const Uuid& uuid : views_.processes)
            if (!views_.libvirt.contains(uuid))
                add(uuid.text(), "a QEMU of it is there, and libvirt does not run it");
    }

    void compare_sums() {
        core::Quantities sum;
        for (const core::GuestReport& guest : views_.ledger.guests)
            if (guest.state == core::GuestState::running)
                for (const auto& [resource, amount] : guest.demand)
                    sum[resource] += amount;
        const core::Quantities& allocated = views_.ledger.report.host.allocated;
        for (const core::Resource& resource : resources_of(sum, allocated))
            if (amount_of(sum, resource) != amount_of(allocated, resource))
                add(resource.name(),
                    "virtguardd counts {} as allocated, its running guests have {}",
                    amount(resource, amount_of(allocated, resource)),
                    amount(resource, amount_of(sum, resource)));
    }

    /// What is in use beyond what is counted for anybody.
    void compare_hugepages() {
        const core::Figures& host = views_.ledger.report.host;
        for (const auto& [size, in_use] : views_.hugepages) {
            const core::Resource resource = core::Resource::hugepages(size);
            const std::int64_t counted =
                amount_of(host.allocated, resource) + amount_of(host.pending, resource) +
                amount_of(host.foreign, resource) + amount_of(host.reserved, resource);
            if (in_use > counted)
                add(resource.name(), "the kernel has {} in use, virtguardd counts {}",
                    amount(resource, in_use), amount(resource, counted));
        }
    }

    const LedgerViews& views_;
    std::map<Uuid, const core::GuestReport*> guests_;
    std::set<Difference> found_;
};

// ------------------------------------------------------------------ asking

Result<std::map<std::int64_t, std::int64_t>> read_hugepages_in_use(const std::string& root) {
    const auto pages = host::read_hugepages(root);
    if (!pages)
        return std::unexpected(pages.error());
    std::map<std::int64_t, std::int64_t> in_use;
    for (const host::NodePages& node : pages->nodes)
        in_use[node.page_size] += (node.total - node.free) * node.page_size;
    return in_use;
}

Result<LedgerViews> look(const LedgerCheckOptions& options) {
    LedgerViews views;
    auto status = ask_status(options.socket);
    if (!status)
        return std::unexpected(status.error());
    views.ledger = std::move(status->content);
    const auto domains =
        ask_libvirt([uri = options.libvirt_uri] { return virt::live_domains(uri); });
    if (!domains)
        return std::unexpected(domains.error());
    for (const virt::DomainXml& domain : *domains) {
        auto outcome = ask_check(options.socket, domain.xml);
        if (!outcome)
            return context(outcome.error(), printable(domain.name));
        views.libvirt[domain.uuid] = {domain.name, std::move(outcome->content.demand)};
    }
    auto processes = host::read_qemus(options.root);
    auto hugepages = read_hugepages_in_use(options.root);
    if (!processes)
        return std::unexpected(processes.error());
    if (!hugepages)
        return std::unexpected(hugepages.error());
    views.processes = *std::move(processes);
    views.hugepages = *std::move(hugepages);
    return views;
}

struct Looked {
    std::set<Difference> lasting; ///< what differed each time
    std::size_t guests = 0;
};

Result<Looked> look_repeatedly(const LedgerCheckOptions& options) {
    const Progress progress("comparing, three times where something differs");
    Looked looked;
    for (int i = 0; i < looks && (i == 0 || !looked.lasting.empty()); ++i) {
        if (i > 0)
            std::this_thread::sleep_for(between_looks);
        const auto views = look(options);
        if (!views)
            return std::unexpected(views.error());
        looked.guests = views->libvirt.size();
        const std::set<Difference> now = differences(*views);
        if (i == 0)
            looked.lasting = now;
        std::erase_if(looked.lasting, [&](const Difference& each) { return !now.contains(each); });
    }
    return looked;
}

void show(const std::set<Difference>& found, std::size_t guests, bool json) {
    if (json)
        return print(json::ledger_document(guests, found) + "\n");
    for (const Difference& each : found)
        print(fmt::format("{}: {}\n", printable(each.subject), each.what));
    if (found.empty())
        print(
            fmt::format("virtguardd, libvirt and the kernel agree on {} running guests\n", guests));
}

} // namespace

std::set<Difference> differences(const LedgerViews& views) {
    return Comparison(views).take();
}

int check_ledger(const LedgerCheckOptions& options) {
    const auto looked = look_repeatedly(options);
    if (!looked)
        return failure(looked.error());
    show(looked->lasting, looked->guests, options.json);
    return looked->lasting.empty() ? exit_ok : exit_refused;
}

} // namespace virtguard::ctl
