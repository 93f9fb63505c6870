// SPDX-License-Identifier: Apache-2.0
// What libvirt calls the total is the guest's own memory plus all memory devices. Cells, where
// there are any, are the guest's own memory; else it is <memory> less the devices, as written. Only
// then are sizes rounded up, each by itself. Devices that are not RAM (nvdimm, virtio-pmem,
// sgx-epc) count in the total and are then left out.
#include "domxml/memory.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "domxml/numa.hpp"
#include "domxml/parse.hpp"
#include "domxml/values.hpp"

namespace virtguard::domxml {

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;

/// What qemuDomainAlignMemorySizes() rounds to before QEMU runs.
struct Alignment {
    std::int64_t cell = mib;
    std::int64_t device = 2 * mib;
};

Alignment alignment_of(Element root) {
    const auto arch = root.child("os").child("type").attribute("arch");
    const bool is_ppc64 = arch == "ppc64" || arch == "ppc64le";
    return is_ppc64 ? Alignment{.cell = 256 * mib, .device = 256 * mib} : Alignment{};
}

/// A <memory> of <devices>.
struct Device {
    Element element;
    core::MemoryPart::Kind kind = core::MemoryPart::Kind::ram; ///< ram: it is none, left out
    std::int64_t size = 0;                                     ///< bytes, as written
    std::int64_t requested = 0;
    std::optional<std::size_t> cell = std::nullopt;
};

Result<core::MemoryPart::Kind> read_kind(Element device) {
    const std::string model = device.attribute("model").value_or("");
    if (model == "dimm")
        return core::MemoryPart::Kind::dimm;
    if (model == "virtio-mem")
        return core::MemoryPart::Kind::virtio_mem;
    if (model == "nvdimm" || model == "virtio-pmem" || model == "sgx-epc")
        return core::MemoryPart::Kind::ram;
    return device.invalid("<memory model>: {}: expected \"dimm\", \"virtio-mem\", \"nvdimm\", "
                          "\"virtio-pmem\" or \"sgx-epc\"",
                          quote(model));
}

/// The guest cell a device of RAM belongs to. Without cells, node 0 is the guest as a whole.
Result<std::optional<std::size_t>> read_target_cell(Element target, std::size_t cells) {
    const Element node = target.child("node");
    const std::string text = node.text();
    if (text.empty() && cells == 0)
        return std::nullopt;
    if (text.empty())
        return target.invalid("<target>: <node> is missing: expected one of {} guest cells", cells);
    const auto cell = number_in(node, text);
    if (!cell)
        return std::unexpected(cell.error());
    if (*cell >= std::max<std::size_t>(cells, 1))
        return node.invalid("<node>: {}: expected one of {} guest cells", *cell, cells);
    return cells == 0 ? std::nullopt : std::optional<std::size_t>(*cell);
}

Result<Device> read_device(Element element, std::size_t cells) {
    const auto kind = read_kind(element);
    if (!kind)
        return std::unexpected(kind.error());
    Device device{.element = element, .kind = *kind};
    const Element target = element.child("target");
    const auto size = size_in(target.child("size"));
    if (!size)
        return std::unexpected(size.error());
    if (!*size)
        return element.invalid("<memory model>: its <target> has no <size>");
    device.size = **size;
    if (device.kind == core::MemoryPart::Kind::ram)
        return device;
    const auto cell = read_target_cell(target, cells);
    if (!cell)
        return std::unexpected(cell.error());
    device.cell = *cell;
    const auto requested = size_in(target.child("requested"));
    if (!requested)
        return std::unexpected(requested.error());
    device.requested = requested->value_or(0);
    if (device.requested > device.size)
        return target.invalid("<requested>: more than <size>");
    return device;
}

Result<std::vector<Device>> read_devices_of_memory(Element root, std::size_t cells) {
    std::vector<Device> result;
    for (const Element devices : root.children("devices")) {
        for (const Element element : devices.children("memory")) {
            auto device = read_device(element, cells);
            if (!device)
                return std::unexpected(device.error());
            result.push_back(*std::move(device));
            if (result.size() > std::size_t{max_memory_parts})
                return element.invalid("<memory>: more than {} memory devices", max_memory_parts);
        }
    }
    return result;
}

/// What is not in devices: the cells, or the rest of <memory>.
Result<std::vector<std::int64_t>> initial_sizes(Element root, const std::vector<Cell>& cells,
                                                const std::vector<Device>& devices) {
    const Element memory = root.child("memory");
    const auto written = size_in(memory);
    if (!written)
        return std::unexpected(written.error());
    std::vector<std::int64_t> sizes;
    sizes.reserve(cells.size());
    for (const Cell& cell : cells)
        sizes.push_back(cell.size);
    if (std::ranges::any_of(sizes, [](std::int64_t size) { return size > 0; }))
        return sizes;
    std::int64_t rest = written->value_or(0);
    for (const Device& device : devices)
        rest -= device.size; // 1024 sizes of at most 2^52: far from overflow
    const Element blamed = memory ? memory : root;
    if (rest < 0)
        return blamed.invalid("<memory>: less than the memory devices in it");
    if (rest == 0)
        return blamed.invalid("<memory>: no memory: expected some here or in guest cells");
    return std::vector{rest};
}

/// "shared", "private" or "": how a part is mapped, the nearest word first.
std::string_view access_of(const std::string& own, const Cell* cell, const std::string& guest) {
    if (!own.empty())
        return own;
    return cell != nullptr && !cell->access.empty() ? cell->access : guest;
}

/// All that a part of memory is read with.
struct Reader {
    std::vector<Cell> cells;
    Numatune numatune;
    Pages pages;
    Alignment alignment;
    std::string source; ///< <memoryBacking><source type>
    std::string access; ///< <memoryBacking><access mode>
};

/// Base pages of this part are those of a file. memfd is none; only shared mappings need a file
/// where no source is named.
bool is_in_file(const Reader& reader, const std::string& own, const Cell* cell) {
    return reader.source == "file" ||
           (reader.source != "memfd" && access_of(own, cell, reader.access) == "shared");
}

/// A part, and whether base pages of it are in a file.
struct Placed {
    core::MemoryPart part;
    bool in_file = false;
};

Placed initial_part(const Reader& reader, std::int64_t size, std::optional<std::size_t> cell) {
    const std::int64_t rounded = *checked_round_up(size, reader.alignment.cell);
    return {.part = {.kind = core::MemoryPart::Kind::ram,
                     .size = rounded,
                     .requested = rounded,
                     .pages = reader.pages.of(cell),
                     .bound_to = reader.numatune.bound_to(cell)},
            .in_file = is_in_file(reader, {}, cell ? &reader.cells[*cell] : nullptr)};
}

Result<Placed> device_part(const Reader& reader, const Device& device) {
    const std::int64_t rounded = *checked_round_up(device.size, reader.alignment.device);
    const bool is_virtio_mem = device.kind == core::MemoryPart::Kind::virtio_mem;
    Placed placed{.part = {.kind = device.kind,
                           .size = rounded,
                           .requested = is_virtio_mem ? device.requested : rounded,
                           .pages = reader.pages.of(device.cell),
                           .bound_to = reader.numatune.bound_to(device.cell)},
                  .in_file = is_in_file(reader, device.element.attribute("access").value_or(""),
                                        device.cell ? &reader.cells[*device.cell] : nullptr)};
    const Element source = device.element.child("source");
    const auto page_size = size_in(source.child("pagesize"));
    if (!page_size)
        return std::unexpected(page_size.error());
    if (page_size->value_or(0) > 0)
        placed.part.pages = core::PagesOf{**page_size};
    const Element mask = source.child("nodemask");
    if (const std::string text = mask.text(); !text.empty()) {
        const auto nodes = set_in(mask, text);
        if (!nodes)
            return std::unexpected(nodes.error());
        placed.part.bound_to = reader.numatune.bound_to(device.cell, *nodes);
    }
    return placed;
}

Result<Reader> read_rules(Element root) {
    auto cells = read_cells(root);
    if (!cells)
        return std::unexpected(cells.error());
    auto numatune = Numatune::read(root, cells->size());
    if (!numatune)
        return std::unexpected(numatune.error());
    auto pages = Pages::read(root, cells->size());
    if (!pages)
        return std::unexpected(pages.error());
    const Element backing = root.child("memoryBacking");
    return Reader{.cells = *std::move(cells),
                  .numatune = *std::move(numatune),
                  .pages = *std::move(pages),
                  .alignment = alignment_of(root),
                  .source = backing.child("source").attribute("type").value_or(""),
                  .access = backing.child("access").attribute("mode").value_or("")};
}

Result<std::vector<Placed>> read_parts(Element root, const Reader& reader) {
    const auto devices = read_devices_of_memory(root, reader.cells.size());
    if (!devices)
        return std::unexpected(devices.error());
    const auto sizes = initial_sizes(root, reader.cells, *devices);
    if (!sizes)
        return std::unexpected(sizes.error());
    std::vector<Placed> parts;
    for (std::size_t i = 0; i < sizes->size(); ++i)
        if ((*sizes)[i] > 0)
            parts.push_back(initial_part(reader, (*sizes)[i],
                                         reader.cells.empty() ? std::nullopt : std::optional(i)));
    for (const Device& device : *devices) {
        if (device.kind == core::MemoryPart::Kind::ram)
            continue;
        auto part = device_part(reader, device);
        if (!part)
            return std::unexpected(part.error());
        parts.push_back(*std::move(part));
    }
    return parts;
}

bool has_base_pages(const Placed& placed) {
    return std::holds_alternative<core::BasePages>(placed.part.pages);
}

/// Moves the parts into a Memory and adds what is said of all of them.
Result<Memory> summed(Element root, std::vector<Placed> parts) {
    Memory memory;
    memory.file_backed =
        std::ranges::any_of(parts, has_base_pages) &&
        std::ranges::all_of(parts, [](const Placed& p) { return p.in_file || !has_base_pages(p); });
    std::int64_t total = 0;
    for (Placed& placed : parts) {
        total += placed.part.size;
        if (total > core::max_domain_bytes)
            return root.invalid("<memory>: the sum of all parts is more than any guest can have "
                                "({})",
                                format_bytes(core::max_domain_bytes, Rounding::down));
        memory.parts.push_back(std::move(placed.part));
    }
    const auto current = size_in(root.child("currentMemory"));
    if (!current)
        return std::unexpected(current.error());
    const std::int64_t written = current->value_or(0);
    memory.current = written == 0 ? total : std::min(written, total);
    return memory;
}

} // namespace

Result<Memory> read_memory(Element root) {
    const auto reader = read_rules(root);
    if (!reader)
        return std::unexpected(reader.error());
    auto parts = read_parts(root, *reader);
    if (!parts)
        return std::unexpected(parts.error());
    auto memory = summed(root, *std::move(parts));
    if (!memory)
        return memory;
    for (const Element backing : root.children("memoryBacking")) {
        memory->locked |= static_cast<bool>(backing.child("locked"));
        memory->preallocated |= backing.child("allocation").attribute("mode") == "immediate";
    }
    return memory;
}

} // namespace virtguard::domxml
