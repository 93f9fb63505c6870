// SPDX-License-Identifier: Apache-2.0
#include "ctl/show.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/text.hpp"

namespace virtguard::ctl {

void print(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
}

bool flush() {
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)
        return true;
    show_error(fmt::format("standard output: {}", std::strerror(errno)));
    return false;
}

void show_error(std::string_view error) {
    // Not fmt::print(), which throws where stderr is full or closed: nobody is left to tell then,
    // and the exit status says it all the same.
    const std::string line = fmt::format("virtguardctl: {}\n", one_line(error));
    std::fwrite(line.data(), 1, line.size(), stderr);
}

int failure(const Error& error) {
    show_error(error.what);
    switch (error.code) {
    case Errc::refused:
        return exit_refused;
    case Errc::unavailable:
        return exit_unreachable;
    default:
        return exit_bad_input;
    }
}

} // namespace virtguard::ctl
