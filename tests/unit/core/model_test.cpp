// SPDX-License-Identifier: Apache-2.0
//
// Random small hosts, policies and guests: every verdict and every free amount of core must be that
// of the brute-force model. VIRTGUARD_SEED and VIRTGUARD_CASES (decisions compared) choose a run;
// a failure names the seed of its host alone.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "core/admission.hpp"
#include "core/ledger.hpp"
#include "core/report.hpp"
#include "core/run_time.hpp"
#include "model/model.hpp"

using namespace virtguard;
using namespace virtguard::core;

namespace {

class Dice {
  public:
    explicit Dice(std::uint64_t seed) : random_(seed) {}

    /// In [0, limit).
    int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
    bool one_in(int count) { return below(count) == 0; }
    IdSet some_of(const IdSet& ids, int one_in_count = 2) {
        IdSet result;
        for (const int id : ids.ids())
            if (one_in(one_in_count))
                result.insert(id);
        return result;
    }
    Ratio ratio() {
        static const std::vector<const char*> ratios{"1", "1", "1.5", "1.15", "3", "0.5", "0.85"};
        return *Ratio::parse(
            ratios[static_cast<std::size_t>(below(static_cast<int>(ratios.size())))]);
    }

  private:
    std::mt19937_64 random_;
};

constexpr std::array<std::int64_t, 3> page_sizes{2, 4, 8};
const std::array<Resource, 2> custom_resources{Resource::custom("licences"),
                                               Resource::custom("example.org/gpu")};

constexpr int image_count = 6;

ImageName image_name(int number) {
    return {fmt::format("/images/{}", number), "qcow2"};
}

/// Of devices 0 to 2 some are the policy's; all of them have images.
FileSystems random_file_systems(Dice& dice) {
    FileSystems file_systems;
    for (int place = 0; place < 3; ++place)
        if (dice.one_in(3))
            file_systems.read[place] = {.path = "/images",
                                        .device = static_cast<std::uint64_t>(place),
                                        .capacity = 2 + dice.below(12),
                                        .used = 1 + dice.below(3)};
    return file_systems;
}

Images random_images(Dice& dice) {
    Images images;
    for (int number = 1; number < image_count; ++number) // of the first nothing is known
        images[image_name(number)].image =
            Image{.device = static_cast<std::uint64_t>(dice.below(3)),
                  .virtual_size = dice.below(6),
                  .allocated = dice.below(4)};
    return images;
}

void add_pus(Dice& dice, Topology& topology) {
    const int limit = dice.one_in(8) ? 13 : 8;
    const int count = std::min(12, 1 + dice.below(limit) / 2 + dice.below(limit) / 2);
    const bool smt = dice.one_in(3);
    for (int pu = 0; pu < count; pu += smt ? 2 : 1) {
        IdSet core{pu};
        if (smt && pu + 1 < count)
            core.insert(pu + 1);
        if (dice.one_in(10)) {
            topology.offline |= core;
            continue;
        }
        topology.cores.push_back(core);
        topology.online |= core;
        topology
            .nodes[static_cast<std::size_t>(dice.below(static_cast<int>(topology.nodes.size())))]
            .pus |= core;
        if (!dice.one_in(10))
            topology.allowed |= core;
        if (dice.one_in(10))
            topology.isolated |= core;
    }
}

Topology random_topology(Dice& dice) {
    Topology topology;
    topology.base_page = 1;
    if (!dice.one_in(3))
        topology.default_hugepage = page_sizes[static_cast<std::size_t>(dice.below(3))];
    const int count = 1 + dice.below(dice.one_in(3) ? 6 : 3);
    const int step = dice.one_in(4) ? 2 : 1;
    for (int i = 0; i < count; ++i) {
        Node node{.id = i * step};
        node.memory = dice.one_in(8) ? 0 : 4 + dice.below(16);
        for (const std::int64_t size : page_sizes)
            if (dice.one_in(2)) {
                node.pools.push_back({size, dice.below(6)});
                node.memory += size * node.pools.back().pages;
            }
        topology.nodes.push_back(std::move(node));
    }
    add_pus(dice, topology);
    return topology;
}

IdSet nodes_of(const Topology& topology) {
    IdSet ids;
    for (const Node& node : topology.nodes)
        ids.insert(node.id);
    return ids;
}

/// PUs whose cores are in one piece, so that counting cores leaves nothing to interpretation.
IdSet some_cores(Dice& dice, const Topology& topology, int one_in_count) {
    IdSet pus;
    for (const IdSet& core : topology.cores)
        if (dice.one_in(one_in_count))
            pus |= core;
    return pus;
}

void randomize_reserve(Dice& dice, const Topology& topology, Policy& policy) {
    policy.reserve = {};
    if (dice.one_in(3))
        policy.reserve.cpus = some_cores(dice, topology, 5);
    std::int64_t named = 0;
    for (const Node& node : topology.nodes) {
        if (dice.one_in(6))
            named += *(policy.reserve.nodes[node.id].memory = dice.below(5));
        if (!node.pools.empty() && dice.one_in(5))
            policy.reserve.nodes[node.id].hugepages[node.pools.front().page_size] = dice.below(8);
    }
    policy.reserve.memory = named + (dice.one_in(2) ? dice.below(6) : 0);
}

/// Host-wide, or on some nodes; some hosts have none of it.
void randomize_resources(Dice& dice, const Topology& topology, Policy& policy) {
    for (const Resource& resource : custom_resources) {
        if (dice.one_in(2))
            continue;
        CustomResource& custom = policy.resources[resource];
        policy.overcommit[resource] = dice.ratio();
        for (const Node& node : topology.nodes)
            if (dice.one_in(2))
                custom.nodes[node.id].amount = dice.below(6);
        if (custom.nodes.empty() || dice.one_in(2)) {
            custom.nodes.clear();
            custom.host = CustomCapacity{.amount = dice.below(12)};
        }
    }
}

/// Tables whose globs overlap: the first by name counts.
void randomize_quotas(Dice& dice, SchedulerPolicy& policy) {
    for (const char* name : {"a*", "ab", "b"}) {
        if (!dice.one_in(3))
            continue;
        AcceptedScheduler& table = policy.accept[name];
        table.match = name;
        for (const Resource& resource :
             {Resource::cpu(), Resource::memory(), Resource::hugepages(page_sizes[0]),
              Resource::storage(), custom_resources[0]})
            if (dice.one_in(2))
                table.quota[resource] = {.amount = dice.below(12)};
            else if (dice.one_in(2))
                table.quota[resource].percent = *Ratio::parse(dice.one_in(2)   ? "33.3"
                                                              : dice.one_in(2) ? "75"
                                                                               : "12.5");
    }
}

Policy random_policy(Dice& dice, const Topology& topology) {
    Policy policy;
    policy.overcommit[Resource::cpu()] = dice.ratio();
    policy.overcommit[Resource::memory()] = dice.ratio();
    policy.overcommit[Resource::storage()] = dice.ratio();
    randomize_reserve(dice, topology, policy);
    randomize_resources(dice, topology, policy);
    policy.scheduler.accept_any = true;
    if (dice.one_in(3))
        randomize_quotas(dice, policy.scheduler);
    if (dice.one_in(6))
        policy.memory.nodes = dice.some_of(nodes_of(topology));
    policy.memory.count_current = dice.one_in(4);
    policy.memory.virtio_mem_requested = dice.one_in(3);
    policy.memory.file_is_storage = dice.one_in(3);
    policy.memory.overhead.reset();
    if (dice.one_in(3))
        policy.memory.overhead = Overhead{
            .base = dice.below(3), .per_vcpu = dice.below(2), .per_iothread = 0, .per_gib = 0};
    policy.cpu.count_cores = dice.one_in(3);
    policy.cpu.pinning_exclusive = !dice.one_in(4);
    policy.cpu.vcpus_maximum = dice.one_in(4);
    if (dice.one_in(5)) {
        const IdSet dedicated = some_cores(dice, topology, 2);
        if (!dice.one_in(3))
            policy.cpu.dedicated = dedicated;
        if (!policy.cpu.dedicated || dice.one_in(2))
            policy.cpu.shared = some_cores(dice, topology, 2) - dedicated;
    }
    return policy;
}

void add_vcpus(Dice& dice, const Topology& topology, Domain& domain) {
    const IdSet named = topology.online | topology.offline | IdSet{13};
    std::vector<std::optional<IdSet>> sets;
    // Now and then more vCPUs than the host has CPUs, on many sets.
    for (int groups = dice.below(dice.one_in(8) ? 30 : 4); groups > 0; --groups) {
        std::optional<IdSet> cpus;
        if (dice.one_in(3))
            cpus = IdSet{named.ids()[static_cast<std::size_t>(dice.below(named.count()))]};
        else if (dice.one_in(2))
            cpus = dice.some_of(named) |
                   IdSet{topology.online.first() < 0 ? 0 : topology.online.first()};
        if (std::ranges::find(sets, cpus) != sets.end())
            continue;
        sets.push_back(cpus);
        const int current = dice.below(3);
        domain.vcpus.push_back({cpus, current, current + dice.below(2)});
    }
}

MemoryPart random_part(Dice& dice, const Topology& topology) {
    MemoryPart part;
    part.size = 1 + dice.below(dice.one_in(4) ? 9 : 5);
    part.requested = part.size;
    if (dice.one_in(5)) {
        part.kind = MemoryPart::Kind::virtio_mem;
        part.requested = dice.below(static_cast<int>(part.size) + 1);
    }
    if (dice.one_in(3))
        part.pages =
            PagesOf{dice.one_in(6) ? 1 : page_sizes[static_cast<std::size_t>(dice.below(3))]};
    else if (dice.one_in(8))
        part.pages = DefaultHugepages{};
    if (dice.one_in(2)) {
        IdSet nodes = dice.some_of(nodes_of(topology));
        if (nodes.empty() || dice.one_in(60))
            nodes.insert(dice.one_in(30) ? 11 : topology.nodes.front().id);
        part.bound_to = nodes;
    }
    return part;
}

Domain random_domain(Dice& dice, const Topology& topology, int number) {
    Domain domain{.name = fmt::format("guest-{}", number)};
    domain.scheduler = dice.one_in(2) ? "ab" : dice.one_in(2) ? "a" : "b";
    add_vcpus(dice, topology, domain);
    for (int parts = dice.below(4); parts > 0; --parts)
        domain.memory.push_back(random_part(dice, topology));
    for (const MemoryPart& part : domain.memory)
        domain.current_memory += part.size;
    if (dice.one_in(3))
        domain.current_memory -= dice.below(static_cast<int>(domain.current_memory) + 1);
    domain.locked = dice.one_in(8);
    domain.preallocated = dice.one_in(10);
    domain.confidential = dice.one_in(12);
    domain.file_backed = dice.one_in(8);
    domain.vfio_devices = dice.one_in(6) ? 1 : 0;
    for (const Resource& resource : custom_resources)
        domain.facts[demand_key(resource)].value = dice.one_in(2) ? dice.below(5) : 0;
    for (int disks = dice.below(3); disks > 0; --disks)
        domain.disks.push_back(
            {.image = image_name(dice.below(image_count)), .begins_anew = dice.one_in(6)});
    return domain;
}

/// What was decided in all trials: to see that the random cases are worth their time.
struct Tally {
    std::uint64_t decisions = 0;
    std::uint64_t admitted = 0;
    std::map<Code, std::uint64_t> refused; ///< by the last of the reasons
    std::uint64_t reservations = 0;
};

using BookedId = std::pair<std::string, Resource>;
struct BookedAmount {
    std::optional<int> node{};
    std::int64_t amount = 0;
    Instant made{}; ///< first under its name
    std::optional<Instant> end{};
    std::set<Uuid> uuids{};

