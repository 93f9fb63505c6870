// SPDX-License-Identifier: Apache-2.0
#include "policy/load.hpp"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <toml++/toml.h>

#include "base/text.hpp"
#include "policy/keys.hpp"
#include "policy/values.hpp"

namespace virtguard::policy {

namespace {

/// toml++ makes a table of each part of a dotted key and frees them by recursion, as deep as the
/// keys are long: a line of a hundred thousand dots would end the process. With this many in a line
/// (our longest key has three) and its own limit of 256 nested values, that takes below 1 MiB of
/// stack.
constexpr std::ptrdiff_t max_dots_in_line = 64;

struct Position {
    std::size_t file = 0; ///< index of the text
    std::uint32_t line = 0;
    std::uint32_t column = 0;

    friend auto operator<=>(const Position&, const Position&) = default;
};

struct Problem {
    Position position; ///< line 0: the file as a whole
    std::string text;
};

std::string joined(std::string_view table, std::string_view part) {
    return table.empty() ? std::string(part) : fmt::format("{}.{}", table, part);
}

/// Where in the tree of keys a table is.
struct Place {
    std::string pattern; ///< as keys() spells it
    std::string path;    ///< as the operator would, with canonical names
    Names names;
};

std::string what_to_write_instead(std::string_view key,
                                  const std::vector<std::string_view>& known) {
    const auto distance_to = [key](std::string_view part) { return edit_distance(key, part); };
    const std::string_view nearest = *std::ranges::min_element(known, {}, distance_to);
    const std::size_t distance = distance_to(nearest);
    if (distance <= 2 && 2 * distance <= key.size())
        return fmt::format("unknown key; did you mean \"{}\"?", nearest);
    return fmt::format("unknown key: expected one of {}", fmt::join(known, ", "));
}

Value value_of(const toml::node& node) {
    if (const auto* boolean = node.as_boolean())
        return boolean->get();
    if (const auto* integer = node.as_integer())
        return integer->get();
    if (const auto* number = node.as_floating_point())
        return number->get();
    if (const auto* text = node.as_string())
        return text->get();
    if (node.is_table())
        return Unfit{"a table"};
    if (const auto* array = node.as_array()) {
        Strings strings;
        for (const toml::node& each : *array)
            if (const auto* text = each.as_string())
                strings.push_back(text->get());
        if (strings.size() == array->size())
            return strings;
    }
    return Unfit{node.is_array() ? "an array" : "a date or time"};
}

/// A comment and nothing else, whatever stands around it: no quotes, which could end a string of
/// several lines, and none of the characters that toml++ takes for the end of a line.
bool is_plain_comment(std::string_view line) {
    return line.starts_with('#') && std::ranges::all_of(line, [](char c) {
               return c >= ' ' && c <= '~' && c != '"' && c != '\'';
           });
}

/// The line that has too many dots for toml++, or nothing.
std::optional<std::uint32_t> find_deep_line(std::string_view text) {
    for (std::uint32_t line = 1; !text.empty(); ++line) {
        const std::string_view content = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(content.size() + 1, text.size()));
        if (std::ranges::count(content, '.') > max_dots_in_line && !is_plain_comment(content))
            return line;
    }
    return std::nullopt;
}

std::expected<toml::table, Problem> parse(std::string_view text, std::size_t file) {
    if (text.size() > max_file_bytes)
        return std::unexpected(Problem{{file, 0, 0}, "larger than 1 MiB"});
    if (const auto line = find_deep_line(text))
        return std::unexpected(Problem{
            {file, *line, 1}, fmt::format("more than {} dots in a line", max_dots_in_line)});
    try {
        return toml::parse(text);
    } catch (const toml::parse_error& error) {
        const toml::source_position where = error.source().begin;
        return std::unexpected(
            Problem{{file, where.line, where.column}, std::string(error.description())});
    }
}

/// Puts texts over the defaults, one after the other, and collects what is wrong.
class Loader {
  public:
    Loader(std::span<const PolicyText> texts, const core::QuestionCheck& check)
        : texts_(texts), check_(check) {}

    Loaded load() &&;

  private:
    void read_table(const toml::table& table, const Place& here);
    void read_entry(const toml::key& key, const toml::node& node, const Place& here);
    [[nodiscard]] std::optional<Place> below(const toml::key& key, const Place& here);
    void read_value(const Key& key, const toml::key& name, const toml::node& node,
                    const Place& here);
    void check_disjoint(std::string_view key, const IdSet& cpus, std::string_view other_key,
                        const IdSet& others);
    void check_questions();
    void check_resources();
    void check_declared(const std::string& table, const core::Resource& resource);
    [[nodiscard]] bool has_problem(const std::string& path) const;
    void forget_below(const std::string& path);
    void complain(const toml::source_region& where, std::string_view path, std::string_view what);
    void keep_first_problems();
    [[nodiscard]] Position position(const toml::source_region& where) const;
    [[nodiscard]] std::string file_and_line(const Position& position) const;
    [[nodiscard]] std::vector<std::string> lines() const;

