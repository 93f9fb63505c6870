// SPDX-License-Identifier: Apache-2.0
// What virtguard-hook costs a start: the wall time from fork to the end of "prepare" with 10 KB of
// XML, against a static program that only reads stdin and against the same hook in Python. Both are
// started in turn from a process of 60 MiB, as libvirtd is.
//
//     hook-bench [--runs N] [--python-runs N] HOOK NOOP PYTHON_HOOK VIRTGUARDD
//
// The real virtguardd answers: it reads the XML, decides and claims. The hook's own path is fixed
// when it is compiled, so all this happens in a mount namespace with a /run of its own; that takes
// root.
// Exit status: 0, 1 when something failed, 77 when skipped.

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.hpp"
#include "base/unique.hpp"
#include "wire/exchange.hpp"
#include "wire/hook_conf.hpp"

namespace {

using namespace virtguard;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr int skipped = 77;
constexpr std::size_t parent_size = 60 << 20;
constexpr std::size_t xml_size = 10'000;

/// The environment that libvirtd gives its hooks.
std::array<char*, 3> hook_environment() {
    static std::string locale = "LC_ALL=C";
    static std::string path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    return {locale.data(), path.data(), nullptr};
}

[[noreturn]] void give_up(std::string_view what) {
    fmt::print(stderr, "hook-bench: {}: {}\n", what, std::strerror(errno));
    std::exit(1);
}

void expect(bool well, std::string_view what) {
    if (!well)
        give_up(what);
}

/// A guest of 1 MiB that fits on every host, with devices enough to make 10 KB.
std::string domain_xml() {
    std::string xml = "<domain type='kvm'>\n  <name>hook-bench</name>\n"
                      "  <uuid>6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b11</uuid>\n"
                      "  <memory unit='KiB'>1024</memory>\n  <vcpu>1</vcpu>\n"
                      "  <os><type arch='x86_64' machine='q35'>hvm</type></os>\n  <devices>\n";
    for (int index = 1; xml.size() < xml_size; ++index)
        xml += fmt::format("    <controller type='pci' index='{}' model='pcie-root-port'>\n"
                           "      <model name='pcie-root-port'/>\n    </controller>\n",
                           index);
    return xml + "  </devices>\n</domain>\n";
}

/// Gives this process a /run of its own, and a /var/lib in which the hook finds that it must fail
/// when it is not answered.
bool enter_namespace() {
    if (::unshare(CLONE_NEWNS) != 0)
        return false;
    expect(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "mount /");
    std::string folder = "/tmp/hook-bench-XXXXXX";
    expect(::mkdtemp(folder.data()) != nullptr, folder);
    expect(::mount("tmpfs", folder.c_str(), "tmpfs", 0, nullptr) == 0, "mount tmpfs");
    expect(::mount(folder.c_str(), "/run", nullptr, MS_MOVE, nullptr) == 0, "mount /run");
    ::rmdir(folder.c_str());
    expect(::mount("tmpfs", "/var/lib", "tmpfs", 0, nullptr) == 0, "mount /var/lib");
    expect(::mkdir("/var/lib/virtguard", 0700) == 0, "mkdir /var/lib/virtguard");
    const auto written = wire::write_hook_conf(wire::hook_conf_path, {.unavailable_denies = true});
    expect(written.has_value(), wire::hook_conf_path);
    return true;
}

/// The real daemon with room for everything, in a process that ends with this one.
void start_daemon(const std::string& path) {
    expect(::mkdir("/run/policy", 0700) == 0, "mkdir /run/policy");
    const pid_t daemon = ::fork();
    expect(daemon >= 0, "fork");
    if (daemon == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::execl(path.c_str(), path.c_str(), "--topology", "numa:1(memory=64GiB) core:8 pu:2",
                "--policy-dir", "/run/policy", "--libvirt-uri", "test:///default", nullptr);
        ::_exit(127);
    }
    for (int attempt = 0; attempt < 500; ++attempt) {
        if (wire::exchange(wire::hook_socket_path, wire::Operation::status, {}, 1s))
            return;
        expect(::waitpid(daemon, nullptr, WNOHANG) == 0, path);
        std::this_thread::sleep_for(10ms);
    }
    give_up("virtguardd does not answer");
}

struct Program {
    std::string path;
    std::vector<std::string> arguments;
};

using Start = pid_t (*)(const std::string& path, char* const* arguments, int input);

pid_t start_with_fork(const std::string& path, char* const* arguments, int input) {
    const pid_t child = ::fork();
    if (child != 0)
        return child;
    ::dup2(input, STDIN_FILENO);
    ::execve(path.c_str(), arguments, hook_environment().data());
    ::_exit(127);
}

pid_t start_with_spawn(const std::string& path, char* const* arguments, int input) {
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    pid_t child = -1;
    const int error = ::posix_spawn(&child, path.c_str(), &actions, nullptr, arguments,
                                    hook_environment().data());
    ::posix_spawn_file_actions_destroy(&actions);
    return error == 0 ? child : -1;
}

/// One start as libvirt does it, without its log: from before the fork until the child is gone.
Microseconds run_once(Program& program, Start start, std::string_view xml) {
    std::vector<char*> arguments{program.path.data()};
    for (std::string& argument : program.arguments)
        arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    std::array<int, 2> ends{};
    expect(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe");
    UniqueFd input(ends[0]);
    UniqueFd output(ends[1]);
    const auto begin = Clock::now();
    const pid_t child = start(program.path, arguments.data(), input.get());
    expect(child > 0, program.path);
    input.reset();
    expect(::write(output.get(), xml.data(), xml.size()) == static_cast<ssize_t>(xml.size()),
           "write the XML");
    output.reset();
    int status = 0;
    expect(::waitpid(child, &status, 0) == child, "waitpid");
    const auto end = Clock::now();
    if (status != 0) {
        fmt::print(stderr, "hook-bench: {} ended with wait status {}\n", program.path, status);
        std::exit(1);
    }
    return end - begin;
}

struct Times {
    std::string name;
    std::vector<Microseconds> all;

    [[nodiscard]] Microseconds quantile(double part) const {
        std::vector<Microseconds> sorted = all;
        std::ranges::sort(sorted);
        const double last = static_cast<double>(sorted.size() - 1);
        return sorted[static_cast<std::size_t>(part * last)];
    }
};

void print(const Times& base, const Times& other) {
    for (const Times* times : {&base, &other})
        fmt::print("  {:<22} median {:7.0f} us   p99 {:7.0f} us   ({} runs)\n", times->name,
                   times->quantile(0.5).count(), times->quantile(0.99).count(), times->all.size());
    fmt::print("  ratio of medians       {:.2f}\n", other.quantile(0.5) / base.quantile(0.5));
}

/// In turn, so that what disturbs the machine disturbs both.
void compare(std::string_view title, Start start, Program& base, Program& other, int runs) {
    const std::string xml = domain_xml();
    Times base_times{base.arguments.empty() ? "static no-op" : "virtguard-hook", {}};
    Times other_times{
        other.arguments.front().ends_with(".py") ? "hook in Python" : "virtguard-hook", {}};
    for (int run = 0; run < runs; ++run) {
        base_times.all.push_back(run_once(base, start, xml));
        other_times.all.push_back(run_once(other, start, xml));
    }
    fmt::print("{}\n", title);
    print(base_times, other_times);
}

bool has_libvirt_bindings() {
    return std::system("/usr/bin/python3 -c 'import libvirt' 2>/dev/null") == 0;
}

} // namespace

int main(int argc, char** argv) {
    int runs = 1000;
    int python_runs = 50;
    std::vector<std::string> paths;
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    for (auto it = arguments.begin(); it != arguments.end(); ++it) {
        const bool has_value = it->starts_with("--") && it + 1 != arguments.end();
        if (!has_value) {
            paths.push_back(*it);
            continue;
        }
        const std::string& option = *it++;
        (option == "--runs" ? runs : python_runs) =
            static_cast<int>(parse_unsigned(*it).value_or(1));
    }
    if (paths.size() != 4) {
        fmt::print(stderr, "usage: hook-bench [--runs N] [--python-runs N] "
                           "HOOK NOOP PYTHON_HOOK VIRTGUARDD\n");
        return 2;
    }
    if (!enter_namespace()) {
        fmt::print("SKIPPED: the hook bench needs root, for a mount namespace of its own\n");
        return skipped;
    }
    start_daemon(paths[3]);
    const std::vector<char> weight(parent_size, 1);
    std::vector<std::string> prepare{"hook-bench", "prepare", "begin", "-"};
    Program hook{paths[0], prepare};
    Program noop{paths[1], {}};
    compare("fork from 60 MiB:", start_with_fork, noop, hook, runs);
    compare("posix_spawn from 60 MiB:", start_with_spawn, noop, hook, runs);
    if (!has_libvirt_bindings()) {
        fmt::print("SKIPPED: Python's libvirt bindings are not installed (python3-libvirt)\n");
        return 0;
    }
    prepare.insert(prepare.begin(), paths[2]);
    Program python{"/usr/bin/python3", prepare};
    compare("against Python, fork from 60 MiB:", start_with_fork, hook, python, python_runs);
    return weight.front() == 1 ? 0 : 1;
}
