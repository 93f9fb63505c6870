// SPDX-License-Identifier: Apache-2.0
#include "ctl/recent.hpp"

#include <algorithm>
#include <utility>

#include <fmt/chrono.h>

#include "base/text.hpp"
#include "ctl/ask.hpp"
#include "ctl/show.hpp"
#include "ctl/table.hpp"
#include "json/document.hpp"

namespace virtguard::ctl {

namespace {

std::string reasons_text(const core::DecidedStart& start) {
    std::string result;
    for (const core::Reason& reason : start.reasons)
        result += fmt::format("{}{}{}", result.empty() ? "" : "; ", one_line(reason.text),
                              core::is_decisive(reason, start.verdict) ? "" : ", only observed");
    return result;
}

} // namespace

std::string time_text(WallTime time) {
    return fmt::format("{:%F %T}", fmt::localtime(std::chrono::system_clock::to_time_t(time)));
}

Ink ink_of(core::Verdict verdict) {
    switch (verdict) {
    case core::Verdict::admit:
        return Ink::plain;
    case core::Verdict::refuse:
        return Ink::bad;
    case core::Verdict::would_refuse:
        return Ink::warning;
    }
    std::unreachable();
}

std::string recent_text(const std::vector<core::DecidedStart>& starts, const Screen& screen) {
    if (starts.empty())
        return "no start has been decided since virtguardd began\n";
    Table table({{"TIME"},
                 {"DOMAIN", Align::left, Shown::always, /*wraps=*/true},
                 {"SCHEDULER", Align::left, Shown::wide},
                 {"VERDICT"},
                 {"REASONS", Align::left, Shown::always, /*wraps=*/true}});
    for (const core::DecidedStart& start : starts)
        table.add({time_text(start.time), printable(start.name), printable(start.scheduler),
                   Cell(std::string(core::verdict_name(start.verdict)), ink_of(start.verdict)),
                   reasons_text(start)});
    return table.text(screen);
}

int recent(const std::string& socket, bool json, const Screen& screen) {
    const auto document = ask_daemon(socket, wire::Operation::recent);
    if (!document)
        return failure(document.error());
    if (json) {
        print(*document + "\n");
        return exit_ok;
    }
    auto starts = json::parse_history(*document);
    if (!starts)
        return failure(starts.error());
    std::ranges::reverse(*starts);
    print(recent_text(*starts, screen));
    return exit_ok;
}

} // namespace virtguard::ctl