    std::span<const PolicyText> texts_;
    const core::QuestionCheck& check_;
    std::size_t file_ = 0; ///< the one that is being read
    core::Policy policy_;
    std::map<std::string, Position> set_at_;
    std::vector<Problem> problems_;
    std::size_t problems_dropped_ = 0;
};

Loaded Loader::load() && {
    for (file_ = 0; file_ < texts_.size(); ++file_) {
        if (const auto table = parse(texts_[file_].text, file_))
            read_table(*table, Place{});
        else
            problems_.push_back(table.error());
        keep_first_problems();
    }
    const IdSet dedicated = policy_.cpu.dedicated.value_or(IdSet{});
    check_disjoint("cpu.shared", policy_.cpu.shared.value_or(IdSet{}), "cpu.dedicated", dedicated);
    check_disjoint("cpu.dedicated", dedicated, "reserve.cpus", policy_.reserve.cpus);
    check_questions();
    check_resources();
    keep_first_problems();
    if (!problems_.empty())
        return std::unexpected(lines());
    for (const auto& [path, where] : set_at_)
        policy_.origins.emplace(path, file_and_line(where));
    return std::move(policy_);
}

void Loader::read_table(const toml::table& table, const Place& here) {
    for (const auto& [key, node] : table)
        read_entry(key, node, here);
}

void Loader::read_entry(const toml::key& key, const toml::node& node, const Place& here) {
    const std::optional<Place> place = below(key, here);
    if (!place)
        return;
    const bool may_be_table = !parts_below(place->pattern).empty();
    const Key* known = find_key(place->pattern);
    if (const toml::table* table = node.as_table(); table != nullptr && may_be_table) {
        if (enter_table(place->pattern, policy_, place->names))
            set_at_[place->path] = position(key.source());
        read_table(*table, *place);
    } else if (known != nullptr) {
        read_value(*known, key, node, *place);
    } else {
        complain(node.source(), place->path, wrong_type(value_of(node), "a table").error().what);
    }
}

/// The place of a key of the table here; nothing, and a problem, where it may have no such key.
std::optional<Place> Loader::below(const toml::key& key, const Place& here) {
    const std::vector<std::string_view> known = parts_below(here.pattern);
    const auto refuse = [&](std::string_view what) {
        complain(key.source(), joined(here.path, printable(toml_key(key.str()))), what);
        return std::nullopt;
    };
    Place place = here;
    if (known.front().starts_with('<')) {
        const auto name = read_part(known.front(), key.str(), place.names);
        if (!name)
            return refuse(name.error().what);
        place.pattern = joined(here.pattern, known.front());
        place.path = joined(here.path, toml_key(*name));
        return place;
    }
    if (std::ranges::find(known, key.str()) == known.end())
        return refuse(what_to_write_instead(key.str(), known));
    place.pattern = joined(here.pattern, key.str());
    place.path = joined(here.path, key.str());
    return place;
}

void Loader::read_value(const Key& key, const toml::key& name, const toml::node& node,
                        const Place& here) {
    const auto before = set_at_.find(here.path);
    if (before != set_at_.end() && before->second.file == file_) {
        complain(name.source(), here.path,
                 fmt::format("set twice: line {} spells it differently", before->second.line));
        return;
    }
    if (const auto done = key.set(policy_, here.names, value_of(node)); !done)
        complain(node.source(), here.path, done.error().what);
    set_at_[here.path] = position(name.source());
    forget_below(here.path);
}

/// It was set, or something below it, to what it cannot be.
bool Loader::has_problem(const std::string& path) const {
    return std::ranges::any_of(problems_, [&](const Problem& problem) {
        return problem.text.starts_with(path + ":") || problem.text.starts_with(path + ".");
    });
}

/// What was set below a table is gone when a value replaces the table.
void Loader::forget_below(const std::string& path) {
    const std::string prefix = path + ".";
    const auto first = set_at_.lower_bound(prefix);
    auto last = first;
    while (last != set_at_.end() && last->first.starts_with(prefix))
        ++last;
    set_at_.erase(first, last);
}

void Loader::check_disjoint(std::string_view key, const IdSet& cpus, std::string_view other_key,
                            const IdSet& others) {
    const IdSet both = cpus & others;
    if (!both.empty())
        problems_.push_back({set_at_[std::string(key)],
                             fmt::format("{}: CPU {} is also in {}: expected no CPU in both", key,
                                         both.text(), other_key)});
}

/// A table may be spread over files, so what it lacks is known at the end.
void Loader::check_questions() {
    for (const auto& [name, rule] : policy_.rules)
        if (const std::string table = fmt::format("rule.{}", toml_key(name));
            !rule.action && !set_at_.contains(table + ".action"))
            problems_.push_back(
                {set_at_[table], table + ".action: missing: expected \"refuse\", \"exempt\" or "
                                         "\"observe\""});
    const core::Questions questions = policy_.questions();
    if (questions.size() > core::max_questions) {
        const std::string& key = questions[core::max_questions].key;
        problems_.push_back(
            {set_at_[key.substr(0, key.rfind('.'))],
             fmt::format("{}: one of {} expressions: expected at most {} in all tables together",
                         key, questions.size(), core::max_questions)});
    }
    for (const core::Question& question : questions) {
        const auto set = set_at_.find(question.key);
        const std::string table = question.key.substr(0, question.key.rfind('.'));
        if (question.xpath.empty() && set == set_at_.end())
            problems_.push_back({set_at_[table], fmt::format("{}: missing: expected an XPath "
                                                             "expression",
                                                             question.key)});
        else if (set != set_at_.end() && !question.xpath.empty() && check_)
            if (const auto checked = check_(question); !checked)
                problems_.push_back(
                    {set->second, fmt::format("{}: {} {}", question.key, quote(question.xpath),
                                              checked.error().what)});
    }
}

/// What is in the table of one name may be in several files, and another file may use the name.
void Loader::check_resources() {
    for (const auto& [resource, custom] : policy_.resources) {
        const std::string table = fmt::format("resource.{}", toml_key(resource.name()));
        const std::string key = table + ".capacity";
        if (custom.host && !custom.nodes.empty())
            problems_.push_back(
                {set_at_[key + ".file"],
                 fmt::format("{0}.file: {0}.node is set, too: expected one of them", key)});
        else if (!custom.host && custom.nodes.empty() && !has_problem(key))
            problems_.push_back({set_at_[table], fmt::format("{}: missing: expected a number, a "
                                                             "file or nodes",
                                                             key)});
    }
    for (const auto& [resource, ratio] : policy_.overcommit)
        check_declared("overcommit", resource);
    for (const auto& [resource, mode] : policy_.resource_mode)
        check_declared("resource-mode", resource);
    for (const auto& [name, accepted] : policy_.scheduler.accept)
        for (const auto& [resource, quota] : accepted.quota)
            check_declared(fmt::format("scheduler.accept.{}.quota", toml_key(name)), resource);
}

void Loader::check_declared(const std::string& table, const core::Resource& resource) {
    const std::string name = resource.name();
    const std::string key = joined(table, toml_key(name));
    if (const auto known = policy_.find_resource(name); !known)
        problems_.push_back({set_at_[key], fmt::format("{}: {}", key, known.error().what)});
}

void Loader::complain(const toml::source_region& where, std::string_view path,
                      std::string_view what) {
    problems_.push_back({position(where), fmt::format("{}: {}", path, what)});
}

void Loader::keep_first_problems() {
    std::ranges::stable_sort(problems_, {}, &Problem::position);
    if (problems_.size() > core::max_told_errors) {
        problems_dropped_ += problems_.size() - core::max_told_errors;
        problems_.resize(core::max_told_errors);
    }
}

Position Loader::position(const toml::source_region& where) const {
    return {file_, where.begin.line, where.begin.column};
}

std::string Loader::file_and_line(const Position& position) const {
    return fmt::format("{}:{}", one_line(texts_[position.file].file), position.line);
}

std::vector<std::string> Loader::lines() const {
    std::vector<std::string> lines;
    for (const auto& [where, text] : problems_) {
        const std::string file = where.line == 0
                                     ? one_line(texts_[where.file].file)
                                     : fmt::format("{}:{}", file_and_line(where), where.column);
        lines.push_back(fmt::format("{}: {}", file, one_line(text)));
    }
    if (problems_dropped_ > 0)
        lines.push_back(fmt::format("and {} more", problems_dropped_));
    return lines;
}

} // namespace

Loaded load(std::span<const PolicyText> texts, const core::QuestionCheck& check) {
    return Loader(texts, check).load();
}

} // namespace virtguard::policy