    [[nodiscard]] bool is_for(const Domain& domain, Instant claimed) const {
        return (domain.uuid && uuids.contains(*domain.uuid)) || (uuids.empty() && claimed >= made);
    }
};

/// One host with its ledger, and the same as the model sees it.
class Trial {
  public:
    explicit Trial(std::uint64_t seed)
        : dice_(seed), topology_(random_topology(dice_)), policy_(random_policy(dice_, topology_)),
          file_systems_(random_file_systems(dice_)), images_(random_images(dice_)), host_(make()),
          ledger_(host_) {
        for (const auto& [place, file_system] : file_systems_.read) {
            foreign_.push_back(
                {Resource::storage(), IdSet{place}, /*whole=*/true, file_system.used});
            extra_[Resource::storage()].push_back(
                {model::bits_of(IdSet{place}), true, file_system.used});
        }
        ledger_.set_foreign(foreign_);
    }

    /// Compares some decisions and then what is free; counts what was decided.
    void run(Tally& tally) {
        for (int event = 2 + dice_.below(16); event > 0; --event) {
            now_ += std::chrono::seconds(1);
            expire();
            happen(tally);
        }
        compare_free();
    }

  private:
    Host make() const {
        Host host = make_host(topology_, policy_, file_systems_);
        host.images = images_;
        return host;
    }

