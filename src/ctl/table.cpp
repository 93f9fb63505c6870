// SPDX-License-Identifier: Apache-2.0
#include "ctl/table.hpp"

#include <cstdlib>
#include <new>

#include <libsmartcols/libsmartcols.h>

namespace virtguard::ctl {

namespace {

/// libsmartcols fails only for want of memory.
void check(int result) {
    if (result < 0)
        throw std::bad_alloc();
}

} // namespace

void Table::Unref::operator()(libscols_table* table) const noexcept {
    scols_unref_table(table);
}

Table::Table(const std::vector<TableColumn>& columns) : table_(scols_new_table()) {
    if (!table_)
        throw std::bad_alloc();
    for (const TableColumn& column : columns)
        if (scols_table_new_column(table_.get(), column.title.c_str(), 0,
                                   column.align == Align::right ? SCOLS_FL_RIGHT : 0) == nullptr)
            throw std::bad_alloc();
}

void Table::add(const std::vector<std::string>& cells) {
    libscols_line* line = scols_table_new_line(table_.get(), nullptr);
    if (line == nullptr)
        throw std::bad_alloc();
    for (std::size_t i = 0; i < cells.size(); ++i)
        check(scols_line_set_data(line, i, cells[i].c_str()));
}

std::string Table::text() const {
    char* text = nullptr;
    check(scols_print_table_to_string(table_.get(), &text));
    const CPtr<char, std::free> owned(text);
    std::string result(text == nullptr ? "" : text);
    if (!result.empty() && !result.ends_with('\n'))
        result += '\n';
    return result;
}

} // namespace virtguard::ctl
