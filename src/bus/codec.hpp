// SPDX-License-Identifier: Apache-2.0
#pragma once
// Values as D-Bus has them: a signature for each type, and a function that appends it to a message.
// What append() returns is sd-bus's: negative is an errno.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/instant.hpp"
#include "base/ratio.hpp"
#include "core/decision.hpp"
#include "core/report.hpp"
#include "core/resource.hpp"

struct sd_bus_message;

namespace virtguard::bus {

template <class T>
inline constexpr const char* signature = nullptr;
template <>
inline constexpr const char* signature<std::string> = "s";
template <>
inline constexpr const char* signature<std::uint32_t> = "u";
template <>
inline constexpr const char* signature<std::uint64_t> = "t";
/// Microseconds; 0 for none.
template <>
inline constexpr const char* signature<std::optional<WallTime>> = "t";
template <>
inline constexpr const char* signature<std::vector<std::string>> = "as";
template <>
inline constexpr const char* signature<std::vector<core::Resource>> = "as";
template <>
inline constexpr const char* signature<core::Quantities> = "a{sx}";
template <>
inline constexpr const char* signature<core::ShownAmounts> = "a{sx}";
template <>
inline constexpr const char* signature<std::map<core::Resource, Ratio>> = "a{ss}";
template <>
inline constexpr const char* signature<std::vector<core::ShownPiece>> = "a(sxsb)";
template <>
inline constexpr const char* signature<std::vector<core::Reason>> = "a(sssxxxss)";

/// Bytes that are no UTF-8, which a bus does not take, become U+FFFD.
int append(sd_bus_message* message, const std::string& text);
int append(sd_bus_message* message, std::uint32_t number);
int append(sd_bus_message* message, std::uint64_t number);
int append(sd_bus_message* message, const std::optional<WallTime>& time);
int append(sd_bus_message* message, const std::vector<std::string>& texts);
int append(sd_bus_message* message, const std::vector<core::Resource>& resources);
int append(sd_bus_message* message, const core::Quantities& amounts);
int append(sd_bus_message* message, const core::ShownAmounts& amounts);
int append(sd_bus_message* message, const std::map<core::Resource, Ratio>& ratios);
int append(sd_bus_message* message, const std::vector<core::ShownPiece>& pieces);
int append(sd_bus_message* message, const std::vector<core::Reason>& reasons);

/// The text with each byte that is no part of a UTF-8 character replaced by U+FFFD, and ended
/// before its first NUL.
[[nodiscard]] std::string valid_utf8(std::string_view text);

/// Without zeros, as a demand is shown.
[[nodiscard]] core::Quantities without_zeros(const core::Quantities& amounts);

} // namespace virtguard::bus
