// SPDX-License-Identifier: Apache-2.0
#include "core/demand.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "core/wording.hpp"

namespace virtguard::core {

namespace {

constexpr std::int64_t gibibyte = std::int64_t{1} << 30;

/// Builds the demand of one domain.
class Builder {
  public:
    Builder(const Domain& domain, const Host& host, const Policy& policy)
        : domain_(domain), host_(host), policy_(policy) {}

    std::vector<Piece> storage() && {
        add_disks();
        return std::move(demand_.pieces);
    }

    Demand build() && {
        for (const VcpuGroup& group : domain_.vcpus)
            add_vcpus(group);
        for (const MemoryPart& part : domain_.memory)
            add_memory(part);
        add_overhead();
        add_disks();
        add_custom();
        note_unusable();
        note_unknown_metadata();
        merge_pieces(demand_.pieces);
        say_what_is_impossible();
        return std::move(demand_);
    }

  private:
    void add_vcpus(const VcpuGroup& group);
    void add_dedicated(int pu, std::int64_t count);
    void note_unusable();
    void note_unknown_metadata();
    void add_memory(const MemoryPart& part);
    void add_overhead();
    void add_disks();
    void add_disk(const Disk& disk);
    void add_unknown(const Disk& disk, std::string_view problem);
    void add_custom();
    std::int64_t size_of(const MemoryPart& part) const;
    std::int64_t counted_size(const MemoryPart& part, bool pageable) const;
    IdSet nodes_for(const MemoryPart& part, const Resource& resource, std::int64_t amount);
    std::optional<Resource> resource_of(const MemoryPart& part, std::int64_t amount);
    bool is_whole() const {
        return domain_.locked || domain_.preallocated || domain_.confidential ||
               domain_.vfio_devices > 0;
    }
    std::int64_t vcpus_of(const VcpuGroup& group) const {
        return policy_.cpu.vcpus_maximum ? group.maximum : group.current;
    }
    void add(Piece piece) {
        if (piece.amount > 0)
            demand_.pieces.push_back(std::move(piece));
    }
    void say_what_is_impossible();

    const Domain& domain_;
    const Host& host_;
    const Policy& policy_;
    Demand demand_;
    IdSet overhead_nodes_;
    std::int64_t base_page_ram_ = 0;
    std::int64_t vcpus_ = 0;

