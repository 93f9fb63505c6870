// SPDX-License-Identifier: Apache-2.0
#pragma once
// The main thread's event loop: sd-event with owners. One source is served per turn, the most
// urgent one first; every handler must be short and must not wait for anything.
//
// A source lives as long as its owner here. A handler may destroy its own source (or whatever owns
// it): the handler's captures stay alive until it returns.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/instant.hpp"

struct sd_event;
struct sd_event_source;

namespace virtguard::loop {

/// CLOCK_BOOTTIME.
[[nodiscard]] Instant now();
[[nodiscard]] WallTime wall_time();
/// Whether something keeps the wall clock right (NTP, PTP), as the kernel was told; false where it
/// may not be asked.
[[nodiscard]] bool is_wall_time_synchronised();

/// Smaller is served first; the first four are sd-event's own numbers. last: what strangers ask
/// for, who may never be done; spare: what even those do not wait for.
enum class Priority : std::int64_t {
    urgent = -200,
    important = -100,
    normal = 0,
    idle = 100,
    last = 200,
    spare = 300
};

struct SourceDeleter {
    void operator()(sd_event_source* source) const noexcept;
};
using SourcePtr = std::unique_ptr<sd_event_source, SourceDeleter>;

/// A watched file descriptor, which stays the caller's and must outlive this.
class Io {
  public:
    explicit Io(SourcePtr source) : source_(std::move(source)) {}

    /// EPOLLIN, EPOLLOUT, …; level-triggered. 0 still reports EPOLLHUP and EPOLLERR.
    [[nodiscard]] Result<> set_events(std::uint32_t events);

  private:
    SourcePtr source_;
};

/// A folder that is watched. What happens above it, or is mounted over it, is not told.
class Watch {
  public:
    explicit Watch(SourcePtr source) : source_(std::move(source)) {}

  private:
    SourcePtr source_;
};

/// Fires once per arming, not before its time and, when the loop is free, within a millisecond.
class Timer {
  public:
    explicit Timer(SourcePtr source) : source_(std::move(source)) {}

    void arm(Instant when);                        ///< replaces what was armed
    void arm_after(std::chrono::nanoseconds span); ///< counted from now, not from the turn's start
    void disarm();

  private:
    SourcePtr source_;
};

/// Work put off until nothing more urgent is waiting; scheduled twice, it still runs once. What
/// schedules itself again keeps all else of its own priority waiting, too.
class Deferred {
  public:
    explicit Deferred(SourcePtr source) : source_(std::move(source)) {}

    void schedule();

  private:
    SourcePtr source_;
};

/// A signal that is handled in the loop.
class Signal {
  public:
    explicit Signal(SourcePtr source) : source_(std::move(source)) {}

  private:
    SourcePtr source_;
};

/// Make it before any thread is started: it blocks the signals it handles (SIGTERM and SIGINT,
/// which end run() with exit code 0, and those of on_signal()), and threads inherit that.
class Loop {
  public:
    using Handler = std::move_only_function<void()>;
    using IoHandler = std::move_only_function<void(std::uint32_t events)>;
    using ChangeHandler = std::move_only_function<void(std::string_view name)>;

    [[nodiscard]] static Result<Loop> create();

    /// `name` appears in sd-event's messages and in errors.
    [[nodiscard]] Result<Io> on_io(const std::string& name, int fd, std::uint32_t events,
                                   IoHandler handler, Priority priority = Priority::normal);
    /// changes: inotify(7)'s IN_CREATE, IN_MOVED_TO, ... The handler gets the name of what changed
    /// in the folder, "" for the folder itself; after the folder's end nothing more. Error:
    /// not_found where there is no such folder.
    [[nodiscard]] Result<Watch> on_change(const std::string& name, const std::string& folder,
                                          std::uint32_t changes, ChangeHandler handler,
                                          Priority priority = Priority::normal);
    [[nodiscard]] Result<Timer> timer(const std::string& name, Handler handler,
                                      Priority priority = Priority::normal);
    [[nodiscard]] Result<Deferred> deferred(const std::string& name, Handler handler,
                                            Priority priority = Priority::idle);
    [[nodiscard]] Result<Signal> on_signal(const std::string& name, int signal, Handler handler);

    /// Answers systemd's watchdog from the loop. False: systemd asks for none.
    [[nodiscard]] Result<bool> enable_watchdog();

    /// Until stop() or a signal; the exit code, 0 to 255.
    [[nodiscard]] Result<int> run();
    void stop(int code);

    /// For what attaches itself (a bus). Owned by the loop.
    [[nodiscard]] sd_event* handle() const noexcept { return event_.get(); }

  private:
    struct EventDeleter {
        void operator()(sd_event* event) const noexcept;
    };
    explicit Loop(sd_event* event) : event_(event) {}
    std::unique_ptr<sd_event, EventDeleter> event_;
};

} // namespace virtguard::loop
