// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "core/admission.hpp"
#include "core/guard.hpp"
#include "hosts.hpp"

using namespace virtguard;
using namespace virtguard::core;

namespace {

/// Lets the domain run when it is admitted.
std::string start(Guard& guard, const Domain& domain) {
    const Answer answer = guard.start_at_once(domain);
    return answer.decision.admitted() ? "admitted" : refusal_line(domain.name, answer.decision);
}

} // namespace

TEST_CASE("what may lie on a node without room is counted where it must lie") {
    Topology topology = equal_nodes(2, 4, 64 * gib);
    add_pages(topology, 0, page_1g, 8);
    Guard guard(topology, bare_policy());
    CHECK(start(guard, with_memory("a", {bound_ram(6 * gib, {0, 1}, PagesOf{page_1g})})) ==
          "admitted");
    CHECK(start(guard, with_memory("b", {bound_ram(4 * gib, {0}, PagesOf{page_1g})})) ==
          "virtguard: refused b: hugepages-1Gi: needs 4 GiB, 2 GiB free of 8 GiB");
    CHECK(guard.report().nodes.at(0).figures.allocated.at(Resource::hugepages(page_1g)) == 6 * gib);
}
