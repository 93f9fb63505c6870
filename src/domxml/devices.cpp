// SPDX-License-Identifier: Apache-2.0
#include "domxml/devices.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "core/domain.hpp"
#include "domxml/values.hpp"

namespace virtguard::domxml {

namespace {

/// PCI devices can be given by other drivers than VFIO only on Xen and by kernels before 3.6.
bool is_vfio_pci(Element device) {
    const std::string driver = device.child("driver").attribute("name").value_or("vfio");
    return driver == "vfio" || driver == "default";
}

bool is_vfio_hostdev(Element hostdev) {
    const std::string mode = hostdev.attribute("mode").value_or("subsystem");
    const std::string type = hostdev.attribute("type").value_or("");
    return mode == "subsystem" && (type == "mdev" || (type == "pci" && is_vfio_pci(hostdev)));
}

/// A virtual function given through VFIO, or vDPA; also one that a network of libvirt gave, which
/// the XML of a running guest has in <actual>.
bool is_vfio_interface(Element interface) {
    const std::string type = interface.attribute("type").value_or("");
    if (type == "network" && interface.child("actual"))
        return is_vfio_interface(interface.child("actual"));
    return type == "vdpa" || (type == "hostdev" && is_vfio_pci(interface));
}

/// NVMe controllers that QEMU drives through VFIO, anywhere in the chain of images; vDPA disks.
bool is_vfio_disk(Element disk) {
    for (Element image = disk; image; image = image.child("backingStore")) {
        const auto type = image.attribute("type");
        if (type == "nvme" || type == "vhostvdpa")
            return true;
    }
    return false;
}

/// Nothing for one that is neither in a file nor a volume of a pool: of those only libvirt knows
/// where they are. Of a chain of images the first.
std::optional<core::Disk> read_disk(Element disk) {
    const Element source = disk.child("source");
    const std::string type = disk.attribute("type").value_or("file");
    std::string path = type == "file" ? source.attribute("file").value_or("") : "";
    if (type == "volume")
        path = fmt::format("volume {} of pool {}", source.attribute("volume").value_or(""),
                           source.attribute("pool").value_or(""));
    if (path.empty())
        return std::nullopt;
    // libvirt adds this to the name of the file it makes, which stands in the XML once it runs.
    const bool has_begun = path.contains(".TRANSIENT");
    return core::Disk{.image = {.path = std::move(path),
                                .format = disk.child("driver").attribute("type").value_or("raw")},
                      .begins_anew = static_cast<bool>(disk.child("transient")) && !has_begun};
}

/// The file that a disk is being copied to.
std::optional<core::Disk> read_mirror(Element disk) {
    const Element mirror = disk.child("mirror");
    std::string path = mirror.child("source").attribute("file").value_or("");
    if (path.empty())
        return std::nullopt;
    return core::Disk{
        .image = {.path = std::move(path),
                  .format = mirror.child("format").attribute("type").value_or("raw")}};
}

/// Disks that are written to, by the guest or by a copy of one.
std::vector<core::Disk> read_written(Element disk) {
    std::vector<core::Disk> result;
    if (disk.attribute("device").value_or("disk") != "disk" || disk.child("readonly"))
        return result;
    for (const auto& each : {read_disk(disk), read_mirror(disk)})
        if (each)
            result.push_back(*each);
    return result;
}

Result<std::vector<core::Disk>> read_disks(Element root) {
    std::vector<core::Disk> result;
    for (const Element devices : root.children("devices")) {
        for (const Element element : devices.children("disk")) {
            std::ranges::move(read_written(element), std::back_inserter(result));
            if (result.size() > core::max_disks)
                return element.invalid("<disk>: more than {} in files", core::max_disks);
        }
    }
    std::ranges::stable_sort(result, {}, &core::Disk::image);
    const auto again = std::ranges::unique(result, {}, &core::Disk::image);
    result.erase(again.begin(), again.end());
    return result;
}

/// What libvirt takes for a <video> that names no model.
std::string_view default_model(Element root) {
    constexpr std::array<std::string_view, 3> without_vga{"aarch64", "armv7l", "armv6l"};
    const std::string arch = root.child("os").child("type").attribute("arch").value_or("");
    const bool is_virtio = arch.starts_with("riscv") || arch.starts_with("s390") ||
                           arch.starts_with("loongarch") ||
                           std::ranges::find(without_vga, arch) != without_vga.end();
    return is_virtio ? "virtio" : "vga";
}

/// KiB of the model's main video memory where the XML gives none (virDomainVideoDefaultRAM()).
/// Models that use guest RAM or memory of their own making (virtio, ramfb, …) have none.
std::int64_t default_vram(std::string_view model) {
    if (model == "qxl")
        return 65536;
    if (model == "xen")
        return 4096;
    constexpr std::array<std::string_view, 4> plain{"vga", "cirrus", "vmvga", "bochs"};
    return std::ranges::find(plain, model) != plain.end() ? 16384 : 0;
}

/// The attribute in KiB; the fallback where it is absent or 0.
Result<std::int64_t> kib_attribute(Element model, std::string_view name, std::int64_t fallback) {
    const auto given = number_attribute(model, name);
    if (!given)
        return std::unexpected(given.error());
    return given->value_or(0) > 0 ? std::int64_t{**given} : fallback;
}

std::int64_t power_of_two(std::int64_t kib) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(kib)));
}

