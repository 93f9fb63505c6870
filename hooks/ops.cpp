// SPDX-License-Identifier: Apache-2.0
#include "hooks/ops.hpp"

#include <algorithm>
#include <utility>

#include "base/utf8.hpp"

namespace virtguard::hooks {

namespace {

using wire::Operation;

struct Row {
    std::string_view operation;
    std::string_view sub_operation;
    Step step;
};

/// All that is not here is nothing to us. migrate and restore must stay out: their XML holds
/// passwords, and what a hook prints for them replaces the guest's XML.
constexpr std::array<Row, 4> rows{{
    {"prepare", "begin", {Action::ask, Operation::prepare}},
    {"started", "begin", {Action::tell, Operation::started}},
    {"release", "end", {Action::tell, Operation::release}},
    {"reconnect", "begin", {Action::tell, Operation::reconnect}},
}};

constexpr std::size_t max_name = 120;

/// \xNN
std::array<char, 4> escaped(char byte) noexcept {
    constexpr const char* digits = "0123456789abcdef";
    const auto value = static_cast<unsigned char>(byte);
    return {'\\', 'x', digits[value >> 4], digits[value & 0xf]};
}

} // namespace

Step step_for(std::string_view operation, std::string_view sub_operation) noexcept {
    for (const Row& row : rows) {
        if (row.operation == operation && row.sub_operation == sub_operation)
            return row.step;
    }
    return {};
}

bool Line::append_whole(std::string_view piece) noexcept {
    if (piece.size() > bytes_.size() - size_)
        return false;
    size_ += piece.copy(bytes_.data() + size_, piece.size());
    return true;
}

Line& Line::append(std::string_view text) noexcept {
    while (!text.empty()) {
        const std::size_t length = line_character_length(text);
        const auto code = escaped(text.front());
        const bool fits = length > 0 ? append_whole({text.data(), length})
                                     : append_whole({code.data(), code.size()});
        if (!fits)
            break;
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return *this;
}

Line& Line::append_name(std::string_view name) noexcept {
    if (name.size() <= max_name)
        return append(name);
    return append({name.data(), max_name}).append("...");
}

Ending ending_for(Outcome outcome, bool unavailable_denies, std::string_view name,
                  std::string_view text) noexcept {
    Ending ending;
    switch (outcome) {
    case Outcome::admitted:
        return ending;
    case Outcome::refused:
        ending.exit_status = 1;
        if (text.empty())
            ending.error_output.append("virtguard: refused ").append_name(name);
        else
            ending.error_output.append(text);
        return ending;
    case Outcome::unanswered:
        ending.exit_status = unavailable_denies ? 1 : 0;
        Line& line = unavailable_denies ? ending.error_output : ending.journal;
        line.append(unavailable_denies ? "virtguard: refused " : "virtguard: let start unchecked ");
        line.append_name(name).append(": virtguardd did not answer (").append(text);
        line.append(unavailable_denies ? ") and hook.unavailable is \"deny\""
                                       : ") and hook.unavailable is \"allow\"");
        return ending;
    }
    std::unreachable();
}

} // namespace virtguard::hooks
