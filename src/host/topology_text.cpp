// SPDX-License-Identifier: Apache-2.0
// A line for each thing: a word that names it, then its fields, all separated by tabs.
#include "host/topology_text.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.hpp"

namespace virtguard::host {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (std::size_t end = 0; end != std::string_view::npos;) {
        end = text.find(separator);
        parts.push_back(text.substr(0, end));
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return parts;
}

/// The fields of one line; the first one that is wrong spoils all.
class Fields {
  public:
    explicit Fields(std::string_view line) : all_(split(line, '\t')) {}

    std::string_view text() {
        if (next_ < all_.size())
            return all_[next_++];
        good_ = false;
        return {};
    }
    std::int64_t number(std::uint64_t most = std::numeric_limits<std::int64_t>::max()) {
        const auto value = parse_unsigned(text());
        good_ = good_ && value && *value <= most;
        return good_ ? static_cast<std::int64_t>(*value) : 0;
    }
    IdSet ids() {
        auto set = IdSet::parse(text());
        good_ = good_ && set.has_value();
        return good_ ? *std::move(set) : IdSet{};
    }
    [[nodiscard]] bool good() const { return good_ && next_ == all_.size(); }

  private:
    std::vector<std::string_view> all_;
    std::size_t next_ = 0;
    bool good_ = true;
};

bool read_line(std::string_view line, core::Topology& topology) {
    Fields fields(line);
    const std::string_view what = fields.text();
    if (what == "base page")
        topology.base_page = fields.number();
    else if (what == "default hugepage")
        topology.default_hugepage = fields.number();
    else if (what == "online")
        topology.online = fields.ids();
    else if (what == "offline")
        topology.offline = fields.ids();
    else if (what == "allowed")
        topology.allowed = fields.ids();
    else if (what == "core")
        topology.cores.push_back(fields.ids());
    else if (what == "node")
        topology.nodes.push_back({.id = static_cast<int>(fields.number(IdSet::limit - 1)),
                                  .kind = std::string(fields.text()),
                                  .pus = fields.ids(),
                                  .memory = fields.number()});
    else if (what == "pool" && !topology.nodes.empty())
        topology.nodes.back().pools.push_back(
            {.page_size = fields.number(), .pages = fields.number()});
    else
        return false;
    return fields.good();
}

} // namespace

std::string topology_to_text(const Result<core::Topology>& topology) {
    if (!topology)
        return fmt::format("error\t{}\t{}", std::to_underlying(topology.error().code),
                           one_line(topology.error().what));
    std::string text =
        fmt::format("base page\t{}\nonline\t{}\noffline\t{}\nallowed\t{}", topology->base_page,
                    topology->online.text(), topology->offline.text(), topology->allowed.text());
    if (topology->default_hugepage)
        text += fmt::format("\ndefault hugepage\t{}", *topology->default_hugepage);
    for (const IdSet& core : topology->cores)
        text += fmt::format("\ncore\t{}", core.text());
    for (const core::Node& node : topology->nodes) {
        text +=
            fmt::format("\nnode\t{}\t{}\t{}\t{}", node.id, node.kind, node.pus.text(), node.memory);
        for (const core::PagePool& pool : node.pools)
            text += fmt::format("\npool\t{}\t{}", pool.page_size, pool.pages);
    }
    return text;
}

Result<core::Topology> topology_from_text(std::string_view text) {
    if (Fields fields(text); fields.text() == "error") {
        const auto code = static_cast<Errc>(fields.number(std::to_underlying(Errc::io)));
        std::string what(fields.text());
        if (fields.good())
            return std::unexpected(Error{code, std::move(what)});
    }
    core::Topology topology;
    for (const std::string_view line : split(text, '\n'))
        if (!read_line(line, topology))
            return fail(Errc::invalid, "{} is none of a topology's lines", quote(line));
    if (topology.nodes.empty())
        return fail(Errc::invalid, "no NUMA node");
    return topology;
}

} // namespace virtguard::host
