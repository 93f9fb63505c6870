// SPDX-License-Identifier: Apache-2.0
#include "hooks/ops.hpp"

#include <algorithm>
#include <utility>

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

/// How many bytes the UTF-8 character at the front has; 0 if none is there, or one that could
/// end or turn the line: C0, DEL, C1, and the separators and direction marks U+2028 to U+202E.
std::size_t character_length(std::string_view text) noexcept {
    const auto byte = [text](std::size_t i) -> unsigned {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
    };
    const unsigned lead = byte(0);
    if (lead < 0x80)
        return lead >= 0x20 && lead != 0x7f ? 1 : 0;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    unsigned code = lead & (0x7fU >> length);
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (byte(i) & 0x3f);
    }
    constexpr std::array<unsigned, 5> least{0, 0, 0xa0, 0x800, 0x10000};
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    const bool turns = code >= 0x2028 && code <= 0x202e;
    return code < least[length] || code > 0x10ffff || surrogate || turns ? 0 : length;
}

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
        const std::size_t length = character_length(text);
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
