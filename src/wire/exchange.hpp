// SPDX-License-Identifier: Apache-2.0
#pragma once
// One request and its reply, for virtguardctl.

#include <chrono>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "wire/protocol.hpp"

namespace virtguard::wire {

struct Reply {
    Verdict verdict = Verdict::error;
    std::string body; ///< a JSON document if done, a line if error
};

/// Waits for the reply, at most for the span given, which the request carries too.
/// Errc::unavailable when no reply could be had, Errc::limit when the body is too long to be sent.
[[nodiscard]] Result<Reply> exchange(const std::string& path, Operation operation,
                                     std::string_view body, std::chrono::milliseconds wait);

} // namespace virtguard::wire
