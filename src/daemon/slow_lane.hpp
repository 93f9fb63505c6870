// SPDX-License-Identifier: Apache-2.0
#pragma once
// What strangers ask that takes the main thread long and cannot be done in parts: one at a time,
// and then so long nothing that together it takes a hundredth of the thread's time. So of a hundred
// starts at most one has to wait for it, whatever is asked.
//
// They wait in the order they came, but for two things: what is larger, and so most likely dearer,
// counts as later, and so does what is asked by who had a turn just now. Else a few who ask much or
// often would hold up all others. Who has waited for as long as D-Bus's clients do gets an error.

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "loop/loop.hpp"

namespace virtguard::daemon {

class SlowLane {
  public:
    static constexpr int share_of_time = 100;
    /// The lane is open again after that, whatever a turn took.
    static constexpr std::chrono::seconds longest_pause{5};
    /// Each KiB that is asked counts as a second later.
    static constexpr std::chrono::seconds most_for_size{20};
    /// What one who had a turn asks next counts as later by so many of the pauses after it.
    static constexpr int pauses_of_caller = 10;
    /// What busctl and most libraries wait for an answer.
    static constexpr std::chrono::seconds longest_wait{25};

    /// As long as it lives nobody else has one.
    class Turn {
      public:
        Turn(SlowLane& lane, std::string caller) : lane_(&lane), caller_(std::move(caller)) {}
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;
        Turn(Turn&& other) noexcept
            : lane_(std::exchange(other.lane_, nullptr)), caller_(std::move(other.caller_)),
              began_(other.began_) {}
        Turn& operator=(Turn&&) = delete;
        ~Turn();

        /// From now to its end it takes the main thread's time, of which what others take of the
        /// processor is no part.
        void begin();

      private:
        SlowLane* lane_; ///< nothing when it was moved from
        std::string caller_;
        std::optional<std::chrono::nanoseconds> began_;
    };
    /// Error: unavailable, where its turn did not come.
    using Work = std::move_only_function<void(Result<Turn>)>;

    /// The loop must outlive it, and it all turns.
    [[nodiscard]] static Result<std::unique_ptr<SlowLane>>
    create(loop::Loop& loop, std::chrono::nanoseconds patience = longest_wait);
    SlowLane(const SlowLane&) = delete;
    SlowLane& operator=(const SlowLane&) = delete;
    ~SlowLane() = default;

    /// Has work done that somebody asked for in so many bytes: at once if nothing was lately.
    void enter(std::string caller, std::size_t size, Work work);
    /// Nobody waits any more.
    void forget() { waiting_.clear(); }

  private:
    struct Waiting {
        std::string caller;
        Instant since;
        std::chrono::milliseconds for_size; ///< how much later it counts as
        Work work;
    };

    explicit SlowLane(std::chrono::nanoseconds patience) : patience_(patience) {}
    void serve();
    void give_up(Instant now);
    [[nodiscard]] Instant rank(const Waiting& waiting) const;
    void leave(const std::string& caller, std::chrono::nanoseconds spent);

    std::chrono::nanoseconds patience_;
    std::vector<Waiting> waiting_;       ///< as they came
    std::map<std::string, Instant> due_; ///< before when what a caller asks does not count; in
                                         ///< the future, when a turn begins
    bool taken_ = false;
    Instant next_; ///< not before then
    std::optional<loop::Timer> timer_;
};

} // namespace virtguard::daemon
