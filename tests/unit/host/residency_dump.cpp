// SPDX-License-Identifier: Apache-2.0
// Prints what a guest of this machine occupies, for tests with real guests. Arguments: its name,
// its UUID, and bytes of the hugepages it has. Lines "memory 0 123": resource, node, bytes.

#include <cstdlib>

#include <fmt/format.h>

#include "base/text.hpp"
#include "host/residency.hpp"

using namespace virtguard;

int main(int argc, char** argv) {
    const auto uuid = Uuid::parse(argc > 2 ? argv[2] : "");
    if (!uuid)
        return EXIT_FAILURE;
    host::RunningGuest guest{.name = argv[1], .uuid = *uuid, .page_sizes = {}};
    for (int i = 3; i < argc; ++i)
        guest.page_sizes.push_back(parse_size(argv[i]).value());
    const auto residency = host::read_residency("/", guest);
    if (!residency) {
        fmt::print("{}\n", residency.error().what);
        return EXIT_FAILURE;
    }
    for (const auto& [resource, by_node] : *residency)
        for (const auto& [node, bytes] : by_node)
            fmt::print("{} {} {}\n", resource.name(), node, bytes);
}
