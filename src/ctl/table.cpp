// SPDX-License-Identifier: Apache-2.0
#include "ctl/table.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

#include <libsmartcols/libsmartcols.h>

#include "base/unique.hpp"

namespace virtguard::ctl {

namespace {

/// libsmartcols fails only for want of memory.
void check(int result) {
    if (result < 0)
        throw std::bad_alloc();
}
template <class T>
T* check(T* made) {
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}

using TablePtr = CPtr<libscols_table, scols_unref_table>;

/// How many columns of the screen it takes. All that is shown is ASCII and block characters.
std::size_t width_of(std::string_view text) {
    return static_cast<std::size_t>(std::ranges::count_if(
        text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

/// The text in lines of at most so many columns, broken between words where that is possible.
std::string broken(std::string_view text, std::size_t width) {
    std::string result;
    while (width_of(text) > width) {
        std::size_t end = 0; // of what fits
        for (std::size_t shown = 0; shown <= width; ++end)
            shown += width_of(text.substr(end, 1));
        --end;
        const std::size_t space = text.rfind(' ', end);
        const bool has_space = space != std::string_view::npos && space > 0;
        result += text.substr(0, has_space ? space : end);
        result += '\n';
        text.remove_prefix(has_space ? space + 1 : end);
    }
    return result += text;
}

TablePtr make_table(const Screen& screen, const std::vector<TableColumn>& columns,
                    const std::vector<std::size_t>& chosen) {
    TablePtr table(check(scols_new_table()));
    check(scols_table_set_termforce(table.get(), screen.width == 0 ? SCOLS_TERMFORCE_NEVER
                                                                   : SCOLS_TERMFORCE_ALWAYS));
    if (screen.width > 0)
        check(scols_table_set_termwidth(table.get(), screen.width));
    check(scols_table_enable_colors(table.get(), screen.colour ? 1 : 0));
    check(scols_table_enable_noencoding(table.get(), 1)); // \xNN in cells is ours
    for (const std::size_t index : chosen) {
        const TableColumn& column = columns[index];
        libscols_column* made =
            check(scols_table_new_column(table.get(), column.title.c_str(), 0,
                                         (column.align == Align::right ? SCOLS_FL_RIGHT : 0) |
                                             (column.wraps ? SCOLS_FL_WRAP : 0)));
        if (column.wraps) { // where broken() breaks it
            check(scols_column_set_wrapfunc(made, scols_wrapnl_chunksize, scols_wrapnl_nextchunk,
                                            nullptr));
            check(scols_column_set_safechars(made, "\n"));
        }
    }
    return table;
}

void fill_cell(libscols_line* line, std::size_t column, const Cell& cell) {
    check(scols_line_set_data(line, column, cell.text.c_str()));
    if (cell.ink != Ink::plain)
        check(scols_cell_set_color(check(scols_line_get_cell(line, column)),
                                   sequence(cell.ink).data()));
}

std::string print_rows(libscols_table* table, std::size_t first, std::size_t last) {
    char* text = nullptr;
    check(scols_table_print_range_to_string(table, check(scols_table_get_line(table, first)),
                                            check(scols_table_get_line(table, last)), &text));
    const CPtr<char, std::free> owned(text);
    std::string result(text == nullptr ? "" : text);
    if (!result.ends_with('\n'))
        result += '\n';
    return result;
}

} // namespace

Table::Layout Table::layout(const Screen& screen) const {
    const auto choose = [&](Shown kind) {
        std::vector<std::size_t> chosen;
        for (std::size_t i = 0; i < columns_.size(); ++i)
            if (const Shown shown = columns_[i].shown;
                shown == Shown::always || shown == kind ||
                (shown == Shown::no_terminal && screen.width == 0))
                chosen.push_back(i);
        return chosen;
    };
    if (screen.width == 0)
        return {choose(Shown::wide)};
    for (const Shown kind : {Shown::wide, Shown::narrow})
        for (const std::size_t gap : {2U, 1U}) {
            Layout layout{choose(kind), gap};
            std::size_t needed = (layout.columns.size() - 1) * gap;
            for (const std::size_t index : layout.columns)
                needed += width_of_column(index);
            if (needed <= screen.width)
                return layout;
        }
    Layout layout{choose(Shown::narrow)};
    break_columns(layout, screen.width);
    return layout;
}

/// Those that wrap get what the others leave, in proportion to what they would take.
void Table::break_columns(Layout& layout, std::size_t width) const {
    std::size_t left = width - std::min(width, (layout.columns.size() - 1) * layout.gap);
    std::size_t wanted = 0;
    for (const std::size_t index : layout.columns)
        if (columns_[index].wraps)
            wanted += width_of_column(index);
        else
            left -= std::min(left, width_of_column(index));
    for (const std::size_t index : layout.columns)
        if (columns_[index].wraps)
            layout.widths[index] =
                std::max(width_of_column(index) * left / wanted, width_of(columns_[index].title));
}

std::size_t Table::width_of_column(std::size_t index) const {
    std::size_t widest = width_of(columns_[index].title);
    for (const auto& row : rows_)
        widest = std::max(widest, width_of(row[index].text));
    return widest;
}

std::string Table::text(const Screen& screen) const {
    if (rows_.empty())
        return "";
    const auto [chosen, gap, widths] = layout(screen);
    const TablePtr table = make_table(screen, columns_, chosen);
    check(scols_table_set_column_separator(table.get(), std::string(gap, ' ').c_str()));
    for (const auto& row : rows_) {
        libscols_line* line = check(scols_table_new_line(table.get(), nullptr));
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            const Cell& cell = row[chosen[i]];
            const auto width = widths.find(chosen[i]);
            fill_cell(line, i,
                      width == widths.end() ? cell
                                            : Cell(broken(cell.text, width->second), cell.ink));
        }
    }
    if (sections_.empty() || screen.width == 0)
        return print_rows(table.get(), 0, rows_.size() - 1);
    std::string result;
    for (std::size_t i = 0; i < sections_.size(); ++i) {
        const std::size_t end =
            i + 1 < sections_.size() ? sections_[i + 1].first_row : rows_.size();
        std::string rows = print_rows(table.get(), sections_[i].first_row, end - 1);
        // The heads of the columns come with the first row.
        const std::size_t head = i == 0 ? rows.find('\n') + 1 : 0;
        rows.insert(head, inked(screen, Ink::strong, sections_[i].title) + "\n");
        result += rows;
    }
    return result;
}

} // namespace virtguard::ctl
