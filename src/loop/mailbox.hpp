// SPDX-License-Identifier: Apache-2.0
#pragma once
// The only thing two threads touch: values pushed by one, drained by the other. The lock is never
// held across a call to anything but the deque, so neither side can wait for the other's work.

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/unique.hpp"

namespace virtguard::loop {

/// What a reader may leave undrained: at a hundred events a second (far above what libvirtd gets
/// done) forty seconds of standing still. The bound only keeps a stuck process small.
inline constexpr std::size_t max_mail = 4096;

template <class T>
class Mailbox {
  public:
    [[nodiscard]] static Result<std::unique_ptr<Mailbox>> create(std::size_t limit = max_mail) {
        UniqueFd signal(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!signal)
            return fail(Errc::io, "mailbox: eventfd: {}", std::strerror(errno));
        return std::unique_ptr<Mailbox>(new Mailbox(std::move(signal), limit));
    }

    /// From any thread. False: full, and the value was not taken; nothing that was taken before is
    /// lost. The pusher must then see to it that its reader learns the whole truth later.
    [[nodiscard]] bool push(T value) {
        {
            const std::lock_guard lock(mutex_);
            if (mail_.size() >= limit_)
                return false;
            mail_.push_back(std::move(value));
        }
        const std::uint64_t one = 1;
        // Fails only when the counter is full, and then fd() is readable already.
        (void)!::write(signal_.get(), &one, sizeof one);
        return true;
    }

    /// All that was pushed, oldest first; empty when there is nothing. Never waits.
    [[nodiscard]] std::deque<T> drain() {
        // The counter first: what is pushed after the swap makes fd() readable again.
        std::uint64_t count = 0;
        (void)!::read(signal_.get(), &count, sizeof count);
        std::deque<T> mail;
        const std::lock_guard lock(mutex_);
        mail.swap(mail_);
        return mail;
    }

    /// Readable when there is something to drain. Owned by the mailbox.
    [[nodiscard]] int fd() const noexcept { return signal_.get(); }

  private:
    Mailbox(UniqueFd signal, std::size_t limit) : signal_(std::move(signal)), limit_(limit) {}

    UniqueFd signal_;
    std::size_t limit_;
    std::mutex mutex_;
    std::deque<T> mail_;
};

} // namespace virtguard::loop
