// SPDX-License-Identifier: Apache-2.0
#include "daemon/status_watch.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/log.hpp"
#include "base/text.hpp"

namespace virtguard::daemon {

namespace {

constexpr std::string_view suffix = ".xml";

/// libvirt writes NAME.xml.new and renames it.
constexpr std::uint32_t mask = IN_MOVED_TO | IN_ONLYDIR;

} // namespace

Result<std::unique_ptr<StatusWatch>>
StatusWatch::create(loop::Loop& loop, std::filesystem::path folder,
                    std::function<void(std::string_view name)> written) {
    UniqueFd inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!inotify)
        return fail(Errc::io, "inotify: {}", std::strerror(errno));
    std::unique_ptr<StatusWatch> watch(new StatusWatch(std::move(folder), std::move(inotify)));
    auto events = loop.on_io(
        "status files", watch->inotify_.get(), EPOLLIN,
        [raw = watch.get(), written = std::move(written)](std::uint32_t) { raw->read(written); });
    if (!events)
        return std::unexpected(events.error());
    watch->events_ = *std::move(events);
    watch->renew();
    return watch;
}

void StatusWatch::renew() {
    // Adding a folder that is watched already changes nothing.
    if (::inotify_add_watch(inotify_.get(), folder_.c_str(), mask) < 0 && errno != ENOENT)
        log(Level::warning, "{}: not watched, ignoring: {}", printable(folder_.native()),
            std::strerror(errno));
}

void StatusWatch::read(const std::function<void(std::string_view name)>& written) {
    // One event at least fits; what is left makes the loop come again.
    alignas(inotify_event) std::array<char, 16384> buffer;
    const ssize_t count = ::read(inotify_.get(), buffer.data(), buffer.size());
    for (std::size_t at = 0; count > 0 && at < static_cast<std::size_t>(count);) {
        inotify_event event{};
        std::memcpy(&event, buffer.data() + at, sizeof event);
        std::string_view name(buffer.data() + at + sizeof event); // padded with NULs
        at += sizeof event + event.len;
        if (event.len == 0 || !name.ends_with(suffix))
            continue;
        name.remove_suffix(suffix.size());
        written(name);
    }
}

} // namespace virtguard::daemon
