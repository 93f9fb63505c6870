// SPDX-License-Identifier: Apache-2.0
#pragma once
// Domains for tests: the least that libvirt takes, with what a test is about put in.

#include <string>
#include <string_view>

#include <catch2/catch.hpp>

#include "domxml/parse.hpp"

namespace virtguard::domxml {

inline constexpr std::int64_t kib = 1024;
inline constexpr std::int64_t mib = 1024 * kib;
inline constexpr std::int64_t gib = 1024 * mib;

/// A domain of that content and a name; on line 2 begins the content.
inline std::string domain_of(std::string_view content) {
    return fmt::format("<domain type='kvm'><name>web-3</name>\n{}</domain>", content);
}

/// A domain with 1 GiB of memory, unless the content says otherwise.
inline std::string guest_of(std::string_view content) {
    return domain_of(fmt::format("{}<memory>1048576</memory>", content));
}

inline core::Domain parsed(const std::string& xml) {
    const auto domain = parse_domain(xml);
    INFO(xml);
    if (!domain)
        FAIL(domain.error().what);
    return *domain;
}

inline Error refused(const std::string& xml) {
    const auto domain = parse_domain(xml);
    INFO(xml);
    REQUIRE_FALSE(domain);
    return domain.error();
}

/// The whole text; the code must be Errc::invalid.
inline std::string invalid(const std::string& xml) {
    const Error error = refused(xml);
    CHECK(error.code == Errc::invalid);
    return error.what;
}

} // namespace virtguard::domxml
