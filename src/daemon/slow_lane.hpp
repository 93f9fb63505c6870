// SPDX-License-Identifier: Apache-2.0
#pragma once
// What strangers ask that takes the main thread long and cannot be done in parts: one at a time,
// and then so long nothing that together it takes a hundredth of the thread's time. So of a hundred
// starts at most one has to wait for it, whatever is asked.

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "loop/loop.hpp"

namespace virtguard::daemon {

class SlowLane {
  public:
    static constexpr int share_of_time = 100;
    /// What is asked in so many bytes more waits a second longer: not before all others, but before
    /// those that came so much later. Else those who ask what is dear would hold up all who do not.
    static constexpr std::size_t bytes_per_second = 1024;

    /// As long as it lives nobody else has a turn.
    class Turn {
      public:
        explicit Turn(SlowLane& lane) : lane_(&lane) {}
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;
        Turn(Turn&& other) noexcept
            : lane_(std::exchange(other.lane_, nullptr)), began_(other.began_) {}
        Turn& operator=(Turn&&) = delete;
        ~Turn();

        /// From now to its end it takes the main thread's time.
        void begin() { began_ = loop::now(); }

      private:
        SlowLane* lane_; ///< nothing when it was moved from
        std::optional<Instant> began_;
    };
    using Work = std::move_only_function<void(Turn)>;

    /// The loop must outlive it, and it all turns.
    [[nodiscard]] static Result<std::unique_ptr<SlowLane>> create(loop::Loop& loop);
    SlowLane(const SlowLane&) = delete;
    SlowLane& operator=(const SlowLane&) = delete;
    ~SlowLane() = default;

    /// Has work done that was asked for in so many bytes: at once if nothing was lately.
    void enter(std::size_t size, Work work);
    /// Nobody waits any more.
    void forget() { waiting_.clear(); }

  private:
    SlowLane() = default;
    void serve();
    void leave(std::chrono::nanoseconds spent);

    std::multimap<Instant, Work> waiting_; ///< those of one time as they came
    bool taken_ = false;
    Instant next_; ///< not before then
    std::optional<loop::Timer> timer_;
};

} // namespace virtguard::daemon
