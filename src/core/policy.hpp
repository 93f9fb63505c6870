// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operator's policy as values; virtguard.toml(5) says what each key means. The initialisers
// here are the defaults.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/idset.hpp"
#include "base/ratio.hpp"
#include "core/question.hpp"
#include "core/resource.hpp"
#include "core/topology.hpp"

namespace virtguard::core {

enum class Mode { off, observe, enforce };

[[nodiscard]] std::string_view mode_name(Mode mode);

/// How much more than its RAM a guest's QEMU needs; bytes. After oVirt's engine.
struct Overhead {
    std::int64_t base = std::int64_t{64} << 20;
    std::int64_t per_vcpu = std::int64_t{8} << 20;
    std::int64_t per_iothread = std::int64_t{8} << 20;
    std::int64_t per_gib = std::int64_t{2} << 20; ///< per GiB of RAM on base pages: page tables
    bool video = true;                            ///< add the video RAM
    std::int64_t per_vfio = 0;
    std::int64_t sev = 0;
    std::int64_t tpm = 0;

    friend bool operator==(const Overhead&, const Overhead&) = default;
};

struct MemoryPolicy {
    bool count_current = false;                    ///< count = "current"
    bool virtio_mem_requested = false;             ///< virtio-mem = "requested"
    bool file_is_storage = false;                  ///< file = "storage"
    bool charge_foreign = false;                   ///< foreign = "charge"
    std::optional<IdSet> nodes;                    ///< where unbound guests may be
    std::optional<Overhead> overhead = Overhead{}; ///< nothing: overhead = "none"

    friend bool operator==(const MemoryPolicy&, const MemoryPolicy&) = default;
};

struct CpuPolicy {
    bool count_cores = false;       ///< count = "cores"
    bool pinning_exclusive = true;  ///< pinning = "exclusive"
    bool vcpus_maximum = false;     ///< vcpus = "maximum"
    std::optional<IdSet> dedicated; ///< PUs only for dedicated vCPUs
    std::optional<IdSet> shared;    ///< PUs only for the others

    friend bool operator==(const CpuPolicy&, const CpuPolicy&) = default;
};

struct HookPolicy {
    std::chrono::milliseconds timeout{2000};
    bool unavailable_denies = false; ///< unavailable = "deny"

    friend bool operator==(const HookPolicy&, const HookPolicy&) = default;
};

struct ClaimPolicy {
    std::chrono::milliseconds lease{std::chrono::minutes(10)};
    std::chrono::milliseconds return_hold{1000}; ///< return

    friend bool operator==(const ClaimPolicy&, const ClaimPolicy&) = default;
};

/// [reserve.node.N]
struct NodeReserve {
    std::optional<std::int64_t> memory;             ///< bytes
    std::map<std::int64_t, std::int64_t> hugepages; ///< bytes by page size in bytes

    friend bool operator==(const NodeReserve&, const NodeReserve&) = default;
};

struct ReservePolicy {
    IdSet cpus;
    std::optional<std::int64_t> memory; ///< bytes, the whole host
    std::map<int, NodeReserve> nodes;   ///< by node id

    friend bool operator==(const ReservePolicy&, const ReservePolicy&) = default;
};

/// [storage]
struct StoragePolicy {
    /// Folders, absolute: guests' images are on the file systems that hold them. None: storage is
    /// not counted.
    std::vector<std::string> paths{"/var/lib/libvirt/images"};
    bool unknown_refuses = false; ///< unknown = "refuse"

    friend bool operator==(const StoragePolicy&, const StoragePolicy&) = default;
};

/// What there is of a custom resource in one place.
struct CustomCapacity {
    std::int64_t amount = 0; ///< 0 to max_domain_bytes; of no meaning where there is a file
    std::string file;        ///< absolute; in place of the amount: what this file says

    friend bool operator==(const CustomCapacity&, const CustomCapacity&) = default;
};

/// [resource.NAME]
struct CustomResource {
    std::optional<CustomCapacity> host;            ///< the host is one place
    std::map<int, CustomCapacity> nodes;           ///< by node id, in place of the host
    std::map<std::string, std::string> namespaces; ///< URIs by prefix
    std::string demand;                            ///< XPath, a number
    std::string unit;                              ///< what is counted: "functions"; "" is nothing

    friend bool operator==(const CustomResource&, const CustomResource&) = default;
};

struct MetricsPolicy {
    std::string textfile_folder; ///< absolute; "": metrics are written nowhere

    friend bool operator==(const MetricsPolicy&, const MetricsPolicy&) = default;
};

/// The most that guests of a scheduler may hold together of a resource.
struct Quota {
    std::int64_t amount = 0;      ///< vCPUs, bytes, or what the policy counts
    std::optional<Ratio> percent; ///< in place of the amount: of what is effective now

