// SPDX-License-Identifier: Apache-2.0
#pragma once
// The two lines that tell the hook how long to wait and what to do without an answer. It must know
// while no daemon runs, so they are a file: docs/hook-protocol.md.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace virtguard::wire {

inline constexpr const char* hook_conf_path = "/var/lib/virtguard/hook.conf";

/// 1 ms to 10 minutes; libvirt holds the domain's lock for as long.
inline constexpr std::chrono::milliseconds max_hook_timeout{600'000};

struct HookConf {
    std::chrono::milliseconds timeout{2000};
    bool unavailable_denies = false; ///< unavailable=deny

    friend bool operator==(const HookConf&, const HookConf&) = default;
};

/// Nothing for anything but exactly those two lines.
[[nodiscard]] std::optional<HookConf> parse_hook_conf(std::string_view text) noexcept;

/// The defaults where the file is missing or is not exactly those two lines. No heap.
[[nodiscard]] HookConf read_hook_conf(const char* path) noexcept;

/// Replaces the file in one step, durably. It waits for the disk: not for a thread that answers.
[[nodiscard]] Result<> write_hook_conf(const std::string& path, const HookConf& conf);

} // namespace virtguard::wire
