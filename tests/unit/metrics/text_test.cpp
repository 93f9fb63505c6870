// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <catch2/catch.hpp>

#include "metrics/text.hpp"

using namespace virtguard;
using namespace virtguard::core;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t gib = std::int64_t{1} << 30;

bool has_line(const std::string& text, const std::string& line) {
    return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

/// The samples of one metric, a line each.
std::string samples(const std::string& text, const std::string& name) {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        const std::string line = text.substr(at, end + 1 - at);
        if (line.starts_with(name + "{") || line.starts_with(name + " "))
            result += line;
        at = end + 1;
    }
    return result;
}

} // namespace

TEST_CASE("a figure is a metric of the host and one of each node, by unit") {
    Status status;
    status.report.host.free = {{Resource::cpu(), -3}, {Resource::hugepages(2 * mib), 4 * mib}};
    status.report.nodes = {
        {.id = 0, .figures = {.free = {{Resource::cpu(), 5}, {Resource::memory(), gib}}}},
        {.id = 7, .figures = {.free = {{Resource::memory(), 0}}}}};
    const std::string text = metrics::text(status, {});
    CHECK(samples(text, "virtguard_host_free_vcpus") == "virtguard_host_free_vcpus -3\n");
    CHECK(samples(text, "virtguard_host_free_bytes") ==
          "virtguard_host_free_bytes{resource=\"hugepages-2Mi\"} 4194304\n");
    CHECK(samples(text, "virtguard_node_free_vcpus") ==
          "virtguard_node_free_vcpus{node=\"0\"} 5\n");
    CHECK(samples(text, "virtguard_node_free_bytes") ==
          "virtguard_node_free_bytes{node=\"0\",resource=\"memory\"} 1073741824\n"
          "virtguard_node_free_bytes{node=\"7\",resource=\"memory\"} 0\n");
    CHECK(has_line(text, "# TYPE virtguard_node_free_bytes gauge"));
    CHECK(has_line(text, "# HELP virtguard_host_free_vcpus What further starts can be given; "
                         "negative when over, of vCPUs on the host."));
}

TEST_CASE("what the policy declares is a metric in its own unit, absent where there is none") {
    const Resource licences = Resource::custom("licence/acme");
    Status status;
    status.report.host.free = {{Resource::memory(), gib}};
    CHECK(metrics::text(status, {}).find("_custom") == std::string::npos);
    status.report.host.free[licences] = -2;
    const std::string text = metrics::text(status, {});
    CHECK(samples(text, "virtguard_host_free_custom") ==
          "virtguard_host_free_custom{resource=\"licence/acme\"} -2\n");
    CHECK(samples(text, "virtguard_host_free_bytes") ==
          "virtguard_host_free_bytes{resource=\"memory\"} 1073741824\n");
    CHECK(has_line(text, "# TYPE virtguard_host_free_custom gauge"));
    CHECK(text.find("virtguard_node_free_custom") == std::string::npos);
}

TEST_CASE("ratios are exact decimals") {
    Status status;
    status.report.overcommit = {{Resource::cpu(), Ratio::parse("1.15").value()}};
    CHECK(has_line(metrics::text(status, {}), "virtguard_overcommit_ratio{resource=\"cpu\"} 1.15"));
}

TEST_CASE("of states and modes the one that holds is 1") {
    const Status status{.state = "ready", .problems = {"a", "b"}, .mode = Mode::observe};
    const std::string text = metrics::text(status, {});
    CHECK(samples(text, "virtguard_state") == "virtguard_state{state=\"starting\"} 0\n"
                                              "virtguard_state{state=\"ready\"} 1\n"
                                              "virtguard_state{state=\"degraded\"} 0\n");
    CHECK(samples(text, "virtguard_mode") == "virtguard_mode{mode=\"enforce\"} 0\n"
                                             "virtguard_mode{mode=\"observe\"} 1\n"
                                             "virtguard_mode{mode=\"off\"} 0\n"
                                             "virtguard_mode{mode=\"maintenance\"} 0\n");
    CHECK(has_line(text, "virtguard_problems 2"));
}

TEST_CASE("domains are counted by state") {
    Status status;
    status.guests = {{.state = GuestState::running}, {.state = GuestState::running}};
    CHECK(samples(metrics::text(status, {}), "virtguard_domains") ==
          "virtguard_domains{state=\"pending\"} 0\n"
          "virtguard_domains{state=\"running\"} 2\n"
          "virtguard_domains{state=\"returning\"} 0\n");
}

TEST_CASE("what is not known has no metric") {
    Status status;
    CHECK(metrics::text(status, {}).find("snapshot") == std::string::npos);
    CHECK(metrics::text(status, {}).find("virtguard_foreign_memory_bytes") == std::string::npos);
    status.snapshot = WallTime(1'796'000'000'123'456us);
    status.foreign_memory = 0;
    CHECK(has_line(metrics::text(status, {}),
                   "virtguard_snapshot_timestamp_seconds 1796000000.123456"));
    CHECK(has_line(metrics::text(status, {}), "virtguard_foreign_memory_bytes 0"));
}

TEST_CASE("starts are counted by verdict, and by verdict, reason and resource") {
    History history;
    const Reason memory{.code = Code::insufficient_node_capacity, .resource = Resource::memory()};
    const Reason foreign{.code = Code::foreign_scheduler};
    history.note({}, {}, {}, 1ms);
    history.note({}, {.decision = {{memory, foreign}}}, {}, 1ms);
    const std::string text = metrics::text({}, history);
    CHECK(samples(text, "virtguard_decisions_total") ==
          "virtguard_decisions_total{verdict=\"admit\"} 1\n"
          "virtguard_decisions_total{verdict=\"refuse\"} 1\n"
          "virtguard_decisions_total{verdict=\"would-refuse\"} 0\n");
    CHECK(samples(text, "virtguard_decision_reasons_total") ==
          "virtguard_decision_reasons_total{verdict=\"refuse\",reason=\"foreign-scheduler\","
          "resource=\"\"} 1\n"
          "virtguard_decision_reasons_total{verdict=\"refuse\",reason=\"insufficient-node-"
          "capacity\",resource=\"memory\"} 1\n");
}

TEST_CASE("latencies are a histogram whose buckets count what is below, too") {
    History history;
    for (const Span latency : {Span(200us), Span(300us), Span(700us), Span(3s)})
        history.note({}, {}, {}, latency);
    const std::string text = metrics::text({}, history);
    CHECK(has_line(text, "# TYPE virtguard_decision_latency_seconds histogram"));
    const std::string name = "virtguard_decision_latency_seconds";
    CHECK(samples(text, name + "_bucket")
              .starts_with(name + "_bucket{le=\"0.0005\"} 2\n" + name +
                           "_bucket{le=\"0.001\"} 3\n" + name + "_bucket{le=\"0.0025\"} 3\n"));
    CHECK(samples(text, name + "_bucket")
              .ends_with(name + "_bucket{le=\"2.5\"} 3\n" + name + "_bucket{le=\"+Inf\"} 4\n"));
    CHECK(has_line(text, name + "_sum 3.0012"));
    CHECK(has_line(text, name + "_count 4"));
}

TEST_CASE("a label's value is escaped") {
    CHECK(metrics::escape_label("a\"b\\c\n\xc3\xbc") == "a\\\"b\\\\c\\n\xc3\xbc");
    CHECK(has_line(metrics::text({.version = "\"1\""}, {}),
                   R"(virtguard_build_info{version="\"1\""} 1)"));
}
