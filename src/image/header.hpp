// SPDX-License-Identifier: Apache-2.0
#pragma once
// The size that a guest sees of its disk, from the header of an image. Only the header of the
// format that the XML names is ever looked for: what a guest wrote into a raw disk may look like
// any.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "base/error.hpp"

namespace virtguard::image {

/// The longest part of a file that a header is asked of, in bytes.
inline constexpr std::size_t max_header_bytes = 512;

/// Where in the file a format keeps what it says of itself.
enum class Where {
    nowhere, ///< the file is the disk
    first,   ///< its first bytes
    last,    ///< its last ones
};

struct Format {
    std::string_view name; ///< as in <driver type>
    Where where = Where::nowhere;
    std::size_t bytes = 0; ///< that are read of it, at most max_header_bytes
    /// The virtual size, of so many bytes.
    Result<std::uint64_t> (*size)(std::string_view header) = nullptr;
    /// Whether what the file has is kept for snapshots inside: all that is written takes new
    /// blocks.
    bool (*has_snapshots)(std::string_view header) = nullptr;
};

/// Nothing where the format is none that we read.
[[nodiscard]] const Format* find_format(std::string_view name);

} // namespace virtguard::image
