// SPDX-License-Identifier: Apache-2.0
#pragma once
// The keys of virtguard.toml. Paths are spelled with dots; a part in angle brackets stands for any
// name of its kind: "reserve.node.<node>.memory".

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/policy.hpp"
#include "policy/values.hpp"

namespace virtguard::policy {

/// What stood for the parts in angle brackets, each set by the time a key below it is.
struct Names {
    core::Resource resource;    ///< <resource>, <custom>
    int node = 0;               ///< <node>
    std::int64_t page_size = 0; ///< <page-size>, bytes
    std::string scheduler;      ///< <scheduler>
    std::string rule;           ///< <rule>
    std::string prefix;         ///< <prefix>
};

struct Key {
    std::string_view path;
    Result<> (*set)(core::Policy& policy, const Names& names, const Value& value);
};

[[nodiscard]] std::span<const Key> keys();

/// Nothing where the path is not that of a key.
[[nodiscard]] const Key* find_key(std::string_view path);

/// The different parts that may follow the path of a table ("" is the file itself), in the order of
/// keys(). Empty where that is no table.
[[nodiscard]] std::vector<std::string_view> parts_below(std::string_view table);

/// Reads what stands for a part in angle brackets into its member of names, and gives its one
/// canonical spelling.
[[nodiscard]] Result<std::string> read_part(std::string_view placeholder, std::string_view text,
                                            Names& names);

/// Does what the mere presence of a table says, also of an empty one; whether that changed the
/// policy.
bool enter_table(std::string_view path, core::Policy& policy, const Names& names);

} // namespace virtguard::policy
