// SPDX-License-Identifier: Apache-2.0
#include "daemon/status_watch.hpp"

#include <utility>

#include <sys/inotify.h>

#include "base/log.hpp"
#include "base/text.hpp"

namespace virtguard::daemon {

StatusWatch::StatusWatch(loop::Loop& loop, std::filesystem::path folder,
                         std::function<void(std::string_view name)> written)
    : loop_(loop), folder_(std::move(folder)), written_(std::move(written)) {
    renew();
}

void StatusWatch::renew() {
    // libvirt writes NAME.xml.new and renames it.
    auto watch = loop_.on_change("status files", folder_, IN_MOVED_TO,
                                 [this](std::string_view file) { tell(file); });
    if (watch)
        watch_ = *std::move(watch);
    else if (watch.error().code != Errc::not_found)
        log(Level::warning, "{}: not watched, ignoring: {}", printable(folder_.native()),
            watch.error().what);
}

void StatusWatch::tell(std::string_view file) const {
    constexpr std::string_view suffix = ".xml";
    if (!file.ends_with(suffix))
        return;
    file.remove_suffix(suffix.size());
    written_(file);
}

} // namespace virtguard::daemon
