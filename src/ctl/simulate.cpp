// SPDX-License-Identifier: Apache-2.0
#include "ctl/simulate.hpp"

#include <cstdio>
#include <utility>

#include "base/text.hpp"
#include "core/guard.hpp"
#include "ctl/event.hpp"
#include "ctl/show.hpp"
#include "host/topology.hpp"
#include "policy/load.hpp"
#include "json/document.hpp"

namespace virtguard::ctl {

namespace {

Result<core::Topology> load_topology(const SimulateOptions& options) {
    auto topology = host::topology_from(options.topology);
    if (!topology)
        return context(topology.error(), "--topology");
    for (const std::string& text : options.pages) {
        const auto setting = core::parse_page_setting(text);
        if (!setting)
            return context(setting.error(), "--pages");
        const auto set = core::set_pages(*topology, *setting);
        if (!set)
            return context(set.error(), fmt::format("--pages {}", printable(text)));
    }
    return topology;
}

/// All that is wrong with the policy goes to stderr, a line each.
std::optional<core::Policy> load_policy(const std::string& file, const core::Topology& topology) {
    if (file.empty())
        return core::Policy{};
    auto loaded = policy::load_file(file);
    std::vector<std::string> errors;
    if (!loaded)
        errors = loaded.error();
    else
        errors = core::conflicts(*loaded, topology);
    for (const std::string& error : errors)
        show_error(error);
    return errors.empty() ? std::optional(*std::move(loaded)) : std::nullopt;
}

Result<std::vector<Event>> parse_events(const std::vector<std::string>& arguments) {
    std::vector<Event> events;
    for (const std::string& argument : arguments) {
        auto event = parse_event(argument);
        if (!event)
            return std::unexpected(event.error());
        events.push_back(*std::move(event));
    }
    return events;
}

/// Runs the events against a guard, one call per event.
class Simulation {
  public:
    explicit Simulation(core::Guard& guard) : guard_(guard) {}

    [[nodiscard]] Result<> run(const std::string& argument, const Event& event) {
        done_.push_back({.event = argument});
        return std::visit([this](const auto& each) { return apply(each); }, event);
    }
    [[nodiscard]] const std::vector<json::Event>& done() const { return done_; }
    [[nodiscard]] bool any_refused() const { return any_refused_; }

  private:
    Result<> apply(const Start& start) {
        json::Event& event = done_.back();
        event.decided = !start.already_runs;
        core::Answer answer;
        core::Domain domain;
        if (!start.domain)
            answer = {.decision = core::refuse_invalid(start.domain.error(), guard_.policy())};
        else if (domain = *start.domain; start.already_runs) {
            guard_.running(domain, Instant{});
            answer = guard_.check(domain);
        } else
            answer = guard_.start_at_once(domain);
        event.outcome = core::make_outcome(domain, answer, guard_.host(), guard_.policy());
        any_refused_ |= event.decided && !event.outcome->admitted;
        return {};
    }

    Result<> apply(const Stop& stop) {
        for (const auto& [identity, guest] : guard_.ledger().guests())
            if (identity == stop.guest || guest.domain.name == stop.guest) {
                guard_.released(std::string(identity), Instant{});
                break;
            }
        return {};
    }

    Result<> apply(const SetRatio& set) {
        core::Policy policy = guard_.policy();
        policy.overcommit[set.resource] = set.ratio;
        guard_.apply(std::move(policy));
        return {};
    }

    Result<> apply(const Reserve& reserve) {
        auto pieces = pieces_of(reserve, guard_.host());
        if (!pieces)
            return std::unexpected(pieces.error());
        guard_.reserve(reserve.name, {.pieces = *std::move(pieces), .guest = reserve.guest});
        return {};
    }

    core::Guard& guard_;
    std::vector<json::Event> done_;
    bool any_refused_ = false;
};

} // namespace

int simulate(const SimulateOptions& options) {
    auto topology = load_topology(options);
    if (!topology)
        return input_error(topology.error());
    auto policy = load_policy(options.policy, *topology);
    if (!policy)
        return exit_bad_input;
    const auto events = parse_events(options.events);
    if (!events)
        return input_error(events.error());

    policy->claim.return_hold = {}; // here no time passes, so nothing can be kept for a while
    core::Guard guard(*std::move(topology), *std::move(policy));
    Simulation simulation(guard);
    for (std::size_t i = 0; i < events->size(); ++i)
        if (const auto done = simulation.run(options.events[i], (*events)[i]); !done)
            return input_error(done.error());

    if (options.json)
        print(json::simulation_document(simulation.done(), guard.report()) + "\n");
    else
        for (const json::Event& event : simulation.done())
            print(event_line(event) + "\n");
    return simulation.any_refused() ? exit_refused : exit_ok;
}

} // namespace virtguard::ctl
