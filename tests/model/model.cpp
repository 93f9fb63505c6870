// SPDX-License-Identifier: Apache-2.0
#include "model/model.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

namespace virtguard::model {

using core::Domain;
using core::MemoryPart;
using core::Resource;

namespace {

Bits bit(int id) {
    return Bits{1} << id;
}

bool is_within(Bits inner, Bits outer) {
    return (inner & ~outer) == 0;
}

std::int64_t floor_of(std::int64_t a, std::int64_t b) {
    return a / b - (a % b < 0 ? 1 : 0);
}

std::int64_t ceil_of(std::int64_t a, std::int64_t b) {
    return -floor_of(-a, b);
}

std::int64_t sum_of(const std::vector<Claim>& claims) {
    return std::accumulate(claims.begin(), claims.end(), std::int64_t{0},
                           [](std::int64_t sum, const Claim& claim) { return sum + claim.amount; });
}

/// Places by id become places by index. Where there are few ways to lay the claims down, all are
/// tried.
std::int64_t most_on(const std::map<int, std::int64_t>& room, std::vector<Claim> claims) {
    std::vector<std::int64_t> by_index;
    std::vector<int> ids;
    std::int64_t ways = 1;
    for (const auto& [id, amount] : room) {
        ids.push_back(id);
        by_index.push_back(amount);
        ways = std::min<std::int64_t>(ways * (amount + 1), 1000);
    }
    for (Claim& claim : claims) {
        Bits places = 0;
        for (std::size_t i = 0; i < ids.size(); ++i)
            places |= (claim.places & bit(ids[i])) != 0 ? bit(static_cast<int>(i)) : 0;
        claim.places = places;
    }
    constexpr std::int64_t few_enough = 40;
    return ways <= few_enough && ids.size() <= 3 ? most_by_enumeration(by_index, claims)
                                                 : most_by_subsets(by_index, claims);
}

std::int64_t pooled(const core::Node& node) {
    std::int64_t sum = 0;
    for (const core::PagePool& pool : node.pools)
        sum += pool.page_size * pool.pages;
    return sum;
}

bool is_in(const core::AcceptedScheduler& table, const std::string& scheduler) {
    if (!table.match.ends_with('*'))
        return table.match == scheduler;
    return scheduler.starts_with(table.match.substr(0, table.match.size() - 1));
}

} // namespace

Bits bits_of(const IdSet& set) {
    Bits bits = 0;
    for (const int id : set.ids())
        bits |= id < 32 ? bit(id) : 0;
    return bits;
}

std::int64_t most_by_subsets(const std::vector<std::int64_t>& room,
                             const std::vector<Claim>& claims) {
    std::vector<std::int64_t> room_in(std::size_t{1} << room.size());
    std::int64_t most = INT64_MAX;
    for (Bits subset = 0; subset < room_in.size(); ++subset) {
        if (subset != 0)
            room_in[subset] = room_in[subset & (subset - 1)] +
                              room[static_cast<std::size_t>(std::countr_zero(subset))];
        std::int64_t carried = room_in[subset];
        for (const Claim& claim : claims)
            if (!is_within(claim.places, subset))
                carried += claim.amount;
        most = std::min(most, carried);
    }
    return most;
}

std::int64_t most_by_enumeration(const std::vector<std::int64_t>& room,
                                 const std::vector<Claim>& claims) {
    std::set<std::vector<std::int64_t>> reached{room};
    for (const Claim& claim : claims)
        for (std::int64_t unit = 0; unit < claim.amount; ++unit) {
            std::set<std::vector<std::int64_t>> next = reached;
            for (const auto& left : reached)
                for (std::size_t place = 0; place < room.size(); ++place)
                    if ((claim.places >> place & 1U) != 0 && left[place] > 0) {
                        auto then = left;
                        --then[place];
                        next.insert(std::move(then));
                    }
            if (next == reached)
                break;
            reached = std::move(next);
        }
    std::int64_t least = INT64_MAX;
    for (const auto& left : reached)
        least = std::min(least, std::accumulate(left.begin(), left.end(), std::int64_t{0}));
    return std::accumulate(room.begin(), room.end(), std::int64_t{0}) - least;
}

Model::Model(const core::Topology& topology, const core::Policy& policy,
             core::FileSystems file_systems, core::Images images)
    : policy_(policy), file_systems_(std::move(file_systems)), images_(std::move(images)),
      base_page_(topology.base_page), default_pages_(topology.default_hugepage),
      files_are_ram_(topology.file_backing_is_ram) {
    for (const core::Node& node : topology.nodes)
        nodes_ |= bit(node.id);
    add_cpus(topology, policy);
    add_memory(topology, policy);
    add_pages(topology, policy);
    add_custom(topology, policy);
    add_storage();
    for (auto& [resource, pool] : pools_) {
        pool.numerator = policy.ratio_of(resource).numerator();
        pool.denominator = policy.ratio_of(resource).denominator();
    }
}

Bits Model::cpus_of(Bits pus) const {
    Bits cpus = 0;
    for (const auto& [pu, cpu] : cpu_of_pu_)
        cpus |= (pus & bit(pu)) != 0 ? bit(cpu) : 0;
    return cpus;
}

void Model::add_cpus(const core::Topology& topology, const core::Policy& policy) {
    for (const IdSet& core : topology.cores)
        for (const int pu : core.ids())
            cpu_of_pu_[pu] = policy.cpu.count_cores ? core.first() : pu;
    outside_ = bits_of(topology.online - topology.allowed);
    const Bits reserved = cpus_of(bits_of(policy.reserve.cpus));
    const Bits usable = cpus_of(bits_of(topology.allowed & topology.online)) & ~reserved;
    const auto chosen = [&](const std::optional<IdSet>& own, const std::optional<IdSet>& other) {
        if (own)
            return usable & cpus_of(bits_of(*own));
        return other ? usable & ~cpus_of(bits_of(*other)) : usable;
    };
    dedicated_ = chosen(policy.cpu.dedicated, policy.cpu.shared);
    shared_ = chosen(policy.cpu.shared, policy.cpu.dedicated);
    Pool& pool = pools_[Resource::cpu()];
    for (const auto& [pu, cpu] : cpu_of_pu_)
        pool.allocatable[cpu] = (bit(cpu) & (dedicated_ | shared_)) != 0 ? 1 : 0;
    pool.unbound = shared_ & ~cpus_of(bits_of(topology.isolated));
    for (const core::Node& node : topology.nodes)
        node_cpus_[node.id] = cpus_of(bits_of(node.pus));
}

/// Named nodes hold back what the policy says; the rest of the host's reserve goes to the others by
/// their memory, what does not divide to the lowest.
void Model::add_memory(const core::Topology& topology, const core::Policy& policy) {
    Pool& pool = pools_[Resource::memory()];
    std::int64_t to_spread = policy.reserve.memory.value_or(0);
    std::int64_t over = 0;
    for (const core::Node& node : topology.nodes) {
        const auto named = policy.reserve.nodes.find(node.id);
        const std::int64_t ordinary = node.memory - pooled(node);
        const bool is_named = named != policy.reserve.nodes.end() && named->second.memory;
        pool.allocatable[node.id] = ordinary;
        pool.unbound |= ordinary > 0 ? bit(node.id) : 0;
        if (is_named) {
            pool.allocatable[node.id] = std::max<std::int64_t>(0, ordinary - *named->second.memory);
            to_spread -= *named->second.memory;
        } else {
            over += ordinary;
        }
    }
    Bits wanted = policy.memory.nodes ? bits_of(*policy.memory.nodes) & nodes_ : nodes_;
    wanted = wanted == 0 ? nodes_ : wanted;
    // Where none of them has memory it is all the same: nothing fits.
    pool.unbound = (pool.unbound & wanted) != 0 ? pool.unbound & wanted : wanted;
    to_spread = std::clamp<std::int64_t>(to_spread, 0, over);
    std::int64_t rest = to_spread;
    const auto is_spread = [&](int id) {
        const auto named = policy.reserve.nodes.find(id);
        return named == policy.reserve.nodes.end() || !named->second.memory;
    };
    for (auto& [id, allocatable] : pool.allocatable)
        if (is_spread(id) && over > 0) {
            const std::int64_t part = to_spread * allocatable / over;
            allocatable -= part;
            rest -= part;
        }
    for (auto& [id, allocatable] : pool.allocatable)
        if (is_spread(id)) {
            const std::int64_t part = std::min(rest, allocatable);
            allocatable -= part;
            rest -= part;
        }
}

void Model::add_pages(const core::Topology& topology, const core::Policy& policy) {
    for (const core::Node& node : topology.nodes)
        for (const core::PagePool& pages : node.pools) {
            std::int64_t reserved = 0;
            if (const auto own = policy.reserve.nodes.find(node.id);
                own != policy.reserve.nodes.end())
                if (const auto size = own->second.hugepages.find(pages.page_size);
                    size != own->second.hugepages.end())
                    reserved = ceil_of(size->second, pages.page_size);
            Pool& pool = pools_[Resource::hugepages(pages.page_size)];
            pool.allocatable[node.id] =
                std::max<std::int64_t>(0, pages.pages - reserved) * pages.page_size;
            pool.unbound |= bit(node.id);
        }
    const Bits named = policy.memory.nodes ? bits_of(*policy.memory.nodes) & nodes_ : 0;
    for (auto& [resource, pool] : pools_)
        if (resource.kind == Resource::Kind::hugepages && named != 0)
            pool.unbound = (pool.unbound & named) != 0 ? pool.unbound & named : named;
}

/// The host is one place, or each node is one.
void Model::add_custom(const core::Topology& topology, const core::Policy& policy) {
    for (const auto& [resource, custom] : policy.resources) {
        Pool& pool = pools_[resource];
        if (custom.host)
            pool.allocatable[0] = custom.host->amount;
        else
            for (const core::Node& node : topology.nodes) {
                const auto own = custom.nodes.find(node.id);
                pool.allocatable[node.id] = own == custom.nodes.end() ? 0 : own->second.amount;
            }
        for (const auto& [id, amount] : pool.allocatable)
            pool.unbound |= bit(id);
    }
}

/// Each file system is a place.
void Model::add_storage() {
    for (const auto& [place, file_system] : file_systems_.read) {
        Pool& pool = pools_[Resource::storage()];
        pool.allocatable[place] = file_system.capacity;
        pool.unbound |= bit(place);
    }
}

/// What is not known of an image is let in; what is on no file system of the policy's is nobody's.
void Model::add_disks(Demand& demand, const Domain& domain) const {
    for (const core::Disk& disk : domain.disks) {
        const auto known = images_.find(disk.image);
        if (known == images_.end() || !known->second.image)
            continue;
        const core::Image& image = *known->second.image;
        const std::int64_t growth = image.virtual_size - (disk.begins_anew ? 0 : image.allocated);
        for (const auto& [place, file_system] : file_systems_.read)
            if (file_system.device == image.device && growth > 0)
                demand.claims[Resource::storage()].push_back({bit(place), false, growth});
    }
}

void Model::add_custom(Demand& demand, const Domain& domain) const {
    Bits of_guest = 0;
    bool bound = true;
    for (const MemoryPart& part : domain.memory) {
        bound = bound && part.bound_to;
        of_guest |= part.bound_to ? bits_of(*part.bound_to) : 0;
    }
    for (const auto& [resource, custom] : policy_.resources) {
        const Bits everywhere = pools_.at(resource).unbound;
        const Bits own = bound && !custom.host ? everywhere & of_guest : 0;
        if (const std::int64_t amount = domain.facts.at(core::demand_key(resource)).value;
            amount > 0)
            demand.claims[resource].push_back({own != 0 ? own : everywhere, false, amount});
    }
}

void Model::add_vcpus(Demand& demand, const Domain& domain) const {
    std::vector<Claim>& claims = demand.claims[Resource::cpu()];
    Bits taken = 0;
    for (const core::VcpuGroup& group : domain.vcpus) {
        const std::int64_t count = policy_.cpu.vcpus_maximum ? group.maximum : group.current;
        if (count == 0)
            continue;
        const bool dedicated =
            policy_.cpu.pinning_exclusive && group.cpus && group.cpus->count() == 1;
        const Bits cpus = group.cpus ? cpus_of(bits_of(*group.cpus) & ~outside_) : 0;
        const Bits places = dedicated    ? cpus & dedicated_
                            : group.cpus ? cpus & shared_
                                         : pools_.at(Resource::cpu()).unbound;
        demand.impossible |= places == 0;
        if (!dedicated || places == 0)
            claims.push_back({places, false, count});
        else if ((taken & places) == 0)
            claims.push_back({places, true, 1});
        taken |= dedicated ? places : 0;
    }
}

/// Nothing: the default size, on a host that has none.
std::optional<Resource> Model::kind_of(const MemoryPart& part) const {
    if (std::holds_alternative<core::BasePages>(part.pages))
        return Resource::memory();
    std::optional<std::int64_t> size = default_pages_;
    if (const auto* pages = std::get_if<core::PagesOf>(&part.pages))
        size = pages->size;
    if (!size)
        return std::nullopt;
    return *size == base_page_ ? Resource::memory() : Resource::hugepages(*size);
}

void Model::add_parts(Demand& demand, const Domain& domain) const {
    const bool whole_guest =
        domain.locked || domain.preallocated || domain.confidential || domain.vfio_devices > 0;
    const auto size_of = [&](const MemoryPart& part) { // as the policy counts virtio-mem
        return part.kind == MemoryPart::Kind::virtio_mem && policy_.memory.virtio_mem_requested
                   ? part.requested
                   : part.size;
    };
    std::int64_t all = 0;
    for (const MemoryPart& part : domain.memory)
        all += size_of(part);
    Bits of_guest = 0;
    std::int64_t vcpus = 0;
    for (const core::VcpuGroup& group : domain.vcpus)
        vcpus += policy_.cpu.vcpus_maximum ? group.maximum : group.current;
    for (const MemoryPart& part : domain.memory) {
        const auto kind = kind_of(part);
        if (!kind) {
            demand.impossible = true;
            continue;
        }
        const bool base = *kind == Resource::memory();
        if (base && domain.file_backed && policy_.memory.file_is_storage && !files_are_ram_)
            continue;
        std::int64_t amount = size_of(part);
        if (policy_.memory.count_current && base && !whole_guest && all > 0)
            amount = ceil_of(amount * std::min(domain.current_memory, all), all);
        if (!base)
            amount = ceil_of(amount, kind->page_size) * kind->page_size;
        const bool known = pools_.contains(*kind);
        demand.impossible |= !known;
        demand.impossible |= part.bound_to && !is_within(bits_of(*part.bound_to), nodes_);
        const Bits bound = part.bound_to ? bits_of(*part.bound_to) & nodes_ : 0;
        of_guest |= part.bound_to ? bound : pools_.at(Resource::memory()).unbound;
        const Bits places = part.bound_to ? bound : known ? pools_.at(*kind).unbound : 0;
        if (amount > 0)
            demand.claims[*kind].push_back({known ? places : 0, !base || whole_guest, amount});
    }
    if (!policy_.memory.overhead)
        return;
    // The terms that small numbers can tell apart; the whole formula is tested by tables.
    const core::Overhead& terms = *policy_.memory.overhead;
    const std::int64_t overhead = terms.base + terms.per_vcpu * vcpus;
    if (overhead > 0)
        demand.claims[Resource::memory()].push_back(
            {of_guest != 0 ? of_guest : pools_.at(Resource::memory()).unbound, domain.locked,
             overhead});
}

Demand Model::demand_of(const Domain& domain) const {
    Demand demand;
    add_vcpus(demand, domain);
    add_parts(demand, domain);
    add_custom(demand, domain);
    add_disks(demand, domain);
    return demand;
}

bool Model::within_quota(const std::string& scheduler, const Demand& start,
                         const std::vector<std::pair<std::string, Claims>>& guests,
                         const Claims& held) const {
    const auto table_of = [&](const std::string& name) -> const core::AcceptedScheduler* {
        for (const auto& [key, table] : policy_.scheduler.accept)
            if (is_in(table, name))
                return &table;
        return nullptr;
    };
    const core::AcceptedScheduler* table = table_of(scheduler);
    if (table == nullptr)
        return true;
    for (const auto& [resource, quota] : table->quota) {
        const std::int64_t asked = sum_of(of(start.claims, resource));
        std::int64_t together = asked;
        for (const auto& [owner, claims] : guests)
            if (table_of(owner) == table)
                together += sum_of(of(claims, resource));
        std::int64_t limit = quota.amount;
        if (quota.percent)
            limit = !pools_.contains(resource)
                        ? 0
                        : floor_of((host_free(resource, held) + sum_of(of(held, resource))) *
                                       quota.percent->numerator(),
                                   100 * quota.percent->denominator());
        if (asked > 0 && together > limit)
            return false;
    }
    return true;
}

Claims Model::held_by(const Domain& domain) const {
    return somewhere(demand_of(domain).claims);
}

Demand Model::booked(const Resource& resource, std::optional<int> node, std::int64_t amount) const {
    Demand demand;
    const auto pool = pools_.find(resource);
    Bits places = pool == pools_.end() ? 0 : pool->second.unbound;
    if (node && resource == Resource::cpu())
        places = node_cpus_.contains(*node) ? node_cpus_.at(*node) & shared_ : 0;
    else if (node)
        places = pool != pools_.end() && pool->second.allocatable.contains(*node) ? bit(*node) : 0;
    demand.impossible = places == 0;
    demand.claims[resource].push_back({places, resource.kind == Resource::Kind::hugepages, amount});
    return demand;
}

std::int64_t Model::left_of(const Resource& resource, const Claim& claim,
                            const std::vector<Claims>& guests) {
    std::int64_t left = claim.amount;
    for (const Claims& guest : guests)
        if (const auto found = guest.find(resource); found != guest.end())
            for (const Claim& each : found->second)
                left -= (each.places & claim.places) != 0 ? each.amount : 0;
    return std::max<std::int64_t>(0, left);
}

bool Model::admits_booking(const Demand& left, const Claims& held) const {
    return !left.impossible && std::ranges::all_of(left.claims, [&](const auto& claims) {
        return sum_of(claims.second) == 0 ||
               fits_beside(claims.first, claims.second, of(held, claims.first));
    });
}

Claims Model::somewhere(Claims claims) const {
    for (auto& [resource, of_resource] : claims)
        for (Claim& claim : of_resource)
            if (const auto pool = pools_.find(resource);
                claim.places == 0 && pool != pools_.end()) {
                claim.places = pool->second.unbound;
                if (claim.places == 0)
                    for (const auto& [id, allocatable] : pool->second.allocatable)
                        claim.places |= bit(id);
            }
    return claims;
}

/// Narrow claims come first (of equal ones, those on lower nodes). Each explains as much of what is
/// resident where it may lie as the earlier ones allow; what none explains is taken from them in
/// the same order.
Claims Model::bind(Claims claims,
                   const std::map<Resource, std::map<int, std::int64_t>>& resident) const {
    for (const auto& [resource, by_node] : resident) {
        const auto pool = pools_.find(resource);
        const auto found = claims.find(resource);
        if (pool == pools_.end() || found == claims.end())
            continue;
        std::map<int, std::int64_t> to_explain;
        std::int64_t unexplained = 0;
        for (const auto& [node, amount] : by_node)
            if (pool->second.allocatable.contains(node)) {
                to_explain[node] = amount;
                unexplained += amount;
            }
        std::vector<Claim>& own = found->second;
        std::ranges::sort(own, {}, [](const Claim& claim) {
            return std::pair(std::popcount(claim.places), claim.places);
        });
        std::vector<Claim> earlier;
        std::int64_t explained = 0;
        for (Claim& claim : own) {
            earlier.push_back(claim);
            const std::int64_t with_it = most_on(to_explain, earlier);
            claim.amount -= with_it - explained;
            unexplained -= with_it - explained;
            explained = with_it;
        }
        for (Claim& claim : own) {
            const std::int64_t taken = std::min(claim.amount, unexplained);
            claim.amount -= taken;
            unexplained -= taken;
        }
        const bool whole = !own.empty() && own.front().whole;
        for (const auto& [node, amount] : to_explain)
            own.push_back({bit(node), whole, amount});
    }
    return claims;
}

const std::vector<Claim>& Model::of(const Claims& claims, const Resource& resource) const {
    static const std::vector<Claim> nothing;
    const auto found = claims.find(resource);
    return found == claims.end() ? nothing : found->second;
}

/// whole + pageable ÷ ratio ≤ allocatable, all times the ratio's numerator; memory below 1:
/// whole + pageable ≤ allocatable × ratio, all times its denominator.
std::int64_t Model::weight(const Resource& resource, const Claim& claim) const {
    const Pool& pool = pools_.at(resource);
    const bool stretched = resource == Resource::memory() && pool.numerator < pool.denominator;
    return claim.whole && !stretched ? pool.numerator : pool.denominator;
}

std::int64_t Model::most(const Resource& resource, std::vector<Claim> claims) const {
    const Pool& pool = pools_.at(resource);
    std::map<int, std::int64_t> room = pool.allocatable;
    for (auto& [id, amount] : room)
        amount *= pool.numerator;
    for (Claim& claim : claims)
        claim.amount *= weight(resource, claim);
    return most_on(room, std::move(claims));
}

bool Model::fits_alone(const Resource& resource, const std::vector<Claim>& claims) const {
    return most_on(pools_.at(resource).allocatable, claims) == sum_of(claims);
}

/// Carried in full on top of as much of the rest as could be carried without it.
bool Model::fits_beside(const Resource& resource, const std::vector<Claim>& start,
                        const std::vector<Claim>& held) const {
    std::vector<Claim> together = held;
    together.insert(together.end(), start.begin(), start.end());
    std::int64_t asked = 0;
    for (const Claim& claim : start)
        asked += claim.amount * weight(resource, claim);
    return most(resource, together) == most(resource, held) + asked;
}

bool Model::admits(const Demand& start, const Claims& held) const {
    if (start.impossible)
        return false;
    for (const auto& [resource, claims] : start.claims)
        if (sum_of(claims) > 0 &&
            (!fits_alone(resource, claims) || !fits_beside(resource, claims, of(held, resource))))
            return false;
    return true;
}

std::int64_t Model::identity(const Resource& resource, Bits places,
                             const std::vector<Claim>& held) const {
    const auto pool = pools_.find(resource);
    if (pool == pools_.end())
        return -sum_of(held);
    std::int64_t allocatable = 0;
    Bits with_room = 0;
    for (const auto& [id, amount] : pool->second.allocatable) {
        allocatable += (places & bit(id)) != 0 ? amount : 0;
        with_room |= amount > 0 ? bit(id) : 0;
    }
    const bool is_split = policy_.cpu.dedicated || policy_.cpu.shared;
    Bits dedicated = is_split ? dedicated_ & places : 0;
    std::int64_t whole = 0;
    std::int64_t sum = 0;
    for (const Claim& claim : held) {
        const Bits roomy = claim.places & with_room;
        if (!is_within(claim.places, places) && (roomy == 0 || !is_within(roomy, places)))
            continue; // it may lie elsewhere
        sum += claim.amount;
        whole += claim.whole ? claim.amount : 0;
        dedicated |= claim.whole ? claim.places : 0;
    }
    const auto [n, d] = std::pair(pool->second.numerator, pool->second.denominator);
    if (resource == Resource::cpu())
        whole = std::popcount(dedicated);
    if (resource == Resource::memory() && n < d)
        return floor_of(allocatable * n, d) - sum;
    return floor_of((allocatable - whole) * n + whole * d, d) - sum;
}

std::int64_t Model::host_free(const Resource& resource, const Claims& held) const {
    return identity(resource, ~Bits{0}, of(held, resource));
}

std::optional<std::int64_t> Model::node_free(const Resource& resource, int node,
                                             const Claims& held) const {
    const auto pool = pools_.find(resource);
    const bool is_cpu = resource == Resource::cpu();
    const Bits places = is_cpu ? node_cpus_.at(node) : bit(node);
    if (pool == pools_.end() || places == 0 ||
        (!is_cpu && !pool->second.allocatable.contains(node)))
        return std::nullopt;
    const std::vector<Claim>& of_resource = of(held, resource);
    const std::int64_t left = identity(resource, places, of_resource);
    if (left < 0)
        return left;
    const Bits for_starts = is_cpu ? places & shared_ : places;
    const auto given = [&](std::int64_t amount) {
        return fits_beside(resource, {{for_starts, false, amount}}, of_resource);
    };
    std::int64_t fits = 0;
    std::int64_t too_much = 1;
    while (given(too_much))
        too_much *= 2;
    while (too_much - fits > 1) {
        const std::int64_t middle = fits + (too_much - fits) / 2;
        (given(middle) ? fits : too_much) = middle;
    }
    return fits;
}

} // namespace virtguard::model
