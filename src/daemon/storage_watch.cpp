// SPDX-License-Identifier: Apache-2.0
#include "daemon/storage_watch.hpp"

#include <algorithm>
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

/// What starts may have asked of a lane that is behind: more than as many starts as can be in
/// flight have. What is asked beyond is not read in time.
constexpr std::size_t max_asked = 16384;

/// Policies name at most 16 paths; there are more lanes only when those of paths that are no longer
/// named hang.
constexpr std::size_t max_lanes = 64;

/// Of those, lanes of mounted file systems: guests' images are rarely on more.
constexpr std::ptrdiff_t max_mounts = 24;

constexpr std::string_view late = "it could not be read in time";

/// The path of a folder without the slashes that may end it; "" is the root.
std::string_view bare(std::string_view folder) {
    while (folder.ends_with('/'))
        folder.remove_suffix(1);
    return folder;
}

bool is_below(std::string_view path, std::string_view folder) {
    return path.starts_with(folder) && path.substr(folder.size()).starts_with('/');
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
        if (!lane->path.empty() && !lane->place && !lane->is_of_mount && !lane->busy_since) {
            lane->path = path;
            lane->is_known = false;
            lane->is_unread = false;
            lane->first_round = lane->rounds_begun + 1;
            lane->devices.clear();
            lane->file_system.reset();
            lane->less.reset();
            lane->problem.clear();
            return lane.get();
        }
    return add_lane(path);
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
    tell_file_systems();
    look();
}

/// The innermost folder decides, be it one of the policy's or one where a file system is mounted.
std::size_t StorageWatch::lane_of(const std::string& image) {
    std::size_t found = 0;
    std::size_t longest = 0;
    for (std::size_t number = 1; number < lanes_.size(); ++number) {
        const Lane& lane = *lanes_[number];
        const std::string_view folder = bare(lane.path);
        if (lane.place && is_below(image, folder) && (found == 0 || folder.size() > longest)) {
            found = number;
            longest = folder.size();
        }
    }
    const std::string* innermost = nullptr;
    for (const std::string& mount : mounts_)
        if (is_below(image, mount) && mount.size() > longest) {
            innermost = &mount;
            longest = mount.size();
        }
    return innermost == nullptr ? found : lane_of_mount(*innermost).value_or(found);
}

/// A new one where it has none, as far as there may be more.
std::optional<std::size_t> StorageWatch::lane_of_mount(const std::string& mount) {
    for (std::size_t number = 1; number < lanes_.size(); ++number)
        if (lanes_[number]->is_of_mount && lanes_[number]->path == mount)
            return number;
    if (std::ranges::count_if(lanes_, [](const auto& lane) { return lane->is_of_mount; }) >=
        max_mounts)
        return std::nullopt;
    Lane* lane = add_lane(mount);
    if (lane == nullptr)
        return std::nullopt;
    lane->is_of_mount = true;
    lane->first_round = 0; // what is known of its images others have read
    return lanes_.size() - 1;
}

bool StorageWatch::is_used(std::size_t number) const {
    return number == 0 || lanes_[number]->place.has_value() || lanes_[number]->is_of_mount;
}

/// Somebody has waited for it in vain.
bool StorageWatch::hangs(const Lane& lane) const {
    return lane.busy_since && loop::now() - *lane.busy_since >= patience;
}

/// Nothing is decided before what the guests on it owe is known: it would be given away. It is not
/// waited for where it hangs.
bool StorageWatch::is_awaited(std::size_t number) const {
    return is_used(number) && !lanes_[number]->knows_guests() && !hangs(*lanes_[number]);
}

/// A round that is on goes on to its end: what is new since it began the next one sees.
void StorageWatch::look() {
    if (!counts())
        return;
    mounts_ = reader_.mounts();
    const std::size_t known = lanes_.size();
    for (const auto& [identity, guest] : guard_.ledger().guests())
        for (const core::Disk& disk : guest.domain.disks)
            (void)lane_of(disk.image.path); // which may be a new one
    for (std::size_t number = known; number < lanes_.size(); ++number)
        lanes_[number]->first_round = 1;
    std::set<std::size_t> idle;
    for (std::size_t number = 0; number < lanes_.size(); ++number)
        if (is_used(number) && !lanes_[number]->round_is_on())
            idle.insert(number);
    begin_rounds(idle);
}

void StorageWatch::begin_rounds(const std::set<std::size_t>& numbers) {
    for (const auto& [identity, guest] : guard_.ledger().guests())
        for (const core::Disk& disk : guest.domain.disks)
            if (const std::size_t number = lane_of(disk.image.path); numbers.contains(number))
                lanes_[number]->round.push_back(disk.image);
    for (const std::size_t number : numbers) {
        ++lanes_[number]->rounds_begun;
        lanes_[number]->round_is_fresh = true;
        work(number);
    }
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
    std::uint64_t position = lane.asked_ever;
    if (const auto queued = lane.waited_for.find(image); queued != lane.waited_for.end()) {
        position = queued->second.position;
        ++queued->second.waiters;
    } else if (lane.asked.size() < max_asked) {
        position = ++lane.asked_ever;
        lane.asked.push_back(image);
        lane.waited_for[image] = {.position = position, .waiters = 1};
    }
    std::uint64_t& answers = waiter.answers[number];
    answers = std::max(answers, position);
    waiter.images.push_back({.lane = number, .image = image, .position = position});
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
    for (const auto& [number, answers] : waiter.answers)
        work(number);
    waiters_.push_back(std::move(waiter));
    arm_timer();
}

