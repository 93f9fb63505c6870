// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ledger's guests as files, for the daemon that comes after this one: a file per guest, so that
// what one costs does not depend on how many there are, and damage to one concerns one. In /run:
// guests end with the host, and so does what is known of them.

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "core/guard.hpp"
#include "core/ledger.hpp"
#include "json/guest.hpp"

namespace virtguard::daemon {

class GuestStore {
  public:
    /// Files of guests are in folder, which is made when it is not there. boot_id tells one boot
    /// from another (/proc/sys/kernel/random/boot_id).
    GuestStore(std::filesystem::path folder, std::string boot_id)
        : folder_(std::move(folder)), boot_id_(std::move(boot_id)) {}

    /// All guests that can be read. A file that cannot is set aside, and said in the journal. Files
    /// of another boot are removed: their times would mean nothing.
    [[nodiscard]] std::vector<json::KeptGuest> load();

    /// Keeps what has changed since. Waits for no disk where the folder is on none. What cannot be
    /// written now is written with the next change.
    void save(core::Guard& guard);

    /// Keeps all guests, whatever is there: what was kept before is lost.
    void save_anew(core::Guard& guard);

    /// Why not all that changed is kept; "" when it is.
    [[nodiscard]] const std::string& problem() const { return problem_; }

  private:
    [[nodiscard]] Result<> open();
    [[nodiscard]] Result<> save_one(const std::string& identity, const core::Guard& guard) const;
    void want_all(const core::Ledger& ledger);
    [[nodiscard]] Result<> save_all(const core::Guard& guard);

    std::filesystem::path folder_;
    std::string boot_id_;
    bool is_open_ = false;
    std::set<std::string> unsaved_; ///< identities of guests that changed
    std::string problem_;
};

} // namespace virtguard::daemon
