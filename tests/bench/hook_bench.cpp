// SPDX-License-Identifier: Apache-2.0
// What virtguard-hook costs a start: the wall time from fork to the hook's end, against a static
// program that only reads stdin, against the same hook in Python, and against one in shell that
// calls busctl. All are started in turn from a process of 60 MiB, as libvirtd is, so that what
// disturbs the machine disturbs all; figures are medians.
//
//     hook-bench [--runs N] [--script-runs N] HOOK NOOP PYTHON_HOOK SHELL_HOOK VIRTGUARDD
//
// The real virtguardd answers: it reads the XML, decides and claims. The hook's own path is fixed
// when it is compiled, so all this happens in a mount namespace with a /run of its own, with a bus
// in it; that takes root. All of it are real-time processes, so that it is not measured how the
// kernel shares the CPUs with others.
// Exit status: 0, 1 when something failed, 77 when skipped.

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ranges>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
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
constexpr const char* in_python = "hook in Python, with libvirt's bindings";

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

constexpr std::string_view fits = "6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b11";
constexpr std::string_view too_large = "6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b12";

/// A guest of 1 MiB that fits on every host, or one that fits on none, with devices enough to make
/// so many bytes.
std::string domain_xml(std::string_view uuid, std::size_t size) {
    std::string xml = fmt::format("<domain type='kvm'>\n  <name>hook-bench</name>\n"
                                  "  <uuid>{}</uuid>\n  <memory unit='{}'>1</memory>\n"
                                  "  <vcpu>1</vcpu>\n"
                                  "  <os><type arch='x86_64' machine='q35'>hvm</type></os>\n"
                                  "  <devices>\n",
                                  uuid, uuid == fits ? "MiB" : "TiB");
    for (int index = 1; xml.size() < size; ++index)
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

/// A process that ends with this one, and says what it has to say in a file.
pid_t start_server(std::vector<std::string> arguments) {
    const pid_t server = ::fork();
    expect(server >= 0, "fork");
    if (server != 0)
        return server;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(::open("/run/log", O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
    std::vector<char*> words;
    for (std::string& argument : arguments)
        words.push_back(argument.data());
    words.push_back(nullptr);
    ::execvp(words.front(), words.data());
    ::_exit(127);
}

/// A system's bus on which everybody may do everything.
void start_bus() {
    constexpr std::string_view conf =
        "<busconfig><type>system</type><auth>EXTERNAL</auth>"
        "<listen>unix:path=/run/dbus/system_bus_socket</listen><policy context='default'>"
        "<allow own='*'/><allow send_destination='*'/><allow receive_sender='*'/>"
        "</policy></busconfig>";
    expect(::mkdir("/run/dbus", 0755) == 0, "mkdir /run/dbus");
    const UniqueFd file(::open("/run/bus.conf", O_WRONLY | O_CREAT, 0600));
    expect(::write(file.get(), conf.data(), conf.size()) == static_cast<ssize_t>(conf.size()),
           "write /run/bus.conf");
    start_server({"dbus-daemon", "--nofork", "--config-file=/run/bus.conf"});
    for (int attempt = 0; ::access("/run/dbus/system_bus_socket", F_OK) != 0; ++attempt) {
        expect(attempt < 500, "dbus-daemon does not listen");
        std::this_thread::sleep_for(10ms);
    }
}

/// The real daemon with room for everything.
void start_daemon(const std::string& path) {
    expect(::mkdir("/run/policy", 0700) == 0, "mkdir /run/policy");
    const pid_t daemon =
        start_server({path, "--topology", "numa:1(memory=64GiB) core:8 pu:2", "--policy-dir",
                      "/run/policy", "--libvirt-uri", "test:///default"});
    for (int attempt = 0; attempt < 500; ++attempt) {
        if (wire::exchange(wire::hook_socket_path, wire::Operation::status, {}, 1s))
            return;
        expect(::waitpid(daemon, nullptr, WNOHANG) == 0, path);
        std::this_thread::sleep_for(10ms);
    }
    give_up("virtguardd does not answer");
}

struct Program {
    std::string name;
    std::vector<std::string> command; ///< its path, and its arguments
    std::string xml;
    int exit_status = 0; ///< that is expected
    std::vector<Microseconds> times{};

    [[nodiscard]] Microseconds quantile(double part) const {
        std::vector<Microseconds> sorted = times;
        std::ranges::sort(sorted);
        const double last = static_cast<double>(sorted.size() - 1);
        return sorted[static_cast<std::size_t>(part * last)];
    }
};

/// A hook as libvirt calls it.
Program hook(std::string name, std::vector<std::string> command, const char* operation,
             const char* phase, std::size_t xml_size, std::string_view uuid = fits) {
    command.insert(command.end(), {"hook-bench", operation, phase, "-"});
    return {std::move(name), std::move(command), domain_xml(uuid, xml_size),
            uuid == too_large ? 1 : 0};
}

/// Where the lines of refusals go.
int null_output() {
    static const UniqueFd file(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    return file.get();
}

using Start = pid_t (*)(const std::string& path, char* const* arguments, int input);

pid_t start_with_fork(const std::string& path, char* const* arguments, int input) {
    const pid_t child = ::fork();
    if (child != 0)
        return child;
    ::dup2(input, STDIN_FILENO);
    ::dup2(null_output(), STDERR_FILENO);
    ::execve(path.c_str(), arguments, hook_environment().data());
    ::_exit(127);
}

pid_t start_with_spawn(const std::string& path, char* const* arguments, int input) {
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, null_output(), STDERR_FILENO);
    pid_t child = -1;
    const int error = ::posix_spawn(&child, path.c_str(), &actions, nullptr, arguments,
                                    hook_environment().data());
    ::posix_spawn_file_actions_destroy(&actions);
    return error == 0 ? child : -1;
}

/// One start as libvirt does it, without its log: from before the fork until the child is gone.
void run_once(Program& program, Start start) {
    std::vector<char*> arguments;
    for (std::string& argument : program.command)
        arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    std::array<int, 2> ends{};
    expect(::pipe2(ends.data(), O_CLOEXEC) == 0, "pipe");
    UniqueFd input(ends[0]);
    UniqueFd output(ends[1]);
    const auto begin = Clock::now();
    const pid_t child = start(program.command.front(), arguments.data(), input.get());
    expect(child > 0, program.command.front());
    input.reset();
    const std::string& xml = program.xml;
    expect(::write(output.get(), xml.data(), xml.size()) == static_cast<ssize_t>(xml.size()),
           "write the XML");
    output.reset();
    int status = 0;
    expect(::waitpid(child, &status, 0) == child, "waitpid");
    program.times.push_back(Clock::now() - begin);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != program.exit_status) {
        fmt::print(stderr, "hook-bench: {} ended with wait status {}\n", program.name, status);
        std::exit(1);
    }
}

/// For figures.py.
void print_figure(std::string_view what, double value, std::string_view unit, std::string_view goal,
                  std::string_view how) {
    fmt::print("figure|{}|{:.4g}|{}|{}|{}\n", what, value, unit, goal, how);
}

void run_in_turn(std::vector<Program>& programs, Start start, int runs) {
    for (int run = 0; run < runs; ++run)
        for (Program& program : programs)
            run_once(program, start);
}

/// Against the first, which does nothing.
void compare_with_noop(std::vector<Program> programs, Start start, std::string_view how,
                       std::string_view with, std::string_view goal, int runs) {
    run_in_turn(programs, start, runs);
    const std::string method = fmt::format("{}{}, {} times in turn, medians", how, with, runs);
    const Program& noop = programs.front();
    print_figure(noop.name, noop.quantile(0.5).count(), "us", "", method);
    for (const Program& program : programs | std::views::drop(1)) {
        print_figure(program.name, program.quantile(0.5).count(), "us", "", method);
        print_figure(program.name + " / no-op", program.quantile(0.5) / noop.quantile(0.5), "x",
                     goal, method);
    }
}

/// Against scripts that do the same.
void compare_with_scripts(std::vector<Program> programs, Start start, std::string_view how,
                          int runs) {
    run_in_turn(programs, start, runs);
    const std::string method = fmt::format("{}, {} times in turn, medians", how, runs);
    const Program& ours = programs.front();
    for (const Program& program : programs | std::views::drop(1)) {
        print_figure(program.name, program.quantile(0.5).count() / 1000, "ms", "", method);
        print_figure(program.name + " / ours", program.quantile(0.5) / ours.quantile(0.5), "x",
                     program.name == in_python ? ">= 20" : "", method);
    }
}

} // namespace

int main(int argc, char** argv) {
    int runs = 1000;
    int script_runs = 50;
    std::vector<std::string> paths;
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    for (auto it = arguments.begin(); it != arguments.end(); ++it) {
        const bool has_value = it->starts_with("--") && it + 1 != arguments.end();
        if (!has_value) {
            paths.push_back(*it);
            continue;
        }
        const std::string& option = *it++;
        (option == "--runs" ? runs : script_runs) =
            static_cast<int>(parse_unsigned(*it).value_or(1));
    }
    if (paths.size() != 5) {
        fmt::print(stderr, "usage: hook-bench [--runs N] [--script-runs N] "
                           "HOOK NOOP PYTHON_HOOK SHELL_HOOK VIRTGUARDD\n");
        return 2;
    }
    if (!enter_namespace()) {
        fmt::print("SKIPPED: the hook bench needs root, for a mount namespace of its own\n");
        return skipped;
    }
    const sched_param lowest{.sched_priority = 1};
    expect(::sched_setscheduler(0, SCHED_FIFO, &lowest) == 0, "sched_setscheduler");
    start_bus();
    start_daemon(paths[4]);
    const std::vector<char> weight(parent_size, 1);
    constexpr std::string_view fork = "fork from 60 MiB";
    constexpr std::string_view spawn = "posix_spawn from 60 MiB";
    for (const std::size_t size : {2'000, 10'000}) {
        const std::vector<Program> programs = {
            {"static no-op", {paths[1]}, domain_xml(fits, size)},
            hook("prepare, admitted", {paths[0]}, "prepare", "begin", size),
            hook("prepare, refused", {paths[0]}, "prepare", "begin", size, too_large),
            hook("started", {paths[0]}, "started", "begin", size),
            hook("release", {paths[0]}, "release", "end", size),
        };
        const std::string with = fmt::format(", {} KB of XML", size / 1000);
        compare_with_noop(programs, start_with_fork, fork, with, "<= 1.2", runs);
        compare_with_noop(programs, start_with_spawn, spawn, with, "<= 1.3", runs);
    }
    constexpr std::size_t usual = 10'000;
    const std::vector<Program> scripts = {
        hook("ours", {paths[0]}, "prepare", "begin", usual),
        hook(in_python, {"/usr/bin/python3", paths[2]}, "prepare", "begin", usual),
        hook("hook in shell, with busctl", {"/bin/sh", paths[3]}, "prepare", "begin", usual),
    };
    compare_with_scripts(scripts, start_with_fork, fork, script_runs);
    compare_with_scripts(scripts, start_with_spawn, spawn, script_runs);
    return weight.front() == 1 ? 0 : 1;
}
