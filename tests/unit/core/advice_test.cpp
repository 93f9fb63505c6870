// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "core/guard.hpp"
#include "guests.hpp"

using namespace virtguard;
using namespace virtguard::core;

namespace {

Fit fit_of(Guard& guard, const Domain& domain, const Resource& resource) {
    for (const Fit& fit : guard.advise(domain))
        if (fit.resource == resource)
            return fit;
    return {};
}

} // namespace

TEST_CASE("what would fit is the most of the same shape, also on each node alone") {
    Guard guard(equal_nodes(2, 4, 16 * gib), plain_policy());
    guard.running(with_memory("bound", {bound_ram(10 * gib, {0})}), Instant{});

    const Domain floating = with_memory("floating", {ram(30 * gib)});
    CHECK(fit_of(guard, floating, Resource::memory()) ==
          Fit{Resource::memory(), 22 * gib, {{0, 6 * gib}, {1, 16 * gib}}});
    const Domain bound = with_memory("other", {bound_ram(12 * gib, {0})});
    CHECK(fit_of(guard, bound, Resource::memory()) ==
          Fit{Resource::memory(), 6 * gib, {{0, 6 * gib}}});
    const Domain small = with_memory("small", {ram(gib)});
    CHECK(fit_of(guard, small, Resource::memory()) ==
          Fit{Resource::memory(), gib, {{0, gib}, {1, gib}}});
    const Domain middle = with_memory("middle", {bound_ram(12 * gib, {0, 1})});
    CHECK(fit_of(guard, middle, Resource::memory()) ==
          Fit{Resource::memory(), 12 * gib, {{0, 6 * gib}, {1, 12 * gib}}});
}

TEST_CASE("a domain bound to a node was told of room on others") {
    Topology topology = equal_nodes(2, 4, 16 * gib);
    add_pages(topology, 0, page_2m, 512);
    add_pages(topology, 1, page_2m, 512);
    Guard guard(topology, plain_policy());
    Domain domain =
        with_memory("bound", {bound_ram(gib, {1}), bound_ram(gib, {1}, PagesOf{page_2m})});
    domain.vcpus = {on_pus(2, {4, 5}), on_pus(1, {7})};
    for (const Resource& resource :
         {Resource::cpu(), Resource::memory(), Resource::hugepages(page_2m)})
        CHECK(nodes_for_all(fit_of(guard, domain, resource), 1) == IdSet{1});
    domain.vcpus.push_back(on_pus(2, {0, 1}));
    CHECK(fit_of(guard, domain, Resource::cpu()) == Fit{Resource::cpu(), 5, {}});
}

TEST_CASE("the nodes for all of a demand are those where nothing of it is left over") {
    const Fit fit{.resource = Resource::cpu(), .largest = 4, .per_node = {{0, 3}, {2, 4}, {5, 4}}};
    CHECK(nodes_for_all(fit, 4) == IdSet{2, 5});
    CHECK(nodes_for_all(fit, 5) == IdSet{});
}

TEST_CASE("of what is impossible all was said to fit") {
    Guard guard(equal_nodes(2, 4, 16 * gib), plain_policy());
    const Domain absent = with_memory("absent", {bound_ram(gib, {7})});
    CHECK(fit_of(guard, absent, Resource::memory()) == Fit{Resource::memory(), 0, {}});
}

TEST_CASE("of two cells each gives its share") {
    Guard guard(equal_nodes(2, 4, 16 * gib), plain_policy());
    guard.running(with_memory("there", {bound_ram(10 * gib, {0})}), Instant{});
    const Domain cells = with_memory("cells", {bound_ram(12 * gib, {0}), bound_ram(12 * gib, {1})});
    CHECK(fit_of(guard, cells, Resource::memory()) ==
          Fit{Resource::memory(), 12 * gib, {}}); // 6 GiB of either
}

TEST_CASE("what would fit does not change what is held") {
    Guard guard(equal_nodes(2, 4, 16 * gib), plain_policy());
    const Domain domain = with_memory("there", {ram(10 * gib)});
    guard.running(domain, Instant{});
    const Holdings before = guard.ledger().holdings();
    (void)guard.advise(domain);
    (void)guard.advise(with_memory("other", {ram(100 * gib)}));
    CHECK(guard.ledger().holdings() == before);
}
