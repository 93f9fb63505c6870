// SPDX-License-Identifier: Apache-2.0
#pragma once
// Owners of libvirt's objects. Internal: other folders must not see libvirt's types.

#include <cstdlib>
#include <string_view>

#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/unique.hpp"

namespace virtguard::virt {

using ConnectPtr = CPtr<virConnect, virConnectClose>;
using DomainPtr = CPtr<virDomain, virDomainFree>;
using TextPtr = CPtr<char, std::free>;

/// What libvirt said last on this thread: "where: what".
[[nodiscard]] inline Error last_error(std::string_view where) {
    return {Errc::unavailable, fmt::format("{}: {}", where, printable(virGetLastErrorMessage()))};
}

} // namespace virtguard::virt