    model::Model make_model() const { return {topology_, policy_, file_systems_, images_}; }

    void happen(Tally& tally) {
        switch (dice_.below(20)) {
        case 0:
            return release();
        case 1:
            return change_policy();
        case 2:
            return book();
        case 3:
            return charge_foreign();
        case 4:
        case 5:
            return occupy();
        case 6:
        case 7:
        case 8:
            return reserve(tally);
        case 9:
            return cancel();
        default:
            if (guests_.size() < 8)
                start(tally);
        }
    }

    void start(Tally& tally) {
        Domain domain = random_domain(dice_, topology_, next_++);
        domain.uuid = Uuid{};
        domain.uuid->bytes[15] = static_cast<std::uint8_t>(next_);
        const Decision decision = decided(domain);
        const model::Model model = make_model();
        const model::Demand asked = model.demand_of(domain);
        const model::Claims others = held(model, &domain);
        const bool expected =
            model.admits(asked, others) &&
            model.within_quota(domain.scheduler, asked, by_scheduler(model, &domain), others);
        if (decision.admitted() != expected)
            FAIL("core " << (decision.admitted() ? "admits " : "refuses ")
                         << refusal_line(domain.name, decision));
        check_reasons(decision);
        ++tally.decisions;
        if (expected)
            ++tally.admitted;
        else
            ++tally.refused[decision.reasons.back().code];
        if (expected || dice_.one_in(6)) // one that runs all the same: the host is over then
            put(domain);
    }

