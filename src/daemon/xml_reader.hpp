// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads XML that strangers send on a thread of its own: a document that is made for it keeps a
// processor busy for some ten milliseconds, in which starts are to be answered.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "daemon/files_thread.hpp"
#include "daemon/read_domain.hpp"
#include "loop/loop.hpp"
#include "loop/mailbox.hpp"

namespace virtguard::daemon {

class XmlReader {
  public:
    using Done = std::move_only_function<void(const ReadDomain&)>;

    /// What is read comes with the priority of what strangers ask for. The loop must outlive it.
    [[nodiscard]] static Result<std::unique_ptr<XmlReader>> create(loop::Loop& loop);
    XmlReader(const XmlReader&) = delete;
    XmlReader& operator=(const XmlReader&) = delete;
    ~XmlReader() = default;

    /// The text stays with whoever asks, and as it is. Has the questions answered, too. Calls
    /// `done` from the loop; at once, with the error unavailable, when too much waits to be read.
    void read(std::shared_ptr<const std::string> xml, core::Questions questions, Done done);
    /// Nobody waits any more.
    void forget() { waiting_.clear(); }

  private:
    struct Letter {
        std::uint64_t number;
        ReadDomain read;
    };

    XmlReader(std::unique_ptr<loop::Mailbox<Letter>> read, std::unique_ptr<FilesThread> thread)
        : read_(std::move(read)), thread_(std::move(thread)) {}
    void take_in();

    std::map<std::uint64_t, Done> waiting_; ///< it stays on the loop's thread
    std::uint64_t last_ = 0;
    std::unique_ptr<loop::Mailbox<Letter>> read_;
    std::optional<loop::Io> mail_;
    std::unique_ptr<FilesThread> thread_; ///< last: it posts to the mailbox until it ends
};

} // namespace virtguard::daemon
