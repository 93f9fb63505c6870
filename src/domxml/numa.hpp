// SPDX-License-Identifier: Apache-2.0
#pragma once
// Guest cells, the host nodes memory is bound to, and page sizes per cell.

#include <optional>
#include <vector>

#include "core/domain.hpp"
#include "domxml/document.hpp"

namespace virtguard::domxml {

/// A guest NUMA cell of <cpu><numa>.
struct Cell {
    std::int64_t size = 0; ///< bytes, as written
    std::string access;    ///< memAccess: "shared", "private" or ""
};

/// By cell id; empty without guest NUMA.
[[nodiscard]] Result<std::vector<Cell>> read_cells(Element root);

/// Which host nodes memory may use, as <numatune> says.
class Numatune {
  public:
    [[nodiscard]] static Result<Numatune> read(Element root, std::size_t cells);

    /// The nodes that bind the memory of a cell (none: without guest NUMA), if any do.
    [[nodiscard]] std::optional<IdSet> bound_to(std::optional<std::size_t> cell) const;
    /// Those that bind a memory device with a <nodemask> of its own: the mode is its cell's.
    [[nodiscard]] std::optional<IdSet> bound_to(std::optional<std::size_t> cell,
                                                const IdSet& nodemask) const;

  private:
    struct Rule {
        bool binds = true; ///< mode strict or restrictive
        IdSet nodes;
    };
    [[nodiscard]] static Result<bool> read_mode(Element element);
    [[nodiscard]] Result<> read_memory(Element memory, bool automatic_vcpus);
    [[nodiscard]] Result<> read_memnode(Element memnode);
    [[nodiscard]] const Rule* rule_of(std::optional<std::size_t> cell) const;

    bool automatic_ = false; ///< numad will choose; all nodes until then
    std::optional<Rule> memory_;
    std::vector<std::optional<Rule>> cells_;
};

/// Which pages back memory, as <memoryBacking><hugepages> says.
class Pages {
  public:
    [[nodiscard]] static Result<Pages> read(Element root, std::size_t cells);

    /// The pages of a cell's memory (none: without guest NUMA) and of devices in that cell.
    [[nodiscard]] core::PageKind of(std::optional<std::size_t> cell) const;

  private:
    struct Rule {
        IdSet cells;
        std::int64_t size = 0;
    };
    [[nodiscard]] Result<> add(Element page, std::size_t cells);

    core::PageKind others_; ///< of what no rule names
    bool has_others_ = false;
    std::vector<Rule> rules_;
};

} // namespace virtguard::domxml
