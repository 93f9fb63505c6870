// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where text is shown: how wide that is, and whether it knows colours and blocks.

#include <cstddef>
#include <string>
#include <string_view>

namespace virtguard::ctl {

/// The default is what is no terminal: plain text, as wide as it has to be.
struct Screen {
    std::size_t width = 0; ///< columns of the terminal; 0: it is none
    bool colour = false;
    bool blocks = false; ///< it shows block characters
};

enum class ColourWish { automatic, always, never };

/// What standard output is. Automatic: colours where it is a terminal that has them and NO_COLOR is
/// not set.
[[nodiscard]] Screen standard_output(ColourWish wish);

enum class Ink { plain, good, warning, bad, faint, strong };

/// The escape sequence that begins the ink; "" of plain.
[[nodiscard]] std::string_view sequence(Ink ink);

/// The text in that ink where the screen has colours.
[[nodiscard]] std::string inked(const Screen& screen, Ink ink, std::string_view text);

/// A sentence of ASCII, broken between words where the screen ends. The first line is indented by
/// so many columns, the others by two more.
[[nodiscard]] std::string folded(const Screen& screen, std::size_t indent, std::string_view text);

} // namespace virtguard::ctl
