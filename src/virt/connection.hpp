// SPDX-License-Identifier: Apache-2.0
#pragma once
// One open connection to libvirt, from its making until it is lost. Internal to virt, and used on
// its thread only.

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/uuid.hpp"
#include "virt/handles.hpp"
#include "virt/message.hpp"
#include "virt/session.hpp"

namespace virtguard::virt {

class Connection {
  public:
    /// `options` and `stopping` must outlive it; once `stopping`, looks are broken off.
    [[nodiscard]] static Result<std::unique_ptr<Connection>>
    open(const Options& options, const std::atomic<bool>& stopping);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// Why it is of no more use; nothing while it is.
    [[nodiscard]] std::optional<std::string> lost() const;

    /// The domains that something has happened to since the last time.
    [[nodiscard]] std::set<Uuid> take_touched();

    /// Looks at all; an error when libvirt does not say which domains are active.
    [[nodiscard]] Result<Look> look(Instant began);

    /// Looks at one; an error when libvirt does not say whether it is active, or not how.
    [[nodiscard]] Result<DomainLook> look(const Uuid& uuid, Instant began);

  private:
    Connection(ConnectPtr connect, const Options& options, const std::atomic<bool>& stopping)
        : connect_(std::move(connect)), options_(options), stopping_(stopping) {}
    void subscribe();
    [[nodiscard]] Result<std::optional<ActiveDomain>> see(virDomainPtr domain) const;

    static void closed(virConnectPtr, int reason, void* self);
    template <class... Details>
    static void touched(virConnectPtr, virDomainPtr domain, Details..., void* self);

    ConnectPtr connect_;
    const Options& options_;
    const std::atomic<bool>& stopping_;
    std::vector<int> subscriptions_;
    std::set<Uuid> touched_;
    std::optional<std::string> closed_;
};

} // namespace virtguard::virt
