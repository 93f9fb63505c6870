// SPDX-License-Identifier: Apache-2.0
#pragma once
// The questions of the policy in force, for all threads that read XML.

#include <memory>
#include <mutex>
#include <utility>

#include "core/question.hpp"

namespace virtguard::daemon {

class SharedQuestions {
  public:
    void set(core::Questions questions) {
        auto fresh = std::make_shared<const core::Questions>(std::move(questions));
        const std::lock_guard lock(mutex_);
        questions_ = std::move(fresh);
    }
    [[nodiscard]] std::shared_ptr<const core::Questions> get() const {
        const std::lock_guard lock(mutex_);
        return questions_;
    }

  private:
    mutable std::mutex mutex_; ///< held for the time it takes to copy a pointer
    std::shared_ptr<const core::Questions> questions_ = std::make_shared<core::Questions>();
};

} // namespace virtguard::daemon
