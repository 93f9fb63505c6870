// SPDX-License-Identifier: Apache-2.0
#include "core/storage.hpp"

#include <algorithm>

namespace virtguard::core {

std::int64_t growth_of(const Disk& disk, const Image& image) {
    const std::int64_t taken = disk.begins_anew ? 0 : image.allocated;
    return std::max<std::int64_t>(image.virtual_size - taken, 0);
}

std::optional<int> FileSystems::place_of(std::uint64_t device) const {
    for (const auto& [place, each] : read)
        if (each.device == device)
            return place;
    return std::nullopt;
}

bool FileSystems::is_like(const FileSystems& other) const {
    return unread == other.unread &&
           std::ranges::equal(read, other.read, [](const auto& a, const auto& b) {
               return a.first == b.first && a.second.path == b.second.path &&
                      a.second.device == b.second.device;
           });
}

} // namespace virtguard::core
