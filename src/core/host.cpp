// SPDX-License-Identifier: Apache-2.0
#include "core/host.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/checked.hpp"

namespace virtguard::core {

namespace {

/// Cuts a wanted reserve to what the place has.
void reserve(Place& place, std::int64_t wanted) {
    place.reserved = std::clamp<std::int64_t>(wanted, 0, place.capacity);
}

/// Spreads an amount over nodes in proportion to their memory, the remainder on the lowest.
void spread_reserve(Pool& memory, const IdSet& nodes, std::int64_t amount) {
    Int128 total = 0;
    for (int id = nodes.first(); id >= 0; id = nodes.next(id))
        total += memory.places[id].capacity;
    if (total == 0)
        return;
    const std::int64_t spread =
        saturate(std::min<Int128>(std::max<std::int64_t>(amount, 0), total));
    std::int64_t rest = spread;
    for (int id = nodes.first(); id >= 0; id = nodes.next(id)) {
        Place& place = memory.places[id];
        reserve(place, saturate(multiply_divide(spread, place.capacity, total)));
        rest -= place.reserved;
    }
    for (int id = nodes.first(); id >= 0 && rest > 0; id = nodes.next(id)) {
        Place& place = memory.places[id];
        const std::int64_t more = std::min(rest, place.allocatable());
        place.reserved += more;
        rest -= more;
    }
}

void reserve_memory(Pool& memory, const ReservePolicy& policy) {
    IdSet unnamed;
    bool any_named = false;
    std::int64_t named_sum = 0;
    for (auto& [id, place] : memory.places) {
        const auto node = policy.nodes.find(id);
        if (node == policy.nodes.end() || !node->second.memory) {
            if (place.capacity > 0)
                unnamed.insert(id);
            continue;
        }
        reserve(place, *node->second.memory);
        any_named = true;
        named_sum = checked_add(named_sum, *node->second.memory).value_or(INT64_MAX);
    }
    if (policy.memory)
        spread_reserve(memory, unnamed, *policy.memory - std::min(named_sum, *policy.memory));
    else if (!any_named)
        spread_reserve(memory, unnamed, default_memory_reserve);
}

/// Where a demand may lie that names no node: the able ones of the nodes that the policy names (of
/// all, where the host has none of those); where none is able, all of them, and nothing fits.
IdSet unbound_nodes(const IdSet& able, const IdSet& nodes, const Policy& policy) {
    IdSet named = nodes & policy.memory.nodes.value_or(nodes);
    if (named.empty())
        named = nodes;
    const IdSet both = able & named;
    return both.empty() ? named : both;
}

IdSet nodes_with_memory(const Pool& memory) {
    IdSet nodes;
    for (const auto& [id, place] : memory.places)
        if (place.capacity > 0)
            nodes.insert(id);
    return nodes;
}

Pool memory_pool(const Topology& topology, const Policy& policy) {
    Pool pool;
    pool.ratio = policy.ratio_of(Resource::memory());
    for (const Node& node : topology.nodes)
        pool.places[node.id].capacity = ordinary_memory(node);
    reserve_memory(pool, policy.reserve);
    pool.unbound = unbound_nodes(nodes_with_memory(pool), pool.all(), policy);
    return pool;
}

void add_hugepage_pools(Host& host, const Topology& topology, const Policy& policy) {
    for (const Node& node : topology.nodes) {
        for (const PagePool& pages : node.pools) {
            Place& place = host.pools[Resource::hugepages(pages.page_size)].places[node.id];
            const auto bytes = checked_multiply(pages.page_size, pages.pages);
            place.capacity = bytes.value_or(INT64_MAX / pages.page_size * pages.page_size);
            const auto reserves = policy.reserve.nodes.find(node.id);
            if (reserves == policy.reserve.nodes.end())
                continue;
            const auto wanted = reserves->second.hugepages.find(pages.page_size);
            if (wanted != reserves->second.hugepages.end())
                reserve(place,
                        checked_round_up(wanted->second, pages.page_size).value_or(place.capacity));
        }
    }
    for (auto& [resource, pool] : host.pools)
        if (resource.kind == Resource::Kind::hugepages)
            pool.unbound = unbound_nodes(pool.all(), host.nodes, policy);
}

void add_storage(Host& host, const Policy& policy) {
    if (host.file_systems.read.empty())
        return;
    Pool& pool = host.pools[Resource::storage()];
    pool.ratio = policy.ratio_of(Resource::storage());
    for (const auto& [place, file_system] : host.file_systems.read)
        pool.places[place].capacity = file_system.capacity;
    pool.unbound = pool.all();
}

void add_custom_place(Pool& pool, int id, const CustomCapacity& capacity, const std::string& key,
                      const Policy& policy) {
    Place& place = pool.places[id];
    if (capacity.file.empty())
        place.capacity = capacity.amount;
    else if (const auto read = policy.readings.find(capacity.file); read != policy.readings.end())
        place.capacity = read->second;
    else
        pool.unread[id] = key;
}

/// Of what is per node every node is a place, also where there is nothing of it.
void add_custom_pools(Host& host, const Policy& policy) {
    for (const auto& [resource, custom] : policy.resources) {
        Pool& pool = host.pools[resource];
        pool.ratio = policy.ratio_of(resource);
        pool.unit = custom.unit;
        pool.is_host_wide = custom.nodes.empty();
        if (pool.is_host_wide)
            add_custom_place(pool, Pool::host_place, custom.host.value_or(CustomCapacity{}),
                             capacity_file_key(resource), policy);
        else
            for (const int node : host.nodes.ids()) {
                const auto of_node = custom.nodes.find(node);
                add_custom_place(pool, node,
                                 of_node == custom.nodes.end() ? CustomCapacity{} : of_node->second,
                                 capacity_file_key(resource, node), policy);
            }
        pool.unbound = pool.all();
    }
}

/// One group of PUs per CPU.
std::vector<IdSet> cpus_of_topology(const Topology& topology, const Policy& policy) {
    if (policy.cpu.count_cores)
        return topology.cores;
    std::vector<IdSet> single;
    for (const int pu : topology.online.ids())
        single.push_back(IdSet{pu});
    return single;
}

/// The PUs each kind of vCPU may have. With only one of the two sets given, the other is the rest;
/// what is in neither is for no guest.
void split_pus(Host& host, const CpuPolicy& policy, const IdSet& usable) {
    IdSet dedicated = usable;
    IdSet shared = usable;
    host.cpus_are_split = policy.dedicated || policy.shared;
    if (host.cpus_are_split) {
        dedicated = policy.dedicated ? usable & *policy.dedicated : usable - *policy.shared;
        shared = policy.shared ? usable & *policy.shared : usable - *policy.dedicated;
    }
    host.dedicated_cpus = host.cpus_of(dedicated);
    host.shared_cpus = host.cpus_of(shared);
    if (host.cpus_are_split)
        host.shared_cpus -= host.dedicated_cpus; // a core cut in two by the policy is dedicated
}

void add_cpus(Host& host, const Topology& topology, const Policy& policy) {
    host.cpus_are_pus = !policy.cpu.count_cores;
    host.reserved_pus = policy.reserve.cpus;
    host.outside_slice = topology.online - topology.allowed;
    Pool& pool = host.pools[Resource::cpu()];
    pool.ratio = policy.ratio_of(Resource::cpu());
    for (const IdSet& pus : cpus_of_topology(topology, policy)) {
        const int cpu = (pus & topology.online).first();
        if (cpu < 0)
            continue;
        pool.places[cpu].capacity = 1;
        for (const int pu : (pus & topology.online).ids()) {
            if (static_cast<std::size_t>(pu) >= host.cpu_of_pu.size())
                host.cpu_of_pu.resize(static_cast<std::size_t>(pu) + 1, Host::no_cpu);
            host.cpu_of_pu[static_cast<std::size_t>(pu)] = cpu;
        }
    }
    // A core of which the host keeps one thread is no whole core any more: none of its threads
    // count.
    const IdSet held_back = host.cpus_of(policy.reserve.cpus);
    const IdSet usable_pus = (topology.allowed & topology.online) - host.pus_of(held_back);
    split_pus(host, policy.cpu, usable_pus);
    const IdSet usable = host.dedicated_cpus | host.shared_cpus;
    for (auto& [cpu, place] : pool.places)
        place.reserved = usable.contains(cpu) ? 0 : 1;
    pool.unbound = host.shared_cpus - host.cpus_of(topology.isolated);
}

} // namespace

IdSet Pool::all() const {
    IdSet result;
    for (const auto& [id, place] : places)
        result.insert(id);
    return result;
}

const Pool* Host::pool(const Resource& resource) const {
    const auto found = pools.find(resource);
    return found == pools.end() ? nullptr : &found->second;
}

bool Host::is_host_wide(const Resource& resource) const {
    const Pool* of_resource = pool(resource);
    return of_resource != nullptr && of_resource->is_host_wide;
}

IdSet Host::cpus_of(const IdSet& pus) const {
    if (cpus_are_pus)
        return pus & online;
    IdSet result;
    for (int pu = pus.first(); pu >= 0; pu = pus.next(pu))
        if (const auto at = static_cast<std::size_t>(pu);
            at < cpu_of_pu.size() && cpu_of_pu[at] != no_cpu)
            result.insert(cpu_of_pu[at]);
    return result;
}

IdSet Host::pus_of(const IdSet& cpus) const {
    if (cpus_are_pus)
        return cpus & online;
    IdSet result;
    for (std::size_t pu = 0; pu < cpu_of_pu.size(); ++pu)
        if (cpus.contains(cpu_of_pu[pu]))
            result.insert(static_cast<int>(pu));
    return result;
}

IdSet Host::nodes_of(const Resource& resource, const IdSet& places) const {
    if (resource.kind == Resource::Kind::storage)
        return {};
    if (resource.kind != Resource::Kind::cpu)
        return is_host_wide(resource) ? IdSet{} : places;
    IdSet result;
    IdSet rest = places;
    for (const auto& [node, cpus] : node_cpus) {
        if (cpus.intersects(rest))
            result.insert(node);
        rest -= cpus;
    }
    return result;
}

IdSet Host::places_of(const Resource& resource, int node) const {
    if (resource.kind == Resource::Kind::storage)
        return {};
    if (resource.kind != Resource::Kind::cpu)
        return is_host_wide(resource) ? IdSet{} : IdSet{node};
    const auto cpus = node_cpus.find(node);
    return cpus == node_cpus.end() ? IdSet{} : cpus->second;
}

Host make_host(const Topology& topology, const Policy& policy, FileSystems file_systems) {
    Host host;
    host.file_systems = std::move(file_systems);
    host.base_page = topology.base_page;
    host.default_hugepage = topology.default_hugepage;
    host.file_backing_is_ram = topology.file_backing_is_ram;
    host.online = topology.online;
    host.offline = topology.offline;
    add_cpus(host, topology, policy);
    for (const Node& node : topology.nodes) {
        host.nodes.insert(node.id);
        host.node_pus[node.id] = node.pus;
        host.node_cpus[node.id] = host.cpus_of(node.pus);
    }
    host.pools[Resource::memory()] = memory_pool(topology, policy);
    add_hugepage_pools(host, topology, policy);
    add_storage(host, policy);
    add_custom_pools(host, policy);
    return host;
}

} // namespace virtguard::core