    friend bool operator==(const Quota&, const Quota&) = default;
};

/// [scheduler.accept.NAME]
struct AcceptedScheduler {
    std::string match; ///< a glob as in fnmatch(3); the table's name where the key is absent
    std::optional<Mode> mode;
    std::map<Resource, Quota> quota; ///< of all whom it matches together

    friend bool operator==(const AcceptedScheduler&, const AcceptedScheduler&) = default;
};

/// [scheduler.recognise.NAME]: whose domains carry other marks than virtguard's own.
struct Recogniser {
    std::map<std::string, std::string> namespaces; ///< URIs by prefix
    std::string match;                             ///< XPath, true or false

    friend bool operator==(const Recogniser&, const Recogniser&) = default;
};

struct SchedulerPolicy {
    std::string default_name = "default-scheduler";
    bool accept_default = true;
    bool accept_any = false;
    std::map<std::string, AcceptedScheduler> accept; ///< by the table's name
    std::map<std::string, Recogniser> recognise;     ///< by the scheduler's name

    friend bool operator==(const SchedulerPolicy&, const SchedulerPolicy&) = default;
};

/// [rule.NAME]: what becomes of starts whose XML it matches.
struct Rule {
    enum class Action {
        refuse,
        exempt, ///< always admitted, and counted
        observe,
    };

    std::int64_t priority = 0;                     ///< the lowest is asked first
    std::map<std::string, std::string> namespaces; ///< URIs by prefix
    std::string match = "true()";                  ///< XPath, true or false
    std::optional<Action> action;                  ///< a policy in force has one
    std::string message;                           ///< what a refusal says

    friend bool operator==(const Rule&, const Rule&) = default;
};

[[nodiscard]] std::string_view action_name(Rule::Action action);

struct Policy {
    Mode mode = Mode::enforce;
    /// The host is in maintenance, for this reason, "" where none is told: no start is admitted but
    /// those of guests that return, and those that a rule exempts. No file says so.
    std::optional<std::string> maintenance;
    std::map<Resource, Ratio> overcommit; ///< 1 where absent; never of hugepages
    std::map<Resource, Mode> resource_mode;
    MemoryPolicy memory;
    CpuPolicy cpu;
    HookPolicy hook;
    ClaimPolicy claim;
    ReservePolicy reserve;
    StoragePolicy storage;
    SchedulerPolicy scheduler;
    std::map<std::string, Rule> rules; ///< by name
    std::map<Resource, CustomResource> resources;
    /// What the files said last that capacities are read from, by path. No policy file says so.
    std::map<std::string, std::int64_t> readings;
    MetricsPolicy metrics;
    /// Where each key that a file sets was set: "memory.count" →
    /// "/etc/virtguard/virtguard.toml:12".
    std::map<std::string, std::string> origins;

    [[nodiscard]] Ratio ratio_of(const Resource& resource) const;
    /// All that it asks of a domain's XML.
    [[nodiscard]] Questions questions() const;
    /// A built-in resource, or one that the policy declares. Error: not_found, which suggests the
    /// nearest such name.
    [[nodiscard]] Result<Resource> find_resource(std::string_view name) const;
    /// The capacities that are read from files, each with its key.
    [[nodiscard]] std::map<std::string, std::string> capacity_files() const;

    friend bool operator==(const Policy&, const Policy&) = default;
};

/// The question of [scheduler.recognise.NAME], of [rule.NAME], and of [resource.NAME].
[[nodiscard]] std::string recognise_key(std::string_view scheduler);
[[nodiscard]] std::string rule_key(std::string_view rule);
[[nodiscard]] std::string demand_key(const Resource& resource);
/// Of the file that says how much there is, of a node or of the host.
[[nodiscard]] std::string capacity_file_key(const Resource& resource,
                                            std::optional<int> node = std::nullopt);

/// A key of a policy as people see it.
struct Setting {
    std::string key;    ///< "memory.count"
    std::string value;  ///< as TOML has it: "\"maximum\""
    std::string origin; ///< "default", or the file and line that set it

    friend bool operator==(const Setting&, const Setting&) = default;
};

/// Of what is wrong with a policy so much is told, and the rest counted ("and 7 more"): what reads
/// it is a person. A file may be wrong in each of its sixty thousand lines.
inline constexpr std::size_t max_told_errors = 50;

/// What of the policy is impossible on this host, a line each ("reserve.memory: ..."), each led by
/// the origin of its key where one is known; at most max_told_errors of them, and a line with the
/// number of the others. Empty when the policy can be applied.
[[nodiscard]] std::vector<std::string> conflicts(const Policy& policy, const Topology& topology);

} // namespace virtguard::core
