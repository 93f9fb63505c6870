// SPDX-License-Identifier: Apache-2.0
#pragma once
// Images of guests' disks, what they may still grow, and the file systems they are on.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace virtguard::core {

/// No image is larger than this in bytes, whatever its header says: 4 PiB, and sums over all disks
/// of thousands of guests fit into what they are kept in.
inline constexpr std::int64_t max_image_bytes = std::int64_t{1} << 52;

/// Disks of one domain that may grow. QEMU gives out far fewer.
inline constexpr std::size_t max_disks = 4096;

/// The file of an image, and how it is to be read.
struct ImageName {
    std::string path;   ///< as the XML has it; of a volume of a pool no path
    std::string format; ///< of <driver type>: "qcow2"

    friend auto operator<=>(const ImageName&, const ImageName&) = default;
};

/// A disk in a file that its guest may write to, or that a disk of it is copied to.
struct Disk {
    ImageName image;
    /// It will write to a file yet to be made beside the image, which stays as it is: <transient/>.
    bool begins_anew = false;

    friend bool operator==(const Disk&, const Disk&) = default;
};

struct Image {
    std::uint64_t device = 0;      ///< of the file system: stat's st_dev
    std::int64_t virtual_size = 0; ///< bytes that the guest sees
    std::int64_t allocated = 0; ///< bytes of the file's blocks; of those that may be written again

    friend bool operator==(const Image&, const Image&) = default;
};

/// Bytes that a disk may still take of its file system.
[[nodiscard]] std::int64_t growth_of(const Disk& disk, const Image& image);

struct KnownImage {
    std::optional<Image> image; ///< as it was when it was last read
    std::string problem;        ///< why it could not be read now, one line; "" where it was

    friend bool operator==(const KnownImage&, const KnownImage&) = default;
};
using Images = std::map<ImageName, KnownImage>;

struct FileSystem {
    std::string path;          ///< of the policy's, the first that is on it
    std::uint64_t device = 0;  ///< stat's st_dev
    std::int64_t capacity = 0; ///< bytes
    std::int64_t used = 0;     ///< bytes of them that are not to be had, whoever has them
};

/// Those of storage.paths.
struct FileSystems {
    std::map<int, FileSystem> read;  ///< by place: the number of its path
    std::vector<std::string> unread; ///< paths of which it is not known yet on which they are

    [[nodiscard]] bool any() const { return !read.empty() || !unread.empty(); }
    /// The place of a device; nothing where it is none of those that were read.
    [[nodiscard]] std::optional<int> place_of(std::uint64_t device) const;
    /// The same but for how large they are and what is used.
    [[nodiscard]] bool is_like(const FileSystems& other) const;
};

} // namespace virtguard::core
