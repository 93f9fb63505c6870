// SPDX-License-Identifier: Apache-2.0
#include "daemon/current_policy.hpp"

#include <map>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "loop/service.hpp"
#include "policy/settings.hpp"
#include "wire/hook_conf.hpp"

namespace virtguard::daemon {

namespace {

void log_errors(const std::vector<std::string>& errors) {
    for (const std::string& error : errors)
        log(Level::error, "policy: {}", error);
}

} // namespace

CurrentPolicy::CurrentPolicy(Folders folders, StartPolicy start, FilesThread& files)
    : folders_(std::move(folders)), files_(files), of_files_(std::move(start.policy)),
      only_observes_(start.only_observes), errors_(std::move(start.errors)),
      run_time_(folders_.state / "run-time", files, folders_.boot) {
    host::take_in(of_files_, read_at_start(files_, of_files_));
    log_errors(errors_);
    if (has_errors())
        log(Level::error, "policy: in force is {}", start.in_force);
    write_what_others_read();
}

Result<> CurrentPolicy::watch(loop::Loop& loop, Tell tell) {
    tell_ = std::move(tell);
    auto capacities = CapacityWatch::create(
        loop, files_, [this](const host::CapacityReadings& readings) { take_in(readings); });
    if (!capacities)
        return std::unexpected(capacities.error());
    capacities_ = *std::move(capacities);
    read_capacities(); // what could not be read at start is not known to be so
    return run_time_.watch(loop, tell_.changed, tell_.in_force);
}

/// What stands in for a policy that could not be read refuses nothing, whatever was set at run time
/// over the policy as it was.
core::Policy CurrentPolicy::in_force() const {
    core::RunTime run_time = run_time_.values();
    if (is_held_back())
        run_time.mode.reset();
    return core::in_force(of_files_, run_time);
}

bool CurrentPolicy::is_held_back() const {
    const auto& set = run_time_.values().mode;
    return only_observes_ && set && set->mode == core::Mode::enforce;
}

json::PolicyInForce CurrentPolicy::settings() const {
    json::PolicyInForce policy{policy::settings(in_force()), errors_};
    std::map<std::string, core::Setting> of_files;
    for (core::Setting& each : policy::settings(of_files_))
        of_files.emplace(each.key, std::move(each));
    for (const core::Setting& each : policy.settings) {
        // Only ratios need not be among the settings of the files: they are 1 then.
        const auto file = of_files.try_emplace(each.key, each.key, Ratio{}.text(), "default").first;
        if (file->second.origin != each.origin)
            policy.replaced.push_back(file->second);
    }
    return policy;
}

std::vector<std::string> CurrentPolicy::problems() const {
    std::vector<std::string> problems;
    problems.reserve(errors_.size() + 1);
    for (const std::string& error : errors_)
        problems.push_back("policy: " + error);
    if (is_held_back())
        problems.push_back("run time: mode enforce waits for a policy without errors");
    if (!run_time_.problem().empty())
        problems.push_back("run time: " + run_time_.problem());
    for (const auto& [resource, set] : run_time_.values().overcommit)
        if (!of_files_.find_resource(resource.name()))
            problems.push_back(fmt::format(
                "run time: {} has no effect, as the policy does not declare {}",
                core::order_text(core::SetOvercommit{resource, set.ratio}), resource.name()));
    if (capacities_)
        for (std::string& problem : capacities_->problems(of_files_))
            problems.push_back(std::move(problem));
    return problems;
}

void CurrentPolicy::reload(core::Topology topology, loop::Mailbox<CheckedPolicy>& loaded,
                           Reloaded done) {
    const bool taken =
        files_.run([folder = folders_.policy, topology = std::move(topology), &loaded] {
            auto policy = load_checked(folder, topology);
            if (policy)
                host::take_in(*policy, host::read_capacities(*policy));
            (void)loaded.push(std::move(policy));
        });
    if (taken)
        return reloads_.push_back(std::move(done));
    const auto busy =
        fail(Errc::unavailable, "policy: not reloaded, as reading files does not come to an end");
    log(Level::error, "{}", busy.error().what);
    done(busy);
}

void CurrentPolicy::apply(CheckedPolicy loaded) {
    Result<> result;
    if (loaded) {
        errors_.clear();
        only_observes_ = false;
        for (const auto& [key, file] : loaded->capacity_files())
            if (const auto known = of_files_.readings.find(file); known != of_files_.readings.end())
                loaded->readings.insert(*known); // where it could not be read now
        of_files_ = *std::move(loaded);
        tell_.in_force();
        read_capacities(); // of what could not be read, the problems
        log(Level::notice, "policy: reloaded");
        write_what_others_read();
    } else {
        errors_ = std::move(loaded.error());
        log_errors(errors_);
        log(Level::error, "policy: not reloaded, the old one stays in force");
        result = fail(Errc::invalid, "{}", fmt::join(errors_, "; "));
    }
    tell_.changed();
    if (reloads_.empty())
        return;
    Reloaded done = std::move(reloads_.front());
    reloads_.pop_front();
    done(std::move(result));
}

/// What is set of a resource that is declared no longer can still be reset.
Result<> CurrentPolicy::check_known(const core::Order& order) const {
    std::optional<core::Resource> named;
    if (const auto* set = std::get_if<core::SetOvercommit>(&order))
        named = set->resource;
    else if (const auto* reset = std::get_if<core::ResetOvercommit>(&order);
             reset != nullptr && reset->resource &&
             !run_time_.values().overcommit.contains(*reset->resource))
        named = reset->resource;
    if (!named)
        return {};
    const auto known = of_files_.find_resource(named->name());
    return known ? Result<>{} : std::unexpected(known.error());
}

void CurrentPolicy::carry_out(const core::Order& order, std::uint32_t user,
                              RunTimeStore::Kept done) {
    if (auto known = check_known(order); !known)
        return done(std::unexpected(std::move(known.error())));
    const core::Setter by = setter_now(user);
    run_time_.set(core::carried_out(run_time_.values(), order, by), std::move(done));
    tell_.in_force();
    log(Level::notice, "run time: {}, by {}", core::order_text(order), core::user_text(by));
    tell_.changed();
}

void CurrentPolicy::take_in(const host::CapacityReadings& readings) {
    if (host::take_in(of_files_, readings)) {
        log(Level::notice, "policy: capacities have changed in the files it names");
        tell_.in_force();
    }
    tell_.changed();
}

/// The hook learns what concerns it, and a good policy is kept for a start with a bad one.
void CurrentPolicy::write_what_others_read() {
    const bool taken =
        files_.run([policy = of_files_, is_good = !has_errors(), folders = folders_] {
            const wire::HookConf conf{.timeout = policy.hook.timeout,
                                      .unavailable_denies = policy.hook.unavailable_denies};
            const auto written = wire::write_hook_conf(folders.state / "hook.conf", conf);
            if (!written)
                log(Level::error, "{}; hooks go on with what it says", written.error().what);
            if (!is_good)
                return;
            if (const auto kept = keep_as_last_good(folders.policy, folders.state, policy); !kept)
                log(Level::warning, "the policy was not kept as the last good one: {}",
                    kept.error().what);
        });
    if (!taken)
        log(Level::error, "hook.conf: not written, as writing files does not come to an end");
}

} // namespace virtguard::daemon
