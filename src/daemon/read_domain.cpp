// SPDX-License-Identifier: Apache-2.0
#include "daemon/read_domain.hpp"

#include <utility>

#include "domxml/parse.hpp"

namespace virtguard::daemon {

ReadDomain read_domain(std::string_view xml, const core::Questions& questions) {
    ReadDomain read{.domain = domxml::parse_domain(xml, questions)};
    if (!read.domain && read.domain.error().code == Errc::invalid)
        read.identity = domxml::parse_identity(xml, questions);
    return read;
}

} // namespace virtguard::daemon
