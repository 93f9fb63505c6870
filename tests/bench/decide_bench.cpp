// SPDX-License-Identifier: Apache-2.0
// What a decision costs on a large host that is nearly full: from a domain (its XML already read)
// to the answer, the claim and the text of the refusal.
//
//     decide-bench [SEED [hostile]]
//
// Guests float, are bound to sets of PUs and nodes, are pinned, or use hugepages, over a given
// number of distinct sets; they are let in one by one until the host is 99.8 % full. Then single
// starts are timed; each that is admitted is released again, so that all meet the same host. Then
// all guests run, and rounds of looking at what they occupy are timed. At last domains are checked
// that are made to be dear: thousands of vCPUs, each on a set of its own; with a word behind the
// seed only these.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <malloc.h>

#include "base/text.hpp"
#include "core/guard.hpp"

namespace {

using namespace virtguard;
using namespace virtguard::core;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t gib = std::int64_t{1} << 30;
constexpr std::int64_t page_2m = 2 * mib;

struct Shape {
    int nodes = 8;
    int pus_per_node = 64;
    int guests = 10'000;
    int sets = 100;
    bool reserves = false; ///< also with all the reservations that there may be
};

constexpr double full = 0.998;

/// What the crowd asks for in sum.
struct Sums {
    double vcpus = 0;
    double memory = 0;
    double hugepages = 0;
};

/// Equal nodes that the sums fill as far as they should.
Topology make_topology(const Shape& shape, const Sums& sums) {
    Topology topology;
    for (int id = 0; id < shape.nodes; ++id) {
        const IdSet pus = IdSet::range(id * shape.pus_per_node, (id + 1) * shape.pus_per_node - 1);
        const auto share = [&](double sum) { return sum / full / shape.nodes; };
        const auto pages = static_cast<std::int64_t>(share(sums.hugepages) / page_2m);
        topology.nodes.push_back(
            {.id = id,
             .pus = pus,
             .memory = static_cast<std::int64_t>(share(sums.memory)) + pages * page_2m,
             .pools = {{page_2m, pages}, {gib, 0}}});
        topology.online |= pus;
        for (const int pu : pus.ids())
            topology.cores.push_back(IdSet{pu});
    }
    topology.allowed = topology.online;
    topology.default_hugepage = page_2m;
    return topology;
}

Policy make_policy(const Shape& shape, const Sums& sums) {
    Policy policy;
    policy.claim.return_hold = {};
    policy.memory.overhead.reset();
    policy.reserve.memory = 0;
    const double ratio = sums.vcpus / full / (shape.nodes * shape.pus_per_node);
    policy.overcommit[Resource::cpu()] = *Ratio::parse(fmt::format("{:.4f}", ratio));
    return policy;
}

class Crowd {
  public:
    Crowd(const Shape& shape, unsigned seed) : shape_(shape), random_(seed) {
        const int pus = shape.nodes * shape.pus_per_node;
        for (int i = 0; i < shape.sets; ++i) {
            const int width = 2 + below(shape.pus_per_node);
            const int first = below(pus - width);
            cpu_sets_.push_back(IdSet::range(first, first + width - 1));
            IdSet nodes{below(shape.nodes)};
            while (below(2) == 0)
                nodes.insert(below(shape.nodes));
            node_sets_.push_back(nodes);
        }
    }

    /// Makes the guests and the host that they fill, and lets them in.
    void fill() {
        std::vector<Domain> guests;
        Sums sums;
        for (int i = 0; i < shape_.guests; ++i) {
            guests.push_back(next_guest(1 + below(3), (1 + below(3)) * gib));
            const MemoryPart& part = guests.back().memory.front();
            const VcpuGroup& group = guests.back().vcpus.front();
            // A dedicated PU is lost to as many shared vCPUs as the others have each.
            const bool dedicated = group.cpus && group.cpus->count() == 1;
            sums.vcpus += dedicated ? 2.0 * shape_.guests / (shape_.nodes * shape_.pus_per_node)
                                    : static_cast<double>(group.current);
            (std::holds_alternative<BasePages>(part.pages) ? sums.memory : sums.hugepages) +=
                static_cast<double>(part.size);
        }
        guard_.emplace(make_topology(shape_, sums), make_policy(shape_, sums));
        for (Domain& domain : guests)
            if (!admit(domain)) {
                domain.vcpus.front().cpus.reset();
                domain.memory.front().bound_to.reset();
                (void)admit(domain);
            }
    }

