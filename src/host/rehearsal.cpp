// SPDX-License-Identifier: Apache-2.0
#include "host/rehearsal.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique.hpp"

namespace virtguard::host {

namespace {

std::unexpected<Error> failed(const char* call) {
    return fail(Errc::unavailable, "{}: {}", call, std::generic_category().message(errno));
}

[[noreturn]] void run_child(const std::function<void()>& attempt, int complaints) {
    constexpr rlim_t seconds = 60;
    const rlimit limit{seconds, seconds};
    // A crash is expected: it leaves no core file.
    const bool ready = ::dup2(complaints, STDERR_FILENO) >= 0 &&
                       ::setrlimit(RLIMIT_CPU, &limit) == 0 && ::prctl(PR_SET_DUMPABLE, 0) == 0;
    // Nor is it to be reported as this program's own.
    for (const int signal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV})
        ::signal(signal, SIG_DFL);
    if (ready)
        attempt();
    ::_exit(ready ? 0 : 1);
}

/// Whether anything comes until all writers are gone.
bool reads_anything(int fd) {
    std::array<char, 4096> chunk;
    bool anything = false;
    for (;;) {
        const ssize_t count = ::read(fd, chunk.data(), chunk.size());
        if (count > 0)
            anything = true;
        else if (count == 0 || errno != EINTR)
            return anything;
    }
}

} // namespace

Result<> rehearse(const std::function<void()>& attempt) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
        return failed("pipe2");
    const UniqueFd reader(ends[0]);
    UniqueFd writer(ends[1]);
    const pid_t child = ::fork();
    if (child < 0)
        return failed("fork");
    if (child == 0)
        run_child(attempt, writer.get());
    writer.reset();
    const bool complained = reads_anything(reader.get());
    int status = 0;
    while (::waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return failed("waitpid");
    if (complained || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return fail(Errc::invalid, "hwloc cannot make sense of it");
    return {};
}

} // namespace virtguard::host
