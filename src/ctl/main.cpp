// SPDX-License-Identifier: Apache-2.0
// virtguardctl: the operator's tool. virtguardctl(1).
//
// Each command is a function that adds its options to the command line and says what to run.

#include <algorithm>
#include <array>
#include <climits>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <unistd.h>

#include <CLI/CLI.hpp>

#include "base/text.hpp"
#include "ctl/ask.hpp"
#include "ctl/doctor.hpp"
#include "ctl/file.hpp"
#include "ctl/guests_check.hpp"
#include "ctl/ledger_check.hpp"
#include "ctl/mode.hpp"
#include "ctl/outcome_screen.hpp"
#include "ctl/overcommit.hpp"
#include "ctl/policy_commands.hpp"
#include "ctl/recent.hpp"
#include "ctl/reservation.hpp"
#include "ctl/show.hpp"
#include "ctl/simulate.hpp"
#include "ctl/status_screen.hpp"
#include "ctl/watch.hpp"
#include "domxml/parse.hpp"
#include "virt/domains.hpp"
#include "json/document.hpp"
#include "json/export.hpp"

namespace virtguard::ctl {

namespace {

struct Options {
    std::string socket = wire::hook_socket_path;
    std::string file;
    std::string domain;
    std::string name;
    json::ExportFormat format = json::ExportFormat::machinepool;
    std::string libvirt_uri = "qemu:///system";
    ColourWish colour = ColourWish::automatic;
    bool json = false;
    SimulateOptions simulate;
    bool wants_ledger = false;
    bool wants_guests = false;
    DoctorOptions doctor;
    PolicyOptions policy;
    OvercommitOptions overcommit;
    ModeOptions mode;
    WatchOptions watch;
    ReservationOptions reservation;
};

struct Command {
    CLI::App* app;
    std::function<int()> run; ///< the exit status
};

/// "check, show or diff"
std::string any_of_text(const std::vector<std::string>& words) {
    std::string text;
    for (std::size_t i = 0; i < words.size(); ++i)
        text += (i == 0 ? "" : i + 1 < words.size() ? ", " : " or ") + words[i];
    return text;
}

/// An option whose value is one of some words.
template <class T>
CLI::Option* add_choice(CLI::App& app, const std::string& name, T& target,
                        std::map<std::string, T> words, const std::string& description) {
    const auto set = [name, &target, words = std::move(words)](const std::string& text) {
        const auto word = words.find(text);
        std::vector<std::string> names(words.size());
        std::ranges::transform(words, names.begin(), [](const auto& each) { return each.first; });
        if (word == words.end())
            throw CLI::ValidationError(
                name, fmt::format("{}: expected {}", quote(text), any_of_text(names)));
        target = word->second;
    };
    return app.add_option_function<std::string>(name, set, description);
}

/// How the status is shown: for people, and as a document.
struct View {
    std::string (*text)(const core::Status& status, const Screen& screen);
    std::string (*document)(const core::Status& status);
};

int show_status(const Options& options, const View& view) {
    const auto status = ask_status(options.socket);
    if (!status)
        return failure(status.error());
    if (!options.json)
        print(view.text(status->content, standard_output(options.colour)));
    else // all of it is the daemon's own document, which may be newer than we are
        print((view.document == nullptr ? status->document : view.document(status->content)) +
              "\n");
    return exit_ok;
}

Command add_view(CLI::App& app, Options& options, const std::string& name,
                 const std::string& description, View view) {
    CLI::App* command = app.add_subcommand(name, description);
    command->add_flag("--json", options.json, "print one JSON document");
    return {command, [&options, view] { return show_status(options, view); }};
}

int export_status(const Options& options) {
    const auto status = ask_status(options.socket);
    if (!status)
        return failure(status.error());
    std::string name = options.name;
    if (name.empty()) {
        std::array<char, HOST_NAME_MAX + 1> host{};
        if (::gethostname(host.data(), host.size() - 1) == 0)
            name = host.data();
    }
    print(json::export_document(options.format, status->content.report, name) + "\n");
    return exit_ok;
}

Command add_export(CLI::App& app, Options& options) {
    CLI::App* command =
        app.add_subcommand("export", "the status as a scheduler reads it: JSON, which is YAML");
    add_choice<json::ExportFormat>(*command, "--format", options.format,
                                   {{"machinepool", json::ExportFormat::machinepool},
                                    {"hypervisor", json::ExportFormat::hypervisor},
                                    {"placement", json::ExportFormat::placement}},
                                   "machinepool, hypervisor or placement")
        ->option_text("FORMAT")
        ->required();
    command->add_option("--name", options.name, "the object's name; the host's without it");
    return {command, [&options] { return export_status(options); }};
}

Command add_recent(CLI::App& app, Options& options) {
    CLI::App* command = app.add_subcommand("recent", "what were the last starts answered?");
    command->add_flag("--json", options.json, "print the daemon's document");
    return {command, [&options] {
                return recent(options.socket, options.json, standard_output(options.colour));
            }};
}

Command add_watch(CLI::App& app, WatchOptions& watch, const Options& options) {
    CLI::App* command = app.add_subcommand("watch", "what happens, from now on: a line each");
    command->add_flag("--json", watch.json, "print a JSON object a line");
    command->add_flag("--no-wait", watch.no_wait, "end where virtguardd is not on the bus");
    return {command, [&watch, &options] {
                watch.colour = options.colour;
                return ctl::watch(watch);
            }};
}

int metrics(const Options& options) {
    const auto text = ask_daemon(options.socket, wire::Operation::metrics);
    if (!text)
        return failure(text.error());
    print(*text);
    return exit_ok;
}

Command add_metrics(CLI::App& app, Options& options) {
    CLI::App* command = app.add_subcommand("metrics", "print the figures for Prometheus");
    return {command, [&options] { return metrics(options); }};
}

int check_xml(const Options& options, const std::string& xml) {
    const auto outcome = ask_check(options.socket, xml);
    if (!outcome)
        return failure(outcome.error());
    print(options.json ? outcome->document + "\n"
                       : outcome_text(outcome->content, standard_output(options.colour)));
    return outcome->content.admitted ? exit_ok : exit_refused;
}

int check(const Options& options) {
    const auto text = read_input(options.file, domxml::max_document_bytes);
    return text ? check_xml(options, *text) : failure(text.error());
}

Command add_check(CLI::App& app, Options& options) {
    CLI::App* command = app.add_subcommand("check", "what would a start be answered now?");
    command->add_option("FILE", options.file, "domain XML; - reads standard input")->required();
    command->add_flag("--json", options.json, "print the daemon's document");
    return {command, [&options] { return check(options); }};
}

int explain(const Options& options) {
    const auto domain =
        ask_libvirt([&] { return virt::find_domain(options.libvirt_uri, options.domain); });
    return domain ? check_xml(options, domain->xml) : failure(domain.error());
}

Command add_explain(CLI::App& app, Options& options) {
    CLI::App* command = app.add_subcommand(
        "explain", "what would a start of a domain that libvirt knows be answered?");
    command->add_option("DOMAIN", options.domain, "its name or UUID")->required();
    command->add_option("--libvirt-uri", options.libvirt_uri, "the libvirt that knows it")
        ->capture_default_str();
    command->add_flag("--json", options.json, "print the daemon's document");
    return {command, [&options] { return explain(options); }};
}

int examine(Options& options) {
    DoctorOptions& doctor_options = options.doctor;
    doctor_options.socket = options.socket;
    doctor_options.json = options.json;
    doctor_options.colour = options.colour;
    if (options.wants_guests)
        return check_guests({.libvirt_uri = doctor_options.libvirt_uri,
                             .policy_folder = doctor_options.policy_folder,
                             .root = doctor_options.root,
                             .json = options.json});
    if (!options.wants_ledger)
        return doctor(doctor_options);
    return check_ledger({.socket = options.socket,
                         .libvirt_uri = doctor_options.libvirt_uri,
                         .root = doctor_options.root,
                         .json = options.json});
}

/// policy has commands of its own below it.
Command add_policy(CLI::App& app, PolicyOptions& policy, const Options& options) {
    CLI::App* command = app.add_subcommand("policy", "the policy files, and what is in force");
    command->require_subcommand(1);
    const auto add = [&](const char* name, const char* description, bool reads_files) {
        CLI::App* below = command->add_subcommand(name, description);
        if (reads_files)
            below->add_option("PATH", policy.path, "a folder of policies, or a file")
                ->capture_default_str();
        below->add_flag("--json", policy.json, "print one JSON document");
        return below;
    };
    CLI::App* check_files = add("check", "are the files well written, and possible here?", true);
    CLI::App* show = add("show", "what is in force, and what set it", false);
    add("diff", "what a reload of the files would change", true);
    return {command, [&policy, &options, check_files, show] {
                policy.socket = options.socket;
                policy.colour = options.colour;
                return check_files->parsed() ? check_policy_files(policy)
                       : show->parsed()      ? show_policy(policy)
                                             : compare_policies(policy);
            }};
}

/// Of a command that changes something: who gets no document should not think that there was one.
int refuse_json() {
    show_error("--json is for what is shown; nothing was changed");
    return exit_bad_input;
}

Command add_overcommit(CLI::App& app, OvercommitOptions& overcommit, const Options& options) {
    CLI::App* command =
        app.add_subcommand("overcommit", "the overcommit ratios, and setting them at run time");
    command->require_subcommand(0, 1);
    CLI::App* get = command->add_subcommand("get", "the ratios, and who set them");
    for (CLI::App* each : {command, get})
        each->add_flag("--json", overcommit.json, "print one JSON document");
    CLI::App* set = command->add_subcommand("set", "from now on, whatever the files say");
    set->add_option("RESOURCE", overcommit.resource,
                    "cpu, memory, ephemeral-storage, or one that the policy declares")
        ->required();
    set->add_option("RATIO", overcommit.ratio, "above 0, at most 1000: 1.5")->required();
    CLI::App* reset = command->add_subcommand("reset", "as the files say");
    reset->add_option("RESOURCE", overcommit.resource, "all without it");
    return {command, [&overcommit, &options, set, reset] {
                overcommit.socket = options.socket;
                overcommit.colour = options.colour;
                if (overcommit.json && (set->parsed() || reset->parsed()))
                    return refuse_json();
                return set->parsed()     ? set_overcommit(overcommit)
                       : reset->parsed() ? reset_overcommit(overcommit)
                                         : show_overcommit(overcommit);
            }};
}

Command add_mode(CLI::App& app, ModeOptions& mode, const Options& options) {
    CLI::App* command = app.add_subcommand("mode", "the host's mode, and setting it at run time");
    CLI::Option* word = command->add_option(
        "MODE", mode.mode, "enforce, observe, off, maintenance, or reset: as the files say");
    command
        ->add_option("--message", mode.message, "of maintenance: what is told who starts a guest")
        ->needs(word);
    command->add_flag("--json", mode.json, "print one JSON document");
    return {command, [&mode, &options] {
                mode.socket = options.socket;
                mode.colour = options.colour;
                return mode.json && !mode.mode.empty() ? refuse_json() : ctl::mode(mode);
            }};
}

/// Its commands that change something.
struct ReservationCommands {
    CLI::App* add;
    CLI::App* renew;
    CLI::App* cancel;
};

ReservationCommands add_reservation_commands(CLI::App& command, ReservationOptions& reservation) {
    const auto below = [&](const char* name, const char* description) {
        CLI::App* each = command.add_subcommand(name, description);
        each->add_option("OWNER", reservation.owner, "the scheduler whose guests draw on it")
            ->required();
        each->add_option("NAME", reservation.name, "what it calls it")->required();
        return each;
    };
    CLI::App* add = below("add", "take space, in place of what has that name");
    add->add_option("AMOUNT", reservation.amounts, "RESOURCE[@NODE]=VALUE, such as memory=4Gi");
    add->add_option("--xml", reservation.xml_file, "as much as this domain would hold");
    add->add_option("--uuid", reservation.uuids, "only for this guest; may be given again")
        ->allow_extra_args(false);
    add->add_option("--match", reservation.match,
                    "only for guests whose XML this XPath is true of");
    add->add_flag("--force", reservation.force, "also where it does not fit");
    CLI::App* renew = below("renew", "have it end at another time");
    for (CLI::App* each : {add, renew})
        each->add_option("--expires", reservation.lifetime,
                         "so long from now (15min without it), or never");
    return {add, renew, below("cancel", "end it")};
}

Command add_reservation(CLI::App& app, ReservationOptions& reservation, const Options& options) {
    CLI::App* command = app.add_subcommand("reservation", "space for guests to come");
    command->require_subcommand(0, 1);
    const ReservationCommands below = add_reservation_commands(*command, reservation);
    CLI::App* list = command->add_subcommand("list", "what is reserved, and what of it is left");
    for (CLI::App* each : {command, list})
        each->add_flag("--json", reservation.json, "print one JSON document");
    return {command, [&reservation, &options, below] {
                reservation.socket = options.socket;
                reservation.colour = options.colour;
                if (reservation.json &&
                    (below.add->parsed() || below.renew->parsed() || below.cancel->parsed()))
                    return refuse_json();
                return below.add->parsed()      ? ctl::add_reservation(reservation)
                       : below.renew->parsed()  ? renew_reservation(reservation)
                       : below.cancel->parsed() ? cancel_reservation(reservation)
                                                : list_reservations(reservation);
            }};
}

Command add_doctor(CLI::App& app, Options& options) {
    CLI::App* command =
        app.add_subcommand("doctor", "is all in place, and what is to be done where not?");
    command->add_flag("--ledger", options.wants_ledger,
                      "compare what virtguardd, libvirt and the kernel count");
    command
        ->add_flag("--guests", options.wants_guests,
                   "would all that run or start at boot be admitted, on a host without any?")
        ->excludes("--ledger");
    command->add_option("--libvirt-uri", options.doctor.libvirt_uri, "whose guests are counted")
        ->capture_default_str();
    command->add_option("--policy-dir", options.doctor.policy_folder, "virtguard.toml and conf.d/")
        ->capture_default_str();
    command->add_option("--root", options.doctor.root, "where etc/, proc/ and sys/ are")
        ->capture_default_str();
    command->add_flag("--json", options.json, "print one JSON document");
    return {command, [&options] { return examine(options); }};
}

Command add_simulate(CLI::App& app, SimulateOptions& options) {
    CLI::App* command =
        app.add_subcommand("simulate", "decide starts on files; needs no daemon, no libvirt");
    command
        ->add_option("--topology", options.topology,
                     "an hwloc XML file, or an hwloc synthetic description")
        ->required();
    command->add_option("--pages", options.pages, "NODE:SIZE=COUNT ...: pools of hugepages")
        ->allow_extra_args(false);
    command->add_option("--policy", options.policy, "a policy file; the defaults without it");
    command->add_flag("--json", options.json, "print one JSON document");
    command->add_option("EVENT", options.events,
                        "start:FILE, running:FILE, stop:NAME, ratio:RESOURCE=VALUE, "
                        "reserve:NAME:RESOURCE[@NODE]=VALUE[,...][:NAME]");
    return {command, [&options] { return simulate(options); }};
}

/// Takes the events behind "--" from the arguments: CLI11 would let it protect them only where no
/// event stands before it.
std::vector<std::string> take_protected(std::vector<std::string>& arguments) {
    const auto command = std::ranges::find(arguments, "simulate");
    const auto mark = std::find(command, arguments.end(), "--");
    if (mark == arguments.end())
        return {};
    std::vector<std::string> taken(mark + 1, arguments.end());
    arguments.erase(mark, arguments.end());
    return taken;
}

/// "--match=" as CLI11 has to see it: it would take the next word for the value.
std::vector<std::string> with_empty_values(const std::vector<std::string>& arguments) {
    std::vector<std::string> words;
    for (const std::string& argument : arguments) {
        const bool is_empty = argument.starts_with("--") && argument.ends_with('=') &&
                              argument.find('=') + 1 == argument.size();
        words.push_back(is_empty ? argument.substr(0, argument.size() - 1) : argument);
        if (is_empty)
            words.emplace_back();
    }
    return words;
}

std::string refuse_empty(const std::string& value) {
    return value.empty() ? "empty: expected a value" : "";
}

/// An empty word, as of a variable that is not set, would do what is done without it: show in place
/// of set, reserve for all in place of some. A message may be empty.
void refuse_empty_values(CLI::App& app) {
    for (CLI::Option* option : app.get_options())
        if (option->get_items_expected_max() > 0 && option->get_name() != "--message")
            option->check(refuse_empty);
    for (CLI::App* below : app.get_subcommands([](CLI::App*) { return true; }))
        refuse_empty_values(*below);
}

std::vector<std::string> names_of(const std::vector<const CLI::App*>& commands) {
    std::vector<std::string> names(commands.size());
    std::ranges::transform(commands, names.begin(), &CLI::App::get_name);
    return names;
}

std::vector<const CLI::App*> commands_below(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App*) { return true; });
}

