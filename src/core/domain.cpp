// SPDX-License-Identifier: Apache-2.0
#include "core/domain.hpp"

namespace virtguard::core {

const Fact& Domain::fact(std::string_view key) const {
    static const Fact not_asked{.problem = "was not asked yet of this domain"};
    const auto found = facts.find(key);
    return found == facts.end() ? not_asked : found->second;
}

} // namespace virtguard::core
