// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every fuzzer needs. Each defines LLVMFuzzerTestOneInput(); libFuzzer calls it with inputs it
// makes up, replay.cpp with those of the corpus.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace virtguard::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

/// What must hold for every input: ends the program where it does not, which is a finding.
inline void require(bool holds, std::string_view what,
                    std::source_location at = std::source_location::current()) {
    if (holds)
        return;
    (void)std::fprintf(stderr, "%s:%u: does not hold: %.*s\n", at.file_name(), at.line(),
                       static_cast<int>(what.size()), what.data());
    std::abort();
}

/// Text that goes to a terminal or the journal as it is.
inline void require_one_line(std::string_view text,
                             std::source_location at = std::source_location::current()) {
    constexpr unsigned char first_printable = 0x20;
    constexpr unsigned char erase = 0x7f;
    require(!text.empty(), "there is a text", at);
    for (const char letter : text)
        require(static_cast<unsigned char>(letter) >= first_printable &&
                    static_cast<unsigned char>(letter) != erase,
                "a line has no control characters", at);
}

} // namespace virtguard::fuzz
