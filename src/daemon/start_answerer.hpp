// SPDX-License-Identifier: Apache-2.0
#pragma once
// Answers the hooks that ask whether a start may go on.

#include <chrono>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "core/guard.hpp"
#include "core/history.hpp"
#include "daemon/hook_server.hpp"
#include "daemon/hugepage_pools.hpp"
#include "daemon/storage_watch.hpp"
#include "loop/loop.hpp"
#include "wire/server.hpp"

namespace virtguard::daemon {

/// When the hook was exec'd that asks; now at the latest.
[[nodiscard]] Instant exec_time(const wire::RequestHeader& header);

class StartAnswerer {
  public:
    using Reply = HookServer::Reply;

    /// `save` keeps what the guard knows, and runs before each answer. All of it must outlive this.
    StartAnswerer(core::Guard& guard, HugepagePools& pages, core::History& history,
                  std::function<void()> save)
        : guard_(guard), pages_(pages), history_(history), save_(std::move(save)) {}

    /// Starts wait for their images to be read from then on. It must outlive this.
    void set_storage(StorageWatch& storage) { storage_ = &storage; }

    /// Reads the files that capacities come from, and then runs what it is given, after so long at
    /// the latest: for starts that what they said last is too little for.
    using ReadCapacities = std::function<void(std::chrono::nanoseconds, StorageWatch::Then)>;
    void set_capacities(ReadCapacities read) { read_capacities_ = std::move(read); }

    /// Nothing can be answered before.
    [[nodiscard]] Result<> watch(loop::Loop& loop);

    /// At once, but for a start with images, which are read first unless its place is kept for it,
    /// and for one that fits only in a place kept for a returning guest, which waits for the end of
    /// that. The bytes are empty where no reply is due.
    void answer(const wire::Request& request, Reply reply);

    /// Another place is kept than before, or one for another time.
    void places_changed();

  private:
    /// A start that waits for its images, or for a kept place.
    struct Parked {
        core::Domain domain{};
        std::string xml; ///< a reload may ask it something else
        wire::RequestHeader header;
        Reply reply;
        Instant arrived{};
        bool has_capacities = false; ///< were read for it
        bool has_all_images = false; ///< the same
        bool has_claim = false;      ///< from before they were
    };

    [[nodiscard]] bool read(Parked& start);
    void answer_unread(const Error& error, Parked& start);
    void read_and_decide(Parked start);
    void decide_anew(Parked start);
    void decide(Parked start);
    [[nodiscard]] bool has_capacities_read(Parked& start, const core::Decision& refused,
                                           std::chrono::nanoseconds at_most);
    void keep_and_answer(const core::Domain& domain, const core::Answer& answer, Instant exec,
                         Reply& reply);
    void note(const core::Domain& domain, const core::Answer& answer, Instant exec);
    void end_returns();

    core::Guard& guard_;
    HugepagePools& pages_;
    core::History& history_;
    std::function<void()> save_;
    StorageWatch* storage_ = nullptr;
    ReadCapacities read_capacities_;
    std::list<Parked> parked_;         ///< those that wait for a kept place
    std::optional<loop::Timer> timer_; ///< the end of a kept place, or of a wait for one
};

} // namespace virtguard::daemon
