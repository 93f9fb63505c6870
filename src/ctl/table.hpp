// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tables as lsblk prints them (libsmartcols), fitted to the screen.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "ctl/screen.hpp"

namespace virtguard::ctl {

enum class Align { left, right };

/// When a column is shown. A table is wide where there is room for all that is wide, or no
/// terminal.
enum class Shown {
    always,
    wide,
    narrow,
    no_terminal, ///< there sections are a column instead
};

struct TableColumn {
    std::string title;
    Align align = Align::left;
    Shown shown = Shown::always;
    bool wraps = false; ///< where the screen is too narrow still
};

struct Cell {
    // Most cells are text alone.
    Cell(std::string words, Ink colour = Ink::plain) : text(std::move(words)), ink(colour) {}
    Cell(const char* words) : text(words) {}
    std::string text;
    Ink ink = Ink::plain;
};

class Table {
  public:
    explicit Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

    /// A row of as many cells as there are columns.
    void add(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
    /// A line of its own above the rows that follow, on terminals.
    void begin_section(std::string title) { sections_.push_back({rows_.size(), std::move(title)}); }

    /// The whole table, each line ended; "" without rows.
    [[nodiscard]] std::string text(const Screen& screen = {}) const;

  private:
    struct Section {
        std::size_t first_row = 0;
        std::string title;
    };

    struct Layout {
        std::vector<std::size_t> columns;            ///< the indices of those that are shown
        std::size_t gap = 1;                         ///< spaces between them
        std::map<std::size_t, std::size_t> widths{}; ///< of those that have to wrap, by index
    };
    [[nodiscard]] Layout layout(const Screen& screen) const;
    void break_columns(Layout& layout, std::size_t width) const;
    [[nodiscard]] std::size_t width_of_column(std::size_t index) const;
    [[nodiscard]] std::size_t longest_word_of_column(std::size_t index) const;

    std::vector<TableColumn> columns_;
    std::vector<std::vector<Cell>> rows_;
    std::vector<Section> sections_; ///< of at least one row each
};

} // namespace virtguard::ctl
