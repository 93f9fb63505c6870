// SPDX-License-Identifier: Apache-2.0
#include "ctl/simulate.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "core/guard.hpp"
#include "ctl/event.hpp"
#include "ctl/outcome_screen.hpp"
#include "ctl/show.hpp"
#include "domxml/parse.hpp"
#include "host/capacity.hpp"
#include "host/topology.hpp"
#include "policy/load.hpp"
#include "json/document.hpp"

namespace virtguard::ctl {

namespace {

/// "--pages A B": what reads as a setting of pages is none of the events.
SimulateOptions with_pages_together(SimulateOptions options) {
    if (options.pages.empty())
        return options;
    const auto is_event = [](const std::string& argument) {
        return !core::parse_page_setting(argument).has_value();
    };
    const auto pages = std::ranges::stable_partition(options.events, is_event);
    options.pages.insert(options.pages.end(), pages.begin(), pages.end());
    options.events.erase(pages.begin(), pages.end());
    return options;
}

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

/// Reads the files that capacities come from; why that cannot be done.
std::vector<std::string> take_in_capacities(core::Policy& policy) {
    const host::CapacityReadings readings = host::read_capacities(policy);
    host::take_in(policy, readings);
    std::vector<std::string> errors;
    for (const auto& [key, file] : policy.capacity_files())
        if (const auto& reading = readings.at(file); !reading)
            errors.push_back(fmt::format("{}: {}", key, reading.error().what));
    return errors;
}

/// All that is wrong with the policy goes to stderr, a line each.
std::optional<core::Policy> load_policy(const std::string& file, const core::Topology& topology) {
    if (file.empty())
        return core::Policy{};
    auto loaded = policy::load_file(file, domxml::check_question);
    std::vector<std::string> errors;
    if (!loaded)
        errors = loaded.error();
    else
        errors = core::conflicts(*loaded, topology);
    if (loaded && errors.empty())
        errors = take_in_capacities(*loaded);
    for (const std::string& error : errors)
        show_error(error);
    return errors.empty() ? std::optional(*std::move(loaded)) : std::nullopt;
}

Result<std::vector<Event>> parse_events(const std::vector<std::string>& arguments,
                                        const core::Policy& policy) {
    std::vector<Event> events;
    for (const std::string& argument : arguments) {
        auto event = parse_event(argument, policy);
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
        auto done = std::visit([this](const auto& each) { return apply(each); }, event);
        if (!done)
            return context(done.error(), fmt::format("event {}", quote(argument)));
        return done;
    }
    [[nodiscard]] const std::vector<json::Event>& done() const { return done_; }
    [[nodiscard]] bool any_refused() const { return any_refused_; }

  private:
    Result<> apply(const Start& start) {
        json::Event& event = done_.back();
        event.decided = !start.already_runs;
        const core::Domain domain = start.domain.value_or(start.identity);
        event.outcome =
            core::make_outcome(domain, answer_to(start), guard_.host(), guard_.policy());
        any_refused_ |= event.decided && !event.outcome->admitted;
        return {};
    }

    core::Answer answer_to(const Start& start) {
        if (!start.domain)
            return core::answer_invalid(start.identity, start.domain.error(), guard_.policy());
        if (!start.already_runs)
            return guard_.start_at_once(*start.domain);
        guard_.running(*start.domain, Instant{});
        return {.demand = core::make_held_demand(*start.domain, guard_.host(), guard_.policy()),
                .scheduler =
                    core::ownership_of(*start.domain, guard_.policy().scheduler).scheduler};
    }

    Result<> apply(const Stop& stop) {
        const auto& guests = guard_.ledger().guests();
        std::vector<std::string> found;
        if (guests.contains(stop.guest))
            found.push_back(stop.guest);
        else
            for (const auto& [identity, guest] : guests)
                if (guest.domain.name == stop.guest)
                    found.push_back(identity);
        if (found.size() > 1)
            return fail(Errc::invalid, "{} guests of that name run: expected a UUID", found.size());
        done_.back().found_nothing = found.empty();
        for (const std::string& identity : found)
            guard_.released(identity, Instant{});
        return {};
    }

    Result<> apply(const SetRatio& set) {
        core::Policy policy = guard_.policy();
        policy.overcommit[set.resource] = set.ratio;
        guard_.apply(std::move(policy));
        return {};
    }

    Result<> apply(const Reserve& reserve) {
        if (guard_.ledger().reservations().size() == core::max_pieces_of_reservations)
            return fail(Errc::limit, "more than {} reservations", core::max_pieces_of_reservations);
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

int simulate(const SimulateOptions& given) {
    const SimulateOptions options = with_pages_together(given);
    auto topology = load_topology(options);
    if (!topology)
        return failure(topology.error());
    auto policy = load_policy(options.policy, *topology);
    if (!policy)
        return exit_bad_input;
    const auto events = parse_events(options.events, *policy);
    if (!events)
        return failure(events.error());

    policy->claim.return_hold = {}; // here no time passes, so nothing can be kept for a while
    core::Guard guard(*std::move(topology), *std::move(policy));
    Simulation simulation(guard);
    for (std::size_t i = 0; i < events->size(); ++i)
        if (const auto done = simulation.run(options.events[i], (*events)[i]); !done)
            return failure(done.error());

    if (options.json)
        print(json::simulation_document(simulation.done(), guard.report()) + "\n");
    else
        for (const json::Event& event : simulation.done())
            print(event_text(event));
    return simulation.any_refused() ? exit_refused : exit_ok;
}

} // namespace virtguard::ctl
