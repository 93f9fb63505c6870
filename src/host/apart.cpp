// SPDX-License-Identifier: Apache-2.0
#include "host/apart.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique.hpp"

namespace virtguard::host {

namespace {

std::unexpected<Error> failed(const char* call) {
    return fail(Errc::unavailable, "{}: {}", call, std::generic_category().message(errno));
}

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t count = ::write(fd, text.data(), text.size());
        if (count < 0)
            return false;
        text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
}

[[noreturn]] void run_child(const std::function<std::string()>& work, std::chrono::seconds cpu_time,
                            int complaints, int result) {
    const auto seconds = static_cast<rlim_t>(cpu_time.count());
    const rlimit limit{seconds, seconds + 1}; // at the first SIGXCPU, at the second SIGKILL
    // A crash is expected: it leaves no core file.
    const bool ready = ::dup2(complaints, STDERR_FILENO) >= 0 &&
                       ::setrlimit(RLIMIT_CPU, &limit) == 0 && ::prctl(PR_SET_DUMPABLE, 0) == 0;
    // Nor is it to be reported as this program's own.
    for (const int signal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV})
        ::signal(signal, SIG_DFL);
    ::_exit(ready && write_all(result, work()) ? 0 : 1);
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

Result<std::string> read_result(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0)
        return failed("fstat");
    std::string text(static_cast<std::size_t>(status.st_size), '\0');
    if (::pread(fd, text.data(), text.size(), 0) != status.st_size)
        return failed("pread");
    return text;
}

} // namespace

Result<std::string> run_apart(const std::function<std::string()>& work,
                              std::chrono::seconds cpu_time) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
        return failed("pipe2");
    const UniqueFd reader(ends[0]);
    UniqueFd writer(ends[1]);
    const UniqueFd result(::memfd_create("result", MFD_CLOEXEC));
    if (!result)
        return failed("memfd_create");
    const pid_t child = ::fork();
    if (child < 0)
        return failed("fork");
    if (child == 0)
        run_child(work, cpu_time, writer.get(), result.get());
    writer.reset();
    const bool complained = reads_anything(reader.get());
    int status = 0;
    while (::waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return failed("waitpid");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
        return fail(Errc::limit, "too much for hwloc, which takes more than {} s",
                    cpu_time.count());
    if (complained || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return fail(Errc::invalid, "hwloc cannot make sense of it");
    return read_result(result.get());
}

} // namespace virtguard::host
