// SPDX-License-Identifier: Apache-2.0
#pragma once
// Other hooks grow and shrink hugepage pools, so the kernel's counters are read whenever they
// matter.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "core/guard.hpp"

namespace virtguard::daemon {

/// Keeps the guard's pools, and what is in use of them, as the kernel has them.
class HugepagePools {
  public:
    /// root: "/" but for tests; nothing: the guard's topology is another machine's, and its pools
    /// stay as they are. `changed` runs when they, or problem(), may have changed. The guard must
    /// outlive this.
    HugepagePools(core::Guard& guard, std::optional<std::filesystem::path> root,
                  std::function<void()> changed)
        : guard_(guard), root_(std::move(root)), changed_(std::move(changed)) {}

    void read_again(core::ForeignPages::Seen seen = core::ForeignPages::Seen::before);

    /// Why they could not be read the last time, when the guard goes on with what it had; else "".
    [[nodiscard]] const std::string& problem() const { return problem_; }

  private:
    core::Guard& guard_;
    std::optional<std::filesystem::path> root_;
    std::function<void()> changed_;
    std::string problem_;
};

} // namespace virtguard::daemon
