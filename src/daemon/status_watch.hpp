// SPDX-License-Identifier: Apache-2.0
#pragma once
// Notices that libvirt wrote a domain's status file. It does so at once for most of what changes a
// running guest (tried with 9.0: vCPUs, I/O threads, pins, memory devices), also where it sends no
// event.

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "loop/loop.hpp"

namespace virtguard::daemon {

class StatusWatch {
  public:
    /// folder: libvirt's, such as /run/libvirt/qemu. `written` runs in the loop with a domain's
    /// name, as libvirt spells it in the file's name. The loop must outlive the watch.
    StatusWatch(loop::Loop& loop, std::filesystem::path folder,
                std::function<void(std::string_view name)> written);
    StatusWatch(const StatusWatch&) = delete;
    StatusWatch& operator=(const StatusWatch&) = delete;
    ~StatusWatch() = default;

    /// Watches the folder that is there now: libvirtd makes it when it first starts. To be called
    /// now and then; it costs nothing where nothing changed.
    void renew();

  private:
    void tell(std::string_view file) const;

    loop::Loop& loop_;
    std::filesystem::path folder_;
    std::function<void(std::string_view name)> written_;
    std::optional<loop::Watch> watch_; ///< nothing while there is no folder
};

} // namespace virtguard::daemon
