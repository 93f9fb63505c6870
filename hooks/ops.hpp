// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the hook does for each operation of libvirt, and how it ends. Pure, and without heap.

#include <array>
#include <cstddef>
#include <string_view>

#include "wire/protocol.hpp"

namespace virtguard::hooks {

enum class Action {
    nothing, ///< also for whatever libvirt may yet invent
    ask,
    tell,
};

struct Step {
    Action action = Action::nothing;
    wire::Operation operation = wire::Operation::prepare; ///< of ask and tell

    friend bool operator==(const Step&, const Step&) = default;
};

/// For argv[2] and argv[3].
[[nodiscard]] Step step_for(std::string_view operation, std::string_view sub_operation) noexcept;

/// One line of text: no control characters, well-formed UTF-8, at most wire::max_line bytes; what
/// does not fit is dropped.
class Line {
  public:
    /// Bytes that may not stand in the line are shown as \xNN.
    Line& append(std::string_view text) noexcept;
    /// The same, of a name: cut after 120 bytes.
    Line& append_name(std::string_view name) noexcept;
    [[nodiscard]] std::string_view text() const noexcept { return {bytes_.data(), size_}; }

  private:
    bool append_whole(std::string_view piece) noexcept;

    std::array<char, wire::max_line> bytes_;
    std::size_t size_ = 0;
};

enum class Outcome {
    admitted,
    refused,    ///< the text is the daemon's line
    unanswered, ///< the text says why there is no answer
};

/// How an ask ends.
struct Ending {
    int exit_status = 0; ///< 0 or 1
    Line error_output;   ///< for stderr, which libvirt shows when the status is 1
    Line journal;        ///< for the journal, as libvirt drops the stderr of a hook that succeeds
};

[[nodiscard]] Ending ending_for(Outcome outcome, bool unavailable_denies, std::string_view name,
                                std::string_view text) noexcept;

} // namespace virtguard::hooks
