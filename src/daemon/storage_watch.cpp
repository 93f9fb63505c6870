// SPDX-License-Identifier: Apache-2.0
#include "daemon/storage_watch.hpp"

#include <algorithm>
#include <limits>
#include <ranges>
#include <string_view>

#include <sys/epoll.h>

#include "base/log.hpp"
#include "base/text.hpp"
#include "image/read.hpp"
#include "loop/service.hpp"

namespace virtguard::daemon {

namespace {

/// What a thread reads before it tells: some milliseconds where storage does not dawdle, so that a
/// start does not wait for a look at the images of thousands of guests.
constexpr std::size_t max_batch = 64;
constexpr std::chrono::milliseconds max_batch_time{20};

/// What starts may have asked of a lane that is behind: more than as many starts as can be in
/// flight have. What is asked beyond is not read in time.
constexpr std::size_t max_asked = 16384;

/// Policies name at most 16 paths; there are more lanes only when those of paths that are no longer
/// named hang.
constexpr std::size_t max_lanes = 48;

/// Of those, lanes of mounted file systems: guests' images are rarely on more.
constexpr std::ptrdiff_t max_mounts = 24;

/// Threads beside those of lanes, which images hold; and those that images of one lane may.
constexpr std::size_t max_held_in_all = 16;
constexpr std::ptrdiff_t max_held = 8;

/// How long an image may take before another thread goes on: what waits behind it, and was asked
/// with it, is in time.
constexpr std::chrono::milliseconds time_of_image = StorageWatch::patience / 2;

constexpr std::string_view late = "it could not be read in time";

/// The path of a folder without the slashes that may end it; "" is the root.
std::string_view bare(std::string_view folder) {
    while (folder.ends_with('/'))
        folder.remove_suffix(1);
    return folder;
}

core::KnownImage read_image(const StorageReader& reader, const core::ImageName& name) {
    auto image = reader.image(name);
    if (!image)
        return {.image = std::nullopt, .problem = std::move(image.error().what)};
    return {.image = *image, .problem = ""};
}

} // namespace

StorageReader storage_below(const std::filesystem::path& root) {
    return {.image = [root](const core::ImageName& name) { return image::read(root, name); },
            .file_system =
                [root](const std::string& path) { return image::read_file_system(root, path); },
            .mounts = [root] { return image::mount_points(root); }};
}

Result<std::unique_ptr<StorageWatch>> StorageWatch::create(loop::Loop& loop, core::Guard& guard,
                                                           StorageReader reader,
                                                           std::function<void()> changed) {
    auto mail = Mail::create();
    if (!mail)
        return std::unexpected(mail.error());
    std::unique_ptr<StorageWatch> watch(
        new StorageWatch(guard, std::move(reader), *std::move(mail), std::move(changed)));
    StorageWatch* raw = watch.get();
    auto arrived = loop.on_io("storage", watch->mail_->fd(), EPOLLIN, [raw](std::uint32_t) {
        for (Batch& batch : raw->mail_->drain())
            raw->take_in(std::move(batch));
        raw->serve();
    });
    auto timer = loop.timer("waits for storage", [raw] { raw->serve(); });
    if (!arrived)
        return std::unexpected(arrived.error());
    if (!timer)
        return std::unexpected(timer.error());
    watch->arrived_ = *std::move(arrived);
    watch->timer_ = *std::move(timer);
    if (watch->lane_for("") == nullptr)
        return fail(Errc::io, "storage: no thread for it");
    watch->policy_changed();
    return watch;
}

bool StorageWatch::counts() const {
    return !guard_.policy().storage.paths.empty();
}

/// The lane of a path, a new one where it has none: one that is of no path now, and idle, does.
StorageWatch::Lane* StorageWatch::lane_for(const std::string& path) {
    for (const auto& lane : lanes_)
        if (lane->path == path && !lane->is_of_mount)
            return lane.get();
    for (const auto& lane : lanes_)
        if (!lane->path.empty() && !lane->place && !lane->is_of_mount && !lane->under_way) {
            renew(*lane, path);
            return lane.get();
        }
    return add_lane(path);
}

/// What is asked of it, and its rounds, go on.
void StorageWatch::renew(Lane& lane, const std::string& path) {
    lane.path = path;
    lane.is_known = false;
    lane.is_unread = false;
    lane.first_round = lane.rounds_begun + 1;
    lane.devices.clear();
    lane.file_system.reset();
    lane.less.reset();
    lane.problem.clear();
}

void StorageWatch::map_lanes() {
    lane_at_.clear();
    for (std::size_t number = 1; number < lanes_.size(); ++number)
        if (const Lane& lane = *lanes_[number]; lane.place)
            lane_at_.insert_or_assign(std::string(bare(lane.path)), number);
        else if (lane.is_of_mount && mounts_.contains(lane.path))
            lane_at_.emplace(lane.path, number);
}

StorageWatch::Lane* StorageWatch::add_lane(const std::string& path) {
    auto thread = lanes_.size() < max_lanes
                      ? FilesThread::start_apart(mail_->fd())
                      : fail(Errc::limit, "not looked at, as too much else does not answer");
    if (!thread) {
        log(Level::error, "storage: {}: {}", printable(path), thread.error().what);
        return nullptr;
    }
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->path = path;
    lanes_.back()->thread = *std::move(thread);
    return lanes_.back().get();
}

void StorageWatch::policy_changed() {
    const std::vector<std::string>& paths = guard_.policy().storage.paths;
    for (const auto& lane : lanes_)
        if (lane->place && std::ranges::find(paths, lane->path) == paths.end()) {
            lane->place.reset();
            lane->less.reset();
        }
    for (int place = 0; const std::string& path : paths) {
        if (Lane* lane = lane_for(path))
            lane->place = place;
        ++place;
    }
    map_lanes();
    tell_file_systems();
    look();
}

/// The innermost folder decides, be it one of the policy's or one where a file system is mounted.
std::size_t StorageWatch::lane_of(const std::string& image) {
    for (std::string_view folder = image; folder.contains('/');) {
        folder = folder.substr(0, folder.rfind('/'));
        if (const auto known = lane_at_.find(folder); known != lane_at_.end())
            return known->second;
        if (mounts_.contains(folder))
            if (const auto added = lane_of_mount(std::string(folder)))
                return *added;
    }
    return 0;
}

/// A new one, or that of one that is mounted no longer, as far as there may be more.
std::optional<std::size_t> StorageWatch::lane_of_mount(const std::string& mount) {
    auto found = std::ranges::find_if(lanes_, [&](const auto& lane) {
        return lane->is_of_mount && !mounts_.contains(lane->path) && !lane->under_way &&
               lane->asked.empty() && !lane->round_is_on();
    });
    if (found != lanes_.end())
        renew(**found, mount);
    else if (std::ranges::count_if(lanes_, [](const auto& lane) { return lane->is_of_mount; }) >=
                 max_mounts ||
             add_lane(mount) == nullptr)
        return std::nullopt;
    else
        found = std::prev(lanes_.end());
    (*found)->is_of_mount = true;
    (*found)->first_round = 0; // what is known of its images others have read
    const auto number = static_cast<std::size_t>(found - lanes_.begin());
    new_lanes_.insert(number);
    map_lanes();
    return number;
}

bool StorageWatch::is_used(std::size_t number) const {
    return number == 0 || lanes_[number]->place.has_value() || lanes_[number]->is_of_mount;
}

/// Somebody has waited for it in vain.
bool StorageWatch::hangs(const Lane& lane) const {
    return lane.under_way && loop::now() - lane.under_way->since >= patience;
}

/// Nothing is decided before what the guests on it owe is known: it would be given away. It is not
/// waited for where it hangs.
bool StorageWatch::is_awaited(std::size_t number) const {
    return is_used(number) && !lanes_[number]->knows_guests() && !hangs(*lanes_[number]);
}

/// Where it was when it was last read decides, too: there it would hold one more thread.
bool StorageWatch::is_held(const core::ImageName& image) const {
    if (held_.empty())
        return false;
    const core::Images& images = guard_.host().images;
    const auto known = images.find(image);
    return std::ranges::any_of(held_, [&](const auto& each) {
        const Held& held = each.second;
        return held.image == image ||
               (held.device && known != images.end() && known->second.image &&
                known->second.image->device == *held.device);
    });
}

std::ptrdiff_t StorageWatch::count_held(std::size_t number) const {
    return std::ranges::count_if(held_,
                                 [&](const auto& each) { return each.second.lane == number; });
}

/// A round that is on goes on to its end: what is new since it began the next one sees.
void StorageWatch::look() {
    if (!counts())
        return;
    std::vector<std::string> found = reader_.mounts();
    if (std::set<std::string, std::less<>> mounts(found.begin(), found.end()); mounts != mounts_) {
        mounts_ = std::move(mounts);
        map_lanes();
    }
    std::set<std::size_t> idle;
    for (std::size_t number = 0; number < lanes_.size(); ++number)
        if (is_used(number) && !lanes_[number]->round_is_on())
            idle.insert(number);
    begin_rounds(std::move(idle));
    arm_timer();
}

/// Also those of new lanes.
void StorageWatch::begin_rounds(std::set<std::size_t> numbers) {
    if (numbers.empty())
        return;
    new_lanes_.clear();
    for (const auto& [identity, guest] : guard_.ledger().guests())
        for (const core::Disk& disk : guest.domain.disks)
            if (const std::size_t number = lane_of(disk.image.path);
                numbers.contains(number) || new_lanes_.contains(number))
                lanes_[number]->round.push_back(disk.image);
    for (const std::size_t number : new_lanes_)
        lanes_[number]->first_round = lanes_[number]->rounds_begun + 1;
    numbers.merge(new_lanes_);
    for (const std::size_t number : numbers) {
        ++lanes_[number]->rounds_begun;
        lanes_[number]->round_is_fresh = true;
    }
    for (const std::size_t number : numbers)
        work(number);
}

void StorageWatch::look_at(const std::string& identity) {
    const core::Guest* guest = guard_.ledger().find(identity);
    if (guest != nullptr)
        read(guest->domain.disks, patience, [] {});
}

void StorageWatch::read(const std::vector<core::Disk>& disks, std::chrono::nanoseconds at_most,
                        Then then) {
    if (disks.empty() || !counts())
        return then();
    Waiter waiter{.until = loop::now() + at_most, .then = std::move(then)};
    for (const core::Disk& disk : disks)
        ask(disk.image, waiter);
    wait(std::move(waiter));
}

void StorageWatch::ask(const core::ImageName& image, Waiter& waiter) {
    const std::size_t number = lane_of(image.path);
    Lane& lane = *lanes_[number];
    if (!lane.waited_for.contains(image)) {
        if (lane.asked.size() >= max_asked) { // the next round reads it where it is a guest's
            lane.round_again = true;
            return guard_.set_images(
                {{image, {.image = std::nullopt, .problem = std::string(late)}}});
        }
        lane.asked.push_back(image);
    }
    if (lane.under_way)
        lane.under_way->progress->is_urgent = true;
    Asked& asked = lane.waited_for[image];
    if (asked.tickets.empty())
        asked.tickets.push_back(*open_.insert(open_.end(), ++last_ticket_));
    ++asked.waiters;
    waiter.images.push_back({.lane = number, .image = image, .ticket = asked.tickets.back()});
}

void StorageWatch::read_all(std::chrono::nanoseconds at_most, Then then) {
    if (!counts())
        return then();
    Waiter waiter{.until = loop::now() + at_most, .then = std::move(then)};
    for (std::size_t number = 0; number < lanes_.size(); ++number)
        if (Lane& lane = *lanes_[number]; is_used(number) && !hangs(lane)) {
            lane.round_again = lane.round_is_on();
            waiter.rounds[number] = lane.rounds_begun + 1;
        }
    look();
    wait(std::move(waiter));
}

void StorageWatch::wait(Waiter waiter) {
    for (const Wanted& wanted : waiter.images)
        work(wanted.lane);
    waiters_.push_back(std::move(waiter));
    arm_timer();
}

void StorageWatch::arm_timer() {
    std::optional<Instant> next;
    const auto note = [&](Instant at) { next = std::min(next.value_or(at), at); };
    for (const Waiter& waiter : waiters_)
        note(waiter.until);
    const Instant now = loop::now();
    for (const auto& lane : lanes_)
        for (const auto time : {time_of_image, patience})
            if (lane->under_way && lane->under_way->since + time > now)
                note(lane->under_way->since + time);
    if (next)
        timer_->arm(*next);
}

/// Has the lane's thread read more, unless it reads.
void StorageWatch::work(std::size_t number) {
    Lane& lane = *lanes_[number];
    if (lane.under_way || (lane.asked.empty() && !lane.round_is_on()))
        return;
    Batch batch = next_batch(number);
    if (batch.asked.empty() && batch.of_round.empty() && !batch.ends_round) {
        lane.under_way.reset();
        return;
    }
    // There is room: a lane has one job, and one batch, at a time.
    const std::string path = lane.is_of_mount ? "" : lane.path;
    (void)lane.thread->run([batch = std::move(batch), path, progress = lane.under_way->progress,
                            reader = reader_, mail = mail_, thread = lane.thread.get()]() mutable {
        read(batch, path, *progress, reader, *thread);
        (void)mail->push(std::move(batch));
    });
}

/// At least one, where there are any.
void StorageWatch::read_images(Batch& batch, Progress& progress, const StorageReader& reader,
                               const FilesThread& thread) {
    const Instant end = loop::now() + max_batch_time;
    int at = 0;
    for (core::Images* images : {&batch.asked, &batch.of_round})
        for (auto each = images->begin(); each != images->end(); ++each, ++at) {
            const bool is_urgent = images == &batch.of_round && progress.is_urgent;
            if (at > 0 && (is_urgent || thread.is_ending() || loop::now() >= end)) {
                images->erase(each, images->end());
                break;
            }
            progress.at = at;
            each->second = read_image(reader, each->first);
        }
    progress.at = std::numeric_limits<int>::max();
}

/// On the lane's thread.
void StorageWatch::read(Batch& batch, const std::string& path, Progress& progress,
                        const StorageReader& reader, const FilesThread& thread) {
    if (!path.empty() && batch.begins_round)
        if (auto seen = reader.file_system(path))
            batch.at_begin = *std::move(seen);
    read_images(batch, progress, reader, thread);
    if (!path.empty() && (batch.ends_round || !batch.asked.empty()))
        batch.file_system = reader.file_system(path);
    std::set<std::uint64_t> devices;
    for (const core::Images* images : {&batch.asked, &batch.of_round})
        for (const auto& [name, known] : *images)
            if (known.image)
                devices.insert(known.image->device);
    // Not what an image says of the file system it is on, which need not be what its path says: a
    // quota may hold for the folder.
    for (const auto& [device, counted] : batch.paths)
        if (devices.contains(device) && counted != path)
            if (auto seen = reader.file_system(counted))
                batch.others.push_back(*std::move(seen));
}

/// The first of the policy's on each device.
std::map<std::uint64_t, std::string> StorageWatch::counted_paths() const {
    std::map<std::uint64_t, std::string> paths;
    for (const auto& [place, file_system] : guard_.host().file_systems.read)
        paths.emplace(file_system.device, file_system.path);
    return paths;
}

/// Takes what comes next from what the lane is to read: before all else, what its path is on.
StorageWatch::Batch StorageWatch::next_batch(std::size_t number) {
    Lane& lane = *lanes_[number];
    Batch batch{.lane = number,
                .number = ++last_batch_,
                .asked = {},
                .of_round = {},
                .paths = counted_paths(),
                .at_begin = {},
                .file_system = {},
                .others = {}};
    const std::size_t most = lane.place && !lane.is_known ? 0 : max_batch;
    batch.begins_round = most > 0 && std::exchange(lane.round_is_fresh, false);
    lane.under_way = UnderWay{.batch = batch.number,
                              .since = loop::now(),
                              .progress = std::make_shared<Progress>(),
                              .asked = {},
                              .of_round = {},
                              .begins_round = batch.begins_round};
    fill(batch, lane, most);
    batch.ends_round = most == 0 || (lane.round_is_on() && lane.round.empty());
    return batch;
}

/// What is held stays asked, and is left out of rounds.
void StorageWatch::fill(Batch& batch, Lane& lane, std::size_t most) {
    std::deque<core::ImageName> left;
    for (; !lane.asked.empty() && batch.asked.size() < most; lane.asked.pop_front()) {
        core::ImageName& image = lane.asked.front();
        if (is_held(image)) {
            left.push_back(std::move(image));
            continue;
        }
        Asked asked = lane.waited_for.extract(image).mapped();
        if (asked.waiters > 0) {
            batch.asked.try_emplace(image);
            lane.under_way->asked.emplace(std::move(image), std::move(asked));
            continue;
        }
        answer(asked.tickets);
        lane.round_again = true; // it may be of a guest that was let in without it
    }
    lane.asked.insert(lane.asked.begin(), left.begin(), left.end());
    for (; !lane.round.empty() && batch.asked.size() + batch.of_round.size() < most;
         lane.round.pop_front())
        if (!is_held(lane.round.front()) &&
            lane.under_way->of_round.insert(lane.round.front()).second)
            batch.of_round.try_emplace(lane.round.front());
}

void StorageWatch::answer(const std::vector<std::uint64_t>& tickets) {
    for (const std::uint64_t ticket : tickets)
        open_.erase(ticket);
}

/// What was not read of what is under way is read next.
void StorageWatch::give_back(Lane& lane, const core::Images& asked, const core::Images& of_round) {
    UnderWay ended = *std::exchange(lane.under_way, {});
    for (auto& [image, by] : ended.asked | std::views::reverse) {
        if (asked.contains(image)) {
            answer(by.tickets);
            continue;
        }
        const auto [queued, is_new] = lane.waited_for.try_emplace(image);
        queued->second.waiters += by.waiters;
        queued->second.tickets.insert(queued->second.tickets.begin(), by.tickets.begin(),
                                      by.tickets.end());
        if (is_new)
            lane.asked.push_front(image);
    }
    for (const core::ImageName& image : ended.of_round)
        if (!of_round.contains(image))
            lane.round.push_front(image);
}

/// Lets another thread read what the lane's is held up from.
void StorageWatch::set_aside(std::size_t number) {
    Lane& lane = *lanes_[number];
    if (!lane.under_way || loop::now() - lane.under_way->since < time_of_image ||
        held_.size() >= max_held_in_all || count_held(number) >= max_held)
        return;
    UnderWay& stuck = *lane.under_way;
    const auto count = static_cast<int>(stuck.asked.size() + stuck.of_round.size());
    const int at = stuck.progress->at;
    if (at < 0 || at >= count)
        return; // it is the file system of its path that hangs
    auto thread = FilesThread::start_apart(mail_->fd());
    if (!thread)
        return;
    Held held{.lane = number,
              .since = stuck.since,
              .image = {},
              .device = {},
              .tickets = {},
              .thread = std::exchange(lane.thread, *std::move(thread))};
    if (const auto of_asked = static_cast<int>(stuck.asked.size()); at < of_asked) {
        const auto asked = std::next(stuck.asked.begin(), at);
        held.image = asked->first;
        held.tickets = std::move(asked->second.tickets);
        stuck.asked.erase(asked);
    } else {
        held.image = *std::next(stuck.of_round.begin(), at - of_asked);
        stuck.of_round.erase(held.image);
    }
    const auto known = guard_.host().images.find(held.image);
    if (known != guard_.host().images.end() && known->second.image &&
        !(lane.file_system && lane.file_system->device == known->second.image->device))
        held.device = known->second.image->device;
    lane.round_is_fresh |= stuck.begins_round;
    held_.emplace(stuck.batch, std::move(held));
    give_back(lane, {}, {});
    work(number);
}

void StorageWatch::take_in(Batch batch) {
    if (auto held = held_.extract(batch.number))
        return take_in_held(std::move(held.mapped()), batch);
    Lane& lane = *lanes_[batch.lane];
    give_back(lane, batch.asked, batch.of_round);
    if (batch.at_begin)
        note_use(*batch.at_begin, &lane);
    note_images(lane, batch.asked);
    guard_.set_images(batch.asked);
    note_images(lane, batch.of_round);
    lane.round_read.merge(batch.of_round);
    if (lane.round_is_on() && batch.ends_round && lane.round.empty()) {
        guard_.set_images(std::exchange(lane.round_read, {}));
        ++lane.rounds_ended;
    }
    if (batch.file_system)
        note_file_system(lane, *std::move(batch.file_system));
    for (const core::FileSystem& seen : batch.others)
        note_use(seen);
    go_on(batch.lane);
    if (batch.ends_round || !batch.asked.empty())
        changed_();
}

/// All but what held it has been read by another thread since. What was not read for it is now.
void StorageWatch::take_in_held(Held held, Batch& batch) {
    Lane& lane = *lanes_[held.lane];
    core::Images read;
    for (core::Images* images : {&batch.of_round, &batch.asked})
        if (auto found = images->extract(held.image))
            read.insert(std::move(found));
    note_images(lane, read);
    guard_.set_images(read);
    answer(held.tickets);
    for (const core::FileSystem& seen : batch.others)
        note_use(seen);
    for (const auto& each : lanes_)
        each->round_again = true;
    for (std::size_t number = 0; number < lanes_.size(); ++number)
        go_on(number);
    changed_();
}

void StorageWatch::go_on(std::size_t number) {
    Lane& lane = *lanes_[number];
    count_less();
    tell_file_systems();
    work(number);
    if (!lane.round_is_on() && is_used(number) && std::exchange(lane.round_again, false))
        begin_rounds({number});
    hasten_less();
}

void StorageWatch::note_images(Lane& lane, const core::Images& images) {
    for (const auto& [name, known] : images)
        if (known.image)
            lane.devices.insert(known.image->device);
}

void StorageWatch::note_use(const core::FileSystem& seen, const Lane* before_round_of) {
    const auto found = std::ranges::find_if(
        lanes_, [&](const auto& lane) { return lane->place && lane->path == seen.path; });
    if (found == lanes_.end())
        return;
    Lane& lane = **found;
    if (!lane.file_system || lane.file_system->device != seen.device ||
        lane.file_system->used <= seen.used) {
        lane.file_system = seen;
        return lane.less.reset();
    }
    lane.file_system->capacity = seen.capacity;
    if (lane.less)
        lane.less->used = std::max(lane.less->used, seen.used);
    else
        lane.less = seen_less(seen, before_round_of);
}

/// before_round_of: whose round that is on began with this.
StorageWatch::Less StorageWatch::seen_less(const core::FileSystem& seen,
                                           const Lane* before_round_of) const {
    Less less{.used = seen.used, .rounds = {}};
    for (std::size_t number = 0; number < lanes_.size(); ++number)
        if (const Lane& lane = *lanes_[number];
            is_used(number) && (lane.devices.contains(seen.device) || !lane.knows_guests()))
            less.rounds[number] =
                lane.rounds_begun + (lane.round_is_fresh || &lane == before_round_of ? 0 : 1);
    return less;
}

/// Where all images were read since.
void StorageWatch::count_less() {
    for (const auto& lane : lanes_)
        if (lane->less && std::ranges::all_of(lane->less->rounds, [&](const auto& need) {
                return lanes_[need.first]->rounds_ended >= need.second || !is_used(need.first);
            })) {
            lane->file_system->used = lane->less->used;
            lane->less.reset();
        }
}

/// Who has all images read waits for that, too.
void StorageWatch::hasten_less() {
    if (std::ranges::all_of(waiters_, [](const Waiter& each) { return each.rounds.empty(); }))
        return;
    std::set<std::size_t> idle;
    for (const auto& lane : lanes_)
        for (const auto& [number, round] : lane->less ? lane->less->rounds : Less{}.rounds) {
            Lane& other = *lanes_[number];
            if (other.rounds_begun < round && !other.round_is_on())
                idle.insert(number);
            other.round_again |= other.rounds_begun < round && other.round_is_on();
        }
    begin_rounds(idle);
}

bool StorageWatch::awaits_less() const {
    return std::ranges::any_of(lanes_, [&](const auto& lane) {
        return lane->less && std::ranges::none_of(lane->less->rounds, [&](const auto& need) {
                   return hangs(*lanes_[need.first]);
               });
    });
}

void StorageWatch::note_file_system(Lane& lane, Result<core::FileSystem> found) {
    lane.is_known = true;
    lane.is_unread = !found && found.error().code != Errc::not_found && !lane.file_system;
    const bool is_default = !guard_.policy().origins.contains("storage.paths");
    std::string problem = found ? "" : found.error().what;
    if (found)
        note_use(*found);
    else if (found.error().code == Errc::not_found) {
        lane.file_system.reset();
        lane.less.reset();
        if (is_default) // a host without that folder has its images elsewhere
            problem.clear();
    }
    if (!problem.empty() && problem != lane.problem)
        log(Level::error, "storage: {}: {}", printable(lane.path), problem);
    lane.problem = std::move(problem);
}

void StorageWatch::tell_file_systems() {
    core::FileSystems all;
    std::map<int, const Lane*> by_place;
    for (const auto& lane : lanes_)
        if (lane->place)
            by_place[*lane->place] = lane.get();
    for (const auto& [place, lane] : by_place) {
        if (!lane->is_known || lane->is_unread)
            all.unread.push_back(lane->path);
        else if (lane->file_system && !all.place_of(lane->file_system->device))
            all.read[place] = *lane->file_system;
    }
    guard_.set_file_systems(std::move(all));
}

/// Those that wait and need not any longer, or must not.
void StorageWatch::serve() {
    for (std::size_t number = 0; number < lanes_.size(); ++number)
        set_aside(number);
    std::list<Waiter> served;
    const Instant now = loop::now();
    for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
        const auto next = std::next(waiter);
        if (is_served(*waiter) || waiter->until <= now)
            served.splice(served.end(), waiters_, waiter);
        waiter = next;
    }
    for (Waiter& waiter : served) {
        if (!is_served(waiter))
            give_up(waiter);
        waiter.then();
    }
    arm_timer();
}