/// The nearest of many commands, or each of the few that another has below it.
std::string not_a_command(const std::string& word, const CLI::App& above) {
    const std::vector<std::string> names = names_of(commands_below(above));
    if (above.get_parent() != nullptr)
        return fmt::format("{} is not a command of {}: expected {}", quote(word), above.get_name(),
                           any_of_text(names));
    const auto distance = [&](const std::string& name) { return edit_distance(word, name); };
    return fmt::format("{} is not a command; did you mean \"{}\"?", quote(word),
                       *std::ranges::min_element(names, {}, distance));
}

/// "virtguardctl policy", whose help is of use to who wrote that.
std::string command_line_of(const CLI::App& app) {
    return app.get_parent() == nullptr
               ? app.get_name()
               : fmt::format("{} {}", command_line_of(*app.get_parent()), app.get_name());
}

/// Who wrote the arguments meant one of these: the last command that they name. What stands where a
/// command should and is none is told.
struct Meant {
    const CLI::App* command;
    std::string problem{};
};

Meant meant(const std::vector<std::string>& arguments, const CLI::App& app) {
    const CLI::App* command = &app;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& word = arguments[i];
        const bool is_value =
            i > 0 && (arguments[i - 1] == "--socket" || arguments[i - 1] == "--color");
        const auto below = commands_below(*command);
        if (below.empty())
            break;
        if (word.starts_with('-') || is_value)
            continue;
        const auto named =
            std::ranges::find(below, word, [](const CLI::App* each) { return each->get_name(); });
        if (named == below.end())
            return {command, not_a_command(word, *command)};
        command = *named;
    }
    return {command};
}

