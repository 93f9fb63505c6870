// SPDX-License-Identifier: Apache-2.0
#pragma once
// virtguardctl simulate: the decision core on files. Needs no daemon, libvirt or privilege.

#include <string>
#include <vector>

namespace virtguard::ctl {

struct SimulateOptions {
    std::string topology;            ///< an hwloc XML file or a synthetic description
    std::vector<std::string> pages;  ///< NODE:SIZE=COUNT
    std::string policy;              ///< a file; "": the built-in defaults
    std::vector<std::string> events; ///< start:FILE, stop:NAME, ...
    bool json = false;
};

/// Prints what comes of the events; the exit status: 0 when every start was admitted, 1 when one
/// was refused, 2 on bad input, of which nothing but the error is printed.
int simulate(const SimulateOptions& options);

} // namespace virtguard::ctl