    Decision decided(const Domain& domain) {
        const Demand demand = make_demand(domain, host_, policy_);
        const Ledger::Others others(ledger_, domain, domain.scheduler, demand, now_,
                                    /*with_returning=*/true);
        return decide(domain, standing_of(domain, policy_), demand, ledger_.holdings(),
                      ledger_.held_by_scheduler(), host_, policy_);
    }

    /// A scheduler books again what it has of a resource, in place of that. More than one amount of
    /// a resource could be drawn on in several ways.
    void reserve(Tally& tally) {
        const BookedId id{dice_.one_in(2) ? "ab" : dice_.one_in(2) ? "a" : "b", random_resource()};
        BookedAmount booked{.amount = 1 + dice_.below(4)};
        if (dice_.one_in(2) && id.second != Resource::storage())
            booked.node = dice_.one_in(20) ? 9 : topology_.nodes.back().id;
        if (id.second.kind == Resource::Kind::hugepages) // smaller ones than any host has
            booked.amount = checked_round_up(booked.amount, id.second.page_size).value();
        const model::Model model = make_model();
        const auto old = booked_.extract(id);
        booked.made = old ? old.mapped().made : now_;
        if (dice_.one_in(2))
            booked.end = now_ + std::chrono::seconds(1 + dice_.below(6));
        if (!guests_.empty() && dice_.one_in(3))
            booked.uuids = {*guests_.begin()->second.uuid};
        booked_[id] = booked;
        const model::Demand left = left_of(model, id, nullptr);
        booked_.erase(id);
        const model::Claims others = held(model, nullptr);
        const bool expected =
            model.admits_booking(left, others) &&
            model.within_quota(id.first, left, by_scheduler(model, nullptr), others);
        const bool by_force = dice_.one_in(8);
        if (is_reserved(id, booked, by_force) != expected)
            FAIL("core " << (expected ? "refuses " : "admits ") << booked.amount << " of "
                         << id.second.name() << " for " << id.first);
        ++tally.reservations;
        if (expected || by_force) {
            booked_[id] = booked;
            run_time_.reservations[name_of(id)] = {
                .booking = {}, .expiry = {}, .by = {}, .end = booked.end};
        } else if (old)
            booked_[id] = old.mapped();
    }

