// SPDX-License-Identifier: Apache-2.0
#pragma once
// The thread that talks to libvirt. It makes every libvirt call of the process, and any of them may
// block for as long as libvirtd likes (listing domains does while one start hook runs): then this
// thread is stuck, and nobody else. Those outside only post to it and are posted to.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "base/unique.hpp"
#include "base/uuid.hpp"
#include "virt/message.hpp"

namespace virtguard::virt {

/// The functions are called on the libvirt thread.
struct Options {
    std::string uri; ///< such as qemu:///system; opened read-only
    std::function<Result<core::Domain>(std::string_view xml)> parse;
    /// False: the receiver is full. The thread then repeats the whole truth later.
    std::function<bool(Message)> post;
    std::function<Instant()> now; ///< CLOCK_BOOTTIME

    /// Between looks at all domains, for the changes that libvirt sends no event for.
    std::chrono::milliseconds look_period{60'000};
    /// Until the next look after one that lacked a domain's XML or found the receiver full.
    std::chrono::milliseconds look_retry{5'000};
    /// Between attempts to connect: doubled from the first to the last, until a look succeeds.
    std::chrono::milliseconds first_retry{1'000};
    std::chrono::milliseconds last_retry{60'000};
};

/// One at a time in a process, as libvirt's event loop is the process's; meant to live as long.
class Session {
  public:
    /// Starts the thread, which connects by itself, now or whenever libvirtd can be talked to.
    [[nodiscard]] static Result<std::unique_ptr<Session>> start(Options options);

    /// Waits for the thread, however long libvirt holds it: see stop().
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// Have all domains looked at soon. From any thread; several requests may make one look.
    void request_look();
    /// Have one domain looked at soon. From any thread.
    void request_look(const Uuid& uuid);

    /// Asks the thread to end and waits at most so long. False: it is stuck in a call, and the only
    /// way out is std::quick_exit() (the thread keeps nothing that is worth saving).
    [[nodiscard]] bool stop(std::chrono::milliseconds patience);

  private:
    class Worker; // what the thread runs

    Session(Options options, UniqueFd wake, UniqueFd ended);
    void run();
    [[nodiscard]] std::set<Uuid> take_requests();

    Options options_;
    UniqueFd wake_;  // eventfd: the thread has something to do
    UniqueFd ended_; // eventfd: the thread has nothing left to do
    std::atomic<bool> stopping_ = false;
    std::atomic<bool> look_requested_ = false;
    std::mutex requests_mutex_;
    std::set<Uuid> requests_; ///< domains to be looked at
    std::thread thread_;
};

} // namespace virtguard::virt
