// SPDX-License-Identifier: Apache-2.0
// virtguardd: options, construction, the loop, the end. virtguardd(8).

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>

#include "base/log.hpp"
#include "base/text.hpp"
#include "bus/names.hpp"
#include "daemon/bus_link.hpp"
#include "daemon/files_thread.hpp"
#include "daemon/hook_server.hpp"
#include "daemon/run_folder.hpp"
#include "daemon/service.hpp"
#include "daemon/shared_questions.hpp"
#include "domxml/parse.hpp"
#include "host/topology.hpp"
#include "loop/loop.hpp"
#include "loop/service.hpp"
#include "virt/session.hpp"

namespace virtguard::daemon {

namespace {

struct Options {
    std::string policy_folder = "/etc/virtguard";
    std::string run_folder = "/run/virtguard";
    std::string state_folder = "/var/lib/virtguard";
    std::string libvirt_uri = "qemu:///system";
    std::string root = "/";
    std::string topology; ///< "": this machine's
};

/// How long a thread may take to end. libvirt may hold its thread for as long as a hook waits, and
/// the hook may wait for the next virtguardd, which starts when this one has ended; storage that
/// hangs may hold the files thread for ever.
constexpr std::chrono::milliseconds stop_patience{100};

Result<> make_folder(const std::string& path, mode_t mode) {
    if (::mkdir(path.c_str(), mode) < 0 && errno != EEXIST)
        return fail(Errc::io, "{}: {}", path, std::strerror(errno));
    return {};
}

/// The socket systemd made, else our own.
Result<UniqueFd> hook_listener(RunFolder& run_folder) {
    auto passed = loop::listen_fds();
    if (!passed)
        return std::unexpected(passed.error());
    for (loop::PassedSocket& socket : *passed)
        if (socket.name == "hook")
            return std::move(socket.fd);
    return run_folder.listen();
}

/// A descriptor per connection, which may be more than the soft limit of 1024 that daemons get (for
/// the sake of those that use select()).
void raise_descriptor_limit() {
    rlimit limit{};
    constexpr rlim_t wanted = 2 * HookServer::max_connections;
    if (::getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = std::min(limit.rlim_max, wanted);
    if (::setrlimit(RLIMIT_NOFILE, &limit) < 0)
        log(Level::warning, "the limit of open files stays low, ignoring: {}",
            std::strerror(errno));
}

Result<core::Topology> load_topology(const Options& options) {
    if (options.topology.empty())
        return host::live_topology(options.root);
    return host::topology_from(options.topology);
}

/// Everything that lives as long as the daemon, in the order it is made.
class Daemon {
  public:
    static Result<int> run(const Options& options);

  private:
    explicit Daemon(loop::Loop loop) : loop_(std::move(loop)) {}
    Result<> start(const Options& options);
    Result<> take_folders(const Options& options);
    Result<> start_service(const Options& options);
    Result<> keep_run_folder();
    Result<> watch_signals_and_mail();
    void reload(CurrentPolicy::Reloaded done);
    void ask_anew();
    Result<> start_libvirt(const std::string& uri);
    Result<> start_bus();

    loop::Loop loop_;
    SharedQuestions questions_; ///< before the thread that reads it
    std::unique_ptr<RunFolder> run_folder_;
    std::unique_ptr<loop::Mailbox<virt::Message>> from_libvirt_;
    std::unique_ptr<loop::Mailbox<CheckedPolicy>> policies_;
    std::unique_ptr<FilesThread> files_;
    std::unique_ptr<Service> service_;
    std::unique_ptr<HookServer> hooks_;
    std::optional<loop::Signal> hangup_;
    std::optional<loop::Io> libvirt_mail_;
    std::optional<loop::Io> policy_mail_;
    std::unique_ptr<virt::Session> session_;
    std::unique_ptr<BusLink> bus_;
};

/// Makes the folders and takes them for this daemon.
Result<> Daemon::take_folders(const Options& options) {
    if (auto made = make_folder(options.state_folder, 0755); !made)
        return made;
    auto run_folder = RunFolder::take(options.run_folder);
    if (!run_folder)
        return std::unexpected(run_folder.error());
    run_folder_ = *std::move(run_folder);
    return {};
}

Result<> Daemon::start_service(const Options& options) {
    auto listener = hook_listener(*run_folder_);
    if (!listener)
        return std::unexpected(listener.error());
    auto topology = load_topology(options);
    if (!topology)
        return context(topology.error(), "topology");
    auto files = FilesThread::start(); // after load_topology(), which may fork
    if (!files)
        return std::unexpected(files.error());
    files_ = *std::move(files);
    StartPolicy policy = policy_at_start(options.policy_folder, options.state_folder, *topology);
    auto service = Service::create({.policy_folder = options.policy_folder,
                                    .state_folder = options.state_folder,
                                    .run_folder = options.run_folder,
                                    .root = options.root,
                                    .live_topology = options.topology.empty()},
                                   *std::move(topology), std::move(policy), *files_, loop_);
    if (!service)
        return std::unexpected(service.error());
    service_ = *std::move(service);
    auto hooks = HookServer::create(loop_, *std::move(listener),
                                    [this](const wire::Request& request, HookServer::Reply reply) {
                                        service_->handle(request, std::move(reply));
                                    });
    if (!hooks)
        return std::unexpected(hooks.error());
    hooks_ = *std::move(hooks);
    return {};
}

/// A daemon whose folder is deleted goes on, and one whose folder another has taken ends.
Result<> Daemon::keep_run_folder() {
    return run_folder_->keep(
        loop_, {.on_socket =
                    [this](UniqueFd listener) {
                        if (auto listening = hooks_->listen(std::move(listener)); !listening)
                            log(Level::error, "{}", listening.error().what);
                    },
                .on_emptied = [this] { service_->keep_guests_anew(); },
                .on_taken = [this] { loop_.stop(EXIT_FAILURE); }});
}

Result<> Daemon::watch_signals_and_mail() {
    auto policies = loop::Mailbox<CheckedPolicy>::create();
    auto from_libvirt = loop::Mailbox<virt::Message>::create();
    if (!policies || !from_libvirt)
        return std::unexpected((!policies ? policies.error() : from_libvirt.error()));
    policies_ = *std::move(policies);
    from_libvirt_ = *std::move(from_libvirt);
    auto hangup = loop_.on_signal("reload", SIGHUP, [this] { reload([](const Result<>&) {}); });
    auto policy_mail = loop_.on_io("policies", policies_->fd(), EPOLLIN, [this](std::uint32_t) {
        for (CheckedPolicy& policy : policies_->drain())
            service_->policy().apply(std::move(policy));
        ask_anew();
    });
    auto libvirt_mail = loop_.on_io("libvirt", from_libvirt_->fd(), EPOLLIN, [this](std::uint32_t) {
        for (virt::Message& message : from_libvirt_->drain())
            service_->handle(std::move(message));
        loop::notify_status(service_->status_line());
    });
    if (!hangup)
        return std::unexpected(hangup.error());
    if (!policy_mail)
        return std::unexpected(policy_mail.error());
    if (!libvirt_mail)
        return std::unexpected(libvirt_mail.error());
    hangup_ = *std::move(hangup);
    policy_mail_ = *std::move(policy_mail);
    libvirt_mail_ = *std::move(libvirt_mail);
    return {};
}

Result<> Daemon::start_libvirt(const std::string& uri) {
    questions_.set(service_->guard().questions());
    auto session = virt::Session::start({
        .uri = uri,
        .parse =
            [this](std::string_view xml) { return domxml::parse_domain(xml, *questions_.get()); },
        .post = [mail = from_libvirt_.get()](
                    virt::Message message) { return mail->push(std::move(message)); },
        .now = loop::now,
    });
    if (!session)
        return std::unexpected(session.error());
    session_ = *std::move(session);
    service_->set_ask_for_look([this](const Uuid& uuid) { session_->request_look(uuid); });
    service_->set_on_questions([this] { ask_anew(); });
    return {};
}

/// What is known of guests answers the questions of the policy they were read under.
void Daemon::ask_anew() {
    if (*questions_.get() == service_->guard().questions())
        return;
    questions_.set(service_->guard().questions());
    session_->request_look();
}

void Daemon::reload(CurrentPolicy::Reloaded done) {
    loop::notify_reloading();
    service_->policy().reload(service_->guard().topology(), *policies_,
                              [this, done = std::move(done)](Result<> loaded) mutable {
                                  loop::notify_ready(service_->status_line());
                                  done(std::move(loaded));
                              });
}

Result<> Daemon::start_bus() {
    auto link = BusLink::create(
        loop_, bus::system_bus_address(), *service_,
        {.reload = [this](CurrentPolicy::Reloaded done) { reload(std::move(done)); },
         .resync = [this] { session_->request_look(); }});
    if (!link)
        return std::unexpected(link.error());
    bus_ = *std::move(link);
    return {};
}

/// Answers hooks before anything else: at boot they come before libvirt serves anybody.
Result<> Daemon::start(const Options& options) {
    if (auto watched = watch_signals_and_mail(); !watched)
        return watched;
    if (auto taken = take_folders(options); !taken)
        return taken;
    if (auto started = start_service(options); !started)
        return started;
    if (auto kept = keep_run_folder(); !kept)
        return kept;
    if (auto watchdog = loop_.enable_watchdog(); !watchdog)
        return std::unexpected(watchdog.error());
    if (auto started = start_libvirt(options.libvirt_uri); !started)
        return started;
    return start_bus();
}

Result<int> Daemon::run(const Options& options) {
    std::signal(SIGPIPE, SIG_IGN); // of a log whose reader has gone
    set_journal_socket(journal_socket_path);
    domxml::initialise();
    raise_descriptor_limit();
    auto loop = loop::Loop::create();
    if (!loop)
        return std::unexpected(loop.error());
    Daemon daemon(*std::move(loop));
    if (auto started = daemon.start(options); !started)
        return std::unexpected(started.error());
    log(Level::info, "virtguardd {} answers", VIRTGUARD_VERSION);
    loop::notify_ready(daemon.service_->status_line());
    const auto code = daemon.loop_.run();
    loop::notify_stopping();
    daemon.hooks_.reset();
    // What libvirt or storage holds up would hold up the next virtguardd too.
    const bool libvirt_ended = daemon.session_->stop(stop_patience);
    const bool storage_ended = daemon.service_->stop_storage(stop_patience);
    const bool files_ended = daemon.files_->stop(stop_patience) && storage_ended;
    if (!libvirt_ended)
        log(Level::info, "libvirt still holds its thread");
    if (!files_ended)
        log(Level::info, "storage still holds its thread");
    log(Level::info, "virtguardd ends");
    if (!libvirt_ended || !files_ended) {
        // Until the last thread has ended, which storage holds, the kernel closes nothing for us.
        daemon.bus_.reset();
        daemon.run_folder_.reset();
        std::quick_exit(code ? *code : EXIT_FAILURE);
    }
    return code;
}

int main(int argc, char** argv) {
    Options options;
    CLI::App app{"Decides which guests may start on this host; see virtguardd(8)", "virtguardd"};
    app.set_version_flag("--version", VIRTGUARD_VERSION);
    app.add_option("--policy-dir", options.policy_folder, "virtguard.toml and conf.d/")
        ->capture_default_str();
    app.add_option("--run-dir", options.run_folder, "hook.sock, where systemd passes no socket")
        ->capture_default_str();
    app.add_option("--state-dir", options.state_folder, "hook.conf and the last good policy")
        ->capture_default_str();
    app.add_option("--libvirt-uri", options.libvirt_uri, "whose guests to count")
        ->capture_default_str();
    app.add_option("--sysfs-root", options.root, "where sys/, proc/, run/libvirt/ and images are")
        ->capture_default_str();
    app.add_option("--topology", options.topology,
                   "an hwloc XML file or synthetic description in place of this machine");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) // --help and --version come this way, too
            return app.exit(error);
        log(Level::error, "virtguardd: {}; see virtguardd --help", error.what());
        return 2;
    }
    const auto code = Daemon::run(options);
    if (!code) {
        log(Level::error, "{}", code.error().what);
        return EXIT_FAILURE;
    }
    return *code;
}

} // namespace

} // namespace virtguard::daemon

int main(int argc, char** argv) {
    return virtguard::daemon::main(argc, argv);
}
