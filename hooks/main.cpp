// SPDX-License-Identifier: Apache-2.0
// virtguard-hook, libvirt's qemu hook: argv is path, domain name, operation, sub-operation, extra;
// stdin is the domain's XML. libvirt waits for it with no time-out and the domain's lock held,
// takes a non-zero exit of "reconnect" or "started" as the order to kill the guest, and reads
// stdout as the guest's new XML: so it ends by a deadline whatever happens, fails for "prepare"
// alone, and never writes to stdout. It has no heap, stdio, locale or environment, since it is
// exec'd three times per start and its cost is that of exec (tests/bench). What it says
// on the socket: docs/hook-protocol.md.

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <expected>
#include <span>
#include <string_view>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/unique.hpp"
#include "hooks/ops.hpp"
#include "wire/client.hpp"
#include "wire/hook_conf.hpp"
#include "wire/protocol.hpp"

namespace virtguard::hooks {

namespace {

using std::chrono::milliseconds;

constexpr const char* log_socket_path = "/dev/log";
/// For "started", "release" and "reconnect", reading stdin included.
constexpr milliseconds tell_time{100};
/// For stderr, should nobody empty it.
constexpr milliseconds error_output_time{100};

/// One byte more than is taken, to notice what is longer. Pages that are not used cost nothing.
std::array<char, wire::max_xml + 1> xml_buffer;

/// Until its end or until the room is full; the text is why it could not be read.
std::expected<std::string_view, std::string_view> read_stdin(std::span<char> room,
                                                             Instant deadline) noexcept {
    std::size_t size = 0;
    while (size < room.size()) {
        if (!wire::wait_for(STDIN_FILENO, POLLIN, deadline))
            return std::unexpected("the domain XML on stdin did not end in time");
        const ssize_t got = ::read(STDIN_FILENO, room.data() + size, room.size() - size);
        if (got == 0)
            break;
        if (got > 0)
            size += static_cast<std::size_t>(got);
        else if (errno != EINTR && errno != EAGAIN)
            return std::unexpected("the domain XML on stdin cannot be read");
    }
    return std::string_view(room.data(), size);
}

struct Asked {
    Outcome outcome = Outcome::unanswered;
    std::string_view text;
};

Asked ask(const Step& step, Instant exec_time, milliseconds wait,
          wire::AnswerBuffer& buffer) noexcept {
    const Instant deadline = exec_time + wait;
    const auto xml = read_stdin(xml_buffer, deadline);
    if (!xml)
        return {.text = xml.error()};
    if (xml->empty())
        return {.text = "there is no domain XML on stdin"};
    if (xml->size() > wire::max_xml)
        return {.text = "the domain XML is larger than 4 MiB"};
    const wire::RequestHeader header{
        .operation = step.operation, .exec_time = exec_time, .wait = wait};
    const auto answer = wire::ask(wire::hook_socket_path, header, *xml, deadline, buffer);
    if (!answer)
        return {.text = wire::describe(answer.error())};
    switch (answer->verdict) {
    case wire::Verdict::admitted:
        return {Outcome::admitted, {}};
    case wire::Verdict::refused:
        return {Outcome::refused, answer->line};
    case wire::Verdict::error:
        return {Outcome::unanswered, answer->line};
    case wire::Verdict::done:
        break;
    }
    return {.text = wire::describe(wire::Fault::malformed)};
}

/// What the daemon misses it finds by looking at libvirt.
void tell(const Step& step, Instant exec_time) noexcept {
    const Instant deadline = exec_time + tell_time;
    const auto xml = read_stdin(std::span(xml_buffer).first(wire::max_told_xml + 1), deadline);
    if (!xml || xml->empty())
        return;
    const wire::RequestHeader header{
        .operation = step.operation, .exec_time = exec_time, .wait = tell_time};
    (void)wire::tell(wire::hook_socket_path, header, *xml, deadline);
}

/// As syslog(3) does, but never waiting. Nobody is left to tell when it fails.
void write_journal(std::string_view line) noexcept {
    const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, log_socket_path);
    constexpr std::string_view tag = "<27>virtguard-hook: "; // facility daemon, level err
    std::array<iovec, 2> parts{{{const_cast<char*>(tag.data()), tag.size()},
                                {const_cast<char*>(line.data()), line.size()}}};
    msghdr message{};
    message.msg_name = &address;
    message.msg_namelen = sizeof address;
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    (void)::sendmsg(socket.get(), &message, MSG_NOSIGNAL);
}

/// A pipe with room for the line takes it at once.
void write_error_output(std::string_view line) noexcept {
    const auto ready = wire::wait_for(STDERR_FILENO, POLLOUT, wire::now() + error_output_time);
    if (ready && (*ready & POLLOUT) != 0) [[maybe_unused]]
        const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

int ask_and_end(const Step& step, std::string_view name, Instant exec_time) noexcept {
    const wire::HookConf conf = wire::read_hook_conf(wire::hook_conf_path);
    wire::AnswerBuffer buffer;
    const Asked asked = ask(step, exec_time, conf.timeout, buffer);
    const Ending ending = ending_for(asked.outcome, conf.unavailable_denies, name, asked.text);
    if (!ending.journal.text().empty())
        write_journal(ending.journal.text());
    if (!ending.error_output.text().empty())
        write_error_output(ending.error_output.text());
    return ending.exit_status;
}

int run(std::span<char*> arguments) noexcept {
    const Instant exec_time = wire::now();
    if (arguments.size() < 4)
        return 0;
    const Step step = step_for(arguments[2], arguments[3]);
    switch (step.action) {
    case Action::nothing:
        break;
    case Action::ask:
        return ask_and_end(step, arguments[1], exec_time);
    case Action::tell:
        tell(step, exec_time);
        break;
    }
    return 0;
}

} // namespace

} // namespace virtguard::hooks

int main(int argc, char** argv) {
    // _exit: there is nothing to flush and nothing to destroy.
    ::_exit(virtguard::hooks::run({argv, static_cast<std::size_t>(argc)}));
}