/// Any path might be on the file system that an image is on.
bool StorageWatch::is_served(const Waiter& waiter) const {
    return std::ranges::all_of(
               waiter.images,
               [&](const Wanted& wanted) { return !open_.contains(wanted.ticket); }) &&
           std::ranges::all_of(
               waiter.rounds,
               [&](const auto& need) { return lanes_[need.first]->rounds_ended >= need.second; }) &&
           std::ranges::none_of(std::views::iota(std::size_t{0}, lanes_.size()),
                                [&](std::size_t number) { return is_awaited(number); }) &&
           (waiter.rounds.empty() || !awaits_less());
}

void StorageWatch::give_up(const Waiter& waiter) {
    core::Images unread;
    for (const Wanted& wanted : waiter.images) {
        if (!open_.contains(wanted.ticket))
            continue;
        unread[wanted.image] = {.image = std::nullopt, .problem = std::string(late)};
        auto& queue = lanes_[wanted.lane]->waited_for;
        if (const auto queued = queue.find(wanted.image);
            queued != queue.end() && std::ranges::find(queued->second.tickets, wanted.ticket) !=
                                         queued->second.tickets.end())
            --queued->second.waiters;
    }
    guard_.set_images(unread);
}

std::vector<std::string> StorageWatch::problems() const {
    constexpr std::chrono::seconds soon{5};
    std::vector<std::string> problems;
    const Instant last = loop::now() - soon;
    const auto hangs_as_a_whole = [&](const Lane& lane) {
        return lane.under_way && lane.under_way->since < last;
    };
    for (const auto& lane : lanes_) {
        const std::string what = lane->path.empty() ? "images elsewhere" : lane->path;
        if (!lane->path.empty() && !lane->place && !lane->is_of_mount)
            continue;
        if (hangs_as_a_whole(*lane))
            problems.push_back(fmt::format("storage: {}: no answer", printable(what)));
        else if (!lane->problem.empty())
            problems.push_back(fmt::format("storage: {}: {}", printable(what), lane->problem));
    }
    for (const auto& [batch, held] : held_)
        if (held.since < last && !hangs_as_a_whole(*lanes_[held.lane]))
            problems.push_back(fmt::format("storage: {}: no answer", printable(held.image.path)));
    if (std::string unknown = unknown_growth(); !unknown.empty())
        problems.push_back(std::move(unknown));
    return problems;
}

