// SPDX-License-Identifier: Apache-2.0
#pragma once
// The XML of a start, or of what may be one.

#include <string_view>

#include "base/error.hpp"
#include "core/domain.hpp"

namespace virtguard::daemon {

struct ReadDomain {
    Result<core::Domain> domain;
    core::Domain identity{}; ///< of one that cannot be (Errc::invalid): see parse_identity()

    /// What it has to say of the questions: others may be asked by now.
    [[nodiscard]] bool answers(const core::Questions& questions) const {
        return core::answer_all(domain ? domain->facts : identity.facts, questions);
    }
};

/// With the answers to a policy's questions. Threads may call it at the same time.
[[nodiscard]] ReadDomain read_domain(std::string_view xml, const core::Questions& questions);

} // namespace virtguard::daemon
