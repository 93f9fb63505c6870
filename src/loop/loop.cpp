// SPDX-License-Identifier: Apache-2.0
#include "loop/loop.hpp"

#include <cassert>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include <sys/inotify.h>
#include <sys/timex.h>
#include <systemd/sd-event.h>

namespace virtguard::loop {
namespace {

// sd-event would gather timers up to 250 ms apart; a start may be waiting for ours.
constexpr std::uint64_t timer_accuracy_usec = 1000;

std::unexpected<Error> failed(const std::string& name, int negative_errno) {
    return fail(negative_errno == -ENOENT ? Errc::not_found : Errc::io, "event loop: {}: {}", name,
                std::strerror(-negative_errno));
}

/// Arming can only fail in ways that are bugs, or (ESTALE) because the loop has already ended.
void must(int result) {
    assert(result >= 0 || result == -ESTALE);
}

int call_io(sd_event_source*, int, std::uint32_t events, void* handler) {
    (*static_cast<Loop::IoHandler*>(handler))(events);
    return 0;
}

int call_deferred(sd_event_source*, void* handler) {
    (*static_cast<Loop::Handler*>(handler))();
    return 0;
}

int call_timer(sd_event_source* source, std::uint64_t, void* handler) {
    return call_deferred(source, handler);
}

int call_watch(sd_event_source*, const inotify_event* event, void* handler) {
    const std::string_view name = event->len > 0 ? event->name : ""; // padded with NULs
    (*static_cast<Loop::ChangeHandler*>(handler))(name);
    return 0;
}

int call_signal(sd_event_source* source, const signalfd_siginfo*, void* handler) {
    return call_deferred(source, handler);
}

/// The owner of what sd_event_add_*() made (`added` is what that returned). The source gets the
/// handler and deletes it when it is freed: not before the handler has returned, even if that
/// destroyed the owner.
template <class Owner, class H>
Result<Owner> own(int added, sd_event_source* source, H handler, const std::string& name,
                  Priority priority, int enabled) {
    if (added < 0)
        return failed(name, added);
    SourcePtr owned(source);
    (void)sd_event_source_set_userdata(source, new H(std::move(handler)));
    must(sd_event_source_set_destroy_callback(source, [](void* h) { delete static_cast<H*>(h); }));
    int r = sd_event_source_set_description(source, name.c_str());
    if (r >= 0)
        r = sd_event_source_set_priority(source, std::to_underlying(priority));
    if (r >= 0)
        r = sd_event_source_set_enabled(source, enabled);
    if (r < 0)
        return failed(name, r);
    return Owner(std::move(owned));
}

} // namespace

Instant now() {
    timespec time{};
    const int r = ::clock_gettime(CLOCK_BOOTTIME, &time);
    assert(r == 0);
    return Instant(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

WallTime wall_time() {
    return std::chrono::floor<WallTime::duration>(std::chrono::system_clock::now());
}

bool is_wall_time_synchronised() {
    timex state{};
    const int clock = ::adjtimex(&state);
    return clock >= 0 && clock != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
}

void SourceDeleter::operator()(sd_event_source* source) const noexcept {
    sd_event_source_disable_unref(source);
}

void Loop::EventDeleter::operator()(sd_event* event) const noexcept {
    sd_event_unref(event);
}

Result<> Io::set_events(std::uint32_t events) {
    if (const int r = sd_event_source_set_io_events(source_.get(), events); r < 0)
        return failed("set events", r);
    return {};
}

void Timer::arm(Instant when) {
    const auto usec = std::chrono::ceil<std::chrono::microseconds>(when.time_since_epoch());
    must(sd_event_source_set_time(source_.get(), static_cast<std::uint64_t>(usec.count())));
    must(sd_event_source_set_enabled(source_.get(), SD_EVENT_ONESHOT));
}

void Timer::arm_after(std::chrono::nanoseconds span) {
    arm(now() + span);
}

void Timer::disarm() {
    must(sd_event_source_set_enabled(source_.get(), SD_EVENT_OFF));
}

void Deferred::schedule() {
    must(sd_event_source_set_enabled(source_.get(), SD_EVENT_ONESHOT));
}

Result<Loop> Loop::create() {
    sd_event* event = nullptr;
    if (const int r = sd_event_new(&event); r < 0)
        return failed("create", r);
    Loop loop(event);
    if (const int r = sd_event_set_signal_exit(event, /*b=*/1); r < 0)
        return failed("signals", r);
    return loop;
}

Result<Io> Loop::on_io(const std::string& name, int fd, std::uint32_t events, IoHandler handler,
                       Priority priority) {
    sd_event_source* source = nullptr;
    const int r = sd_event_add_io(handle(), &source, fd, events, call_io, nullptr);
    return own<Io>(r, source, std::move(handler), name, priority, SD_EVENT_ON);
}

Result<Watch> Loop::on_change(const std::string& name, const std::string& folder,
                              std::uint32_t changes, ChangeHandler handler, Priority priority) {
    sd_event_source* source = nullptr;
    const int r = sd_event_add_inotify(handle(), &source, folder.c_str(), changes | IN_ONLYDIR,
                                       call_watch, nullptr);
    return own<Watch>(r, source, std::move(handler), name, priority, SD_EVENT_ON);
}

Result<Timer> Loop::timer(const std::string& name, Handler handler, Priority priority) {
    sd_event_source* source = nullptr;
    const int r = sd_event_add_time(handle(), &source, CLOCK_BOOTTIME, 0, timer_accuracy_usec,
                                    call_timer, nullptr);
    return own<Timer>(r, source, std::move(handler), name, priority, SD_EVENT_OFF);
}

Result<Deferred> Loop::deferred(const std::string& name, Handler handler, Priority priority) {
    sd_event_source* source = nullptr;
    const int r = sd_event_add_defer(handle(), &source, call_deferred, nullptr);
    return own<Deferred>(r, source, std::move(handler), name, priority, SD_EVENT_OFF);
}

Result<Signal> Loop::on_signal(const std::string& name, int signal, Handler handler) {
    sd_event_source* source = nullptr;
    const int r = sd_event_add_signal(handle(), &source, signal | SD_EVENT_SIGNAL_PROCMASK,
                                      call_signal, nullptr);
    return own<Signal>(r, source, std::move(handler), name, Priority::normal, SD_EVENT_ON);
}

Result<bool> Loop::enable_watchdog() {
    const int r = sd_event_set_watchdog(event_.get(), /*b=*/1);
    if (r < 0)
        return failed("watchdog", r);
    return r > 0;
}

Result<int> Loop::run() {
    const int r = sd_event_loop(event_.get());
    if (r < 0)
        return failed("run", r);
    return r;
}

void Loop::stop(int code) {
    must(sd_event_exit(event_.get(), code));
}

} // namespace virtguard::loop
