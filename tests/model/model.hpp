// SPDX-License-Identifier: Apache-2.0
#pragma once
// Admission and free space worked out from DESIGN sections 1 and 2 by brute force: the check on
// core, which it shares the vocabulary with (topology, policy, domain) and nothing else. For small
// hosts only: ids below 32, amounts such that products with ratios fit 64 bits.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/domain.hpp"
#include "core/policy.hpp"
#include "core/topology.hpp"

namespace virtguard::model {

using Bits = std::uint32_t; ///< a bit per node id or CPU

[[nodiscard]] Bits bits_of(const IdSet& set);

struct Claim {
    Bits places = 0; ///< where it may lie; those that the host lacks are in it too
    bool whole = false;
    std::int64_t amount = 0;
};
using Claims = std::map<core::Resource, std::vector<Claim>>;

struct Demand {
    Claims claims;
    bool impossible = false; ///< names what the host does not have
};

/// The most that can be carried of claims on places with the given room, all in one unit. By Hall's
/// condition over all subsets of places.
[[nodiscard]] std::int64_t most_by_subsets(const std::vector<std::int64_t>& room,
                                           const std::vector<Claim>& claims);
/// The same by laying down every unit in every way.
[[nodiscard]] std::int64_t most_by_enumeration(const std::vector<std::int64_t>& room,
                                               const std::vector<Claim>& claims);

class Model {
  public:
    Model(const core::Topology& topology, const core::Policy& policy,
          core::FileSystems file_systems = {}, core::Images images = {});

    [[nodiscard]] Demand demand_of(const core::Domain& domain) const;
    /// Of a guest that runs, whose pieces lie somewhere even when the host lacks what it names.
    [[nodiscard]] Claims held_by(const core::Domain& domain) const;

    /// Claims of one guest where something is known to be resident (bytes by resource and node): on
    /// each node that much can lie nowhere else. For each resource the claims must be all whole or
    /// all pageable, and at least what is resident.
    [[nodiscard]] Claims
    bind(Claims claims,
         const std::map<core::Resource, std::map<int, std::int64_t>>& resident) const;

    /// Whether a start fits beside what is held: rules (a) and (b).
    [[nodiscard]] bool admits(const Demand& start, const Claims& held) const;

    /// What is booked of a resource: on a node, or wherever an unbound guest may lie.
    [[nodiscard]] Demand booked(const core::Resource& resource, std::optional<int> node,
                                std::int64_t amount) const;
    /// What lies nowhere lies where an unbound guest may.
    [[nodiscard]] Claims somewhere(Claims claims) const;
    /// What of a claim is left when guests draw on it whose claims have a place in common with it.
    [[nodiscard]] static std::int64_t left_of(const core::Resource& resource, const Claim& claim,
                                              const std::vector<Claims>& guests);
    /// Whether what is left of a booking fits beside what is held: rule (b) alone.
    [[nodiscard]] bool admits_booking(const Demand& left, const Claims& held) const;

    /// Whether the schedulers' quotas allow a start beside guests and bookings, by scheduler, and
    /// all that is held. Globs are a name, or the beginning of one and an asterisk.
    [[nodiscard]] bool within_quota(const std::string& scheduler, const Demand& start,
                                    const std::vector<std::pair<std::string, Claims>>& guests,
                                    const Claims& held) const;

    [[nodiscard]] std::int64_t host_free(const core::Resource& resource, const Claims& held) const;
    /// Nothing where the node has none of the resource.
    [[nodiscard]] std::optional<std::int64_t> node_free(const core::Resource& resource, int node,
                                                        const Claims& held) const;

  private:
    struct Pool {
        std::map<int, std::int64_t> allocatable; ///< by place
        Bits unbound = 0;
        std::int64_t numerator = 1;
        std::int64_t denominator = 1;
    };

    void add_cpus(const core::Topology& topology, const core::Policy& policy);
    void add_memory(const core::Topology& topology, const core::Policy& policy);
    void add_pages(const core::Topology& topology, const core::Policy& policy);
    void add_custom(const core::Topology& topology, const core::Policy& policy);
    void add_storage();
    [[nodiscard]] Bits cpus_of(Bits pus) const;
    void add_vcpus(Demand& demand, const core::Domain& domain) const;
    void add_parts(Demand& demand, const core::Domain& domain) const;
    void add_custom(Demand& demand, const core::Domain& domain) const;
    void add_disks(Demand& demand, const core::Domain& domain) const;
    [[nodiscard]] std::optional<core::Resource> kind_of(const core::MemoryPart& part) const;

    [[nodiscard]] const std::vector<Claim>& of(const Claims& claims,
                                               const core::Resource& resource) const;
    [[nodiscard]] std::int64_t weight(const core::Resource& resource, const Claim& claim) const;
    /// With room ratio × allocatable on each place and each claim weighed.
    [[nodiscard]] std::int64_t most(const core::Resource& resource,
                                    std::vector<Claim> claims) const;
    [[nodiscard]] bool fits_alone(const core::Resource& resource,
                                  const std::vector<Claim>& claims) const;
    [[nodiscard]] bool fits_beside(const core::Resource& resource, const std::vector<Claim>& start,
                                   const std::vector<Claim>& held) const;
    /// effective − held of the places, with the claims that lie only there.
    [[nodiscard]] std::int64_t identity(const core::Resource& resource, Bits places,
                                        const std::vector<Claim>& held) const;

    core::Policy policy_;
    core::FileSystems file_systems_;
    core::Images images_;
    std::map<core::Resource, Pool> pools_;
    std::map<int, Bits> node_cpus_;
    std::map<int, int> cpu_of_pu_;
    Bits nodes_ = 0;
    Bits dedicated_ = 0; ///< CPUs for dedicated vCPUs
    Bits shared_ = 0;    ///< CPUs for the others
    Bits outside_ = 0;   ///< PUs outside machine.slice
    std::int64_t base_page_ = 1;
    std::optional<std::int64_t> default_pages_;
    bool files_are_ram_ = false;
};

} // namespace virtguard::model
