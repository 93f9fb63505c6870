// SPDX-License-Identifier: Apache-2.0
#pragma once
// How long to wait before the next attempt.

#include <algorithm>
#include <chrono>
#include <utility>

namespace virtguard::virt {

/// Doubles from the first wait up to the last, until reset.
class Backoff {
  public:
    Backoff(std::chrono::milliseconds first, std::chrono::milliseconds last)
        : first_(first), last_(last), next_(first) {}

    [[nodiscard]] std::chrono::milliseconds next() {
        return std::exchange(next_, std::min(next_ * 2, last_));
    }
    void reset() { next_ = first_; }

  private:
    std::chrono::milliseconds first_;
    std::chrono::milliseconds last_;
    std::chrono::milliseconds next_;
};

} // namespace virtguard::virt
