// SPDX-License-Identifier: Apache-2.0
// virtguardctl: the operator's tool. virtguardctl(1).

#include <algorithm>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/text.hpp"
#include "ctl/file.hpp"
#include "ctl/ledger_check.hpp"
#include "ctl/libvirt.hpp"
#include "ctl/show.hpp"
#include "ctl/simulate.hpp"
#include "domxml/parse.hpp"
#include "virt/domains.hpp"
#include "wire/client.hpp"
#include "wire/exchange.hpp"
#include "json/document.hpp"

namespace virtguard::ctl {

namespace {

struct Options {
    std::string socket = wire::hook_socket_path;
    std::string file;
    std::string domain;
    std::string libvirt_uri = "qemu:///system";
    bool json = false;
    SimulateOptions simulate;
    LedgerCheckOptions ledger_check;
};

/// Asks the daemon; when that fails the exit status says whose fault it was.
int ask(const Options& options, wire::Operation operation, const std::string& body,
        int (*show)(const Options& options, const std::string& document)) {
    const auto reply = wire::exchange(options.socket, operation, body, patience);
    if (!reply && reply.error().code == Errc::limit)
        return input_error(reply.error());
    if (!reply) {
        show_error(fmt::format("virtguardd: {}", reply.error().what));
        return exit_unreachable;
    }
    if (reply->verdict != wire::Verdict::done) {
        show_error(reply->body);
        return exit_bad_input;
    }
    return show(options, reply->body);
}

int show_status(const Options& options, const std::string& document) {
    if (options.json) {
        print(document + "\n");
        return exit_ok;
    }
    const auto status = json::parse_status(document);
    if (!status)
        return input_error(status.error());
    print(status_text(*status));
    return exit_ok;
}

int show_check(const Options& options, const std::string& document) {
    const auto outcome = json::parse_outcome(document);
    if (!outcome)
        return input_error(outcome.error());
    print(options.json ? document + "\n" : outcome_text(*outcome));
    return outcome->admitted ? exit_ok : exit_refused;
}

int check(const Options& options) {
    const auto text = read_input(options.file, domxml::max_document_bytes);
    if (!text)
        return input_error(text.error());
    return ask(options, wire::Operation::check, *text, show_check);
}

int explain(const Options& options) {
    const auto domain =
        ask_libvirt([&] { return virt::find_domain(options.libvirt_uri, options.domain); });
    if (domain)
        return ask(options, wire::Operation::check, domain->xml, show_check);
    show_error(domain.error().what);
    return domain.error().code == Errc::unavailable ? exit_unreachable : exit_bad_input;
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

int run(std::vector<std::string> arguments) {
    Options options;
    CLI::App app{"Looks at virtguardd and decides starts on files; see virtguardctl(1)",
                 "virtguardctl"};
    app.set_version_flag("--version", VIRTGUARD_VERSION);
    app.require_subcommand(1);
    app.add_option("--socket", options.socket, "virtguardd's socket")->capture_default_str();

    CLI::App* status = app.add_subcommand("status", "what the host has, and who holds it");
    status->add_flag("--json", options.json, "print the daemon's document");

    CLI::App* check_file = app.add_subcommand("check", "what would a start be answered now?");
    check_file->add_option("FILE", options.file, "domain XML; - reads standard input")->required();
    check_file->add_flag("--json", options.json, "print the daemon's document");

    CLI::App* explained = app.add_subcommand(
        "explain", "what would a start of a domain that libvirt knows be answered?");
    explained->add_option("DOMAIN", options.domain, "its name or UUID")->required();
    explained->add_option("--libvirt-uri", options.libvirt_uri, "the libvirt that knows it")
        ->capture_default_str();
    explained->add_flag("--json", options.json, "print the daemon's document");

    LedgerCheckOptions& ledger = options.ledger_check;
    bool wants_ledger = false;
    CLI::App* doctor = app.add_subcommand("doctor", "is what virtguardd counts what there is?");
    doctor->add_flag("--ledger", wants_ledger, "compare virtguardd, libvirt and the kernel")
        ->required();
    doctor->add_option("--libvirt-uri", ledger.libvirt_uri, "whose guests are counted")
        ->capture_default_str();
    doctor->add_flag("--json", ledger.json, "print one JSON document");

    SimulateOptions& simulation = options.simulate;
    CLI::App* simulated =
        app.add_subcommand("simulate", "decide starts on files; needs no daemon, no libvirt");
    simulated
        ->add_option("--topology", simulation.topology,
                     "an hwloc XML file, or an hwloc synthetic description")
        ->required();
    simulated->add_option("--pages", simulation.pages, "NODE:SIZE=COUNT ...: pools of hugepages")
        ->allow_extra_args(false);
    simulated->add_option("--policy", simulation.policy, "a policy file; the defaults without it");
    simulated->add_flag("--json", simulation.json, "print one JSON document");
    simulated->add_option("EVENT", simulation.events,
                          "start:FILE, running:FILE, stop:NAME, ratio:RESOURCE=VALUE, "
                          "reserve:NAME:RESOURCE[@NODE]=VALUE[,...][:NAME]");
    const std::vector<std::string> behind_mark = take_protected(arguments);
    std::ranges::reverse(arguments); // as parse() wants them
    try {
        app.parse(arguments);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) // --help and --version come this way, too
            return app.exit(error);
        show_error(fmt::format("{}; see virtguardctl --help", error.what()));
        return exit_bad_input;
    }
    simulation.events.insert(simulation.events.end(), behind_mark.begin(), behind_mark.end());
    domxml::initialise();
    if (status->parsed())
        return ask(options, wire::Operation::status, {}, show_status);
    if (check_file->parsed())
        return check(options);
    if (explained->parsed())
        return explain(options);
    if (doctor->parsed()) {
        ledger.socket = options.socket;
        return check_ledger(ledger);
    }
    return simulate(simulation);
}

} // namespace

} // namespace virtguard::ctl

int main(int argc, char** argv) {
    const int status = virtguard::ctl::run({argv + std::min(argc, 1), argv + argc});
    return virtguard::ctl::flush() ? status : virtguard::ctl::exit_bad_input;
}