    Resource random_resource() {
        if (dice_.one_in(6))
            return Resource::storage();
        if (dice_.one_in(3))
            return Resource::hugepages(page_sizes[static_cast<std::size_t>(dice_.below(3))]);
        return dice_.one_in(2) ? Resource::cpu() : Resource::memory();
    }

    /// What core answers, which is undone where it refuses, unless by force.
    bool is_reserved(const BookedId& id, const BookedAmount& booked, bool by_force) {
        const Booking booking{.amounts = {{{id.second, booked.node}, booked.amount}},
                              .uuids = booked.uuids,
                              .made = booked.made};
        Demand demand = make_demand(booking, host_, policy_);
        Ledger::Trial trial(ledger_, name_of(id), Reservation::of(booking, host_, policy_));
        demand.pieces = trial.added();
        const bool admitted =
            decide_reservation(id.first, demand, /*is_of_one_guest=*/false, ledger_.holdings(),
                               ledger_.held_by_scheduler(), host_, policy_)
                .admitted();
        if (admitted || by_force)
            trial.keep();
        return admitted;
    }

    void cancel() {
        if (booked_.empty())
            return;
        const BookedId id = booked_.begin()->first;
        booked_.erase(id);
        run_time_.reservations.erase(name_of(id));
        ledger_.cancel(name_of(id));
    }

    void expire() {
        for (const ReservationId& id : expired(run_time_, {.boot = now_})) {
            run_time_.reservations.erase(id);
            ledger_.cancel(id);
        }
        std::erase_if(
            booked_, [&](const auto& each) { return each.second.end && *each.second.end <= now_; });
    }

    static ReservationId name_of(const BookedId& id) { return {id.first, id.second.name()}; }

    void put(const Domain& domain) {
        guests_[identity_of(domain)] = domain;
        claimed_[identity_of(domain)] = now_;
        ledger_.put({.domain = domain,
                     .scheduler = domain.scheduler,
                     .state = dice_.one_in(2) ? GuestState::pending : GuestState::running,
                     .claimed = now_,
                     .demand = make_held_demand(domain, host_, policy_)});
    }

    /// What a running guest occupies is seen: less than it holds or all of it, anywhere.
    void occupy() {
        for (const auto& [name, guest] : ledger_.guests()) {
            if (guest.state != GuestState::running || dice_.one_in(3))
                continue;
            Residency residency;
            for (const auto& [resource, amount] : guest.demand.total()) {
                if (!resource.is_bytes() || dice_.one_in(4))
                    continue;
                std::int64_t left = amount;
                auto& by_node = residency[resource];
                while (left > 0 && !dice_.one_in(4)) {
                    const IdSet nodes = nodes_of(topology_);
                    const int node =
                        dice_.one_in(30)
                            ? 9
                            : nodes.ids()[static_cast<std::size_t>(dice_.below(nodes.count()))];
                    const std::int64_t part = 1 + dice_.below(static_cast<int>(left));
                    by_node[node] += part;
                    left -= part;
                }
            }
            if (!is_plain(guest, residency))
                continue;
            const std::string seen = name;
            resident_[seen] = residency;
            ledger_.set_residency({{seen, std::move(residency)}}, {}, host_);
            return;
        }
    }

