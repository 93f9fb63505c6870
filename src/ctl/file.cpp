// SPDX-License-Identifier: Apache-2.0
#include "ctl/file.hpp"

#include <unistd.h>

#include "base/file.hpp"

namespace virtguard::ctl {

Result<std::string> read_input(const std::string& path, std::size_t limit) {
    return path == "-" ? read_to_end(STDIN_FILENO, path, limit) : read_stream(path, limit);
}

} // namespace virtguard::ctl
