// SPDX-License-Identifier: Apache-2.0
#pragma once
// Keeps looking at the file systems of storage.paths and at the images of guests, and tells the
// guard. Each of the paths has a thread of its own, each file system that is mounted below one or
// elsewhere has one too (the first that images of guests are on, max_mounts of them), and images
// that are left have one together. Where an image leads through links is not known before it is
// read: one that does not let go of the thread keeps it, and another reads what is left, but for
// what was last on the file system that hangs. So one that hangs holds up what is on it and, as
// long as not max_held images of which nothing is known do, nothing else (the files thread least of
// all, which makes durable what others wait for).
//
// What a guest writes is used, and no longer owed. So that nothing is free twice, what is used is
// never older than what is known of an image: whoever reads images reads then what is used of the
// file systems they are on. Then guests that write seem to owe more than they do until all images
// are read again, which is done before a start is refused for it. What a guest discards it owes
// again: less is used only when all images on it were read after it was seen to be less.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "core/guard.hpp"
#include "core/storage.hpp"
#include "daemon/files_thread.hpp"
#include "loop/loop.hpp"
#include "loop/mailbox.hpp"

namespace virtguard::daemon {

/// What the threads call, several at a time; it may take as long as the storage likes. Errors as
/// those of image/read.hpp.
struct StorageReader {
    std::function<Result<core::Image>(const core::ImageName&)> image;
    std::function<Result<core::FileSystem>(const std::string& path)> file_system;
    /// Where file systems are mounted, but for the root. Called by the main thread: it waits for
    /// none of them.
    std::function<std::vector<std::string>()> mounts;
};

/// Reads what is below this folder: "/" but for tests.
[[nodiscard]] StorageReader storage_below(const std::filesystem::path& root);

class StorageWatch {
  public:
    /// How long a start waits for its images.
    static constexpr std::chrono::milliseconds patience{500};

    using Then = std::move_only_function<void()>;

    /// `changed` runs when the guard was told something. The guard must
    /// outlive the watch.
    [[nodiscard]] static Result<std::unique_ptr<StorageWatch>>
    create(loop::Loop& loop, core::Guard& guard, StorageReader reader,
           std::function<void()> changed);
    StorageWatch(const StorageWatch&) = delete;
    StorageWatch& operator=(const StorageWatch&) = delete;
    ~StorageWatch() = default;

    /// Looks soon at all file systems, and at the images of all guests.
    void look();
    /// Looks soon at the images of a guest, where it is known.
    void look_at(const std::string& identity);
    /// The paths are those of the guard's policy of now.
    void policy_changed();

    /// Reads the images of these disks anew, and what is used, and tells the guard; then runs
    /// `then`: at once where there is nothing to read, else in the loop, at the latest after that
    /// time, when the guard is told of those that could not be read by then.
    void read(const std::vector<core::Disk>& disks, std::chrono::nanoseconds at_most, Then then);
    /// The same for all images of guests.
    void read_all(std::chrono::nanoseconds at_most, Then then);

    /// What storage does not let us know, a line each.
    [[nodiscard]] std::vector<std::string> problems() const;

    /// Ends the threads. False: some have not ended after that time; then nothing but the end of
    /// the process is left, without destroying this.
    [[nodiscard]] bool stop(std::chrono::milliseconds patience);

  private:
    /// How far a thread is with a batch.
    struct Progress {
        static constexpr int before_images = -1;
        std::atomic<int> at = before_images; ///< the number of the image that is read
        std::atomic<bool> is_urgent = false; ///< a start waits behind it
    };
    /// What a lane's thread read at one go.
    struct Batch {
        std::size_t lane = 0; ///< its number
        std::uint64_t number = 0;
        core::Images asked; ///< by starts; only those that were read come back
        core::Images of_round;
        bool begins_round = false;
        bool ends_round = false;
        std::map<std::uint64_t, std::string> paths; ///< of those that count, by device
        std::optional<core::FileSystem> at_begin;   ///< of the lane's path, read before images
        std::optional<Result<core::FileSystem>> file_system; ///< the same, read after them
        std::vector<core::FileSystem> others; ///< of the paths that images are on, read last
    };
    using Mail = loop::Mailbox<Batch>;
    /// What was seen to be used of a file system where that is less than what counts.
    struct Less {
        std::int64_t used = 0;                       ///< the most that was seen since
        std::map<std::size_t, std::uint64_t> rounds; ///< it counts when so many ended, by lane
    };

