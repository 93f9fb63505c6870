// SPDX-License-Identifier: Apache-2.0
#include "builder.hpp"

namespace virtguard::domxml {

namespace {

core::Domain with_devices(std::string_view devices) {
    return parsed(guest_of(fmt::format("<devices>{}</devices>", devices)));
}

} // namespace

TEST_CASE("VFIO and vDPA devices are found wherever they stand") {
    const auto [device, expected] = GENERATE(table<std::string, std::int64_t>({
        {"", 0},
        {"<hostdev mode='subsystem' type='pci'/>", 1},
        {"<hostdev type='pci'/>", 1},
        {"<hostdev type='pci'><driver name='vfio'/></hostdev>", 1},
        {"<hostdev type='pci'><driver model='nvme-vfio-pci'/></hostdev>", 1},
        {"<hostdev type='pci'><driver name='xen'/></hostdev>", 0},
        {"<hostdev type='pci'><driver name='kvm'/></hostdev>", 0},
        {"<hostdev mode='subsystem' type='mdev' model='vfio-pci'/>", 1},
        {"<hostdev mode='subsystem' type='usb'/>", 0},
        {"<hostdev mode='subsystem' type='scsi'/>", 0},
        {"<hostdev mode='subsystem' type='scsi_host'/>", 0},
        {"<hostdev mode='capabilities' type='storage'/>", 0},
        {"<interface type='hostdev'/>", 1},
        {"<interface type='hostdev'><driver name='kvm'/></interface>", 0},
        {"<interface type='vdpa'/>", 1},
        {"<interface type='bridge'/>", 0},
        {"<interface type='network'/>", 0},
        {"<interface type='network'><actual type='hostdev'/></interface>", 1},
        {"<interface type='network'><actual type='vdpa'/></interface>", 1},
        {"<interface type='network'><actual type='bridge'/></interface>", 0},
        {"<disk type='nvme'/>", 1},
        {"<disk type='vhostvdpa'/>", 1},
        {"<disk type='file'/>", 0},
        {"<disk type='file'><backingStore type='file'><backingStore type='nvme'/></backingStore>"
         "</disk>",
         1},
        {"<disk type='nvme'><backingStore type='nvme'/></disk>", 1},
        {"<hostdev type='pci'/><hostdev type='mdev'/><disk type='nvme'/><interface type='vdpa'/>",
         4},
        {"</devices><devices><hostdev type='pci'/>", 1},
        {"<x:hostdev xmlns:x='urn:other' type='pci'/>", 0},
    }));
    CAPTURE(device);
    CHECK(with_devices(device).vfio_devices == expected);
}

TEST_CASE("disks in files that the guest may write to may grow") {
    using Disks = std::vector<core::Disk>;
    const Disks none;
    const Disks raw{{.image = {"/a", "raw"}}};
    const auto [devices, expected] = GENERATE_REF(table<std::string, Disks>({
        {"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/a'/>"
         "</disk>",
         {{.image = {"/a", "qcow2"}}}},
        {"<disk><source file='/a'/></disk>", raw}, // libvirt's defaults
        {"<disk type='file'><driver name='qemu'/><source file='/a'/></disk>", raw},
        {"<disk type='file'><source file='/a'/><shareable/></disk>", raw},
        {"<disk type='file'><source file='/a'/><readonly/></disk>", none},
        {"<disk type='file' device='cdrom'><source file='/a'/></disk>", none},
        {"<disk type='file' device='floppy'><source file='/a'/></disk>", none},
        {"<disk type='file'><source startupPolicy='optional'/></disk>", none},
        {"<disk type='file'/>", none},
        {"<disk type='block'><source dev='/dev/vg/a'/></disk>", none},
        {"<disk type='network'><source protocol='rbd' name='pool/a'/></disk>", none},
        {"<disk type='volume'><driver type='qcow2'/><source pool='default' volume='/a'/></disk>",
         {{.image = {"volume /a of pool default", "qcow2"}}}},
        {"<disk type='volume' device='cdrom'><source pool='default' volume='a'/></disk>", none},
        // What it is copied to is written, too.
        {"<disk type='file'><source file='/a'/><mirror type='file' file='/b' format='qcow2' "
         "job='copy'><format type='qcow2'/><source file='/b'/></mirror></disk>",
         {{.image = {"/a", "raw"}}, {.image = {"/b", "qcow2"}}}},
        {"<disk type='block'><source dev='/dev/vg/a'/><mirror type='file' job='copy'>"
         "<source file='/a'/></mirror></disk>",
         raw},
        {"<disk type='file'><source file='/a'/><mirror type='block' job='copy'>"
         "<source dev='/dev/vg/a'/></mirror></disk>",
         raw},
        // Of a chain only the overlay grows.
        {"<disk type='file'><source file='/a'/><backingStore type='file'><format type='qcow2'/>"
         "<source file='/base'/></backingStore></disk>",
         raw},
        {"<disk type='file'><source file='/a'/><transient/></disk>",
         {{.image = {"/a", "raw"}, .begins_anew = true}}},
        {"<disk type='file'><driver type='qcow2'/><source file='/a.TRANSIENT'/><transient/></disk>",
         {{.image = {"/a.TRANSIENT", "qcow2"}}}},
        {"<disk><source file='/b'/></disk><disk><source file='/a'/></disk>"
         "</devices><devices><disk><source file='/a'/></disk>",
         {{.image = {"/a", "raw"}}, {.image = {"/b", "raw"}}}},
        {"<x:disk xmlns:x='urn:other'><source file='/a'/></x:disk>", none},
    }));
    CAPTURE(devices);
    CHECK(with_devices(devices).disks == expected);
}

TEST_CASE("a domain with more disks in files than any can have is refused") {
    std::string devices;
    for (std::size_t i = 0; i <= core::max_disks; ++i)
        devices += fmt::format("<disk><source file='/{}'/></disk>", i);
    CHECK(invalid(guest_of(fmt::format("<devices>{}</devices>", devices))) ==
          "line 2: <disk>: more than 4096 in files");
}

TEST_CASE("video RAM is what is given, else what libvirt gives each model") {
    const auto [device, kibibytes] = GENERATE(table<std::string, std::int64_t>({
        {"", 0},
        {"<video><model type='cirrus'/></video>", 16384},
        {"<video><model type='vga' vram='8192'/></video>", 8192},
        {"<video><model type='vga' vram='9216'/></video>", 16384},
        {"<video><model type='vga' vram='0'/></video>", 16384},
        {"<video><model type='vmvga' heads='4'/></video>", 16384},
        {"<video><model type='bochs'/></video>", 16384},
        {"<video><model type='xen'/></video>", 4096},
        {"<video><model type='virtio' heads='2'/></video>", 0},
        {"<video><model type='virtio' vram='16384'/></video>", 16384},
        {"<video><model type='ramfb'/></video>", 0},
        {"<video><model type='none'/></video>", 0},
        {"<video><model type='none' vram='16384'/></video>", 0},
        {"<video><model type='qxl'/></video>", 65536 + 65536 + 16384},
        {"<video><model type='qxl' ram='32768' vram='8192' vgamem='8192'/></video>",
         32768 + 8192 + 8192},
        {"<video><model type='qxl' ram='33000' vram='8192' vram64='131072'/></video>",
         65536 + 131072 + 16384},
        {"<video><model type='cirrus'/></video><video><model type='qxl'/></video>",
         16384 + 65536 + 65536 + 16384},
        {"<video/>", 16384},
        {"<graphics type='vnc'/>", 16384},
        {"<graphics type='vnc'/><video><model type='virtio'/></video>", 0},
    }));
    CAPTURE(device);
    CHECK(with_devices(device).video_ram == kibibytes * kib);
}

TEST_CASE("a video device without model is virtio where there is no VGA") {
    const auto [arch, kibibytes] = GENERATE(table<std::string, std::int64_t>({
        {"x86_64", 16384},
        {"ppc64le", 16384},
        {"aarch64", 0},
        {"s390x", 0},
        {"riscv64", 0},
        {"loongarch64", 0},
    }));
    CHECK(
        parsed(guest_of("<os><type arch='" + arch + "'>hvm</type></os><devices><video/></devices>"))
            .video_ram == kibibytes * kib);
}

TEST_CASE("impossible video RAM is refused with its place") {
    CHECK(invalid(guest_of("<devices><video><model type='vga' vram='16M'/></video></devices>")) ==
          "line 2: <model vram>: \"16M\" is not a whole number below 2^32");
    std::string many;
    for (int i = 0; i < 2000; ++i)
        many += "<video><model type='vga' vram='4294967295'/></video>";
    CHECK(invalid(guest_of("<devices>" + many + "</devices>")) ==
          "line 2: <video>: more memory than any guest can have");
}

TEST_CASE("only an emulated TPM counts") {
    CHECK(with_devices("<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>").tpm);
    CHECK_FALSE(with_devices("<tpm model='tpm-tis'><backend type='passthrough'/></tpm>").tpm);
    CHECK_FALSE(with_devices("").tpm);
}

TEST_CASE("launch security of x86 makes a guest confidential") {
    const auto [type, expected] = GENERATE(table<std::string, bool>({
        {"sev", true},
        {"sev-snp", true},
        {"tdx", true},
        {"s390-pv", false},
    }));
    CHECK(parsed(guest_of("<launchSecurity type='" + type + "'/>")).confidential == expected);
    CHECK_FALSE(parsed(guest_of("")).confidential);
}

} // namespace virtguard::domxml
