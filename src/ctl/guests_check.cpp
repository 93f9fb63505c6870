// SPDX-License-Identifier: Apache-2.0
#include "ctl/guests_check.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "ctl/ask.hpp"
#include "ctl/outcome_screen.hpp"
#include "ctl/show.hpp"
#include "domxml/parse.hpp"
#include "host/topology.hpp"
#include "image/read.hpp"
#include "policy/load.hpp"

namespace virtguard::ctl {

namespace {

/// Those that run first, as they have their places now; else by name.
Result<std::vector<virt::DomainXml>> find_guests(const std::string& uri) {
    auto running = ask_libvirt([uri] { return virt::live_domains(uri); });
    if (!running)
        return running;
    auto at_boot = ask_libvirt([uri] { return virt::autostart_domains(uri); });
    if (!at_boot)
        return at_boot;
    std::ranges::sort(*running, {}, &virt::DomainXml::name);
    std::ranges::sort(*at_boot, {}, &virt::DomainXml::name);
    std::ranges::move(*at_boot, std::back_inserter(*running));
    return running;
}

policy::Loaded load_policy(const std::string& folder, const core::Topology& topology) {
    auto loaded = policy::load_directory(folder, domxml::check_question);
    if (!loaded)
        return loaded;
    if (auto errors = core::conflicts(*loaded, topology); !errors.empty())
        return std::unexpected(std::move(errors));
    return loaded;
}

struct Storage {
    core::FileSystems file_systems;
    core::Images images;
};

/// What can be read of it.
Storage read_storage(const std::string& root, const std::vector<std::string>& paths,
                     const std::set<core::ImageName>& images) {
    Storage storage;
    for (int place = 0; const std::string& path : paths) {
        const auto found = image::read_file_system(root, path);
        if (found && !storage.file_systems.place_of(found->device))
            storage.file_systems.read[place] = *found;
        ++place;
    }
    for (const core::ImageName& name : images) {
        const auto image = image::read(root, name);
        core::KnownImage& known = storage.images[name];
        if (image)
            known.image = *image;
        else
            known.problem = image.error().what;
    }
    return storage;
}

/// False: storage does not answer. It is left out then, and said so.
bool tell_storage(core::Guard& guard, const std::vector<virt::DomainXml>& guests,
                  const std::string& root) {
    std::set<core::ImageName> images;
    for (const virt::DomainXml& guest : guests)
        if (const auto domain = domxml::parse_domain(guest.xml))
            for (const core::Disk& disk : domain->disks)
                images.insert(disk.image);
    auto storage = ask("storage",
                       [root, paths = guard.policy().storage.paths, images = std::move(images)]()
                           -> Result<Storage> { return read_storage(root, paths, images); });
    if (!storage) {
        show_error(storage.error().what + ": who would be refused for want of it is not known");
        return false;
    }
    guard.set_file_systems(std::move(storage->file_systems));
    guard.set_images(storage->images);
    return true;
}

void show(const std::vector<json::Event>& events, std::size_t refused) {
    for (const json::Event& event : events)
        if (!event.outcome->reasons.empty())
            print(event_text(event));
    if (refused > 0)
        print(fmt::format("{} of {} guests that run or start at boot would be refused\n", refused,
                          events.size()));
    else
        print(fmt::format("no guest that runs or starts at boot would be refused ({} looked at)\n",
                          events.size()));
}

} // namespace

std::vector<json::Event> start_all(core::Guard& guard,
                                   const std::vector<virt::DomainXml>& domains) {
    std::vector<json::Event> events;
    for (const virt::DomainXml& xml : domains) {
        const auto parsed = domxml::parse_domain(xml.xml, guard.questions());
        core::Domain domain;
        core::Answer answer;
        if (parsed)
            answer = guard.start_at_once(domain = *parsed);
        else {
            domain = domxml::parse_identity(xml.xml, guard.questions());
            domain.name = xml.name;
            answer = core::answer_invalid(domain, parsed.error(), guard.policy());
        }
        events.push_back(
            {.event = "start:" + xml.name,
             .outcome = core::make_outcome(domain, answer, guard.host(), guard.policy()),
             .decided = true});
    }
    return events;
}

int check_guests(const GuestsCheckOptions& options) {
    auto topology = host::live_topology(options.root); // before there are threads: it may fork
    if (!topology)
        return failure(topology.error());
    auto policy = load_policy(options.policy_folder, *topology);
    if (!policy) {
        for (const std::string& error : policy.error())
            show_error(error);
        return exit_bad_input;
    }
    const auto guests = find_guests(options.libvirt_uri);
    if (!guests)
        return failure(guests.error());
    core::Guard guard(*std::move(topology), *std::move(policy));
    const bool has_storage = tell_storage(guard, *guests, options.root);
    const std::vector<json::Event> events = start_all(guard, *guests);
    const auto refused = std::ranges::count_if(
        events, [](const json::Event& event) { return !event.outcome->admitted; });
    if (options.json)
        print(json::simulation_document(events, guard.report()) + "\n");
    else
        show(events, static_cast<std::size_t>(refused));
    return refused > 0 || !has_storage ? exit_refused : exit_ok;
}

} // namespace virtguard::ctl
