// SPDX-License-Identifier: Apache-2.0
#include "core/history.hpp"

#include <catch2/catch.hpp>

#include "hosts.hpp"

using namespace virtguard;
using namespace virtguard::core;
using namespace std::chrono_literals;

namespace {

constexpr WallTime noon{std::chrono::hours(12)};

Domain named(const std::string& name) {
    Domain domain = with_memory(name, {});
    domain.uuid = Uuid{.bytes = {1}};
    return domain;
}

Reason short_of(Resource resource, Mode mode = Mode::enforce, std::string text = "short") {
    return {.code = Code::insufficient_capacity,
            .resource = resource,
            .mode = mode,
            .text = std::move(text)};
}

Answer answered(std::vector<Reason> reasons) {
    return {.decision = {std::move(reasons)}, .scheduler = "cortex"};
}

/// How often each kind decided: "refuse insufficient-capacity memory: 2".
std::vector<std::string> kinds(const History& history) {
    std::vector<std::string> lines;
    for (const auto& [kind, count] : history.reasons())
        lines.push_back(fmt::format("{} {} {}: {}", verdict_name(kind.verdict),
                                    code_name(kind.code),
                                    kind.resource ? kind.resource->name() : "-", count));
    return lines;
}

} // namespace

TEST_CASE("a decided start is remembered as it was") {
    History history;
    const Reason reason = short_of(Resource::memory());
    history.note(named("web"), answered({reason}), noon, 1ms);
    CHECK(history.recent() == std::vector<DecidedStart>{{.time = noon,
                                                         .name = "web",
                                                         .uuid = Uuid{.bytes = {1}},
                                                         .scheduler = "cortex",
                                                         .verdict = Verdict::refuse,
                                                         .reasons = {reason}}});
}

TEST_CASE("a verdict follows from the modes of the reasons") {
    const auto verdict = [](std::vector<Reason> reasons) {
        return verdict_name(verdict_of(Decision{std::move(reasons)}));
    };
    const Reason observed = short_of(Resource::cpu(), Mode::observe);
    CHECK(verdict({}) == "admit");
    CHECK(verdict({observed}) == "would-refuse");
    CHECK(verdict({observed, short_of(Resource::memory())}) == "refuse");
}

TEST_CASE("the latest start comes first, and of many the oldest is forgotten") {
    History history;
    CHECK(history.recent().empty());
    const std::size_t some_more = History::max_starts + 3;
    for (std::size_t i = 0; i < some_more; ++i)
        history.note(named(fmt::format("web-{}", i)), answered({}), noon, 1ms);
    const std::vector<DecidedStart> all = history.recent();
    REQUIRE(all.size() == History::max_starts);
    CHECK(all.front().name == fmt::format("web-{}", some_more - 1));
    CHECK(all.back().name == "web-3");
    const std::vector<DecidedStart> two = history.recent(2);
    REQUIRE(two.size() == 2);
    CHECK(two.back().name == fmt::format("web-{}", some_more - 2));
    CHECK(history.count(Verdict::admit) == some_more);
}

TEST_CASE("a start that replaces a forgotten one has nothing of it") {
    History history;
    for (std::size_t i = 0; i < History::max_starts; ++i)
        history.note(named("old"), answered({short_of(Resource::cpu())}), noon, 1ms);
    Domain nameless = named("");
    nameless.uuid.reset();
    history.note(nameless, {}, noon + 1s, 1ms);
    CHECK(history.recent(1).front() == DecidedStart{.time = noon + 1s});
}

TEST_CASE("what is remembered of a start has limits, and cuts no character") {
    History history;
    std::string long_text(2 * History::max_text, 'x');
    long_text.replace(History::max_text - 1, 2, "é"); // across the limit
    Reason reason = short_of(Resource::cpu(), Mode::enforce, long_text);
    reason.nodes = IdSet::range(1, IdSet::limit - 1);
    const std::vector<Reason> many(History::max_reasons + 1, reason);
    Answer answer = answered(many);
    answer.scheduler = std::string(2 * History::max_name, 's');
    history.note(named(std::string(2 * History::max_name, 'n')), answer, noon, 1ms);
    const DecidedStart kept = history.recent().front();
    CHECK(kept.name.size() == History::max_name);
    CHECK(kept.scheduler.size() == History::max_name);
    REQUIRE(kept.reasons.size() == History::max_reasons);
    CHECK(kept.reasons.front().text == std::string(History::max_text - 1, 'x'));
    CHECK(kept.reasons.front().nodes == IdSet::range(1, History::max_nodes));
}

TEST_CASE("starts are counted by verdict, and by each kind of reason that made it") {
    History history;
    const Reason memory = short_of(Resource::memory());
    const Reason observed = short_of(Resource::cpu(), Mode::observe);
    const Reason foreign{.code = Code::foreign_scheduler, .mode = Mode::enforce};
    history.note(named("fits"), answered({}), noon, 1ms);
    history.note(named("two nodes are short"), answered({memory, memory}), noon, 1ms);
    history.note(named("refused for one of two"), answered({observed, memory}), noon, 1ms);
    history.note(named("observed"), answered({observed}), noon, 1ms);
    history.note(named("not ours"), answered({foreign}), noon, 1ms);
    CHECK(history.count(Verdict::admit) == 1);
    CHECK(history.count(Verdict::refuse) == 3);
    CHECK(history.count(Verdict::would_refuse) == 1);
    CHECK(kinds(history) == std::vector<std::string>{"refuse foreign-scheduler -: 1",
                                                     "refuse insufficient-capacity memory: 2",
                                                     "would-refuse insufficient-capacity cpu: 1"});
}

TEST_CASE("a latency counts in the first bucket whose bound it does not exceed") {
    Latencies latencies;
    latencies.add(0ns);
    latencies.add(500us);
    latencies.add(500us + 1ns);
    latencies.add(3s);
    CHECK(latencies.counts.at(0) == 2);
    CHECK(latencies.counts.at(1) == 1);
    CHECK(latencies.counts.back() == 1);
    CHECK(latencies.count() == 4);
    CHECK(latencies.sum == 3s + 1ms + 1ns);
}
