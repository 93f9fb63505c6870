// SPDX-License-Identifier: Apache-2.0
// Prints each topology named by the arguments ("/" is this machine) for check_topologies.py: lines
// of tab-separated fields, from "topology" or "error" to the next.

#include <string_view>

#include <fmt/format.h>

#include "host/topology.hpp"

using namespace virtguard;

namespace {

void print(const core::Topology& topology) {
    fmt::print("topology\t{}\t{}\t{}\t{}\t{}\t{}\n", topology.online.count(),
               topology.offline.count(), topology.allowed.count(), topology.cores.size(),
               topology.base_page, topology.default_hugepage.value_or(0));
    for (const IdSet& core : topology.cores)
        fmt::print("core\t{}\n", core.text());
    for (const core::Node& node : topology.nodes) {
        fmt::print("node\t{}\t{}\t{}\t{}\t", node.id, node.kind, node.pus.text(), node.memory);
        for (const core::PagePool& pool : node.pools)
            fmt::print("{}*{} ", pool.page_size, pool.pages);
        fmt::print("\n");
    }
}

} // namespace

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        const auto topology = name == "/" ? host::live_topology("/") : host::topology_from(name);
        if (topology)
            print(*topology);
        else
            fmt::print("error\t{}\n", topology.error().what);
    }
}
