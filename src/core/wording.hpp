// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sentences of reasons: what an operator reads, word for word.

#include <cstdint>
#include <optional>
#include <string>

#include "base/text.hpp"
#include "core/decision.hpp"
#include "core/host.hpp"

namespace virtguard::core {

/// "8 GiB", "4 vCPUs", "2 functions": an amount as it is spoken of.
[[nodiscard]] std::string amount_text(const Host& host, const Resource& resource,
                                      std::int64_t amount, Rounding rounding);

/// "reserved 0-1, offline 6, absent 9": PUs by why guests may not use them.
[[nodiscard]] std::string unusable_pus(const Host& host, const IdSet& pus);

/// Reasons that no freeing of capacity would heal. Their mode is not set.
[[nodiscard]] Reason cpu_not_available(const Host& host, const std::optional<IdSet>& pus,
                                       std::int64_t vcpus, bool dedicated);
[[nodiscard]] Reason no_such_node(const Resource& resource, const IdSet& nodes,
                                  std::int64_t requested);
/// page_size: nothing where the domain asks for the default size and the host has none.
[[nodiscard]] Reason no_such_page_size(std::optional<std::int64_t> page_size,
                                       std::int64_t requested);

/// Something is to be reserved where the host has none of it.
[[nodiscard]] Reason none_there(const Host& host, const Resource& resource, std::optional<int> node,
                                std::int64_t requested);

/// A start asks for more than is left (below 0: over) of the quota of the table of
/// [scheduler.accept].
[[nodiscard]] Reason over_quota(const Host& host, const Resource& resource, std::string_view table,
                                std::int64_t requested, std::int64_t left, std::int64_t quota);

/// Our own ignorance: what becomes of it is for hook.unavailable to say, as of no answer at all.
/// The fact has a problem.
[[nodiscard]] Reason not_ready(const std::string& key, const Fact& fact,
                               std::optional<Resource> resource = {});

/// A part of a pool that is short: fills code, nodes and text from the figures. A start asks for
/// `requested` in the places, which are all of the pool's where `is_all` says so.
struct Shortage {
    Resource resource;
    IdSet places;
    bool is_all = false;
    std::int64_t requested = 0;
    std::int64_t free = 0;
    std::int64_t effective = 0;
    std::int64_t allocatable = 0; ///< the most that one guest can have there
    bool alone = false;           ///< it would not fit an empty host either
};
[[nodiscard]] Reason shortage_reason(const Host& host, const Shortage& shortage);

} // namespace virtguard::core
