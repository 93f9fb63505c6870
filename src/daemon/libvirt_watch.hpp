// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is known of libvirt itself: whether it answers, how old its last word is, and of which
// guests it could not tell.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "core/guard.hpp"
#include "loop/loop.hpp"
#include "virt/message.hpp"

namespace virtguard::daemon {

class LibvirtWatch {
  public:
    /// An answer takes milliseconds, but listing domains waits for each hook that runs. Longer than
    /// that, and operators should know that the truth is ageing.
    static constexpr std::chrono::seconds patience{10};

    /// `changed` runs in the loop when libvirt has stopped answering. The guard says which guests
    /// are counted; it and the loop must outlive the watch.
    [[nodiscard]] static Result<std::unique_ptr<LibvirtWatch>>
    create(loop::Loop& loop, const core::Guard& guard, std::function<void()> changed,
           std::chrono::nanoseconds wait = patience);
    LibvirtWatch(const LibvirtWatch&) = delete;
    LibvirtWatch& operator=(const LibvirtWatch&) = delete;
    ~LibvirtWatch() = default;

    /// Every message of the libvirt thread, before it is acted on.
    void note(const virt::Message& message);

    /// It has told once what runs.
    [[nodiscard]] bool has_told() const { return last_look_.has_value(); }
    /// A line each.
    [[nodiscard]] std::vector<std::string> problems(Instant now) const;

  private:
    LibvirtWatch(const core::Guard& guard, std::chrono::nanoseconds wait)
        : guard_(guard), wait_(wait) {}
    void asked(Instant when);
    void answered();
    void note_look(const virt::Look& look);
    void note_guest(const virt::ActiveDomain& domain);
    [[nodiscard]] std::string_view how_counted(const Uuid& uuid) const;

    const core::Guard& guard_;
    std::chrono::nanoseconds wait_;
    std::unique_ptr<loop::Timer> timer_; ///< the end of the patience with the question
    std::optional<Instant> question_;    ///< when libvirt was asked what it has not answered yet
    bool silent_ = false;                ///< it takes longer than it may
    std::string lost_;                   ///< why there is no connection, else ""
    std::optional<Instant> last_look_;   ///< the beginning of the last one
    std::set<Uuid> unreadable_;          ///< active domains whose XML cannot be read
};

} // namespace virtguard::daemon
