// SPDX-License-Identifier: Apache-2.0
#pragma once
// virtguard.toml(5): files into a core::Policy. The XML of domains is nothing to it, nor is the
// host.

#include <cstddef>
#include <expected>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/policy.hpp"

namespace virtguard::policy {

/// Policy files are written by hand and by packages; the real ones have a hundred lines.
inline constexpr std::size_t max_file_bytes = std::size_t{1} << 20;
inline constexpr std::size_t max_files = 256;

struct PolicyText {
    std::string file; ///< as it is shown in errors and origins
    std::string text;
};

/// Files before anybody has understood them.
struct PolicyFiles {
    std::vector<PolicyText> texts{};
    std::vector<std::string> unreadable{}; ///< what could not be read, and why, a line each
    bool is_there = true; ///< a file or conf.d; else a directory has nothing of a policy
};

/// What load_directory() and load_file() load.
[[nodiscard]] PolicyFiles read_directory(const std::filesystem::path& directory);
[[nodiscard]] PolicyFiles read_one_file(const std::filesystem::path& file);

/// The policy, or everything that is wrong with it, a line each, in the order of the files:
/// "FILE:LINE:COL: key: what is wrong: expected ...".
using Loaded = std::expected<core::Policy, std::vector<std::string>>;

/// The defaults, changed by each text in turn: tables merge, values replace. To the policy its
/// questions are text; `check` says what is wrong with them.
[[nodiscard]] Loaded load(std::span<const PolicyText> texts, const core::QuestionCheck& check = {});

/// The same of what was read; what was not is an error of it.
[[nodiscard]] Loaded load(PolicyFiles files, const core::QuestionCheck& check = {});

/// DIRECTORY/virtguard.toml, then DIRECTORY/conf.d/*.toml in the order of their names' bytes, but
/// for hidden files and what dpkg and editors leave behind. The directory must be there; in it,
/// what is absent is left out (nothing at all: the defaults), and what cannot be read is an error.
[[nodiscard]] Loaded load_directory(const std::filesystem::path& directory,
                                    const core::QuestionCheck& check = {});

/// This one file, which must be there. It may be a pipe.
[[nodiscard]] Loaded load_file(const std::filesystem::path& file,
                               const core::QuestionCheck& check = {});

} // namespace virtguard::policy
