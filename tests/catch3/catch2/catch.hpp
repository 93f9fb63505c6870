// SPDX-License-Identifier: Apache-2.0
// Catch2 3 under the name that its version 2 has, which is Debian 12's.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>

namespace Catch {
inline auto Contains(const std::string& text) {
    return Matchers::ContainsSubstring(text);
}
} // namespace Catch