int usage_error(std::string_view problem, const CLI::App& command) {
    show_error(fmt::format("{}; see {} --help", problem, command_line_of(command)));
    return exit_bad_input;
}

int run(std::vector<std::string> arguments) {
    Options options;
    CLI::App app{"Looks at virtguardd and decides starts on files; see virtguardctl(1)",
                 "virtguardctl"};
    app.set_version_flag("--version", VIRTGUARD_VERSION);
    app.require_subcommand(1);
    app.fallthrough();
    add_choice<ColourWish>(app, "--color", options.colour,
                           {{"auto", ColourWish::automatic},
                            {"always", ColourWish::always},
                            {"never", ColourWish::never}},
                           "auto, always or never: colours")
        ->option_text("WHEN");
    app.add_option("--socket", options.socket, "virtguardd's socket")->capture_default_str();
    const std::array commands{
        add_view(app, options, "status", "what the host has, and who holds it",
                 {status_text, nullptr}),
        add_view(app, options, "nodes", "what each NUMA node has",
                 {nodes_text, json::nodes_document}),
        add_view(app, options, "domains", "the guests, and what each of them holds",
                 {domains_text, json::domains_document}),
        add_export(app, options),
        add_recent(app, options),
        add_watch(app, options.watch, options),
        add_metrics(app, options),
        add_check(app, options),
        add_explain(app, options),
        add_policy(app, options.policy, options),
        add_overcommit(app, options.overcommit, options),
        add_mode(app, options.mode, options),
        add_reservation(app, options.reservation, options),
        add_doctor(app, options),
        add_simulate(app, options.simulate),
    };
    refuse_empty_values(app);
    const std::vector<std::string> behind_mark = take_protected(arguments);
    arguments = with_empty_values(arguments);
    const auto [command, problem] = meant(arguments, app);
    if (!problem.empty())
        return usage_error(problem, *command);
    std::ranges::reverse(arguments); // as parse() wants them
    try {
        app.parse(arguments);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) // --help and --version come this way, too
            return app.exit(error);
        const auto below = commands_below(*command);
        return usage_error(below.empty() || error.get_name() != "RequiredError"
                               ? error.what()
                               : "expected " + any_of_text(names_of(below)),
                           *command);
    }
    auto& events = options.simulate.events;
    events.insert(events.end(), behind_mark.begin(), behind_mark.end());
    domxml::initialise();
    return std::ranges::find_if(commands, [](const Command& each) { return each.app->parsed(); })
        ->run();
}

} // namespace

} // namespace virtguard::ctl

int main(int argc, char** argv) {
    const int status = virtguard::ctl::run({argv + std::min(argc, 1), argv + argc});
    return virtguard::ctl::flush() ? status : virtguard::ctl::exit_bad_input;
}
