// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tables as lsblk prints them (libsmartcols).

#include <string>
#include <vector>

#include "base/unique.hpp"

struct libscols_table;

namespace virtguard::ctl {

enum class Align { left, right };

struct TableColumn {
    std::string title;
    Align align = Align::left;
};

class Table {
  public:
    explicit Table(const std::vector<TableColumn>& columns);

    /// A row of as many cells as there are columns.
    void add(const std::vector<std::string>& cells);
    /// The whole table, each line ended.
    [[nodiscard]] std::string text() const;

  private:
    struct Unref {
        void operator()(libscols_table* table) const noexcept;
    };
    std::unique_ptr<libscols_table, Unref> table_;
};

} // namespace virtguard::ctl
