// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <catch2/catch.hpp>

#include "ctl/guests_check.hpp"
#include "host/topology.hpp"

using namespace virtguard;
using namespace virtguard::ctl;

namespace {

virt::DomainXml domain(const std::string& name, int gib) {
    return {.uuid = {},
            .name = name,
            .xml = fmt::format("<domain type='kvm'><name>{}</name><memory unit='GiB'>{}</memory>"
                               "<vcpu>1</vcpu><os><type>hvm</type></os></domain>",
                               name, gib)};
}

core::Guard guard(const core::Policy& policy) {
    return core::Guard(host::topology_from_synthetic("numa:1(memory=16GiB) core:4 pu:1").value(),
                       policy);
}

} // namespace

TEST_CASE("guests are started one after another, and each that finds no room is refused") {
    core::Policy policy;
    policy.memory.overhead = std::nullopt;
    core::Guard host = guard(policy);
    const auto events = start_all(host, {domain("a", 8), domain("b", 8), domain("c", 7)});
    REQUIRE(events.size() == 3);
    CHECK(events[0].outcome->admitted);
    CHECK_FALSE(events[1].outcome->admitted);
    CHECK(events[1].event == "start:b");
    CHECK(events[1].outcome->reasons.at(0).text == "memory: needs 8 GiB, 7.5 GiB free of 15.5 GiB");
    CHECK(events[2].outcome->admitted);
}

TEST_CASE("a guest whose XML cannot be understood is refused by its name") {
    core::Guard host = guard({});
    const auto events = start_all(host, {{.uuid = {}, .name = "odd", .xml = "<domain/>"}});
    REQUIRE(events.size() == 1);
    CHECK_FALSE(events[0].outcome->admitted);
    CHECK(events[0].outcome->name == "odd");
    CHECK(events[0].outcome->reasons.at(0).code == core::Code::invalid_domain);
}

TEST_CASE("what the policy only observes is shown and refuses nothing") {
    core::Policy policy;
    policy.mode = core::Mode::observe;
    core::Guard host = guard(policy);
    const auto events = start_all(host, {domain("a", 32)});
    CHECK(events.at(0).outcome->admitted);
    CHECK_FALSE(events.at(0).outcome->reasons.empty());
}
