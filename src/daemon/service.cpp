// SPDX-License-Identifier: Apache-2.0
#include "daemon/service.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "daemon/messages.hpp"
#include "daemon/restore.hpp"
#include "domxml/parse.hpp"
#include "loop/service.hpp"
#include "metrics/text.hpp"
#include "json/document.hpp"
#include "json/run_time.hpp"

namespace virtguard::daemon {

namespace {

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
    auto libvirt = LibvirtWatch::create(loop, guard_, [this] {
        loop::notify_status(status_line());
        note_change();
    });
    auto metrics =
        MetricsFile::create(loop, files_, [this] { return metrics::text(status(), history_); });
    if (auto watching = policy_.watch(
            loop, {.in_force = [this] { apply_policy(); }, .changed = [this] { note_change(); }});
        !watching)
        return watching;
    if (auto watching = starts_.watch(loop); !watching)
        return watching;
    if (!metrics)
        return std::unexpected(metrics.error());
    if (!libvirt)
        return std::unexpected(libvirt.error());
    auto reservations =
        Reservations::create(loop, guard_, policy_.run_time(), options_.clock_is_right,
                             [this] { reservations_changed(); });
    if (!reservations)
        return std::unexpected(reservations.error());
    reservations_ = *std::move(reservations);
    libvirt_ = *std::move(libvirt);
    metrics_ = *std::move(metrics);
    metrics_->set_folder(guard_.policy().metrics.textfile_folder);
    if (!options_.live_topology)
        return {};
    auto storage = StorageWatch::create(
        loop, guard_, options_.storage.value_or(storage_below(options_.root)), [this] {
            note_over_capacity();
            save(); // what is known of images
        });
    if (!storage)
        return std::unexpected(storage.error());
    storage_ = *std::move(storage);
    starts_.set_storage(*storage_);
    reservations_->set_storage(*storage_);
    auto machine = MachineWatch::create(
        loop, files_, guard_, pages_, *storage_, options_.root, options_.machine_interval,
        {.changed = [this] { note_over_capacity(); },
         .looked = [this] { policy_.read_capacities(); },
         .status_file_written = [this](std::string_view guest) { status_file_written(guest); }});
    if (!machine)
        return std::unexpected(machine.error());
    machine_ = *std::move(machine);
    return {};
}

Service::Service(ServiceOptions options, core::Topology topology, StartPolicy policy,
                 FilesThread& files)
    : options_(std::move(options)), boot_(read_boot_id(options_.root)), files_(files),
      policy_({.policy = options_.policy_folder, .state = options_.state_folder, .boot = boot_},
              std::move(policy), files),
      guard_(std::move(topology), policy_.in_force()),
      pages_(guard_, options_.live_topology ? std::optional(options_.root) : std::nullopt,
             [this] { note_change(); }),
      store_(options_.run_folder / "guests", boot_),
      starts_(guard_, pages_, history_, [this] { save(); }) {
    starts_.set_capacities([this](std::chrono::nanoseconds at_most, StorageWatch::Then then) {
        policy_.read_capacities(at_most, std::move(then));
    });
    // First what is to be asked of each guest: its file knows the answer, its XML may tell it anew.
    guard_.reserve(core::bookings(policy_.run_time().values()));
    restore(guard_, store_, options_.root);
    store_.save(guard_);
    pages_.read_again();
}

void Service::handle(const wire::Request& request, Reply reply) {
    switch (request.header.operation) {
    case wire::Operation::prepare:
        return starts_.answer(request, std::move(reply));
    case wire::Operation::started:
    case wire::Operation::reconnect:
    case wire::Operation::release:
        told(request);
        return reply({});
    case wire::Operation::check:
        return check(request.body, std::move(reply));
    case wire::Operation::status:
        pages_.read_again();
        return reply(wire::encode_reply(wire::Operation::status, wire::Verdict::done,
                                        json::status_document(status())));
    case wire::Operation::metrics:
        pages_.read_again();
        return reply(wire::encode_reply(wire::Operation::metrics, wire::Verdict::done,
                                        metrics::text(status(), history_)));
    case wire::Operation::recent:
        return reply(wire::encode_reply(wire::Operation::recent, wire::Verdict::done,
                                        json::history_document(history_.recent())));
    case wire::Operation::policy:
        return reply(wire::encode_reply(wire::Operation::policy, wire::Verdict::done,
                                        json::policy_document(policy_.settings())));
    case wire::Operation::order:
        return carry_out(request, std::move(reply));
    }
}

void Service::carry_out(const wire::Request& request, Reply reply) {
    constexpr std::uint32_t root = 0; // the socket is closed to all others
    const auto answer = [](const Result<>& done) {
        const wire::Verdict verdict = done                                 ? wire::Verdict::done
                                      : done.error().code == Errc::refused ? wire::Verdict::refused
                                                                           : wire::Verdict::error;
        return wire::encode_reply(wire::Operation::order, verdict,
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
    if (!Reservations::are_meant_by(order))
        return policy_.carry_out(order, user, std::move(done));
    pages_.read_again();
    reservations_->carry_out(order, setter_now(user), std::move(done));
}

void Service::reservations_changed() {
    store_.save(guard_);  // what guests drew from one that has ended they draw from no other
    note_over_capacity(); // one may be forced
    if (on_questions_)
        on_questions_();
    note_change();
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
        return starts_.places_changed();
    }
    const auto domain = domxml::parse_domain(request.body, guard_.questions());
    if (domain)
        guard_.running(*domain, when);
    else
        guard_.started(uuid->text(), when);
    save();
    note_over_capacity(); // who reconnects was not asked whether it fits
    if (machine_)
        machine_->look_at(uuid->text());
}

/// As a start is answered.
void Service::check(std::string_view xml, Reply reply) {
    ReadDomain read = read_domain(xml, guard_.questions());
    if (!read.domain || read.domain->disks.empty() || storage_ == nullptr)
        return reply(check_reply(read));
    const std::vector<core::Disk> disks = read.domain->disks;
    auto done = [this, read = std::move(read), reply = std::move(reply)]() mutable {
        if (!guard_.check(*read.domain).decision.is_short_of(core::Resource::storage()))
            return reply(check_reply(read));
        storage_->read_all(StorageWatch::patience,
                           [this, read = std::move(read), reply = std::move(reply)]() mutable {
                               reply(check_reply(read));
                           });
    };
    storage_->read(disks, StorageWatch::patience, std::move(done));
}

std::string Service::check_reply(const ReadDomain& read) {
    const auto outcome = check(read, Fits::told);
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
    return core::make_outcome(read.identity,
                              core::answer_invalid(read.identity, error, guard_.policy()),
                              guard_.host(), guard_.policy());
}

core::Outcome Service::check(const core::Domain& domain) {
    pages_.read_again();
    return core::make_outcome(domain, guard_.check(domain), guard_.host(), guard_.policy());
}

Result<core::Outcome> Service::explain(std::string_view guest) {
    if (const core::Guest* known = find(guest))
        return check(core::Domain(known->domain));
    return fail(Errc::not_found, "no guest {}", quote(guest));
}

const core::Guest* Service::find(std::string_view guest) const {
    const auto uuid = Uuid::parse(guest);
    for (const auto& [identity, known] : guard_.ledger().guests())
        if (uuid ? known.domain.uuid == uuid : known.domain.name == guest)
            return &known;
    return nullptr;
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
    if (machine_)
        machine_->look_at(identity);
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
    if (machine_)
        machine_->libvirt_has_told(has_new ? MachineWatch::Guests::some_new
                                           : MachineWatch::Guests::known);
}

/// A start writes its file many times, and its hooks tell of it; what runs has changed.
void Service::status_file_written(std::string_view name) {
    for (const auto& [identity, guest] : guard_.ledger().guests())
        if (guest.domain.name == name && guest.state == core::GuestState::running &&
            guest.domain.uuid && ask_for_look_)
            ask_for_look_(*guest.domain.uuid);
}

void Service::apply_policy() {
    guard_.apply(policy_.in_force());
    if (reservations_)
        reservations_->take_up(); // what is set at run time may be known only now
    pages_.read_again();          // what is foreign depends on what is reserved
    note_over_capacity();
    if (storage_)
        storage_->policy_changed();
    starts_.places_changed(); // places may be kept for another time now
    metrics_->set_folder(guard_.policy().metrics.textfile_folder);
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

std::vector<std::string> Service::problems() const {
    std::vector<std::string> problems = policy_.problems();
    for (std::string& problem : libvirt_->problems(loop::now()))
        problems.push_back(std::move(problem));
    if (!pages_.problem().empty())
        problems.push_back("hugepages: " + pages_.problem());
    if (storage_)
        for (std::string& problem : storage_->problems())
            problems.push_back(std::move(problem));
    if (const std::size_t guests = guard_.unasked_guests(); guests > 0)
        problems.push_back(
            fmt::format("policy: guests not asked yet what it asks of their XML: {}", guests));
    if (reservations_)
        for (std::string& problem : reservations_->problems())
            problems.push_back(std::move(problem));
    if (!store_.problem().empty())
        problems.push_back("guests: " + store_.problem());
    return problems;
}

core::Status Service::status() const {
    const std::uint64_t would_refuse = history_.count(core::Verdict::would_refuse);
    core::Status status{.version = VIRTGUARD_VERSION,
                        .problems = problems(),
                        .mode = guard_.policy().mode,
                        .maintenance = guard_.policy().maintenance,
                        .admitted = history_.count(core::Verdict::admit) + would_refuse,
                        .refused = history_.count(core::Verdict::refuse),
                        .would_refuse = would_refuse,
                        .snapshot = snapshot_,
                        .report = guard_.report(),
                        .foreign_memory = guard_.foreign_memory(),
                        .guests = core::guest_reports(guard_.ledger(), guard_.policy().scheduler),
                        .reservations =
                            core::reservation_reports(run_time(), guard_.ledger(), guard_.host())};
    status.state = !status.problems.empty() ? "degraded"
                   : libvirt_->has_told()   ? "ready"
                                            : "starting";
    return status;
}

std::string Service::status_line() const {
    if (policy_.has_errors())
        return "policy has errors, see the journal";
    if (const auto problems = libvirt_->problems(loop::now()); !problems.empty())
        return problems.front();
    return fmt::format("{} guests, mode {}", guard_.ledger().guests().size(),
                       guard_.policy().maintenance ? "maintenance"
                                                   : core::mode_name(guard_.policy().mode));
}

} // namespace virtguard::daemon
