// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is set while virtguardd runs, in place of what the policy's files say, until it is reset.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "base/ratio.hpp"
#include "core/policy.hpp"
#include "core/resource.hpp"

namespace virtguard::core {

/// Who set something, and when.
struct Setter {
    WallTime time;
    std::uint32_t uid = 0;
    std::string user; ///< "" where no name of that user is known

    friend bool operator==(const Setter&, const Setter&) = default;
};

/// The user's name, or "uid 1000".
[[nodiscard]] std::string user_text(const Setter& setter);
/// "run time by root at 2026-11-30 16:19:09 UTC"
[[nodiscard]] std::string origin_text(const Setter& setter);

struct RunTimeRatio {
    Ratio ratio;
    Setter by;

    friend bool operator==(const RunTimeRatio&, const RunTimeRatio&) = default;
};

struct RunTimeMode {
    std::optional<Mode> mode; ///< nothing: maintenance
    std::string message;      ///< of maintenance
    Setter by;

    friend bool operator==(const RunTimeMode&, const RunTimeMode&) = default;
};

struct RunTime {
    std::map<Resource, RunTimeRatio> overcommit;
    std::optional<RunTimeMode> mode;

    friend bool operator==(const RunTime&, const RunTime&) = default;
};

/// The policy of the files, with what is set at run time in its place.
[[nodiscard]] Policy in_force(Policy files, const RunTime& run_time);

struct SetOvercommit {
    Resource resource; ///< of hugepages 1 is no error, as in a file, and changes nothing
    Ratio ratio;

    friend bool operator==(const SetOvercommit&, const SetOvercommit&) = default;
};
struct ResetOvercommit {
    std::optional<Resource> resource; ///< nothing: all that are set

    friend bool operator==(const ResetOvercommit&, const ResetOvercommit&) = default;
};
struct SetMode {
    std::optional<Mode> mode; ///< nothing: maintenance
    std::string message;      ///< of maintenance

    friend bool operator==(const SetMode&, const SetMode&) = default;
};
struct ResetMode {
    friend bool operator==(const ResetMode&, const ResetMode&) = default;
};
/// What those who may can have done.
using Order = std::variant<SetOvercommit, ResetOvercommit, SetMode, ResetMode>;

/// Orders from words. Errors say what was expected; whether a custom resource is declared is for
/// the policy in force to say.
[[nodiscard]] Result<Order> read_set_overcommit(std::string_view resource, std::string_view ratio);
/// "": all resources.
[[nodiscard]] Result<Order> read_reset_overcommit(std::string_view resource);

/// Of maintenance; bytes. In a refusal of 2,000 bytes there is room for other reasons beside it.
inline constexpr std::size_t max_message = 500;
/// "enforce", "observe", "off", "maintenance", or "reset", which is as the files say. A message, of
/// one line, is of maintenance only.
[[nodiscard]] Result<Order> read_set_mode(std::string_view mode, std::string_view message);

/// "overcommit.cpu = 1.5", "overcommit.cpu as in the files"
[[nodiscard]] std::string order_text(const Order& order);

/// What is set when the order has been carried out.
[[nodiscard]] RunTime carried_out(RunTime before, const Order& order, const Setter& by);

} // namespace virtguard::core