    /// An image that is to be read for starts.
    struct Asked {
        std::vector<std::uint64_t> tickets; ///< of those who asked
        int waiters = 0;
    };
    /// What a lane's thread reads.
    struct UnderWay {
        std::uint64_t batch = 0;
        Instant since;
        std::shared_ptr<Progress> progress;
        std::map<core::ImageName, Asked> asked;
        std::set<core::ImageName> of_round;
        bool begins_round = false;
    };
    /// A thread that an image does not let go of.
    struct Held {
        std::size_t lane = 0;
        Instant since;
        core::ImageName image;
        std::optional<std::uint64_t> device; ///< what may be on it is not read either
        std::vector<std::uint64_t> tickets;
        std::unique_ptr<FilesThread> thread;
    };
    /// A thread and what it is to read.
    struct Lane {
        std::optional<int> place; ///< the number of its path in the policy; nothing: of none now
        std::string path;         ///< "" for images that have no other lane
        bool is_of_mount = false; ///< of the file system that is mounted there, no path of policy
        std::unique_ptr<FilesThread> thread;
        std::optional<UnderWay> under_way;
        std::deque<core::ImageName> asked;           ///< by starts: they come first; each once
        std::map<core::ImageName, Asked> waited_for; ///< the same
        std::deque<core::ImageName> round; ///< what the round over all images has yet to read
        core::Images round_read;
        std::uint64_t rounds_begun = 0;
        std::uint64_t rounds_ended = 0;
        std::uint64_t first_round = 1;   ///< the first that began since the lane has its path
        bool round_is_fresh = false;     ///< nothing was read for it yet
        bool round_again = false;        ///< after the one that is on
        std::set<std::uint64_t> devices; ///< that images it read were on
        bool is_known = false;           ///< its path was read
        bool is_unread = false;          ///< but could not be, and may be any file system
        std::optional<core::FileSystem> file_system;
        std::optional<Less> less;
        std::string problem; ///< of the path: why there is nothing, or nothing new

        [[nodiscard]] bool round_is_on() const { return rounds_begun > rounds_ended; }
        /// What is known of guests' images on it is all that there is to know.
        [[nodiscard]] bool knows_guests() const { return rounds_ended >= first_round; }
    };
    /// Of whom waits.
    struct Wanted {
        std::size_t lane = 0;
        core::ImageName image;
        std::uint64_t ticket = 0;
    };
    /// Who waits for images.
    struct Waiter {
        std::map<std::size_t, std::uint64_t> rounds; ///< ended, by the lane's number
        std::vector<Wanted> images;
        Instant until;
        Then then;
    };

    StorageWatch(core::Guard& guard, StorageReader reader, std::shared_ptr<Mail> mail,
                 std::function<void()> changed)
        : guard_(guard), reader_(std::move(reader)), mail_(std::move(mail)),
          changed_(std::move(changed)) {}
    [[nodiscard]] bool counts() const;
    [[nodiscard]] std::size_t lane_of(const std::string& image);
    [[nodiscard]] std::optional<std::size_t> lane_of_mount(const std::string& mount);
    [[nodiscard]] Lane* lane_for(const std::string& path);
    [[nodiscard]] Lane* add_lane(const std::string& path);
    static void renew(Lane& lane, const std::string& path);
    void map_lanes();
    [[nodiscard]] bool is_used(std::size_t number) const;
    [[nodiscard]] bool hangs(const Lane& lane) const;
    [[nodiscard]] bool is_awaited(std::size_t number) const;
    [[nodiscard]] bool is_held(const core::ImageName& image) const;
    [[nodiscard]] std::ptrdiff_t count_held(std::size_t number) const;
    void begin_rounds(std::set<std::size_t> numbers);
    void ask(const core::ImageName& image, Waiter& waiter);
    void arm_timer();
    void wait(Waiter waiter);
    void work(std::size_t number);
    [[nodiscard]] Batch next_batch(std::size_t number);
    void fill(Batch& batch, Lane& lane, std::size_t most);
    void take_in(Batch batch);
    void take_in_held(Held held, Batch& batch);
    void go_on(std::size_t number);
    void give_back(Lane& lane, const core::Images& asked, const core::Images& of_round);
    void set_aside(std::size_t number);
    void answer(const std::vector<std::uint64_t>& tickets);
    void note_images(Lane& lane, const core::Images& images);
    void note_file_system(Lane& lane, Result<core::FileSystem> found);
    void note_use(const core::FileSystem& seen, const Lane* before_round_of = nullptr);
    [[nodiscard]] Less seen_less(const core::FileSystem& seen, const Lane* before_round_of) const;
    void count_less();
    void hasten_less();
    [[nodiscard]] bool awaits_less() const;
    [[nodiscard]] std::map<std::uint64_t, std::string> counted_paths() const;
    static void read_images(Batch& batch, Progress& progress, const StorageReader& reader,
                            const FilesThread& thread);
    static void read(Batch& batch, const std::string& path, Progress& progress,
                     const StorageReader& reader, const FilesThread& thread);
    void tell_file_systems();
    void serve();
    [[nodiscard]] bool is_served(const Waiter& waiter) const;
    void give_up(const Waiter& waiter);
    [[nodiscard]] std::string unknown_growth() const;

    core::Guard& guard_;
    StorageReader reader_;
    std::shared_ptr<Mail> mail_; ///< shared with the batches under way
    std::function<void()> changed_;
    std::optional<loop::Io> arrived_;
    std::optional<loop::Timer> timer_; ///< the first of the waiters' times
    std::list<Waiter> waiters_;
    std::set<std::uint64_t> open_; ///< tickets without an answer
    std::uint64_t last_ticket_ = 0;
    std::uint64_t last_batch_ = 0;
    std::map<std::uint64_t, Held> held_; ///< by batch
    std::set<std::string, std::less<>> mounts_;
    std::vector<std::unique_ptr<Lane>> lanes_; ///< the first for images elsewhere; never fewer
    std::map<std::string, std::size_t, std::less<>> lane_at_; ///< by bare folder
    std::set<std::size_t> new_lanes_; ///< of mounts, since rounds last began
};

} // namespace virtguard::daemon
