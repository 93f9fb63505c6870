// SPDX-License-Identifier: Apache-2.0
//
// The formats by QEMU's block/*.c and, of qcow2, docs/interop/qcow2.txt.
#include "image/header.hpp"

#include <algorithm>
#include <concepts>
#include <limits>
#include <string>

#include "base/checked.hpp"
#include "base/text.hpp"

namespace virtguard::image {

namespace {

using namespace std::string_view_literals;

constexpr std::uint64_t sector = 512;

/// Numbers at an offset that the header is long enough for.
template <std::unsigned_integral T>
T big(std::string_view header, std::size_t offset) {
    T value = 0;
    for (const char byte : header.substr(offset, sizeof(T)))
        value = static_cast<T>(value << 8 | static_cast<unsigned char>(byte));
    return value;
}
template <std::unsigned_integral T>
T little(std::string_view header, std::size_t offset) {
    std::string bytes(header.substr(offset, sizeof(T)));
    std::ranges::reverse(bytes);
    return big<T>(bytes, 0);
}

std::unexpected<Error> not_of(std::string_view format) {
    return fail(Errc::invalid, "it is no {} image", format);
}

std::uint64_t in_sectors(std::uint64_t count) {
    return checked_multiply(count, sector).value_or(std::numeric_limits<std::uint64_t>::max());
}

constexpr std::string_view qcow_magic = "QFI\xfb";
constexpr std::size_t qcow_version = 4;
constexpr std::size_t qcow_size = 24; ///< the same in all versions

Result<std::uint64_t> qcow_virtual_size(std::string_view header) {
    if (!header.starts_with(qcow_magic) || big<std::uint32_t>(header, qcow_version) != 1)
        return not_of("qcow");
    return big<std::uint64_t>(header, qcow_size);
}

Result<std::uint64_t> qcow2_virtual_size(std::string_view header) {
    constexpr std::size_t incompatible_features = 72;
    constexpr std::uint64_t external_data_file = 1U << 2;
    if (!header.starts_with(qcow_magic))
        return not_of("qcow2");
    const auto version = big<std::uint32_t>(header, qcow_version);
    if (version != 2 && version != 3)
        return fail(Errc::invalid, "it is qcow of version {}: expected 2 or 3", version);
    // Another file grows then, which the XML may not name.
    if (version == 3 &&
        (big<std::uint64_t>(header, incompatible_features) & external_data_file) != 0)
        return fail(Errc::invalid, "its data is in a file of its own");
    return big<std::uint64_t>(header, qcow_size);
}

bool qcow_has_snapshots(std::string_view header) {
    constexpr std::size_t count = 60; ///< the same in versions 2 and 3
    return big<std::uint32_t>(header, count) > 0;
}

Result<std::uint64_t> qed_virtual_size(std::string_view header) {
    constexpr std::size_t size = 48;
    if (!header.starts_with("QED\0"sv))
        return not_of("qed");
    return little<std::uint64_t>(header, size);
}

Result<std::uint64_t> vmdk_virtual_size(std::string_view header) {
    constexpr std::size_t size = 12;
    if (header.starts_with("KDMV"))
        return in_sectors(little<std::uint64_t>(header, size));
    if (header.starts_with("COWD"))
        return in_sectors(little<std::uint32_t>(header, size));
    if (header.starts_with("# Disk DescriptorFile"))
        return fail(Errc::invalid, "its data is in files of their own");
    return not_of("vmdk");
}

Result<std::uint64_t> vdi_virtual_size(std::string_view header) {
    constexpr std::size_t signature = 64;
    constexpr std::size_t size = 368;
    if (little<std::uint32_t>(header, signature) != 0xbeda107f)
        return not_of("vdi");
    return little<std::uint64_t>(header, size);
}

/// Of a fixed one the first bytes are the guest's; the last are the footer of every kind.
Result<std::uint64_t> vpc_virtual_size(std::string_view footer) {
    constexpr std::size_t size = 48;
    if (!footer.starts_with("conectix"))
        return not_of("vpc");
    return big<std::uint64_t>(footer, size);
}

constexpr Format formats[] = {
    {"raw"},
    {"iso"}, ///< libvirt's other word for raw
    {"qcow", Where::first, 32, qcow_virtual_size},
    {"qcow2", Where::first, 80, qcow2_virtual_size, qcow_has_snapshots},
    {"qed", Where::first, 56, qed_virtual_size},
    {"vmdk", Where::first, 21, vmdk_virtual_size},
    {"vdi", Where::first, 376, vdi_virtual_size},
    {"vpc", Where::last, max_header_bytes, vpc_virtual_size},
};

} // namespace

const Format* find_format(std::string_view name) {
    const auto* found = std::ranges::find(formats, name, &Format::name);
    return found == std::end(formats) ? nullptr : found;
}

} // namespace virtguard::image
