// SPDX-License-Identifier: Apache-2.0
#include "domxml/numa.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "domxml/parse.hpp"
#include "domxml/values.hpp"
#include "domxml/vcpu.hpp"

namespace virtguard::domxml {

namespace {

Result<Cell> read_cell(Element element) {
    const auto size = size_attribute(element, "memory");
    if (!size)
        return std::unexpected(size.error());
    if (!*size)
        return element.invalid("<cell memory>: missing");
    return Cell{.size = **size, .access = element.attribute("memAccess").value_or("")};
}

} // namespace

Result<std::vector<Cell>> read_cells(Element root) {
    const Element numa = root.child("cpu").child("numa");
    std::vector<Element> elements;
    for (const Element element : numa.children("cell"))
        elements.push_back(element);
    if (numa && (elements.empty() || elements.size() > std::size_t{max_memory_parts}))
        return numa.invalid("<numa>: {} cells: expected 1 to {}", elements.size(),
                            max_memory_parts);
    std::vector<std::optional<Cell>> cells(elements.size());
    for (std::size_t i = 0; i < elements.size(); ++i) {
        const auto id = number_attribute(elements[i], "id");
        if (!id)
            return std::unexpected(id.error());
        const std::size_t at = *id ? **id : i;
        if (at >= cells.size() || cells[at])
            return elements[i].invalid("<cell id>: {}: expected each of 0 to {} once", at,
                                       cells.size() - 1);
        auto cell = read_cell(elements[i]);
        if (!cell)
            return std::unexpected(cell.error());
        cells[at] = *std::move(cell);
    }
    std::vector<Cell> result;
    result.reserve(cells.size());
    for (std::optional<Cell>& cell : cells)
        result.push_back(*std::move(cell));
    return result;
}

Result<bool> Numatune::read_mode(Element element) {
    const std::string mode = element.attribute("mode").value_or("strict");
    if (mode == "strict" || mode == "restrictive")
        return true;
    if (mode == "preferred" || mode == "interleave")
        return false;
    return element.invalid("{}: {}: expected \"strict\", \"restrictive\", \"preferred\" or "
                           "\"interleave\"",
                           place(element, "mode"), quote(mode));
}

Result<> Numatune::read_memory(Element memory, bool automatic_vcpus) {
    const auto binds = read_mode(memory);
    if (!binds)
        return std::unexpected(binds.error());
    auto nodes = set_attribute(memory, "nodeset");
    if (!nodes)
        return std::unexpected(nodes.error());
    const std::string placement = memory.attribute("placement").value_or("");
    if (!placement.empty() && placement != "static" && placement != "auto")
        return memory.invalid("<memory placement>: {}: expected \"static\" or \"auto\"",
                              quote(placement));
    automatic_ = placement == "auto" || (placement.empty() && !*nodes && automatic_vcpus);
    if (!automatic_ && !*nodes)
        return memory.invalid("<memory nodeset>: missing");
    memory_ = Rule{.binds = *binds, .nodes = nodes->value_or(IdSet{})};
    return {};
}

Result<> Numatune::read_memnode(Element memnode) {
    if (automatic_)
        return memnode.invalid("<memnode>: not possible with automatic placement");
    const auto cell = number_attribute(memnode, "cellid");
    if (!cell)
        return std::unexpected(cell.error());
    if (!*cell || **cell >= cells_.size())
        return memnode.invalid("<memnode cellid>: expected one of {} guest cells", cells_.size());
    if (cells_[**cell])
        return memnode.invalid("<memnode cellid>: a second one for cell {}", **cell);
    const auto binds = read_mode(memnode);
    if (!binds)
        return std::unexpected(binds.error());
    auto nodes = set_attribute(memnode, "nodeset");
    if (!nodes)
        return std::unexpected(nodes.error());
    if (!*nodes)
        return memnode.invalid("<memnode nodeset>: missing");
    cells_[**cell] = Rule{.binds = *binds, .nodes = **std::move(nodes)};
    return {};
}

Result<Numatune> Numatune::read(Element root, std::size_t cells) {
    Numatune result;
    result.cells_.resize(cells);
    const auto automatic_vcpus = has_automatic_placement(root);
    if (!automatic_vcpus)
        return std::unexpected(automatic_vcpus.error());
    const Element tune = root.child("numatune");
    if (const Element memory = tune.child("memory")) {
        if (auto done = result.read_memory(memory, *automatic_vcpus); !done)
            return std::unexpected(done.error());
    } else {
        result.automatic_ = *automatic_vcpus;
    }
    for (const Element memnode : tune.children("memnode"))
        if (auto done = result.read_memnode(memnode); !done)
            return std::unexpected(done.error());
    return result;
}

const Numatune::Rule* Numatune::rule_of(std::optional<std::size_t> cell) const {
    if (cell && cells_[*cell])
        return &*cells_[*cell];
    return memory_ ? &*memory_ : nullptr;
}

std::optional<IdSet> Numatune::bound_to(std::optional<std::size_t> cell) const {
    const Rule* rule = rule_of(cell);
    if (automatic_ || rule == nullptr || !rule->binds)
        return std::nullopt;
    return rule->nodes;
}

std::optional<IdSet> Numatune::bound_to(std::optional<std::size_t> cell,
                                        const IdSet& nodemask) const {
    const Rule* rule = rule_of(cell);
    return rule == nullptr || rule->binds ? std::optional(nodemask) : std::nullopt;
}

Result<> Pages::add(Element page, std::size_t cells) {
    const auto size = size_attribute(page, "size");
    if (!size)
        return std::unexpected(size.error());
    if (!*size || **size == 0)
        return page.invalid("<page size>: missing or 0");
    auto named = set_attribute(page, "nodeset");
    if (!named)
        return std::unexpected(named.error());
    if (cells == 0 && *named == IdSet{0})
        named->reset(); // as libvirt does when it defines the domain
    if (!*named) {
        if (has_others_)
            return page.invalid("<page>: a second one without nodeset");
        has_others_ = true;
        others_ = core::PagesOf{**size};
        return {};
    }
    if (cells == 0)
        return {}; // names cells where there are none: says nothing
    if (!(*named)->is_subset_of(IdSet::range(0, static_cast<int>(cells) - 1)))
        return page.invalid("<page nodeset>: {}: the guest's cells are 0 to {}", (*named)->text(),
                            cells - 1);
    if (std::ranges::any_of(rules_, [&](const Rule& r) { return r.cells.intersects(**named); }))
        return page.invalid("<page nodeset>: {}: names a cell of another page", (*named)->text());
    rules_.push_back({.cells = **std::move(named), .size = **size});
    return {};
}

Result<Pages> Pages::read(Element root, std::size_t cells) {
    Pages result;
    bool has_pages = false;
    bool has_hugepages = false;
    for (const Element backing : root.children("memoryBacking")) {
        for (const Element hugepages : backing.children("hugepages")) {
            has_hugepages = true;
            for (const Element page : hugepages.children("page")) {
                has_pages = true;
                if (auto done = result.add(page, cells); !done)
                    return std::unexpected(done.error());
            }
        }
    }
    if (has_hugepages && !has_pages)
        result.others_ = core::DefaultHugepages{};
    return result;
}

core::PageKind Pages::of(std::optional<std::size_t> cell) const {
    if (cell) {
        const auto named = std::ranges::find_if(
            rules_, [&](const Rule& rule) { return rule.cells.contains(static_cast<int>(*cell)); });
        if (named != rules_.end())
            return core::PagesOf{named->size};
    }
    return others_;
}

} // namespace virtguard::domxml
