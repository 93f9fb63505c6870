// SPDX-License-Identifier: Apache-2.0
#pragma once
// The answer to a start.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/idset.hpp"
#include "core/policy.hpp"
#include "core/resource.hpp"

namespace virtguard::core {

/// In the order reasons are listed.
enum class Code {
    invalid_domain,
    foreign_scheduler,
    policy_rule, ///< a rule, or maintenance
    no_such_node,
    no_such_page_size,
    cpu_not_available,
    larger_than_host,           ///< more than the host could give to this guest alone, at ratio 1
    insufficient_capacity,      ///< short on the host as a whole
    insufficient_node_capacity, ///< short on some of the nodes (of the PUs) only
    scheduler_quota,
    not_ready,
};

/// The stable spelling: "insufficient-node-capacity".
[[nodiscard]] std::string_view code_name(Code code);

struct Reason {
    Code code = Code::not_ready;
    std::optional<Resource> resource;
    IdSet nodes;                ///< host node ids; empty: the host as a whole
    std::int64_t requested = 0; ///< what the start asks for in there
    std::int64_t free = 0;      ///< what of it could still be given; negative when over
    std::int64_t effective = 0; ///< of how much
    Mode mode = Mode::enforce;  ///< whether this reason refuses or is only recorded
    std::string text;           ///< one line: "memory on node 1: needs 8 GiB, 3 GiB free of 64 GiB"

    friend bool operator==(const Reason&, const Reason&) = default;
};

struct Decision {
    /// All of them, in the order of their codes, then resources, then lowest node.
    std::vector<Reason> reasons;

    /// No reason is in mode enforce.
    [[nodiscard]] bool admitted() const;
    /// Admitted, with reasons that only mode observe kept from refusing.
    [[nodiscard]] bool would_refuse() const { return admitted() && !reasons.empty(); }
    /// There is too little of it now, on the host or of a scheduler's quota, whatever the mode.
    [[nodiscard]] bool is_short_of(const Resource& resource) const;
};

/// What refuses, of at most 2,000 bytes: "memory on node 1: needs 8 GiB, ...; cpu: ..."
[[nodiscard]] std::string refusing_text(const Decision& decision);

/// What the operator of `virsh start` reads: one line, no control characters, at most 2,000 bytes.
/// "virtguard: refused web-3: memory on node 1: needs 8 GiB, 3 GiB free of 64 GiB; cpu: ..."
[[nodiscard]] std::string refusal_line(std::string_view domain_name, const Decision& decision);

} // namespace virtguard::core
