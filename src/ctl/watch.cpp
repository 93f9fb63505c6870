// SPDX-License-Identifier: Apache-2.0
#include "ctl/watch.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "bus/follower.hpp"
#include "bus/names.hpp"
#include "core/resource.hpp"
#include "ctl/recent.hpp"
#include "ctl/show.hpp"
#include "loop/loop.hpp"
#include "json/heard.hpp"

namespace virtguard::ctl {

namespace {

constexpr std::string_view not_there = "virtguardd is not on the bus";

std::string_view past_tense(core::Verdict verdict) {
    switch (verdict) {
    case core::Verdict::admit:
        return "admitted";
    case core::Verdict::refuse:
        return "refused";
    case core::Verdict::would_refuse:
        return "would refuse";
    }
    std::unreachable();
}

/// "cpu 3, memory 1.25", in the order of status.
std::string ratios_text(const std::map<std::string, std::string>& ratios) {
    std::vector<std::pair<std::string, std::string>> ordered(ratios.begin(), ratios.end());
    std::ranges::stable_sort(ordered, {}, [](const auto& each) {
        const auto resource = core::Resource::parse(each.first);
        return resource ? std::optional(*resource) : std::nullopt;
    });
    std::string text;
    for (const auto& [resource, ratio] : ordered)
        text +=
            fmt::format("{}{} {}", text.empty() ? "" : ", ", printable(resource), printable(ratio));
    return text;
}

/// Those of the second that the first has not.
std::vector<std::string> added(const std::vector<std::string>& before,
                               const std::vector<std::string>& now) {
    std::vector<std::string> result;
    std::ranges::copy_if(now, std::back_inserter(result), [&](const std::string& each) {
        return std::ranges::find(before, each) == before.end();
    });
    return result;
}

/// What virtguardctl prints as long as it watches.
class Watcher {
  public:
    explicit Watcher(const WatchOptions& options)
        : options_(options), screen_(standard_output(options.colour)) {}

    [[nodiscard]] int run();

  private:
    bool host(const core::HeardHost& now);
    bool start(const core::HeardStart& start);
    bool absent(const std::string& why);
    bool line(WallTime when, std::string_view text);

    const WatchOptions& options_;
    Screen screen_;
    std::optional<core::HeardHost> host_; ///< as it was shown
    std::string why_absent_;              ///< as it was shown; "" while virtguardd is there
    int status_ = exit_ok;
};

int Watcher::run() {
    const std::string address = bus::system_bus_address();
    const bus::FollowHandlers handlers{
        .host = [this](const core::HeardHost& now) { return host(now); },
        .start = [this](const core::HeardStart& heard) { return start(heard); },
        .absent = [this] { return absent(std::string(not_there)); }};
    for (auto bus = bus::Bus::that_is_there;; bus = bus::Bus::that_comes) {
        const auto followed = bus::follow(address, bus, handlers);
        if (followed || !absent(followed.error().what))
            return status_;
        constexpr std::chrono::seconds pause{1};
        std::this_thread::sleep_for(pause);
    }
}

bool Watcher::line(WallTime when, std::string_view text) {
    print(options_.json ? fmt::format("{}\n", text)
                        : fmt::format("{}  {}\n", time_text(when), text));
    return std::fflush(stdout) == 0; // what is wrong is shown at the end
}

bool Watcher::host(const core::HeardHost& now) {
    const WallTime when = loop::wall_time();
    why_absent_.clear();
    const std::optional<core::HeardHost> before = std::exchange(host_, now);
    if (options_.json)
        return line(when, json::host_line(now, when));
    return std::ranges::all_of(host_texts(before ? &*before : nullptr, now, screen_),
                               [&](const std::string& text) { return line(when, text); });
}

bool Watcher::start(const core::HeardStart& start) {
    const WallTime when = loop::wall_time();
    return line(when, options_.json ? json::start_line(start, when) : start_text(start, screen_));
}

/// Told once, however often it is tried again.
bool Watcher::absent(const std::string& why) {
    host_.reset();
    if (options_.no_wait) {
        show_error(why);
        status_ = exit_unreachable;
        return false;
    }
    if (std::exchange(why_absent_, why) == why)
        return true;
    const WallTime when = loop::wall_time();
    return line(when, options_.json
                          ? json::absent_line(why, when)
                          : inked(screen_, Ink::warning, one_line(why) + "; waiting for it"));
}

} // namespace

std::string start_text(const core::HeardStart& start, const Screen& screen) {
    std::string text =
        fmt::format("{} {}", inked(screen, ink_of(start.verdict), past_tense(start.verdict)),
                    start.name.empty() ? "a domain without a name" : printable(start.name));
    std::string_view joint = ": ";
    for (const core::HeardReason& reason : start.reasons) {
        const bool is_observed = start.verdict == core::Verdict::refuse && reason.mode != "enforce";
        text += fmt::format("{}{}{}", std::exchange(joint, "; "), one_line(reason.text),
                            is_observed ? ", only observed" : "");
    }
    return text;
}

std::vector<std::string> host_texts(const core::HeardHost* before, const core::HeardHost& now,
                                    const Screen& screen) {
    std::vector<std::string> lines;
    const auto add = [&]<class... Args>(Ink ink, fmt::format_string<Args...> text, Args&&... args) {
        lines.push_back(
            inked(screen, ink, one_line(fmt::format(text, std::forward<Args>(args)...))));
    };
    if (before == nullptr)
        add(Ink::plain, "virtguardd {} is {}: mode {}, overcommit {}", now.version, now.state,
            now.mode, ratios_text(now.overcommit));
    else {
        if (before->mode != now.mode)
            add(Ink::strong, "mode {}, was {}", now.mode, before->mode);
        if (before->state != now.state)
            add(Ink::strong, "state {}, was {}", now.state, before->state);
        if (before->overcommit != now.overcommit)
            add(Ink::strong, "overcommit {}, was {}", ratios_text(now.overcommit),
                ratios_text(before->overcommit));
    }
    const core::HeardHost nothing;
    const core::HeardHost& then = before == nullptr ? nothing : *before;
    for (const std::string& problem : added(then.problems, now.problems))
        add(Ink::warning, "problem: {}", problem);
    for (const std::string& problem : added(now.problems, then.problems))
        add(Ink::good, "solved: {}", problem);
    for (const std::string& resource : added(then.over_capacity, now.over_capacity))
        add(Ink::bad, "{} is over capacity", resource);
    for (const std::string& resource : added(now.over_capacity, then.over_capacity))
        add(Ink::good, "{} is no longer over capacity", resource);
    return lines;
}

int watch(const WatchOptions& options) {
    return Watcher(options).run();
}

} // namespace virtguard::ctl