    /// Where it matters which of its pieces lies where, the model does not say.
    bool is_plain(const Guest& guest, const Residency& residency) const {
        for (const auto& [resource, by_node] : residency) {
            std::int64_t held = 0;
            IdSet kinds;
            for (const Piece& piece : guest.demand.pieces)
                if (piece.resource == resource) {
                    held += piece.amount;
                    kinds.insert(piece.whole ? 1 : 0);
                }
            for (const auto& [node, amount] : by_node)
                held -= amount;
            if (held < 0 || kinds.count() > 1)
                return false;
        }
        return true;
    }

    static void check_reasons(const Decision& decision) {
        for (const Reason& reason : decision.reasons)
            if (reason.code == Code::insufficient_capacity ||
                reason.code == Code::insufficient_node_capacity)
                if (reason.free >= reason.requested)
                    FAIL("a reason that is none: " << reason.text);
    }

    void release() {
        if (guests_.empty())
            return;
        const std::string name = guests_.begin()->first;
        guests_.erase(name);
        resident_.erase(name);
        ledger_.erase(name);
    }

    void change_policy() {
        policy_ = random_policy(dice_, topology_);
        host_ = make();
        ledger_.recompute(host_, policy_);
        std::erase_if(resident_, [&](const auto& seen) {
            const bool plain = is_plain(*ledger_.find(seen.first), seen.second);
            if (!plain)
                ledger_.set_residency({{seen.first, {}}}, {}, host_);
            return !plain;
        });
    }

    /// Booked space and foreign pages are given as pieces; only their places are random.
    void add_extra(const Resource& resource, std::int64_t amount, bool whole,
                   std::vector<Piece>& pieces) {
        IdSet places =
            dice_.some_of(resource == Resource::cpu() ? topology_.online : nodes_of(topology_));
        if (places.empty())
            places = host_.pool(resource)->all();
        if (places.empty())
            return;
        pieces.push_back({resource, places, whole, amount});
        extra_[resource].push_back({model::bits_of(places), whole, amount});
    }

    void book() {
        std::vector<Piece> pieces;
        add_extra(dice_.one_in(2) ? Resource::cpu() : Resource::memory(), 1 + dice_.below(3),
                  /*whole=*/false, pieces);
        ledger_.reserve({.owner = {}, .name = fmt::format("booking-{}", next_++)},
                        {.pieces = pieces});
    }

    void charge_foreign() {
        if (foreign_pages_)
            return;
        foreign_pages_ = true;
        for (const std::int64_t size : page_sizes)
            if (host_.pool(Resource::hugepages(size)) != nullptr)
                add_extra(Resource::hugepages(size), size * (1 + dice_.below(2)), /*whole=*/true,
                          foreign_);
        ledger_.set_foreign(foreign_);
    }

    /// What guests of the owner, and a start, leave of what is booked.
    model::Demand left_of(const model::Model& model, const BookedId& id,
                          const Domain* start) const {
        const BookedAmount& booked = booked_.at(id);
        model::Demand demand = model.booked(id.second, booked.node, booked.amount);
        std::vector<model::Claims> drawing;
        for (const auto& [name, domain] : guests_)
            if (domain.scheduler == id.first && booked.is_for(domain, claimed_.at(name)))
                drawing.push_back(model.held_by(domain));
        if (start != nullptr && start->scheduler == id.first && booked.is_for(*start, now_))
            drawing.push_back(model.demand_of(*start).claims);
        demand.claims = model.somewhere(std::move(demand.claims));
        for (model::Claim& claim : demand.claims[id.second])
            claim.amount = model::Model::left_of(id.second, claim, drawing);
        return demand;
    }

