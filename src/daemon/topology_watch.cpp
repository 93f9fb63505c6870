// SPDX-License-Identifier: Apache-2.0
#include "daemon/topology_watch.hpp"

#include <utility>

#include <sys/epoll.h>

#include "base/log.hpp"
#include "host/kernel.hpp"
#include "host/topology.hpp"

namespace virtguard::daemon {

TopologyWatch::TopologyWatch(FilesThread& files, std::filesystem::path root,
                             std::shared_ptr<Mail> mail)
    : files_(files), root_(std::move(root)), mail_(std::move(mail)),
      known_(std::make_shared<std::string>(host::hotplug_marks(root_))) {}

Result<std::unique_ptr<TopologyWatch>>
TopologyWatch::create(loop::Loop& loop, FilesThread& files, std::filesystem::path root, Tell tell) {
    auto mail = Mail::create();
    if (!mail)
        return std::unexpected(mail.error());
    std::unique_ptr<TopologyWatch> watch(
        new TopologyWatch(files, std::move(root), *std::move(mail)));
    auto arrived = loop.on_io("topology", watch->mail_->fd(), EPOLLIN,
                              [raw = watch.get(), tell = std::move(tell)](std::uint32_t) {
                                  for (Result<core::Topology>& topology : raw->mail_->drain()) {
                                      raw->note_problem(topology ? "" : topology.error().what);
                                      if (topology)
                                          tell(*std::move(topology));
                                  }
                              });
    if (!arrived)
        return std::unexpected(arrived.error());
    watch->arrived_ = *std::move(arrived);
    return watch;
}

void TopologyWatch::note_problem(std::string problem) {
    if (!problem.empty() && problem != problem_)
        log(Level::error, "topology: {}; the old one stays", problem);
    problem_ = std::move(problem);
}

void TopologyWatch::look() {
    // Not taken by a thread that is too busy: the next look will be.
    (void)files_.run([root = root_, known = known_, mail = mail_] {
        std::string marks = host::hotplug_marks(root);
        if (marks == *known)
            return;
        auto topology = host::live_topology(root);
        const bool is_read = topology.has_value();
        const bool is_told = mail->push(std::move(topology)) && is_read;
        *known = is_told ? std::move(marks) : ""; // no marks are: the next look tries again
    });
}

} // namespace virtguard::daemon
