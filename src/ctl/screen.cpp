// SPDX-License-Identifier: Apache-2.0
#include "ctl/screen.hpp"

#include <clocale>
#include <cstdlib>
#include <utility>

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/text.hpp"

namespace virtguard::ctl {

namespace {

std::string_view environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

/// Terminals that do not know (serial consoles) say 0, and the shell may know better.
std::size_t terminal_width() {
    constexpr std::size_t usual = 80;
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    const auto columns = parse_unsigned(environment("COLUMNS")).value_or(usual);
    return columns == 0 ? usual : columns;
}

} // namespace

Screen standard_output(ColourWish wish) {
    const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
    Screen screen{.colour = wish == ColourWish::always};
    if (wish == ColourWish::automatic)
        screen.colour = is_terminal && environment("NO_COLOR").empty() &&
                        environment("TERM") != "dumb" && !environment("TERM").empty();
    // Of the locale only the character set, which tables measure text by.
    std::setlocale(LC_CTYPE, "");
    if (!is_terminal)
        return screen;
    screen.width = terminal_width();
    screen.blocks = std::string_view(::nl_langinfo(CODESET)) == "UTF-8";
    return screen;
}

std::string_view sequence(Ink ink) {
    switch (ink) {
    case Ink::plain:
        return "";
    case Ink::good:
        return "\x1b[32m";
    case Ink::warning:
        return "\x1b[33m";
    case Ink::bad:
        return "\x1b[31m";
    case Ink::faint:
        return "\x1b[2m";
    case Ink::strong:
        return "\x1b[1m";
    }
    std::unreachable();
}

std::string inked(const Screen& screen, Ink ink, std::string_view text) {
    if (!screen.colour || ink == Ink::plain)
        return std::string(text);
    return fmt::format("{}{}\x1b[0m", sequence(ink), text);
}

std::string folded(const Screen& screen, std::size_t indent, std::string_view text) {
    std::string result(indent, ' ');
    std::size_t left = screen.width > indent ? screen.width - indent : 0;
    while (screen.width > 0 && text.size() > left) {
        const std::size_t space = text.rfind(' ', left);
        if (space == std::string_view::npos)
            break; // a word as wide as the screen: the terminal breaks it
        result += fmt::format("{}\n{:{}}", text.substr(0, space), "", indent + 2);
        text.remove_prefix(space + 1);
        left = screen.width > indent + 2 ? screen.width - indent - 2 : 0;
    }
    return result += text;
}

} // namespace virtguard::ctl
