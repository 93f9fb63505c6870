// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one picture of the host that every view shows: status, simulate, later D-Bus and metrics.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/instant.hpp"
#include "base/uuid.hpp"
#include "core/admission.hpp"
#include "core/advice.hpp"
#include "core/host.hpp"
#include "core/ledger.hpp"
#include "core/run_time.hpp"

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
    IdSet cpus; ///< the online PUs local to it
    Figures figures;

    friend bool operator==(const NodeReport&, const NodeReport&) = default;
};

struct Report {
    Figures host;
    std::vector<NodeReport> nodes; ///< by id
    std::map<Resource, Ratio> overcommit;
    std::map<Resource, std::string> units; ///< of custom resources that have one
    std::vector<Resource> over_capacity;   ///< those whose free is negative, on the host or a node

    friend bool operator==(const Report&, const Report&) = default;
};

/// Works the picture out; dear on large hosts, so never on the way to an answer.
[[nodiscard]] Report make_report(const Host& host, const Holdings& held);

/// A piece as views show it: its host nodes, none where it may lie on any.
struct ShownPiece {
    Resource resource;
    std::int64_t amount = 0;
    IdSet nodes;
    bool whole = false;

    friend bool operator==(const ShownPiece&, const ShownPiece&) = default;
};
[[nodiscard]] std::vector<ShownPiece> shown_pieces(const Host& host, const Demand& demand);

/// A decision as views show it.
struct Outcome {
    std::string name; ///< the domain's
    std::optional<Uuid> uuid;
    std::string scheduler;
    bool admitted = false;
    Mode mode = Mode::enforce; ///< of the strictest reason; without any, the host's
    Quantities demand;         ///< overhead included
    std::int64_t overhead = 0;
    std::vector<ShownPiece> pieces;
    std::vector<Reason> reasons;
    std::vector<std::string> notes;
    std::vector<Fit> fits; ///< of check: what would fit

    friend bool operator==(const Outcome&, const Outcome&) = default;
};
[[nodiscard]] Outcome make_outcome(const Domain& domain, const Answer& answer, const Host& host,
                                   const Policy& policy);

/// A guest as views show it.
struct GuestReport {
    std::string name;
    std::optional<Uuid> uuid;
    std::string scheduler;
    bool is_accepted = true; ///< the host serves that scheduler, so that it might start now
    GuestState state = GuestState::running;
    Quantities demand;

    friend bool operator==(const GuestReport&, const GuestReport&) = default;
};
/// By UUID, those without one first.
[[nodiscard]] std::vector<GuestReport> guest_reports(const Ledger& ledger,
                                                     const SchedulerPolicy& policy);

/// Amounts by "memory" and, of what may not lie wherever an unbound guest may, "memory@0-1".
using ShownAmounts = std::map<std::string, std::int64_t>;

/// A reservation as views show it.
struct ReservationReport {
    ReservationId id;
    ShownAmounts asked{};
    ShownAmounts booked{}; ///< what no guest has drawn of it, without zeros
    std::set<Uuid> uuids{};
    std::string match{};
    std::optional<WallTime> expiry{}; ///< nothing: never
    std::string origin{};             ///< who made it, and when

    friend bool operator==(const ReservationReport&, const ReservationReport&) = default;
};
/// By owner and name.
[[nodiscard]] std::vector<ReservationReport>
reservation_reports(const RunTime& run_time, const Ledger& ledger, const Host& host);

/// The daemon's whole status.
struct Status {
    std::string version;
    std::string state; ///< "starting", "ready", "degraded"
    std::vector<std::string> problems;
    Mode mode = Mode::enforce;
    std::optional<std::string> maintenance; ///< as in the policy
    std::uint64_t admitted = 0;             ///< starts, since the daemon began
    std::uint64_t refused = 0;
    std::uint64_t would_refuse = 0;   ///< admitted only because the mode is observe
    std::optional<WallTime> snapshot; ///< the beginning of the last complete look at libvirt
    Report report;
    /// Bytes that something else than guests holds beyond the reserve, charged or not; nothing
    /// where it is not known.
    std::optional<std::int64_t> foreign_memory;
    std::vector<GuestReport> guests;
    std::vector<ReservationReport> reservations;

    friend bool operator==(const Status&, const Status&) = default;
};

/// The mode in one word, which is "maintenance" in maintenance.
[[nodiscard]] std::string_view mode_text(const Status& status);

} // namespace virtguard::core