void StorageWatch::arm_timer() {
    if (waiters_.empty())
        return;
    Instant next = std::ranges::min_element(waiters_, {}, &Waiter::until)->until;
    for (std::size_t number = 0; number < lanes_.size(); ++number)
        if (lanes_[number]->busy_since && is_awaited(number))
            next = std::min(next, *lanes_[number]->busy_since + patience);
    timer_->arm(next);
}

/// Has the lane's thread read more, unless it reads.
void StorageWatch::work(std::size_t number) {
    Lane& lane = *lanes_[number];
    if (lane.busy_since || (lane.asked.empty() && !lane.round_is_on()))
        return;
    lane.busy_since = loop::now();
    // There is room: a lane has one job, and one batch, at a time.
    const std::string path = lane.is_of_mount ? "" : lane.path;
    (void)lane.thread->run([batch = next_batch(number), path, reader = reader_, mail = mail_,
                            thread = lane.thread.get()]() mutable {
        read(batch, path, reader, *thread);
        (void)mail->push(std::move(batch));
    });
}

/// On the lane's thread.
void StorageWatch::read(Batch& batch, const std::string& path, const StorageReader& reader,
                        const FilesThread& thread) {
    if (!path.empty() && batch.begins_round)
        if (auto seen = reader.file_system(path))
            batch.at_begin = *std::move(seen);
    for (core::Images* images : {&batch.asked, &batch.of_round})
        for (auto& [name, known] : *images)
            if (!thread.is_ending())
                known = read_image(reader, name);
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
                .asked = {},
                .of_round = {},
                .paths = counted_paths(),
                .at_begin = {},
                .file_system = {},
                .others = {}};
    const std::size_t most = lane.place && !lane.is_known ? 0 : max_batch;
    batch.begins_round = most > 0 && std::exchange(lane.round_is_fresh, false);
    for (; !lane.asked.empty() && batch.asked.size() < most; ++batch.answers) {
        const bool is_waited_for = lane.waited_for.extract(lane.asked.front()).mapped().waiters > 0;
        if (is_waited_for)
            batch.asked.try_emplace(std::move(lane.asked.front()));
        batch.has_dropped |= !is_waited_for;
        lane.asked.pop_front();
    }
    while (!lane.round.empty() && batch.asked.size() + batch.of_round.size() < most) {
        batch.of_round.try_emplace(std::move(lane.round.front()));
        lane.round.pop_front();
    }
    batch.ends_round = most == 0 || (lane.round_is_on() && lane.round.empty());
    return batch;
}

void StorageWatch::take_in(Batch batch) {
    Lane& lane = *lanes_[batch.lane];
    lane.busy_since.reset();
    lane.answered += batch.answers;
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
    count_less();
    tell_file_systems();
    // What was dropped may be of guests that were let in without it.
    lane.round_again |= batch.has_dropped;
    if (!lane.round_is_on() && std::exchange(lane.round_again, false))
        begin_rounds({batch.lane});
    hasten_less();
    work(batch.lane);
    if (batch.ends_round || batch.answers > 0)
        changed_();
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
               waiter.answers,
               [&](const auto& need) { return lanes_[need.first]->answered >= need.second; }) &&
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
        Lane& lane = *lanes_[wanted.lane];
        if (lane.answered >= wanted.position)
            continue;
        unread[wanted.image] = {.image = std::nullopt, .problem = std::string(late)};
        const auto queued = lane.waited_for.find(wanted.image);
        if (queued != lane.waited_for.end() && queued->second.position == wanted.position)
            --queued->second.waiters;
    }
    guard_.set_images(unread);
}

std::vector<std::string> StorageWatch::problems() const {
    constexpr std::chrono::seconds soon{5};
    std::vector<std::string> problems;
    const Instant now = loop::now();
    for (const auto& lane : lanes_) {
        const std::string what = lane->path.empty() ? "images elsewhere" : lane->path;
        if (!lane->path.empty() && !lane->place && !lane->is_of_mount)
            continue;
        if (lane->busy_since && now - *lane->busy_since > soon)
            problems.push_back(fmt::format("storage: {}: no answer", printable(what)));
        else if (!lane->problem.empty())
            problems.push_back(fmt::format("storage: {}: {}", printable(what), lane->problem));
    }
    return problems;
}

bool StorageWatch::stop(std::chrono::milliseconds at_most) {
    const Instant end = loop::now() + at_most;
    for (const auto& lane : lanes_)
        (void)lane->thread->stop({});
    return std::ranges::all_of(lanes_, [&](const auto& lane) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - loop::now());
        return lane->thread->stop(std::max(left, std::chrono::milliseconds(0)));
    });
}

} // namespace virtguard::daemon
