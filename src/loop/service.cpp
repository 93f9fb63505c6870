// SPDX-License-Identifier: Apache-2.0
#include "loop/service.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <systemd/sd-daemon.h>

#include "base/text.hpp"

namespace virtguard::loop {
namespace {

/// A failure is ignored: the only one who could hear of it is systemd.
void notify(const std::string& state) {
    (void)sd_notify(/*unset_environment=*/0, state.c_str());
}

/// The status that systemd has.
std::string& told_status() {
    static std::string line;
    return line;
}

} // namespace

void notify_ready(std::string_view status) {
    told_status() = status;
    notify(fmt::format("READY=1\nSTATUS={}", printable(status)));
}

void notify_status(std::string_view status) {
    if (told_status() == status)
        return; // sending waits for systemd
    told_status() = status;
    notify(fmt::format("STATUS={}", printable(status)));
}

void notify_reloading() {
    notify("RELOADING=1");
}

void notify_stopping() {
    notify("STOPPING=1");
}

Result<std::vector<PassedSocket>> listen_fds() {
    char** names = nullptr;
    const int count = sd_listen_fds_with_names(/*unset_environment=*/1, &names);
    if (count < 0)
        return fail(Errc::io, "socket activation: {}", std::strerror(-count));

    std::vector<PassedSocket> sockets;
    for (int i = 0; i < count; ++i) {
        sockets.push_back({names[i], UniqueFd(SD_LISTEN_FDS_START + i)});
        std::free(names[i]);
    }
    std::free(names);

    // systemd hands them over blocking; a client that is gone again before accept() would hold us.
    for (const PassedSocket& socket : sockets) {
        const int flags = ::fcntl(socket.fd.get(), F_GETFL);
        if (flags < 0 || ::fcntl(socket.fd.get(), F_SETFL, flags | O_NONBLOCK) < 0)
            return fail(Errc::io, "socket activation: {}: {}", printable(socket.name),
                        std::strerror(errno));
    }
    return sockets;
}

} // namespace virtguard::loop
