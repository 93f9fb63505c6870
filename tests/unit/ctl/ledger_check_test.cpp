// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "ctl/ledger_check.hpp"

using namespace virtguard;
using namespace virtguard::ctl;
using core::GuestState;
using core::Resource;

namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;
const Resource pages = Resource::hugepages(std::int64_t{2} << 20);

Uuid uuid(int number) {
    Uuid uuid;
    uuid.bytes[15] = static_cast<std::uint8_t>(number);
    return uuid;
}

core::Quantities demand() {
    return {{Resource::cpu(), 2}, {Resource::memory(), gib}};
}

/// Two guests that run, on which all agree, and a start in flight.
LedgerViews agreed() {
    LedgerViews views;
    for (const int number : {1, 2}) {
        const std::string name = fmt::format("web-{}", number);
        views.ledger.guests.push_back(
            {.name = name, .uuid = uuid(number), .scheduler = {}, .demand = demand()});
        views.libvirt[uuid(number)] = {name, demand()};
        views.processes.insert(uuid(number));
    }
    views.ledger.guests.push_back({.name = "starts",
                                   .uuid = uuid(3),
                                   .scheduler = {},
                                   .state = GuestState::pending,
                                   .demand = demand()});
    views.ledger.report.host.allocated = {{Resource::cpu(), 4}, {Resource::memory(), 2 * gib}};
    views.ledger.report.host.reserved = {{pages, gib}};
    views.hugepages = {{pages.page_size, gib}};
    return views;
}

std::vector<std::string> lines(const LedgerViews& views) {
    std::vector<std::string> lines;
    for (const json::Difference& each : differences(views))
        lines.push_back(each.subject + ": " + each.what);
    return lines;
}

using Lines = std::vector<std::string>;

} // namespace

TEST_CASE("what all agree on is no difference, nor is a start in flight") {
    CHECK(lines(agreed()).empty());
}

TEST_CASE("a guest that one of the three does not know is a difference") {
    LedgerViews views = agreed();
    SECTION("virtguardd") {
        views.ledger.guests.erase(views.ledger.guests.begin());
        views.ledger.report.host.allocated = demand();
        CHECK(lines(views) == Lines{"web-1: libvirt runs it, and virtguardd does not count it"});
    }
    SECTION("libvirt") {
        views.libvirt.erase(uuid(1));
        CHECK(lines(views) ==
              Lines{"00000000-0000-0000-0000-000000000001: a QEMU of it is there, and libvirt does "
                    "not run it",
                    "web-1: virtguardd counts it as running, and libvirt does not run it"});
    }
    SECTION("the kernel") {
        views.processes.erase(uuid(1));
        CHECK(lines(views) == Lines{"web-1: libvirt runs it, and no QEMU of it is there"});
    }
}

TEST_CASE("a guest that is counted as what it no longer is is a difference, by resource") {
    LedgerViews views = agreed();
    views.libvirt[uuid(2)].demand = {{Resource::cpu(), 3}, {pages, gib}};
    CHECK(lines(views) ==
          Lines{"web-2: cpu: virtguardd counts 2, its domain has 3 now",
                "web-2: hugepages-2Mi: virtguardd counts 0, its domain has 1 GiB now",
                "web-2: memory: virtguardd counts 1 GiB, its domain has 0 now"});
}

TEST_CASE("a sum that is not that of the guests is a difference") {
    LedgerViews views = agreed();
    views.ledger.report.host.allocated[Resource::memory()] = 3 * gib;
    CHECK(lines(views) == Lines{"memory: virtguardd counts 3 GiB as allocated, its running guests "
                                "have 2 GiB"});
}

TEST_CASE("hugepages in use that nobody is counted for are a difference") {
    LedgerViews views = agreed();
    views.hugepages[pages.page_size] = 2 * gib;
    CHECK(lines(views) ==
          Lines{"hugepages-2Mi: the kernel has 2 GiB in use, virtguardd counts 1 GiB"});
    views.ledger.report.host.foreign = {{pages, gib}};
    CHECK(lines(views).empty());
}
