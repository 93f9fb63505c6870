// SPDX-License-Identifier: Apache-2.0
#include "virt/session.hpp"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>

#include "base/log.hpp"
#include "virt/backoff.hpp"
#include "virt/connection.hpp"

namespace virtguard::virt {
namespace {

/// libvirt would print every error to stderr; what matters is logged here.
void print_nothing(void*, virErrorPtr) {}

/// A timer of libvirt's loop: sets a flag, which the next turn of the thread acts on.
class Timer {
  public:
    Timer() : id_(virEventAddTimeout(off, expired, this, nullptr)) { assert(id_ >= 0); }
    ~Timer() { (void)virEventRemoveTimeout(id_); }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    /// Once, after so long.
    void arm(std::chrono::milliseconds wait) {
        virEventUpdateTimeout(id_, static_cast<int>(wait.count()));
    }
    [[nodiscard]] bool take_due() { return std::exchange(due_, false); }

  private:
    static constexpr int off = -1;
    static void expired(int id, void* self) {
        static_cast<Timer*>(self)->due_ = true;
        virEventUpdateTimeout(id, off);
    }

    int id_;
    bool due_ = false;
};

void signal_event(const UniqueFd& event) {
    const std::uint64_t one = 1;
    // Fails only when the counter is full, and then it is readable already.
    (void)!::write(event.get(), &one, sizeof one);
}

} // namespace

/// libvirt's callbacks only set flags and return; turn() does the work they ask for, outside them.
class Session::Worker {
  public:
    explicit Worker(Session& session)
        : session_(session), options_(session.options_),
          watch_(virEventAddHandle(session.wake_.get(), VIR_EVENT_HANDLE_READABLE, woken, nullptr,
                                   nullptr)),
          backoff_(options_.first_retry, options_.last_retry) {
        assert(watch_ >= 0); // libvirt's own loop refuses nothing
    }
    ~Worker() { (void)virEventRemoveHandle(watch_); }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    void run() {
        connect();
        for (turn(); !session_.stopping_; turn())
            (void)virEventRunDefaultImpl();
    }

  private:
    static void woken(int, int fd, int, void*) {
        std::uint64_t count = 0;
        (void)!::read(fd, &count, sizeof count);
    }

    void turn() {
        if (retry_.take_due())
            connect();
        // All of it, not up to the first: each takes its flag.
        const bool periodic = look_.take_due();
        const bool requested = session_.look_requested_.exchange(false);
        announce();
        if (connection_ && announced_) {
            if (periodic || requested)
                look_at_all();
            else
                look_at_touched();
        }
        if (connection_)
            if (auto why = connection_->lost())
                disconnect(std::move(*why));
    }

    void connect() {
        if (!lost_) // else it is known that there is none
            (void)ask();
        auto made = Connection::open(options_, session_.stopping_);
        if (!made) {
            retry_.arm(backoff_.next());
            lost(std::move(made.error().what));
            return;
        }
        connection_ = std::move(*made);
        lost_.reset();
        announced_ = false;
        session_.look_requested_ = true;
        log(Level::notice, "libvirt: connected to {}", printable(options_.uri));
    }

    void disconnect(std::string why) {
        connection_.reset();
        retry_.arm(backoff_.next());
        lost(std::move(why));
        announce();
    }

    void lost(std::string why) {
        if (lost_ == why)
            return;
        log(Level::warning, "libvirt: {}; deciding on what is known, trying again", why);
        lost_ = std::move(why);
        announced_ = false;
    }

    /// Tells which state it is in, until that is taken.
    void announce() {
        if (announced_)
            return;
        announced_ = options_.post(lost_ ? Message(Lost{*lost_}) : Message(Connected{}));
        if (!announced_)
            look_.arm(options_.look_retry);
    }

    /// Says that libvirt is asked, and when. A receiver that is full has other worries.
    Instant ask() {
        const Instant now = options_.now();
        (void)options_.post(Asked{now});
        return now;
    }

    void look_at_all() {
        (void)connection_->take_touched(); // what happened before is seen now
        (void)session_.take_requests();
        auto look = connection_->look(ask());
        if (session_.stopping_)
            return;
        if (!look) {
            disconnect(connection_->lost().value_or(std::move(look.error().what)));
            return;
        }
        backoff_.reset();
        const bool complete = std::ranges::none_of(look->active, [](const ActiveDomain& domain) {
            return !domain.domain && domain.domain.error().code == Errc::unavailable;
        });
        const bool told = options_.post(std::move(*look));
        look_.arm(complete && told ? options_.look_period : options_.look_retry);
    }

    void look_at_touched() {
        std::set<Uuid> touched = connection_->take_touched();
        touched.merge(session_.take_requests());
        for (const Uuid& uuid : touched) {
            if (session_.stopping_)
                return;
            auto look = connection_->look(uuid, ask());
            if (!look || !options_.post(std::move(*look)))
                look_.arm(options_.look_retry);
        }
    }

    Session& session_;
    const Options& options_;
    int watch_;
    Timer retry_;
    Timer look_;
    Backoff backoff_;
    std::unique_ptr<Connection> connection_;
    std::optional<std::string> lost_; // why there is no connection
    bool announced_ = false;          // whether the receiver knows which of the two it is
};

Session::Session(Options options, UniqueFd wake, UniqueFd ended)
    : options_(std::move(options)), wake_(std::move(wake)), ended_(std::move(ended)) {}

Result<std::unique_ptr<Session>> Session::start(Options options) {
    UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    UniqueFd ended(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake || !ended)
        return fail(Errc::io, "libvirt thread: eventfd: {}", std::strerror(errno));
    std::unique_ptr<Session> session(
        new Session(std::move(options), std::move(wake), std::move(ended)));

    // Signals are main's business; SIGPIPE, which libvirt's sockets can raise, is nobody's.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    Result<std::unique_ptr<Session>> result = std::move(session);
    try {
        (*result)->thread_ = std::thread(&Session::run, result->get());
    } catch (const std::system_error& error) {
        result = fail(Errc::unavailable, "libvirt thread: {}", error.what());
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return result;
}

void Session::run() {
    ::pthread_setname_np(::pthread_self(), "libvirt");
    virSetErrorFunc(nullptr, print_nothing);
    [[maybe_unused]] static const int registered = virEventRegisterDefaultImpl();
    Worker(*this).run();
    signal_event(ended_);
}

Session::~Session() {
    stopping_ = true;
    signal_event(wake_);
    if (thread_.joinable())
        thread_.join();
}

void Session::request_look() {
    look_requested_ = true;
    signal_event(wake_);
}

void Session::request_look(const Uuid& uuid) {
    {
        const std::lock_guard lock(requests_mutex_);
        requests_.insert(uuid);
    }
    signal_event(wake_);
}

std::set<Uuid> Session::take_requests() {
    const std::lock_guard lock(requests_mutex_);
    return std::exchange(requests_, {});
}

bool Session::stop(std::chrono::milliseconds patience) {
    stopping_ = true;
    signal_event(wake_);
    pollfd ended{.fd = ended_.get(), .events = POLLIN, .revents = 0};
    // An interrupted wait reads as "stuck", which at worst ends the process a moment earlier.
    return ::poll(&ended, 1, static_cast<int>(patience.count())) == 1;
}

} // namespace virtguard::virt
