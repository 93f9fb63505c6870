// SPDX-License-Identifier: Apache-2.0
#pragma once
// Owners of what C hands out.

#include <memory>
#include <utility>

#include <unistd.h>

namespace virtguard {

template <auto Free>
struct CDeleter {
    template <class T>
    void operator()(T* pointer) const noexcept {
        (void)Free(pointer);
    }
};

/// A unique_ptr that frees with a C function: CPtr<xmlDoc, xmlFreeDoc>.
template <class T, auto Free>
using CPtr = std::unique_ptr<T, CDeleter<Free>>;

/// Owns a file descriptor; -1 is none.
class UniqueFd {
  public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) noexcept : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        if (this != &other)
            reset(std::exchange(other.fd_, -1));
        return *this;
    }
    UniqueFd(const UniqueFd&) = delete;
    UniqueFd& operator=(const UniqueFd&) = delete;
    ~UniqueFd() { reset(); }

    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
    /// Closes what it owns and owns the given one instead. A failing close() is of no use to
    /// anyone: the descriptor is gone all the same.
    void reset(int fd = -1) noexcept {
        if (fd_ >= 0)
            ::close(fd_);
        fd_ = fd;
    }

  private:
    int fd_ = -1;
};

} // namespace virtguard