    struct Timed {
        double microseconds = 0;
        bool admitted = false;
    };
    Timed time(const Domain& domain) {
        const auto begin = Clock::now();
        const auto answer = guard_->admit(domain, now_, IfKept::wait);
        std::string line;
        const bool admitted = answer->decision.admitted();
        if (!admitted)
            line = refusal_line(domain.name, answer->decision);
        const auto end = Clock::now();
        if (admitted)
            guard_->released(identity_of(domain), now_);
        (void)guard_->take_changed(); // as the daemon does at the end of each turn
        return {std::chrono::duration<double, std::micro>(end - begin).count(),
                admitted && line.empty()};
    }

    /// All guests run, and most of what each holds lies on one of its nodes.
    void run_all() {
        for (const auto& [identity, guest] : guard_->ledger().guests())
            domains_.push_back(guest.domain);
        for (const Domain& domain : domains_)
            guard_->running(domain, now_);
        for (const auto& [identity, guest] : guard_->ledger().guests())
            for (const Piece& piece : guest.demand.pieces)
                if (piece.resource != Resource::cpu()) {
                    auto& nodes = residency_[identity][piece.resource];
                    const std::vector<int> ids = piece.places.ids();
                    nodes[ids[static_cast<std::size_t>(below(static_cast<int>(ids.size())))]] +=
                        piece.amount / 10 * 9;
                }
    }

    /// The microseconds of one round, in which one in so many guests was seen to occupy some pages
    /// more or less than before.
    double round(int one_in) {
        constexpr std::int64_t page = 4096;
        for (auto& [identity, resources] : residency_)
            if (below(one_in) == 0)
                for (auto& [resource, nodes] : resources)
                    nodes.begin()->second += (below(101) - 50) * page;
        std::map<std::string, Residency> seen = residency_;
        const auto begin = Clock::now();
        guard_->set_memory_use(seen, gib);
        guard_->set_residency(std::move(seen), now_);
        return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    }

    /// The microseconds of the processor's time that a check takes, and what it found.
    std::pair<double, Decision> check(const Domain& domain) {
        const std::clock_t begin = std::clock();
        const Answer answer = guard_->check(domain);
        return {1e6 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, answer.decision};
    }

    Domain next_guest(std::int64_t vcpus, std::int64_t memory) {
        Domain domain{.name = fmt::format("guest-{}", ++count_), .uuid = Uuid{}};
        for (std::size_t i = 0; i < sizeof count_; ++i)
            domain.uuid->bytes[i] = static_cast<std::uint8_t>(count_ >> (8 * i));
        VcpuGroup group{.current = vcpus, .maximum = vcpus};
        MemoryPart part{.size = memory, .requested = memory, .pages = BasePages{}};
        switch (below(8)) {
        case 0: // floats
            break;
        case 1: // pinned to one PU, which few hosts can afford for many
            if (below(400) == 0)
                group = {.cpus = IdSet{below(shape_.nodes * shape_.pus_per_node)},
                         .current = 1,
                         .maximum = 1};
            break;
        case 2:
            part.pages = PagesOf{page_2m};
            [[fallthrough]];
        default:
            group.cpus = cpu_sets_[static_cast<std::size_t>(below(shape_.sets))];
            part.bound_to = node_sets_[static_cast<std::size_t>(below(shape_.sets))];
        }
        domain.vcpus.push_back(std::move(group));
        domain.current_memory = memory;
        domain.memory.push_back(std::move(part));
        return domain;
    }

    /// A little memory of the host and of a node, made at a time.
    void reserve(std::size_t number, Instant made) {
        const int node = static_cast<int>(number) % shape_.nodes;
        Booking booking{.amounts = {{{Resource::memory(), std::nullopt}, mib},
                                    {{Resource::memory(), node}, mib}},
                        .made = made};
        (void)guard_->reserve(reserved(number), std::move(booking), Guard::IfShort::book);
    }
    /// The same now, and then some guests start, however full the host is.
    void reserve_and_start(std::size_t number) {
        constexpr int guests = 8;
        now_ += std::chrono::seconds(1);
        reserve(number, now_);
        for (int i = 0; i < guests; ++i)
            guard_->running(next_guest(1, mib), now_);
    }
    void cancel(std::size_t number) { guard_->cancel(reserved(number)); }

    /// The microseconds of one look that finds all guests as they are known, or all with other
    /// answers to what reservations ask.
    double look(std::int64_t answer) {
        now_ += std::chrono::seconds(1);
        Look seen{.began = now_};
        for (const auto& [identity, guest] : guard_->ledger().guests()) {
            seen.active.push_back(guest.domain);
            seen.active.back().facts["reservation.match true()"].value = answer;
        }
        const auto begin = Clock::now();
        guard_->reconcile(seen);
        return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    }

