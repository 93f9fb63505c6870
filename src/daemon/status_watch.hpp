// SPDX-License-Identifier: Apache-2.0
#pragma once
// Notices that libvirt wrote a domain's status file. It does so at once for most of what changes a
// running guest (tried with 9.0: vCPUs, I/O threads, pins, memory devices), also where it sends no
// event.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/unique.hpp"
#include "loop/loop.hpp"

namespace virtguard::daemon {

class StatusWatch {
  public:
    /// folder: libvirt's, such as /run/libvirt/qemu. `written` runs in the loop with a domain's
    /// name, as libvirt spells it in the file's name. The loop must outlive the watch.
    [[nodiscard]] static Result<std::unique_ptr<StatusWatch>>
    create(loop::Loop& loop, std::filesystem::path folder,
           std::function<void(std::string_view name)> written);
    StatusWatch(const StatusWatch&) = delete;
    StatusWatch& operator=(const StatusWatch&) = delete;
    ~StatusWatch() = default;

    /// Watches the folder that is there now: libvirtd makes it when it first starts. To be called
    /// now and then; it costs nothing where nothing changed.
    void renew();

  private:
    StatusWatch(std::filesystem::path folder, UniqueFd inotify)
        : folder_(std::move(folder)), inotify_(std::move(inotify)) {}
    void read(const std::function<void(std::string_view name)>& written);

    std::filesystem::path folder_;
    UniqueFd inotify_;
    std::optional<loop::Io> events_;
};

} // namespace virtguard::daemon