    /// vCPUs whose PUs are none that guests may use.
    struct Unplaced {
        IdSet pus;
        std::int64_t vcpus = 0;
    };
    // What is impossible, with how much is asked for: one reason each, however many pieces ask.
    std::map<std::pair<Resource, IdSet>, std::int64_t> absent_nodes_;
    std::map<std::optional<std::int64_t>, std::int64_t> absent_page_sizes_;
    IdSet partly_unusable_; ///< PUs of vCPUs that have others, too
    Unplaced dedicated_;
    Unplaced shared_;
    std::int64_t floating_ = 0; ///< vCPUs that may run anywhere, where there is nowhere
};

void Builder::add_vcpus(const VcpuGroup& group) {
    const std::int64_t count = vcpus_of(group);
    if (count == 0)
        return;
    vcpus_ += count;
    if (policy_.cpu.pinning_exclusive && group.cpus && group.cpus->count() == 1)
        return add_dedicated(group.cpus->first(), count);
    const IdSet places = group.cpus
                             ? host_.cpus_of(*group.cpus - host_.outside_slice) & host_.shared_cpus
                             : host_.pool(Resource::cpu())->unbound;
    if (group.cpus && places.empty()) {
        shared_.pus |= *group.cpus;
        shared_.vcpus += count;
    } else if (group.cpus)
        partly_unusable_ |= *group.cpus;
    else if (places.empty())
        floating_ += count;
    add({Resource::cpu(), places, /*whole=*/false, count});
}

/// A dedicated CPU costs one however many of its guest's vCPUs sit there: merge() must not add up,
/// so a second one on the same CPU (cores: two of its threads) is left out.
void Builder::add_dedicated(int pu, std::int64_t count) {
    const IdSet places = host_.cpus_of(IdSet{pu} - host_.outside_slice) & host_.dedicated_cpus;
    if (places.empty()) {
        dedicated_.pus.insert(pu);
        dedicated_.vcpus += count;
        return add({Resource::cpu(), {}, /*whole=*/false, count});
    }
    const bool counted = std::ranges::any_of(demand_.pieces, [&](const Piece& piece) {
        return piece.whole && piece.places == places && piece.resource == Resource::cpu();
    });
    if (!counted)
        add({Resource::cpu(), places, /*whole=*/true, 1});
}

void Builder::note_unusable() {
    if (partly_unusable_.empty())
        return;
    const IdSet usable = host_.pus_of(host_.shared_cpus) - host_.outside_slice;
    const IdSet unusable = partly_unusable_ - usable;
    if (!unusable.empty())
        demand_.notes.push_back(fmt::format("of its PUs {} guests may not use {}",
                                            partly_unusable_.text(),
                                            unusable_pus(host_, unusable)));
}

void Builder::note_unknown_metadata() {
    if (!domain_.unknown_metadata.empty())
        demand_.notes.push_back(
            fmt::format("<{}> in its metadata is not known and ignored: expected "
                        "<virtguard:scheduler> in <virtguard:admission>",
                        domain_.unknown_metadata));
}

std::int64_t Builder::size_of(const MemoryPart& part) const {
    return part.kind == MemoryPart::Kind::virtio_mem && policy_.memory.virtio_mem_requested
               ? part.requested
               : part.size;
}

/// <currentMemory> is shared out over the parts in proportion to their sizes.
std::int64_t Builder::counted_size(const MemoryPart& part, bool pageable) const {
    const std::int64_t size = size_of(part);
    if (!policy_.memory.count_current || !pageable)
        return size;
    std::int64_t sum = 0;
    for (const MemoryPart& each : domain_.memory)
        sum += size_of(each);
    if (sum == 0 || domain_.current_memory >= sum)
        return size;
    return saturate(-multiply_divide(-static_cast<Int128>(size), domain_.current_memory, sum));
}

/// Memory or the hugepages of its size; nothing where the host has no such pages.
std::optional<Resource> Builder::resource_of(const MemoryPart& part, std::int64_t amount) {
    if (std::holds_alternative<BasePages>(part.pages))
        return Resource::memory();
    std::optional<std::int64_t> size = host_.default_hugepage;
    if (const auto* pages = std::get_if<PagesOf>(&part.pages))
        size = pages->size;
    if (size == host_.base_page)
        return Resource::memory();
    if (size && host_.pool(Resource::hugepages(*size)) != nullptr)
        return Resource::hugepages(*size);
    absent_page_sizes_[size] += amount;
    return size ? std::optional(Resource::hugepages(*size)) : std::nullopt;
}

IdSet Builder::nodes_for(const MemoryPart& part, const Resource& resource, std::int64_t amount) {
    const Pool* pool = host_.pool(resource);
    if (!part.bound_to) {
        overhead_nodes_ |= host_.pool(Resource::memory())->unbound;
        return pool == nullptr ? IdSet{} : pool->unbound;
    }
    if (const IdSet absent = *part.bound_to - host_.nodes; !absent.empty())
        absent_nodes_[{resource, absent}] += amount;
    overhead_nodes_ |= *part.bound_to & host_.nodes;
    return pool == nullptr ? IdSet{} : *part.bound_to & host_.nodes;
}

void Builder::add_memory(const MemoryPart& part) {
    const std::optional<Resource> resource = resource_of(part, part.size);
    if (!resource)
        return;
    const bool is_base = *resource == Resource::memory();
    if (is_base && domain_.file_backed && policy_.memory.file_is_storage &&
        !host_.file_backing_is_ram)
        return;
    const bool whole = !is_base || is_whole();
    std::int64_t amount = counted_size(part, !whole);
    if (is_base)
        base_page_ram_ += amount;
    else
        amount = checked_round_up(amount, resource->page_size).value_or(amount);
    add({*resource, nodes_for(part, *resource, amount), whole, amount});
}

void Builder::say_what_is_impossible() {
    std::vector<Reason>& reasons = demand_.impossible;
    for (const auto& [where, amount] : absent_nodes_)
        reasons.push_back(no_such_node(where.first, where.second, amount));
    for (const auto& [size, amount] : absent_page_sizes_)
        reasons.push_back(no_such_page_size(size, amount));
    for (const bool dedicated : {true, false})
        if (const Unplaced& vcpus = dedicated ? dedicated_ : shared_; vcpus.vcpus > 0)
            reasons.push_back(cpu_not_available(host_, vcpus.pus, vcpus.vcpus, dedicated));
    if (floating_ > 0)
        reasons.push_back(cpu_not_available(host_, std::nullopt, floating_, /*dedicated=*/false));
}

void Builder::add_overhead() {
    if (!policy_.memory.overhead)
        return;
    const Overhead& formula = *policy_.memory.overhead;
    const auto times = [](std::int64_t a, std::int64_t b) { return static_cast<Int128>(a) * b; };
    Int128 sum = formula.base + times(formula.per_vcpu, vcpus_) +
                 times(formula.per_iothread, domain_.iothreads) +
                 times(formula.per_vfio, domain_.vfio_devices);
    sum += -floor_divide(-times(formula.per_gib, base_page_ram_), gibibyte);
    sum += (formula.video ? domain_.video_ram : 0) + (domain_.confidential ? formula.sev : 0) +
           (domain_.tpm ? formula.tpm : 0);
    demand_.overhead = saturate(std::min<Int128>(sum, max_domain_bytes));
    if (overhead_nodes_.empty())
        overhead_nodes_ = host_.pool(Resource::memory())->unbound;
    add({Resource::memory(), overhead_nodes_, domain_.locked, demand_.overhead});
}

void Builder::add_disks() {
    if (host_.file_systems.any())
        for (const Disk& disk : domain_.disks)
            add_disk(disk);
}

/// What it may still grow, on the file system it is on.
void Builder::add_disk(const Disk& disk) {
    const auto found = host_.images.find(disk.image);
    if (found == host_.images.end() || !found->second.image)
        return add_unknown(disk,
                           found == host_.images.end() ? "not read yet" : found->second.problem);
    const KnownImage& known = found->second;
    const std::int64_t growth = growth_of(disk, *known.image);
    const auto place = host_.file_systems.place_of(known.image->device);
    if (growth == 0 || (!place && host_.file_systems.unread.empty()))
        return;
    if (!place)
        return add_unknown(disk, fmt::format("it may be on the file system of {}, which could not "
                                             "be read yet",
                                             printable(host_.file_systems.unread.front())));
    if (!known.problem.empty())
        demand_.notes.push_back(fmt::format("{} counts as it was when it was last read: {}",
                                            printable(disk.image.path), known.problem));
    add({Resource::storage(), IdSet{*place}, /*whole=*/false, growth});
}

void Builder::add_unknown(const Disk& disk, std::string_view problem) {
    const std::string what =
        fmt::format("how much {} may grow is not known: {}", printable(disk.image.path), problem);
    if (policy_.storage.unknown_refuses)
        demand_.impossible.push_back(
            {.code = Code::not_ready, .resource = Resource::storage(), .text = what});
    else
        demand_.notes.push_back(what);
}

/// Where a guest's memory is bound to; nothing where some of it is not.
std::optional<IdSet> bound_nodes(const Domain& domain) {
    std::optional<IdSet> nodes;
    for (const MemoryPart& part : domain.memory) {
        if (!part.bound_to)
            return std::nullopt;
        nodes = nodes.value_or(IdSet{}) | *part.bound_to;
    }
    return nodes;
}

/// What is per node comes from where the guest's memory is bound to; of a guest that is not bound
/// from any node, also those without memory.
void Builder::add_custom() {
    if (policy_.resources.empty())
        return;
    const std::optional<IdSet> bound = bound_nodes(domain_);
    for (const auto& [resource, custom] : policy_.resources) {
        const std::string key = demand_key(resource);
        const Fact& fact = domain_.fact(key);
        if (!fact.problem.empty())
            demand_.impossible.push_back(not_ready(key, fact, resource));
        const Pool& pool = *host_.pool(resource);
        IdSet places = pool.unbound;
        if (bound && !pool.is_host_wide && bound->intersects(places))
            places &= *bound;
        add({resource, std::move(places), /*whole=*/false, fact.value});
    }
}

} // namespace

Quantities Demand::total() const {
    Quantities result;
    for (const Piece& piece : pieces)
        result[piece.resource] =
            saturate(static_cast<Int128>(result[piece.resource]) + piece.amount);
    return result;
}

Demand make_demand(const Domain& domain, const Host& host, const Policy& policy) {
    return Builder(domain, host, policy).build();
}

Demand as_held(Demand demand, const Host& host) {
    for (Piece& piece : demand.pieces)
        if (const Pool* pool = host.pool(piece.resource); piece.places.empty() && pool != nullptr)
            piece.places = pool->unbound.empty() ? pool->all() : pool->unbound;
    merge_pieces(demand.pieces);
    return demand;
}

Demand make_held_demand(const Domain& domain, const Host& host, const Policy& policy) {
    return as_held(make_demand(domain, host, policy), host);
}

void replace_storage(std::vector<Piece>& pieces, const Domain& domain, const Host& host,
                     const Policy& policy) {
    std::erase_if(pieces, [](const Piece& piece) { return piece.resource == Resource::storage(); });
    for (Piece& piece : Builder(domain, host, policy).storage())
        pieces.push_back(std::move(piece));
    merge_pieces(pieces);
}

void merge_pieces(std::vector<Piece>& pieces) {
    std::ranges::sort(pieces, [](const Piece& a, const Piece& b) { return key_of(a) < key_of(b); });
    std::size_t kept = 0;
    for (std::size_t i = 1; i < pieces.size(); ++i) {
        if (key_of(pieces[kept]) == key_of(pieces[i]))
            pieces[kept].amount =
                saturate(static_cast<Int128>(pieces[kept].amount) + pieces[i].amount);
        else if (++kept != i)
            pieces[kept] = std::move(pieces[i]);
    }
    pieces.resize(std::min(pieces.size(), kept + 1));
}

} // namespace virtguard::core
