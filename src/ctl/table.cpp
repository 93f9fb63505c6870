// SPDX-License-Identifier: Apache-2.0
#include "ctl/table.hpp"

#include <algorithm>
#include <cstdlib>
#include <cwchar>
#include <new>
#include <numeric>
#include <string_view>
#include <utility>

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

/// One character: its bytes, and how many columns of the screen it takes.
struct Character {
    std::size_t bytes = 1;
    std::size_t width = 1;
};

/// By the locale's character set; where that does not know it, as one of UTF-8 would be.
Character first_character(std::string_view text) {
    wchar_t letter = 0;
    std::mbstate_t state{};
    const std::size_t bytes = std::mbrtowc(&letter, text.data(), text.size(), &state);
    if (bytes == 0 || bytes > text.size())
        return {1, (static_cast<unsigned char>(text.front()) & 0xc0U) == 0x80U ? 0U : 1U};
    return {bytes, static_cast<std::size_t>(std::max(::wcwidth(letter), 0))};
}

/// How many columns of the screen it takes.
std::size_t width_of(std::string_view text) {
    std::size_t width = 0;
    while (!text.empty()) {
        const Character first = first_character(text);
        width += first.width;
        text.remove_prefix(first.bytes);
    }
    return width;
}

/// How many bytes of a text fit into so many columns; never none.
std::size_t fitting(std::string_view text, std::size_t width) {
    std::size_t end = 0;
    std::size_t shown = 0;
    while (end < text.size()) {
        const Character next = first_character(text.substr(end));
        shown += next.width;
        if (shown > width && end > 0)
            break;
        end += next.bytes;
    }
    return end;
}

/// The text in lines of at most so many columns, broken between words where that is possible, or
/// else behind a hyphen.
std::string broken(std::string_view text, std::size_t width) {
    std::string result;
    while (width_of(text) > width) {
        const std::size_t end = fitting(text, width);
        const std::size_t space = text.rfind(' ', end);
        const bool has_space = space != std::string_view::npos && space > 0;
        const std::size_t hyphen = text.substr(0, end).rfind('-');
        const bool has_hyphen = hyphen != std::string_view::npos && hyphen > 0;
        const std::size_t cut = has_space ? space : has_hyphen ? hyphen + 1 : end;
        result += text.substr(0, cut);
        result += '\n';
        text.remove_prefix(has_space ? cut + 1 : cut);
    }
    return result += text;
}

std::size_t longest_word(std::string_view text) {
    std::size_t longest = 0;
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find(' '));
        longest = std::max(longest, width_of(word));
        text.remove_prefix(std::min(word.size() + 1, text.size()));
    }
    return longest;
}

/// What each gets of so many columns: at most what it wants, and else as much as any other.
std::vector<std::size_t> shared_out(std::size_t columns, std::vector<std::size_t> wanted) {
    std::vector<std::size_t> by_want(wanted.size());
    std::iota(by_want.begin(), by_want.end(), std::size_t{0});
    std::ranges::sort(by_want, {}, [&](std::size_t index) { return wanted[index]; });
    for (std::size_t i = 0; i < by_want.size(); ++i) {
        std::size_t& got = wanted[by_want[i]];
        got = std::min(got, columns / (by_want.size() - i));
        columns -= got;
    }
    return wanted;
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

/// Those that wrap share what the others leave: first what their longest words take, then the rest.
void Table::break_columns(Layout& layout, std::size_t width) const {
    std::size_t left = width - std::min(width, (layout.columns.size() - 1) * layout.gap);
    std::vector<std::size_t> wrapping;
    for (const std::size_t index : layout.columns)
        if (columns_[index].wraps)
            wrapping.push_back(index);
        else
            left -= std::min(left, width_of_column(index));
    std::vector<std::size_t> words(wrapping.size());
    for (std::size_t i = 0; i < wrapping.size(); ++i)
        words[i] = longest_word_of_column(wrapping[i]);
    const std::vector<std::size_t> least = shared_out(left, words);
    left -= std::accumulate(least.begin(), least.end(), std::size_t{0});
    std::vector<std::size_t> more(wrapping.size());
    for (std::size_t i = 0; i < wrapping.size(); ++i)
        more[i] = width_of_column(wrapping[i]) - least[i];
    more = shared_out(left, std::move(more));
    for (std::size_t i = 0; i < wrapping.size(); ++i)
        layout.widths[wrapping[i]] =
            std::max(least[i] + more[i], width_of(columns_[wrapping[i]].title));
}

std::size_t Table::longest_word_of_column(std::size_t index) const {
    std::size_t longest = width_of(columns_[index].title);
    for (const auto& row : rows_)
        longest = std::max(longest, longest_word(row[index].text));
    return longest;
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
