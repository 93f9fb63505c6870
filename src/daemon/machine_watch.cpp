// SPDX-License-Identifier: Apache-2.0
#include "daemon/machine_watch.hpp"

#include <map>
#include <utility>

#include "base/log.hpp"

namespace virtguard::daemon {

Result<std::unique_ptr<MachineWatch>>
MachineWatch::create(loop::Loop& loop, FilesThread& files, core::Guard& guard, HugepagePools& pools,
                     StorageWatch& storage, const std::filesystem::path& root,
                     std::chrono::nanoseconds interval, Tell tell) {
    std::unique_ptr<MachineWatch> watch(
        new MachineWatch(guard, pools, storage, interval, std::move(tell)));
    MachineWatch* raw = watch.get();
    auto residency = ResidencyWatch::create(
        loop, files, guard, root, [raw](ResidencyRound round) { raw->note(std::move(round)); });
    auto taking_in = loop.deferred("residency", [raw] { raw->take_in_residency(); });
    auto next = loop.timer(
        "the machine", [raw] { raw->look(); }, loop::Priority::idle);
    auto topology = TopologyWatch::create(
        loop, files, root, [raw](core::Topology found) { raw->apply(std::move(found)); });
    if (!residency)
        return std::unexpected(residency.error());
    if (!topology)
        return std::unexpected(topology.error());
    if (!taking_in)
        return std::unexpected(taking_in.error());
    if (!next)
        return std::unexpected(next.error());
    watch->status_files_ = std::make_unique<StatusWatch>(
        loop, root / "run/libvirt/qemu",
        [raw](std::string_view name) { raw->tell_.status_file_written(name); });
    watch->residency_ = *std::move(residency);
    watch->taking_in_ = *std::move(taking_in);
    watch->topology_ = *std::move(topology);
    watch->next_ = *std::move(next);
    watch->next_->arm(loop::now()); // for what is known from before
    return watch;
}

void MachineWatch::look_at(const std::string& identity) {
    residency_->look_at(identity);
    storage_.look_at(identity);
}

void MachineWatch::libvirt_has_told(Guests guests) {
    status_files_->renew(); // their folder may have come with this libvirtd
    if (guests == Guests::some_new || loop::now() - seen_ > interval_ / 2)
        look();
}

void MachineWatch::look() {
    seen_ = loop::now();
    pools_.read_again();
    tell_.changed();
    tell_.looked();
    topology_->look();
    residency_->look_at_all();
    storage_.look();
    next_->arm_after(interval_);
}

void MachineWatch::apply(core::Topology topology) {
    log(Level::notice, "topology: {} CPUs for guests now, on {} nodes", topology.allowed.count(),
        topology.nodes.size());
    guard_.apply(std::move(topology));
    pools_.read_again();
    tell_.changed();
}

void MachineWatch::note(ResidencyRound round) {
    if (round.memory_in_use)
        guard_.set_memory_use(round.guests, *round.memory_in_use);
    rounds_.push_back(std::move(round));
    take_in_residency();
}

/// A part at a time, so that starts are answered in between.
void MachineWatch::take_in_residency() {
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
        pools_.read_again(of_all ? Seen::now : Seen::before);
        if (of_all)
            tell_.changed();
    }
    if (!rounds_.empty())
        taking_in_->schedule();
}

} // namespace virtguard::daemon
