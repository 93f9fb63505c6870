// SPDX-License-Identifier: Apache-2.0
#include "daemon/xml_reader.hpp"

#include <utility>

#include <sys/epoll.h>

namespace virtguard::daemon {

Result<std::unique_ptr<XmlReader>> XmlReader::create(loop::Loop& loop) {
    auto mailbox = loop::Mailbox<Letter>::create();
    auto thread = FilesThread::start();
    if (!mailbox)
        return std::unexpected(mailbox.error());
    if (!thread)
        return std::unexpected(thread.error());
    std::unique_ptr<XmlReader> reader(new XmlReader(*std::move(mailbox), *std::move(thread)));
    auto mail = loop.on_io(
        "XML", reader->read_->fd(), EPOLLIN,
        [raw = reader.get()](std::uint32_t) { raw->take_in(); }, loop::Priority::last);
    if (!mail)
        return std::unexpected(mail.error());
    reader->mail_ = *std::move(mail);
    return reader;
}

void XmlReader::read(std::shared_ptr<const std::string> xml, core::Questions questions, Done done) {
    const std::uint64_t number = ++last_;
    const bool taken = thread_->run(
        [xml = std::move(xml), questions = std::move(questions), number, mailbox = read_.get()] {
            (void)mailbox->push({number, read_domain(*xml, questions)}); // as many as may wait fit
        });
    if (!taken)
        return done({.domain = fail(Errc::unavailable, "too many domains wait for being read")});
    waiting_.emplace(number, std::move(done));
}

void XmlReader::take_in() {
    for (Letter& letter : read_->drain()) {
        if (auto waiting = waiting_.extract(letter.number))
            waiting.mapped()(letter.read);
        // Its memory is the thread's, and freeing it here would wait for that.
        (void)thread_->run([read = std::move(letter.read)] {});
    }
}

} // namespace virtguard::daemon