/// Bytes of one video device: vram, and of qxl also ram and vgamem, as given or by default; ram and
/// vram rounded up to a power of two as libvirt does. Of vram and vram64 the larger: they are two
/// windows on one memory. Heads share it.
Result<std::int64_t> read_video(Element video, std::string_view absent_model) {
    const Element element = video.child("model");
    const std::string model = element.attribute("type").value_or(std::string(absent_model));
    if (model == "none")
        return 0;
    const bool is_qxl = model == "qxl";
    const auto vram = kib_attribute(element, "vram", default_vram(model));
    if (!vram)
        return vram;
    const auto vram64 = kib_attribute(element, "vram64", 0);
    if (!vram64)
        return vram64;
    const auto ram = kib_attribute(element, "ram", is_qxl ? 65536 : 0);
    if (!ram)
        return ram;
    const auto vgamem = kib_attribute(element, "vgamem", is_qxl ? 16384 : 0);
    if (!vgamem)
        return vgamem;
    const std::int64_t window = std::max(*vram == 0 ? 0 : power_of_two(*vram), *vram64);
    return (window + (*ram == 0 ? 0 : power_of_two(*ram)) + *vgamem) * 1024;
}

/// Bytes of all video devices. One that has none but a screen to show it on gets one from libvirt.
Result<std::int64_t> read_videos(Element root) {
    std::int64_t sum = 0;
    bool has_video = false;
    bool has_graphics = false;
    const std::string_view model = default_model(root); // once: it searches all of the root
    for (const Element devices : root.children("devices")) {
        has_graphics |= static_cast<bool>(devices.child("graphics"));
        for (const Element video : devices.children("video")) {
            has_video = true;
            const auto bytes = read_video(video, model);
            if (!bytes)
                return bytes;
            sum += *bytes; // at most 2^45 each, and stopped above 2^52
            if (sum > core::max_domain_bytes)
                return video.invalid("<video>: more memory than any guest can have");
        }
    }
    if (!has_video && has_graphics)
        return default_vram(model) * 1024;
    return sum;
}

} // namespace

Result<Devices> read_devices(Element root) {
    Devices result;
    for (const Element devices : root.children("devices")) {
        for (const Element device : devices.children()) {
            const bool is_vfio = (device.is("hostdev") && is_vfio_hostdev(device)) ||
                                 (device.is("interface") && is_vfio_interface(device)) ||
                                 (device.is("disk") && is_vfio_disk(device));
            result.vfio += is_vfio ? 1 : 0;
            if (device.is("tpm"))
                result.tpm |= device.child("backend").attribute("type") == "emulator";
        }
    }
    const auto video_ram = read_videos(root);
    if (!video_ram)
        return std::unexpected(video_ram.error());
    result.video_ram = *video_ram;
    auto disks = read_disks(root);
    if (!disks)
        return std::unexpected(disks.error());
    result.disks = *std::move(disks);
    return result;
}

} // namespace virtguard::domxml
