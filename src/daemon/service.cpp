// SPDX-License-Identifier: Apache-2.0
#include "daemon/service.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <variant>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "daemon/messages.hpp"
#include "daemon/restore.hpp"
#include "domxml/parse.hpp"
#include "host/hugepages.hpp"
#include "loop/service.hpp"
#include "metrics/text.hpp"
#include "policy/settings.hpp"
#include "wire/hook_conf.hpp"
#include "json/document.hpp"
#include "json/run_time.hpp"

namespace virtguard::daemon {

namespace {

/// Nobody was exec'd later than now: a time ahead of ours would outlive all that is told after it.
Instant exec_time(const wire::RequestHeader& header) {
    return std::min(header.exec_time, loop::now());
}

/// The hook has given up waiting: what it does now follows hook.unavailable.
bool is_too_late(const wire::RequestHeader& header) {
    return loop::now() > exec_time(header) + header.wait;
}

/// Left of a hook's patience for the answer to reach it.
constexpr std::chrono::milliseconds answer_margin{100};

Instant end_of_wait(const wire::RequestHeader& header) {
    return exec_time(header) + header.wait - answer_margin;
}

/// Tells one boot of this machine from another.
std::string read_boot_id(const std::filesystem::path& root) {
    constexpr std::size_t longest = 64;
    return read_file(root / "proc/sys/kernel/random/boot_id", longest).value_or("unknown");
}

} // namespace

Result<std::unique_ptr<Service>> Service::create(ServiceOptions options, core::Topology topology,
                                                 StartPolicy policy, FilesThread& files,
                                                 loop::Loop& loop) {
    std::unique_ptr<Service> service(
        new Service(std::move(options), std::move(topology), std::move(policy), files));
    if (auto watching = service->watch(loop); !watching)
        return std::unexpected(watching.error());
    return service;
}

Result<> Service::watch(loop::Loop& loop) {
    auto timer = loop.timer("kept places", [this] { end_returns(); });
    auto libvirt = LibvirtWatch::create(loop, guard_, [this] {
        loop::notify_status(status_line());
        note_change();
    });
    auto metrics =
        MetricsFile::create(loop, files_, [this] { return metrics::text(status(), history_); });
    if (auto watching = run_time_.watch(loop, [this] { note_change(); }); !watching)
        return watching;
    if (!timer)
        return std::unexpected(timer.error());
    if (!metrics)
        return std::unexpected(metrics.error());
    if (!libvirt)
        return std::unexpected(libvirt.error());
    timer_ = std::make_unique<loop::Timer>(*std::move(timer));
    arm_timer(); // for places that were kept before this daemon began
    libvirt_ = *std::move(libvirt);
    metrics_ = *std::move(metrics);
    metrics_->set_folder(guard_.policy().metrics.textfile_folder);
    return options_.live_topology ? watch_machine(loop) : Result<>{};
}

Result<> Service::watch_machine(loop::Loop& loop) {
    auto residency =
        ResidencyWatch::create(loop, files_, guard_, options_.root,
                               [this](ResidencyRound round) { note_residency(std::move(round)); });
    auto taking_in = loop.deferred("residency", [this] { take_in_residency(); });
    auto machine = loop.timer(
        "the machine", [this] { look_at_machine(); }, loop::Priority::idle);
    auto topology = TopologyWatch::create(
        loop, files_, options_.root, [this](core::Topology found) { apply(std::move(found)); });
    if (!residency)
        return std::unexpected(residency.error());
    if (!topology)
        return std::unexpected(topology.error());
    if (!taking_in)
        return std::unexpected(taking_in.error());
    if (!machine)
        return std::unexpected(machine.error());
    status_files_ =
        std::make_unique<StatusWatch>(loop, options_.root / "run/libvirt/qemu",
                                      [this](std::string_view name) { status_file_written(name); });
    residency_ = *std::move(residency);
    taking_in_ = *std::move(taking_in);
    topology_ = *std::move(topology);
    machine_ = std::make_unique<loop::Timer>(*std::move(machine));
    machine_->arm(loop::now()); // for what is known from before
    return {};
}

Service::Service(ServiceOptions options, core::Topology topology, StartPolicy policy,
                 FilesThread& files)
    : options_(std::move(options)), files_(files), files_policy_(std::move(policy.policy)),
      run_time_(options_.state_folder / "run-time", files),
      guard_(std::move(topology), core::in_force(files_policy_, run_time_.values())),
      store_(options_.run_folder / "guests", read_boot_id(options_.root)),
      policy_errors_(std::move(policy.errors)) {
    for (const std::string& error : policy_errors_)
        log(Level::error, "policy: {}", error);
    if (!policy_errors_.empty())
        log(Level::error, "policy: in force is {}", policy.in_force);
    restore(guard_, store_, options_.root);
    store_.save(guard_);
    refresh_hugepages();
    after_policy_change();
}

void Service::handle(const wire::Request& request, Reply reply) {
    switch (request.header.operation) {
    case wire::Operation::prepare:
        return prepare(request, std::move(reply));
    case wire::Operation::started:
    case wire::Operation::reconnect:
    case wire::Operation::release:
        told(request);
        return reply({});
    case wire::Operation::check:
        return reply(check_reply(request.body));
    case wire::Operation::status:
        refresh_hugepages();
        return reply(wire::encode_reply(wire::Operation::status, wire::Verdict::done,
                                        json::status_document(status())));
    case wire::Operation::metrics:
        refresh_hugepages();
        return reply(wire::encode_reply(wire::Operation::metrics, wire::Verdict::done,
                                        metrics::text(status(), history_)));
    case wire::Operation::recent:
        return reply(wire::encode_reply(wire::Operation::recent, wire::Verdict::done,
                                        json::history_document(history_.recent())));
    case wire::Operation::policy:
        return reply(wire::encode_reply(wire::Operation::policy, wire::Verdict::done,
                                        json::policy_document(policy_in_force())));
    case wire::Operation::order:
        return carry_out(request, std::move(reply));
    }
}

json::PolicyInForce Service::policy_in_force() const {
    json::PolicyInForce policy{policy::settings(core::in_force(files_policy_, run_time_.values())),
                               policy_errors_};
    std::map<std::string, core::Setting> of_files;
    for (core::Setting& each : policy::settings(files_policy_))
        of_files.emplace(each.key, std::move(each));
    for (const core::Setting& each : policy.settings) {
        // Only ratios need not be among the settings of the files: they are 1 then.
        const auto file = of_files.try_emplace(each.key, each.key, Ratio{}.text(), "default").first;
        if (file->second.origin != each.origin)
            policy.replaced.push_back(file->second);
    }
    return policy;
}

void Service::carry_out(const wire::Request& request, Reply reply) {
    constexpr std::uint32_t root = 0; // the socket is closed to all others
    const auto answer = [](const Result<>& done) {
        return wire::encode_reply(wire::Operation::order,
                                  done ? wire::Verdict::done : wire::Verdict::error,
                                  done ? std::string() : done.error().what);
    };
    const auto order = json::parse_order(request.body);
    if (!order)
        return reply(answer(std::unexpected(order.error())));
    carry_out(*order, root, [answer, reply = std::move(reply)](const Result<>& done) mutable {
        reply(answer(done));
    });
}

void Service::carry_out(const core::Order& order, std::uint32_t user, RunTimeStore::Kept done) {
    const core::Setter by{.time = loop::wall_time(), .uid = user, .user = user == 0 ? "root" : ""};
    run_time_.set(core::carried_out(run_time_.values(), order, by), std::move(done));
    apply_policy();
    log(Level::notice, "run time: {}, by {}", core::order_text(order), core::user_text(by));
    note_change();
}

void Service::prepare(const wire::Request& request, Reply reply) {
    ReadDomain read = read_domain(request.body, guard_.questions());
    if (read.domain) {
        refresh_hugepages(); // ordinary memory is what they leave
        decide({*std::move(read.domain), request.header, std::move(reply)});
        return arm_timer();
    }
    const Error& error = read.domain.error();
    if (error.code == Errc::invalid)
        return answer(read.identity, {.decision = core::refuse_invalid(error, guard_.policy())},
                      exec_time(request.header), reply);
    log_undecided({}, fmt::format("a start was not decided: {}", error.what));
    reply(wire::encode_reply(wire::Operation::prepare, wire::Verdict::error, error.what));
}

void Service::decide(Parked start) {
    const Instant when = exec_time(start.header);
    if (is_too_late(start.header)) {
        const bool denied = guard_.policy().hook.unavailable_denies;
        log_undecided(start.domain,
                      fmt::format("{} was {} by its hook, which did not wait for the answer",
                                  printable(start.domain.name), denied ? "refused" : "let in"));
        if (!denied)
            guard_.claim(start.domain, when);
        save();
        return start.reply({});
    }
    guard_.expire(loop::now());
    const bool may_wait = loop::now() < end_of_wait(start.header);
    const auto given =
        guard_.admit(start.domain, when, may_wait ? core::IfKept::wait : core::IfKept::refuse);
    if (given)
        answer(start.domain, *given, when, start.reply);
    else
        parked_.push_back(std::move(start));
}

void Service::answer(const core::Domain& domain, const core::Answer& answer, Instant exec,
                     Reply& reply) {
    save(); // first: a daemon that ends here has promised nothing it does not know of
    note(domain, answer, exec);
    const bool admitted = answer.decision.admitted();
    reply(wire::encode_reply(
        wire::Operation::prepare, admitted ? wire::Verdict::admitted : wire::Verdict::refused,
        admitted ? std::string() : core::refusal_line(domain.name, answer.decision)));
}

/// No place is kept any more, or one less, or some start cannot wait longer: decide those that wait
/// anew.
void Service::end_returns() {
    refresh_hugepages();
    guard_.expire(loop::now());
    std::list<Parked> waiting;
    waiting.swap(parked_);
    for (Parked& start : waiting)
        decide(std::move(start));
    save();
    arm_timer();
}

void Service::arm_timer() {
    std::optional<Instant> next = guard_.next_return_end();
    if (!next && !parked_.empty())
        return timer_->arm(loop::now()); // the guest whose place they wait for has returned
    for (const Parked& start : parked_) {
        const Instant end = end_of_wait(start.header);
        next = next ? std::min(*next, end) : end;
    }
    if (next)
        timer_->arm(*next);
}

void Service::note(const core::Domain& domain, const core::Answer& answer, Instant exec) {
    for (const std::string& note : answer.demand.notes)
        log(Level::warning, "{}: {}", printable(domain.name), note);
    log_start(history_.note(domain, answer, loop::wall_time(), loop::now() - exec));
}

/// What a hook tells. A domain that cannot be read (its XML may be cut) is known by its UUID.
void Service::told(const wire::Request& request) {
    const auto uuid = wire::find_uuid(request.body);
    if (!uuid)
        return;
    const Instant when = exec_time(request.header);
    if (request.header.operation == wire::Operation::release) {
        guard_.released(uuid->text(), when);
        save();
        return arm_timer();
    }
    const auto domain = domxml::parse_domain(request.body, guard_.questions());
    if (domain)
        guard_.running(*domain, when);
    else
        guard_.started(uuid->text(), when);
    save();
    note_over_capacity(); // who reconnects was not asked whether it fits
    if (residency_)
        residency_->look_at(uuid->text());
}

std::string Service::check_reply(std::string_view xml) {
    const auto outcome = check(read_domain(xml, guard_.questions()), Fits::told);
    return wire::encode_reply(wire::Operation::check,
                              outcome ? wire::Verdict::done : wire::Verdict::error,
                              outcome ? json::outcome_document(*outcome) : outcome.error().what);
}

Result<core::Outcome> Service::check(const ReadDomain& read, Fits fits) {
    if (read.domain) {
        core::Outcome outcome = check(*read.domain);
        if (fits == Fits::told)
            outcome.fits = guard_.advise(*read.domain);
        return outcome;
    }
    const Error& error = read.domain.error();
    if (error.code != Errc::invalid)
        return std::unexpected(error);
    const core::Answer answer{.decision = core::refuse_invalid(error, guard_.policy())};
    return core::make_outcome(read.identity, answer, guard_.host(), guard_.policy());
}

core::Outcome Service::check(const core::Domain& domain) {
    refresh_hugepages();
    return core::make_outcome(domain, guard_.check(domain), guard_.host(), guard_.policy());
}

Result<core::Outcome> Service::explain(std::string_view guest) {
    const auto uuid = Uuid::parse(guest);
    for (const auto& [identity, known] : guard_.ledger().guests())
        if (uuid ? known.domain.uuid == uuid : known.domain.name == guest)
            return check(core::Domain(known.domain));
    return fail(Errc::not_found, "no guest {}", quote(guest));
}

void Service::handle(virt::Message message) {
    libvirt_->note(message);
    if (auto* all = std::get_if<virt::Look>(&message))
        look(std::move(*all));
    else if (const auto* one = std::get_if<virt::DomainLook>(&message))
        look(*one);
    note_change();
}

void Service::look(const virt::DomainLook& seen) {
    if (seen.active && !seen.active->domain)
        return;
    const std::string identity = seen.uuid.text();
    guard_.reconcile(identity, seen.active ? std::optional(*seen.active->domain) : std::nullopt,
                     seen.began);
    save();
    note_over_capacity(); // it may have grown
    if (residency_)
        residency_->look_at(identity);
}

void Service::look(virt::Look seen) {
    // The thread was held up in it for so long that more may have left than is remembered.
    if (loop::now() - seen.began > core::Guard::max_look_age)
        return;
    snapshot_ =
        loop::wall_time() - std::chrono::floor<WallTime::duration>(loop::now() - seen.began);
    core::Look look{.began = seen.began};
    bool has_new = false;
    for (virt::ActiveDomain& domain : seen.active) {
        const std::string identity = domain.uuid.text();
        if (!domain.domain) {
            look.unreadable.push_back(identity);
            continue;
        }
        has_new = has_new || guard_.ledger().find(identity) == nullptr;
        look.active.push_back(*std::move(domain.domain));
    }
    guard_.reconcile(look);
    save();
    note_over_capacity();
    if (status_files_)
        status_files_->renew(); // their folder may have come with this libvirtd
    // Awake already, so that libvirt's looks and those at the machine are one wake-up a minute.
    if (machine_ && (has_new || loop::now() - machine_seen_ > options_.machine_interval / 2))
        look_at_machine();
}

/// Asks the kernel only, so it goes on while libvirt does not answer.
void Service::look_at_machine() {
    machine_seen_ = loop::now();
    refresh_hugepages();
    note_over_capacity();
    topology_->look();
    residency_->look_at_all();
    machine_->arm_after(options_.machine_interval);
}

/// A start writes its file many times, and its hooks tell of it; what runs has changed.
void Service::status_file_written(std::string_view name) {
    for (const auto& [identity, guest] : guard_.ledger().guests())
        if (guest.domain.name == name && guest.state == core::GuestState::running &&
            guest.domain.uuid && ask_for_look_)
            ask_for_look_(*guest.domain.uuid);
}

void Service::apply(core::Topology topology) {
    log(Level::notice, "topology: {} CPUs for guests now, on {} nodes", topology.allowed.count(),
        topology.nodes.size());
    guard_.apply(std::move(topology));
    refresh_hugepages();
    note_over_capacity();
}

void Service::note_residency(ResidencyRound round) {
    if (round.memory_in_use)
        guard_.set_memory_use(round.guests, *round.memory_in_use);
    rounds_.push_back(std::move(round));
    take_in_residency();
}

/// A part at a time, so that starts are answered in between.
void Service::take_in_residency() {
    constexpr std::size_t guests_per_turn = 500; // about 1 ms
    ResidencyRound& round = rounds_.front();
    std::map<std::string, core::Residency> part;
    while (!round.guests.empty() && part.size() < guests_per_turn)
        part.insert(part.end(), round.guests.extract(round.guests.begin()));
    guard_.set_residency(std::move(part), round.began);
    if (round.guests.empty()) {
        using Seen = core::ForeignPages::Seen;
        const bool of_all = round.memory_in_use.has_value();
        rounds_.pop_front();
        // What is foreign of them is what guests do not occupy.
        refresh_hugepages(of_all ? Seen::now : Seen::before);
        if (of_all)
            note_over_capacity();
    }
    if (!rounds_.empty())
        taking_in_->schedule();
}

/// Other hooks grow and shrink pools, so they are read again whenever they matter.
void Service::refresh_hugepages(core::ForeignPages::Seen seen) {
    if (!options_.live_topology)
        return;
    const auto pages = host::read_hugepages(options_.root);
    if (!pages) {
        if (pages_problem_.empty())
            log(Level::error, "hugepages: {}; using what was read before", pages.error().what);
        pages_problem_ = pages.error().what;
        return note_change();
    }
    pages_problem_.clear();
    core::Topology topology = guard_.topology();
    for (core::Node& node : topology.nodes)
        node.pools.clear();
    std::vector<core::PageUse> use;
    for (const host::NodePages& each : pages->nodes) {
        const auto node = std::ranges::find(topology.nodes, each.node, &core::Node::id);
        if (node != topology.nodes.end())
            node->pools.push_back({each.page_size, each.pool()});
        use.push_back({each.node, each.page_size, (each.total - each.free) * each.page_size});
    }
    for (const auto& [size, count] : pages->reserved)
        use.push_back({core::PageUse::no_node, size, count * size});
    if (topology != guard_.topology())
        guard_.apply(std::move(topology));
    guard_.set_page_use(use, seen);
    note_change();
}

void Service::reload(loop::Mailbox<CheckedPolicy>& loaded, Reloaded done) {
    const bool taken = files_.run([folder = options_.policy_folder, topology = guard_.topology(),
                                   &loaded] { (void)loaded.push(load_checked(folder, topology)); });
    if (taken)
        return reloads_.push_back(std::move(done));
    const auto busy =
        fail(Errc::unavailable, "policy: not reloaded, as reading files does not come to an end");
    log(Level::error, "{}", busy.error().what);
    done(busy);
}

void Service::apply(CheckedPolicy loaded) {
    Result<> result;
    if (loaded)
        put_in_force(*std::move(loaded));
    else {
        policy_errors_ = std::move(loaded.error());
        for (const std::string& error : policy_errors_)
            log(Level::error, "policy: {}", error);
        log(Level::error, "policy: not reloaded, the old one stays in force");
        result = fail(Errc::invalid, "{}", fmt::join(policy_errors_, "; "));
    }
    note_change();
    if (reloads_.empty())
        return;
    Reloaded done = std::move(reloads_.front());
    reloads_.pop_front();
    done(std::move(result));
}

void Service::put_in_force(core::Policy policy) {
    policy_errors_.clear();
    files_policy_ = std::move(policy);
    apply_policy();
    log(Level::notice, "policy: reloaded");
    after_policy_change();
    metrics_->set_folder(guard_.policy().metrics.textfile_folder);
}

void Service::apply_policy() {
    guard_.apply(core::in_force(files_policy_, run_time_.values()));
    refresh_hugepages(); // what is foreign depends on what is reserved
    note_over_capacity();
    arm_timer(); // places may be kept for another time now
}

/// The hook learns what concerns it, and a good policy is kept for a start with a bad one.
void Service::after_policy_change() {
    const bool is_good = policy_errors_.empty();
    const bool taken =
        files_.run([policy = files_policy_, is_good, policy_folder = options_.policy_folder,
                    state_folder = options_.state_folder] {
            const wire::HookConf conf{.timeout = policy.hook.timeout,
                                      .unavailable_denies = policy.hook.unavailable_denies};
            const auto written = wire::write_hook_conf(state_folder / "hook.conf", conf);
            if (!written)
                log(Level::error, "{}; hooks go on with what it says", written.error().what);
            if (!is_good)
                return;
            if (const auto kept = keep_as_last_good(policy_folder, state_folder, policy); !kept)
                log(Level::warning, "the policy was not kept as the last good one: {}",
                    kept.error().what);
        });
    if (!taken)
        log(Level::error, "hook.conf: not written, as writing files does not come to an end");
}

void Service::save() {
    store_.save(guard_);
    note_change();
}

void Service::note_change() const {
    if (metrics_)
        metrics_->note_change();
    if (on_change_)
        on_change_();
}

void Service::note_over_capacity() {
    std::vector<core::Resource> over;
    if (guard_.ledger().holdings().is_over()) // the report is dear, and mostly nothing is over
        over = guard_.report().over_capacity;
    for (const core::Resource& resource : over)
        if (std::ranges::find(over_capacity_, resource) == over_capacity_.end())
            log_over_capacity(resource);
    over_capacity_ = std::move(over);
}

core::Status Service::status() const {
    const auto lacks_answers = [this](const auto& guest) {
        return std::ranges::any_of(guard_.questions(), [&](const core::Question& question) {
            return !guest.second.domain.facts.contains(question.key);
        });
    };
    const std::uint64_t would_refuse = history_.count(core::Verdict::would_refuse);
    core::Status status{.version = VIRTGUARD_VERSION,
                        .mode = guard_.policy().mode,
                        .maintenance = guard_.policy().maintenance,
                        .admitted = history_.count(core::Verdict::admit) + would_refuse,
                        .refused = history_.count(core::Verdict::refuse),
                        .would_refuse = would_refuse,
                        .snapshot = snapshot_,
                        .report = guard_.report(),
                        .foreign_memory = guard_.foreign_memory()};
    for (const std::string& error : policy_errors_)
        status.problems.push_back("policy: " + error);
    if (!run_time_.problem().empty())
        status.problems.push_back("run time: " + run_time_.problem());
    for (std::string& problem : libvirt_->problems(loop::now()))
        status.problems.push_back(std::move(problem));
    if (!pages_problem_.empty())
        status.problems.push_back("hugepages: " + pages_problem_);
    if (const auto guests = std::ranges::count_if(guard_.ledger().guests(), lacks_answers);
        guests > 0)
        status.problems.push_back(fmt::format(
            "policy: {} of the guests were not asked yet what it asks of their XML", guests));
    if (!store_.problem().empty())
        status.problems.push_back("guests: " + store_.problem());
    status.state = !status.problems.empty() ? "degraded"
                   : libvirt_->has_told()   ? "ready"
                                            : "starting";
    for (const auto& [identity, guest] : guard_.ledger().guests())
        status.guests.push_back({.name = guest.domain.name,
                                 .uuid = guest.domain.uuid,
                                 .scheduler = guest.scheduler,
                                 .state = guest.state,
                                 .demand = guest.demand.total()});
    std::ranges::sort(status.guests, {}, [](const core::GuestReport& guest) {
        return std::tie(guest.uuid, guest.name);
    });
    return status;
}

std::string Service::status_line() const {
    if (!policy_errors_.empty())
        return "policy has errors, see the journal";
    if (const auto problems = libvirt_->problems(loop::now()); !problems.empty())
        return problems.front();
    return fmt::format("{} guests, mode {}", guard_.ledger().guests().size(),
                       guard_.policy().maintenance ? "maintenance"
                                                   : core::mode_name(guard_.policy().mode));
}

} // namespace virtguard::daemon