    model::Claims held(const model::Model& model, const Domain* start = nullptr) const {
        model::Claims claims = extra_;
        for (const auto& [id, booked] : booked_) {
            const model::Demand left = left_of(model, id, start);
            for (const model::Claim& claim : left.claims.at(id.second))
                claims[id.second].push_back(claim);
        }
        for (const auto& [name, domain] : guests_)
            for (const auto& [resource, of_guest] : held_by(model, domain))
                claims[resource].insert(claims[resource].end(), of_guest.begin(), of_guest.end());
        return claims;
    }

    std::vector<std::pair<std::string, model::Claims>> by_scheduler(const model::Model& model,
                                                                    const Domain* start) const {
        std::vector<std::pair<std::string, model::Claims>> result;
        for (const auto& [id, booked] : booked_)
            result.emplace_back(id.first, left_of(model, id, start).claims);
        for (const auto& [name, domain] : guests_)
            result.emplace_back(domain.scheduler, model.held_by(domain));
        return result;
    }

    model::Claims held_by(const model::Model& model, const Domain& domain) const {
        const auto seen = resident_.find(identity_of(domain));
        model::Claims claims = model.held_by(domain);
        return seen == resident_.end() ? claims : model.bind(std::move(claims), seen->second);
    }

    void compare_free() const {
        const Report report = make_report(host_, ledger_.holdings());
        const model::Model model = make_model();
        const model::Claims claims = held(model);
        for (const auto& [resource, free] : report.host.free)
            if (free != model.host_free(resource, claims))
                FAIL("host " << resource.name() << ": core " << free << ", model "
                             << model.host_free(resource, claims));
        for (const NodeReport& node : report.nodes)
            for (const auto& [resource, free] : node.figures.free) {
                const auto expected = model.node_free(resource, node.id, claims);
                if (free != expected)
                    FAIL("node " << node.id << " " << resource.name() << ": core " << free
                                 << ", model " << expected.value_or(-999));
            }
    }

    Dice dice_;
    Topology topology_;
    Policy policy_;
    FileSystems file_systems_;
    Images images_;
    Host host_;
    Ledger ledger_;
    std::map<std::string, Domain> guests_;
    std::map<std::string, Instant> claimed_; ///< also of those that are gone
    Instant now_{};
    std::map<std::string, Residency> resident_;
    /// By owner and resource.
    std::map<BookedId, BookedAmount> booked_;
    model::Claims extra_; ///< booked for nobody, or foreign
    RunTime run_time_;    ///< when which of them ends
    std::vector<Piece> foreign_;
    bool foreign_pages_ = false;
    int next_ = 0;
};

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : parse_unsigned(text).value_or(otherwise);
}

} // namespace

TEST_CASE("the model's two ways to carry claims agree") {
    Dice dice(1);
    for (int round = 0; round < 3000; ++round) {
        std::vector<std::int64_t> room;
        for (int places = 1 + dice.below(3); places > 0; --places)
            room.push_back(dice.below(4));
        std::vector<model::Claim> claims;
        for (int count = dice.below(5); count > 0; --count)
            claims.push_back(
                {static_cast<model::Bits>(dice.below(1 << room.size())), false, dice.below(5)});
        REQUIRE(model::most_by_subsets(room, claims) == model::most_by_enumeration(room, claims));
    }
}

TEST_CASE("verdict and free are the brute-force model's") {
    const std::uint64_t first = setting("VIRTGUARD_SEED", 1);
    const std::uint64_t wanted = setting("VIRTGUARD_CASES", 200'000);
    Tally tally;
    std::uint64_t seed = first;
    for (; tally.decisions < wanted; ++seed) {
        INFO("VIRTGUARD_SEED=" << seed << " VIRTGUARD_CASES=1");
        Trial(seed).run(tally);
    }
    std::string refused;
    for (const auto& [code, count] : tally.refused)
        refused += fmt::format(", {} {}", count, code_name(code));
    WARN(tally.decisions << " decisions on " << seed - first << " hosts from seed " << first << ": "
                         << tally.admitted << " admitted" << refused << "; " << tally.reservations
                         << " reservations");
}
