// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one picture of the host that every view shows: status, simulate, later D-Bus and metrics.

#include <map>
#include <string>
#include <vector>

#include "core/admission.hpp"
#include "core/host.hpp"
#include "core/ledger.hpp"

namespace virtguard::core {

/// By resource; DESIGN section 1 says what each column means.
struct Figures {
    Quantities capacity;
    Quantities reserved;
    Quantities allocatable;
    Quantities effective;
    Quantities allocated;
    Quantities pending;
    Quantities booked;
    Quantities foreign;
    Quantities free; ///< negative when over

    friend bool operator==(const Figures&, const Figures&) = default;
};

struct NodeReport {
    int id = 0;
    IdSet cpus; ///< CPUs local to it
    Figures figures;
};

struct Report {
    Figures host;
    std::vector<NodeReport> nodes; ///< by id
    std::map<Resource, Ratio> overcommit;
    std::vector<Resource>
        over_capacity; ///< resources whose free is negative, on the host or a node
};

/// Works the picture out; dear on large hosts, so never on the way to an answer.
[[nodiscard]] Report make_report(const Host& host, const Holdings& held);

/// The host nodes of a piece as views show them: empty where it may use all there is.
[[nodiscard]] IdSet shown_nodes(const Host& host, const Piece& piece);

} // namespace virtguard::core