    std::size_t guests() const { return guard_->ledger().guests().size(); }
    double fullness() const {
        const Figures host = guard_->report().host;
        double least = 1;
        for (const Resource& resource : {Resource::cpu(), Resource::memory()})
            least = std::min(least, static_cast<double>(host.allocated.at(resource) +
                                                        host.pending.at(resource)) /
                                        static_cast<double>(host.effective.at(resource)));
        return least;
    }

  private:
    static ReservationId reserved(std::size_t number) {
        return {"default-scheduler", fmt::format("r{}", number)};
    }
    int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
    bool admit(const Domain& domain) {
        return guard_->admit(domain, now_, IfKept::wait)->decision.admitted();
    }

    Shape shape_;
    std::mt19937 random_;
    std::optional<Guard> guard_;
    std::vector<IdSet> cpu_sets_;
    std::vector<IdSet> node_sets_;
    std::vector<Domain> domains_;
    std::map<std::string, Residency> residency_;
    std::uint64_t count_ = 0;
    Instant now_{};
};

struct Series {
    std::vector<double> all;

    double quantile(double part) {
        if (all.empty())
            return 0;
        std::ranges::sort(all);
        return all[static_cast<std::size_t>(part * static_cast<double>(all.size() - 1))];
    }
};

void print(const char* what, Series& series) {
    fmt::print("    {:<22} median {:7.2f} us   p99 {:7.2f} us   p99.9 {:7.2f} us   ({})\n", what,
               series.quantile(0.5), series.quantile(0.99), series.quantile(0.999),
               series.all.size());
}

/// The microseconds that each of all reservations takes.
template <class Act>
Series of_each_reservation(Act act) {
    Series series;
    for (std::size_t number = 0; number < max_reservations; ++number) {
        const auto begin = Clock::now();
        act(number);
        series.all.push_back(
            std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    return series;
}

/// Starts and looks with as many reservations as there may be: first half of them such that all
/// guests may draw on, half none; then such that they do by their age, each on one more.
void measure_reserved(Crowd& crowd) {
    for (const bool in_turn : {false, true}) {
        Series reserved = of_each_reservation([&](std::size_t number) {
            if (in_turn)
                crowd.reserve_and_start(number);
            else
                crowd.reserve(number, number % 2 == 0 ? Instant{} : Instant{std::chrono::hours(1)});
        });
        Series started;
        for (int i = 0; i < (in_turn ? 200 : 2'000); ++i)
            started.all.push_back(crowd.time(crowd.next_guest(1, mib)).microseconds);
        Series looked;
        for (int i = 0; i < 10; ++i)
            looked.all.push_back(crowd.look(/*answer=*/i % 2));
        Series ended = of_each_reservation([&](std::size_t number) { crowd.cancel(number); });
        print(fmt::format("  {} reserve{}", max_reservations, in_turn ? " in turn" : "").c_str(),
              reserved);
        print("  a start with them", started);
        print("  a look with them", looked);
        print("  one ends", ended);
    }
}

/// The median of admissions, to compare.
double measure(const Shape& shape, unsigned seed) {
    const auto before = ::mallinfo2().uordblks;
    Crowd crowd(shape, seed);
    crowd.fill();
    const auto after = ::mallinfo2().uordblks;
    fmt::print("  {} nodes x {} PUs, {} guests, {} sets, {:.2f} % full, {} bytes per guest\n",
               shape.nodes, shape.pus_per_node, crowd.guests(), shape.sets, 100 * crowd.fullness(),
               (after - before) / crowd.guests());
    Series admitted;
    Series refused;
    Series refused_again;
    for (int i = 0; i < 20'000; ++i) {
        const bool large = i % 2 == 0;
        const Domain domain = crowd.next_guest(large ? 48 : 1, large ? 64 * gib : 1 * mib);
        const auto [microseconds, is_admitted] = crowd.time(domain);
        (is_admitted ? admitted : refused).all.push_back(microseconds);
        if (!is_admitted)
            refused_again.all.push_back(crowd.time(domain).microseconds);
    }
    print("admitted", admitted);
    print("refused, first time", refused);
    print("refused again", refused_again);
    const double median = admitted.quantile(0.5);
    if (shape.reserves)
        measure_reserved(crowd);
    crowd.run_all();
    Series first{{crowd.round(1)}};
    print("first residency", first);
    for (const int one_in : {1, 10, 1000}) {
        Series rounds;
        for (int i = 0; i < 20; ++i)
            rounds.all.push_back(crowd.round(one_in));
        print(fmt::format("  one in {} changed", one_in).c_str(), rounds);
    }
    return median;
}

/// A set of a vCPU of a domain, by its number, on a host with so many PUs.
struct Hostile {
    const char* what;
    IdSet (*set)(int vcpu, int pus);
};

IdSet random_set(int vcpu, int pus, int one_in) {
    std::mt19937 random(static_cast<unsigned>(vcpu));
    IdSet set;
    for (int pu = 0; pu < pus; ++pu)
        if (random() % static_cast<unsigned>(one_in) == 0)
            set.insert(pu);
    return set.empty() ? IdSet{0} : set;
}

IdSet range_from(int first, int width, int pus) {
    return IdSet::range(first % pus, std::min(first % pus + width - 1, pus - 1));
}

const Hostile hostile[] = {
    {"half of the PUs", [](int vcpu, int pus) { return random_set(vcpu, pus, 2); }},
    {"some 2 % of the PUs", [](int vcpu, int pus) { return random_set(vcpu, pus, 50); }},
    {"ranges that overlap",
     [](int vcpu, int pus) { return range_from(vcpu, 2 + vcpu / pus, pus); }},
    {"ranges that grow", [](int vcpu, int pus) { return range_from(0, 1 + vcpu % pus, pus); }},
    {"pairs",
     [](int vcpu, int pus) {
         const int first = vcpu % pus;
         return IdSet{first, (first + 1 + vcpu / pus) % pus};
     }},
    {"pairs in parts of their own",
     [](int vcpu, int pus) {
         const int first = vcpu * 4 % pus;
         return IdSet{first + vcpu * 4 / pus % 2, first + 2 + vcpu * 4 / pus / 2 % 2};
     }},
    {"one PU each", [](int vcpu, int pus) { return IdSet{vcpu % pus}; }},
};

void measure_hostile(const Shape& shape, unsigned seed) {
    constexpr int vcpus = 4000;
    Crowd crowd(shape, seed);
    crowd.fill();
    const int pus = shape.nodes * shape.pus_per_node;
    fmt::print("  {} vCPUs checked on {} nodes x {} PUs with {} guests on {} sets\n", vcpus,
               shape.nodes, shape.pus_per_node, crowd.guests(), shape.sets);
    for (const Hostile& each : hostile) {
        Domain domain = crowd.next_guest(1, mib);
        std::map<IdSet, std::int64_t> counts;
        for (int vcpu = 0; vcpu < vcpus; ++vcpu)
            ++counts[each.set(vcpu, pus)];
        domain.vcpus.clear();
        for (const auto& [set, count] : counts)
            domain.vcpus.push_back({.cpus = set, .current = count, .maximum = count});
        Series series;
        std::size_t reasons = 0;
        for (int i = 0; i < 5; ++i) {
            domain.current_memory = domain.memory.front().size = (1 + i) * mib;
            // One vCPU more each time, so that no refusal is remembered.
            domain.vcpus.front().current = domain.vcpus.front().maximum =
                counts.begin()->second + i;
            const auto [microseconds, decision] = crowd.check(domain);
            series.all.push_back(microseconds);
            reasons = decision.reasons.size();
        }
        fmt::print("    {:<28} {:5} sets   median {:9.0f} us   {} reasons\n", each.what,
                   counts.size(), series.quantile(0.5), reasons);
    }
}

void measure_crowds(unsigned seed) {
    const double small = measure({.guests = 1'000, .sets = 100}, seed);
    const double large = measure({.guests = 10'000, .sets = 100, .reserves = true}, seed);
    constexpr std::string_view how =
        "starts that are admitted on a host that is 99.8 % full, medians";
    fmt::print("figure|decision with 1,000 guests|{:.2f}|us||{}\n", small, how);
    fmt::print("figure|with 10,000 guests|{:.2f}|us||{}\n", large, how);
    fmt::print("figure|with 10,000 / with 1,000 guests|{:.2f}|x||{}\n", large / small, how);
    for (const int sets : {1'000, 4'000})
        (void)measure({.sets = sets}, seed);
    for (const int sets : {100, 1'000, 4'000})
        (void)measure({.nodes = 64, .pus_per_node = 32, .sets = sets}, seed);
}

} // namespace

int main(int argc, char** argv) {
    const auto seed = static_cast<unsigned>(argc > 1 ? parse_unsigned(argv[1]).value_or(1) : 1);
    fmt::print("decide, seed {}\n", seed);
    if (argc <= 2)
        measure_crowds(seed);
    measure_hostile({.guests = 1, .sets = 1}, seed);
    measure_hostile({.sets = 1'000}, seed);
    measure_hostile({.nodes = 64, .pus_per_node = 32, .sets = 1'000}, seed);
    return EXIT_SUCCESS;
}
