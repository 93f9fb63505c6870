// SPDX-License-Identifier: Apache-2.0
#include "metrics/text.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

namespace virtguard::metrics {

namespace {

using core::Figures;
using core::Quantities;
using core::Resource;

struct Label {
    std::string_view name;
    std::string_view value;
};

/// The exposition grows family by family: a metric's HELP and TYPE, then its samples.
class Exposition {
  public:
    void family(std::string_view name, std::string_view type, std::string_view help) {
        name_ = fmt::format("virtguard_{}", name);
        text_ += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name_, type, help);
    }

    /// A sample of the last family; the suffix is for parts of a histogram.
    template <class Value>
    void sample(std::initializer_list<Label> labels, Value value, std::string_view suffix = "") {
        text_ += name_;
        text_ += suffix;
        char separator = '{';
        for (const Label& label : labels) {
            text_ += fmt::format("{}{}=\"{}\"", std::exchange(separator, ','), label.name,
                                 escape_label(label.value));
        }
        text_ += fmt::format("{} {}\n", labels.size() == 0 ? "" : "}", value);
    }

    [[nodiscard]] std::string take() { return std::move(text_); }

  private:
    std::string name_;
    std::string text_;
};

/// Seconds of any span, to be shown as the shortest decimal.
template <class Span>
double seconds(Span span) {
    return std::chrono::duration<double>(span).count();
}

struct Column {
    std::string_view name;
    Quantities Figures::*member;
    std::string_view help;
};
constexpr std::array<Column, 9> columns{
    {{"capacity", &Figures::capacity, "What the hardware and the kernel have"},
     {"reserved", &Figures::reserved, "What the policy holds back for the host"},
     {"allocatable", &Figures::allocatable, "Capacity without what is reserved"},
     {"effective", &Figures::effective, "Allocatable with the overcommit ratio applied"},
     {"allocated", &Figures::allocated, "What running guests hold"},
     {"pending", &Figures::pending, "What starts in flight hold, and places kept for a return"},
     {"booked", &Figures::booked, "What reservations hold and no guest has taken yet"},
     {"foreign", &Figures::foreign, "What something that is no libvirt guest holds"},
     {"free", &Figures::free, "What further starts can be given; negative when over"}}};

bool is_custom(const Quantities::value_type& each) {
    return each.first.kind == Resource::Kind::custom;
}

/// Families of each column, as a metric has one unit: vCPUs, bytes by resource, and the amounts of
/// custom resources, where there are any.
void add_columns(Exposition& out, std::string_view level, std::string_view of,
                 const auto& each_figures) {
    for (const Column& column : columns) {
        out.family(fmt::format("{}_{}_vcpus", level, column.name), "gauge",
                   fmt::format("{}, of vCPUs {}.", column.help, of));
        each_figures([&](const Figures& figures, auto... node) {
            if (const auto cpus = (figures.*column.member).find(Resource::cpu());
                cpus != (figures.*column.member).end())
                out.sample({node...}, cpus->second);
        });
        out.family(fmt::format("{}_{}_bytes", level, column.name), "gauge",
                   fmt::format("{}, of memory and hugepages {}.", column.help, of));
        each_figures([&](const Figures& figures, auto... node) {
            for (const auto& [resource, bytes] : figures.*column.member)
                if (resource.is_bytes())
                    out.sample({node..., Label{"resource", resource.name()}}, bytes);
        });
        bool has_custom = false;
        each_figures([&](const Figures& figures, auto...) {
            has_custom |= std::ranges::any_of(figures.*column.member, is_custom);
        });
        if (!has_custom)
            continue;
        out.family(fmt::format("{}_{}_custom", level, column.name), "gauge",
                   fmt::format("{}, of resources that the policy declares {}, each in its unit.",
                               column.help, of));
        each_figures([&](const Figures& figures, auto... node) {
            for (const auto& [resource, amount] : figures.*column.member)
                if (resource.kind == Resource::Kind::custom)
                    out.sample({node..., Label{"resource", resource.name()}}, amount);
        });
    }
}

/// Host and nodes are metrics apart, so that a sum over one of them counts nothing twice.
void add_report(Exposition& out, const core::Report& report) {
    add_columns(out, "host", "on the host", [&](const auto& add) { add(report.host); });
    add_columns(out, "node", "on each NUMA node", [&](const auto& add) {
        for (const core::NodeReport& node : report.nodes) {
            const std::string id = fmt::format("{}", node.id);
            add(node.figures, Label{"node", id});
        }
    });
    out.family("overcommit_ratio", "gauge", "How much more than allocatable guests may hold.");
    for (const auto& [resource, ratio] : report.overcommit)
        out.sample({{"resource", resource.name()}}, ratio.text());
}

/// One sample for each word, 1 for the one that holds.
template <std::size_t count>
void add_choice(Exposition& out, std::string_view label,
                const std::array<std::string_view, count>& words, std::string_view now) {
    for (const std::string_view word : words)
        out.sample({{label, word}}, word == now ? 1 : 0);
}

void add_daemon(Exposition& out, const core::Status& status) {
    out.family("build_info", "gauge", "Always 1; the version of virtguardd is a label.");
    out.sample({{"version", status.version}}, 1);
    out.family("state", "gauge", "1 for the state virtguardd is in.");
    add_choice(out, "state", std::array<std::string_view, 3>{"starting", "ready", "degraded"},
               status.state);
    out.family("problems", "gauge", "Things wrong that make the state degraded.");
    out.sample({}, status.problems.size());
    out.family("mode", "gauge", "1 for the mode of the host.");
    add_choice(out, "mode",
               std::array{core::mode_name(core::Mode::enforce),
                          core::mode_name(core::Mode::observe), core::mode_name(core::Mode::off),
                          std::string_view("maintenance")},
               core::mode_text(status));
    if (status.snapshot) {
        out.family("snapshot_timestamp_seconds", "gauge",
                   "When the last complete look at what libvirt runs began.");
        out.sample({}, fmt::format("{:.6f}", seconds(status.snapshot->time_since_epoch())));
    }
    if (status.foreign_memory) {
        out.family("foreign_memory_bytes", "gauge",
                   "Memory that something else than guests holds beyond the reserve, charged "
                   "as foreign or not.");
        out.sample({}, *status.foreign_memory);
    }
    out.family("domains", "gauge", "Guests that hold something, by state.");
    for (const core::GuestState state :
         {core::GuestState::pending, core::GuestState::running, core::GuestState::returning})
        out.sample({{"state", core::state_name(state)}},
                   std::ranges::count(status.guests, state, &core::GuestReport::state));
}

void add_latencies(Exposition& out, const core::Latencies& latencies) {
    out.family("decision_latency_seconds", "histogram",
               "Time from the hook's exec to the answer to a start.");
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < core::Latencies::bounds.size(); ++i) {
        below += latencies.counts[i];
        const std::string bound = fmt::format("{}", seconds(core::Latencies::bounds[i]));
        out.sample({{"le", bound}}, below, "_bucket");
    }
    out.sample({{"le", "+Inf"}}, latencies.count(), "_bucket");
    out.sample({}, seconds(latencies.sum), "_sum");
    out.sample({}, latencies.count(), "_count");
}

void add_decisions(Exposition& out, const core::History& history) {
    out.family("decisions_total", "counter", "Starts decided, by verdict.");
    for (const core::Verdict verdict : core::all_verdicts)
        out.sample({{"verdict", core::verdict_name(verdict)}}, history.count(verdict));
    out.family("decision_reasons_total", "counter",
               "Starts decided for this reason; a start with several counts in each.");
    for (const auto& [kind, count] : history.reasons())
        out.sample({{"verdict", core::verdict_name(kind.verdict)},
                    {"reason", core::code_name(kind.code)},
                    {"resource", kind.resource ? kind.resource->name() : ""}},
                   count);
    add_latencies(out, history.latencies());
}

} // namespace

std::string escape_label(std::string_view value) {
    std::string escaped;
    for (const char c : value) {
        if (c == '\\' || c == '"')
            escaped += '\\';
        escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return escaped;
}

std::string text(const core::Status& status, const core::History& history) {
    Exposition out;
    add_daemon(out, status);
    add_report(out, status.report);
    add_decisions(out, history);
    return out.take();
}

} // namespace virtguard::metrics