/// Running guests' images that count as nothing as they could not be read, but for volumes of
/// pools, which never can; "" where there are none.
std::string StorageWatch::unknown_growth() const {
    const core::Host& host = guard_.host();
    std::set<core::ImageName> unknown;
    for (const auto& [identity, guest] : guard_.ledger().guests()) {
        if (guest.state != core::GuestState::running || !host.file_systems.any())
            continue;
        for (const core::Disk& disk : guest.domain.disks)
            if (const auto known = host.images.find(disk.image); known != host.images.end() &&
                                                                 !known->second.image &&
                                                                 disk.image.path.starts_with('/'))
                unknown.insert(disk.image);
    }
    if (unknown.empty())
        return "";
    const core::ImageName& first = *unknown.begin();
    return fmt::format(
        "storage: how much {} images of guests may grow is not known, such as {}: {}",
        unknown.size(), printable(first.path), host.images.at(first).problem);
}

bool StorageWatch::stop(std::chrono::milliseconds at_most) {
    const Instant end = loop::now() + at_most;
    std::vector<FilesThread*> threads;
    threads.reserve(lanes_.size() + held_.size());
    for (const auto& lane : lanes_)
        threads.push_back(lane->thread.get());
    for (const auto& [batch, held] : held_)
        threads.push_back(held.thread.get());
    for (FilesThread* thread : threads)
        (void)thread->stop({});
    return std::ranges::all_of(threads, [&](FilesThread* thread) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - loop::now());
        return thread->stop(std::max(left, std::chrono::milliseconds(0)));
    });
}

} // namespace virtguard::daemon
