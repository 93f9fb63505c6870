// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a domain's XML says that matters for admission: facts, before any policy is applied.
// Sizes are already rounded as libvirt rounds them at start (cells to 1 MiB, devices to 2 MiB;
// 256 MiB both on ppc64), and not yet to hugepages.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/idset.hpp"
#include "base/uuid.hpp"
#include "core/question.hpp"
#include "core/storage.hpp"

namespace virtguard::core {

/// No domain may ask for more bytes than this in sum: 52 address bits are the most that any CPU
/// libvirt knows can wire, and sums over thousands of such guests stay below 2^63.
inline constexpr std::int64_t max_domain_bytes = std::int64_t{1} << 52;

/// More vCPUs than any machine type has (QEMU 10: 4096); the bound keeps hostile XML cheap.
inline constexpr std::int64_t max_domain_vcpus = 16384;

/// Bytes of a scheduler's name, in a domain's XML and in the policy: what names of files, hosts and
/// Kubernetes objects keep to.
inline constexpr std::size_t max_scheduler_bytes = 255;

/// vCPUs of equal placement.
struct VcpuGroup {
    std::optional<IdSet> cpus; ///< <vcpupin>, else <vcpu cpuset>; nothing: wherever guests may run
    std::int64_t current = 0;  ///< enabled at start
    std::int64_t maximum = 0;  ///< all of them

    friend bool operator==(const VcpuGroup&, const VcpuGroup&) = default;
};

struct BasePages {
    friend bool operator==(const BasePages&, const BasePages&) = default;
};
/// <hugepages/> without a size: the kernel's default one.
struct DefaultHugepages {
    friend bool operator==(const DefaultHugepages&, const DefaultHugepages&) = default;
};
/// The size as written, in bytes (it may be the host's base page, and then is that).
struct PagesOf {
    std::int64_t size = 0;
    friend bool operator==(const PagesOf&, const PagesOf&) = default;
};
using PageKind = std::variant<BasePages, DefaultHugepages, PagesOf>;

/// One part of a guest's RAM: its memory without guest NUMA, a guest cell, or a memory device.
struct MemoryPart {
    enum class Kind { ram, dimm, virtio_mem };

    Kind kind = Kind::ram;
    std::int64_t size = 0;      ///< bytes: what it may grow to
    std::int64_t requested = 0; ///< bytes: <requested> of a virtio-mem device, else size
    PageKind pages;
    /// Host nodes that bind it (mode strict or restrictive); nothing where the XML gives none, or
    /// only a wish (preferred, interleave, placement='auto').
    std::optional<IdSet> bound_to;

    friend bool operator==(const MemoryPart&, const MemoryPart&) = default;
};

struct Domain {
    std::string name;
    std::optional<Uuid> uuid;
    std::string scheduler; ///< <virtguard:scheduler> of the metadata; "" where none is named
    /// The first element of virtguard's metadata that means nothing, as it can be shown: a misspelt
    /// name, perhaps. "" where there is none.
    std::string unknown_metadata;

    std::vector<VcpuGroup> vcpus; ///< no two of equal cpus
    std::vector<MemoryPart> memory;
    /// <currentMemory> in bytes, at most the sum of the parts' sizes; that sum where absent.
    std::int64_t current_memory = 0;

    bool locked = false;       ///< <memoryBacking><locked/>
    bool preallocated = false; ///< <allocation mode='immediate'/>
    bool confidential = false; ///< <launchSecurity> of SEV, SEV-SNP, TDX: memory cannot be paged
    bool file_backed = false;  ///< base pages come from a file (<source type='file'>, or only
                               ///< <access mode='shared'/>)
    std::int64_t vfio_devices = 0; ///< VFIO and vDPA devices, wherever in the XML they stand
    std::int64_t iothreads = 0;
    std::int64_t video_ram = 0; ///< bytes, of all video devices; libvirt's defaults where not given
    bool tpm = false;           ///< an emulated TPM
    std::vector<Disk> disks;    ///< those that may grow, each image once

    /// What the policy asked when the XML was read; a policy since then may ask more.
    Facts facts;

    /// The answer to a question, or that it was not asked.
    [[nodiscard]] const Fact& fact(std::string_view key) const;

    friend bool operator==(const Domain&, const Domain&) = default;
};

} // namespace virtguard::core
