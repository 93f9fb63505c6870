// SPDX-License-Identifier: Apache-2.0
#include "json/guest.hpp"

#include <array>
#include <utility>
#include <variant>

#include "json/values.hpp"

namespace virtguard::json {

namespace {

using core::Domain;
using core::MemoryPart;
using Kind = MemoryPart::Kind;

constexpr std::array<std::pair<Kind, std::string_view>, 3> kinds{
    {{Kind::ram, "ram"}, {Kind::dimm, "dimm"}, {Kind::virtio_mem, "virtio-mem"}}};

/// The facts of a domain that are one bool or one number each.
constexpr std::array<std::pair<const char*, bool Domain::*>, 5> flags{
    {{"locked", &Domain::locked},
     {"preallocated", &Domain::preallocated},
     {"confidential", &Domain::confidential},
     {"file_backed", &Domain::file_backed},
     {"tpm", &Domain::tpm}}};
constexpr std::array<std::pair<const char*, std::int64_t Domain::*>, 4> numbers{
    {{"current_memory", &Domain::current_memory},
     {"vfio_devices", &Domain::vfio_devices},
     {"iothreads", &Domain::iothreads},
     {"video_ram", &Domain::video_ram}}};

Json set_json(const std::optional<IdSet>& set) {
    return set ? Json(set->text()) : Json(nullptr);
}

std::optional<IdSet> read_set(const Json& json) {
    if (json.is_null())
        return std::nullopt;
    return require(IdSet::parse(json.get<std::string>()));
}

/// Bytes; "default" is the kernel's default hugepage, null base pages.
Json pages_json(const core::PageKind& pages) {
    if (const auto* sized = std::get_if<core::PagesOf>(&pages))
        return sized->size;
    return std::holds_alternative<core::DefaultHugepages>(pages) ? Json("default") : Json(nullptr);
}

core::PageKind read_pages(const Json& json) {
    if (json.is_null())
        return core::BasePages{};
    if (json == "default")
        return core::DefaultHugepages{};
    return core::PagesOf{read_amount(json)};
}

std::string_view kind_name(Kind kind) {
    for (const auto& [known, name] : kinds)
        if (known == kind)
            return name;
    std::unreachable();
}

Kind read_kind(const Json& json) {
    for (const auto& [kind, name] : kinds)
        if (json == name)
            return kind;
    reject("a kind of memory is unknown");
}

Json part_json(const MemoryPart& part) {
    return {{"kind", kind_name(part.kind)},
            {"size", part.size},
            {"requested", part.requested},
            {"pages", pages_json(part.pages)},
            {"bound_to", set_json(part.bound_to)}};
}

MemoryPart read_part(const Json& json) {
    return {.kind = read_kind(json.at("kind")),
            .size = read_amount(json.at("size")),
            .requested = read_amount(json.at("requested")),
            .pages = read_pages(json.at("pages")),
            .bound_to = read_set(json.at("bound_to"))};
}

Json pieces_json(const std::vector<core::Piece>& pieces) {
    Json json = Json::array();
    for (const core::Piece& piece : pieces)
        json.push_back({{"resource", piece.resource.name()},
                        {"places", piece.places.text()},
                        {"whole", piece.whole},
                        {"amount", piece.amount}});
    return json;
}

std::vector<core::Piece> read_pieces(const Json& json) {
    std::vector<core::Piece> pieces;
    for (const Json& piece : require_array(json))
        pieces.push_back({.resource = read_resource(piece.at("resource").get<std::string>()),
                          .places = require(IdSet::parse(piece.at("places").get<std::string>())),
                          .whole = piece.at("whole").get<bool>(),
                          .amount = read_amount(piece.at("amount"))});
    core::merge_pieces(pieces);
    return pieces;
}

core::Disk read_disk(const Json& json) {
    return {.image = {.path = json.at("path").get<std::string>(),
                      .format = json.at("format").get<std::string>()},
            .begins_anew = json.at("begins_anew").get<bool>()};
}

core::Facts read_facts(const Json& json) {
    core::Facts facts;
    for (const auto& [key, fact] : require_object(json).items()) {
        if (!fact.is_object())
            continue; // of a daemon that did not write what it had asked
        core::Fact& told = facts[key];
        told.question = static_cast<std::uint64_t>(read_amount(fact.at("question")));
        if (fact.contains("problem"))
            told.problem = fact.at("problem").get<std::string>();
        else
            told.value = read_amount(fact.at("value"));
    }
    return facts;
}

} // namespace

Json domain_json(const Domain& domain) {
    Json json{{"name", domain.name},           {"uuid", uuid_json(domain.uuid)},
              {"scheduler", domain.scheduler}, {"unknown_metadata", domain.unknown_metadata},
              {"vcpus", Json::array()},        {"memory", Json::array()}};
    for (const core::VcpuGroup& group : domain.vcpus)
        json["vcpus"].push_back({{"cpus", set_json(group.cpus)},
                                 {"current", group.current},
                                 {"maximum", group.maximum}});
    for (const MemoryPart& part : domain.memory)
        json["memory"].push_back(part_json(part));
    json["disks"] = Json::array();
    for (const core::Disk& disk : domain.disks)
        json["disks"].push_back({{"path", disk.image.path},
                                 {"format", disk.image.format},
                                 {"begins_anew", disk.begins_anew}});
    for (const auto& [name, member] : numbers)
        json[name] = domain.*member;
    for (const auto& [name, member] : flags)
        json[name] = domain.*member;
    json["facts"] = Json::object();
    for (const auto& [key, fact] : domain.facts)
        json["facts"][key] = {{fact.problem.empty() ? "value" : "problem",
                               fact.problem.empty() ? Json(fact.value) : Json(fact.problem)},
                              {"question", fact.question}};
    return json;
}

Domain read_domain(const Json& json) {
    Domain domain;
    domain.name = json.at("name").get<std::string>();
    domain.uuid = read_uuid(json.at("uuid"));
    domain.scheduler = json.at("scheduler").get<std::string>();
    domain.unknown_metadata = json.at("unknown_metadata").get<std::string>();
    for (const Json& group : require_array(json.at("vcpus")))
        domain.vcpus.push_back({.cpus = read_set(group.at("cpus")),
                                .current = read_amount(group.at("current")),
                                .maximum = read_amount(group.at("maximum"))});
    for (const Json& part : require_array(json.at("memory")))
        domain.memory.push_back(read_part(part));
    for (const auto& [name, member] : numbers)
        domain.*member = read_amount(json.at(name));
    for (const auto& [name, member] : flags)
        domain.*member = json.at(name).get<bool>();
    // Daemons before this one did not write these.
    if (json.contains("facts"))
        domain.facts = read_facts(json.at("facts"));
    if (json.contains("disks"))
        for (const Json& disk : require_array(json.at("disks")))
            domain.disks.push_back(read_disk(disk));
    return domain;
}

namespace {

Json images_json(const Domain& domain, const core::Images& images) {
    Json json = Json::array();
    for (const core::Disk& disk : domain.disks)
        if (const auto known = images.find(disk.image);
            known != images.end() && known->second.image)
            json.push_back({{"path", disk.image.path},
                            {"format", disk.image.format},
                            {"device", known->second.image->device},
                            {"virtual_size", known->second.image->virtual_size},
                            {"allocated", known->second.image->allocated}});
    return json;
}

core::Images read_images(const Json& json) {
    core::Images images;
    for (const Json& image : require_array(json))
        images[{image.at("path").get<std::string>(), image.at("format").get<std::string>()}].image =
            core::Image{.device = image.at("device").get<std::uint64_t>(),
                        .virtual_size = read_amount(image.at("virtual_size")),
                        .allocated = read_amount(image.at("allocated"))};
    return images;
}

} // namespace

std::string guest_document(const core::Guest& guest, const core::Images& images) {
    const Json json{{"domain", domain_json(guest.domain)},
                    {"images", images_json(guest.domain, images)},
                    {"state", core::state_name(guest.state)},
                    {"changed", guest.changed.time_since_epoch().count()},
                    {"since", guest.since.time_since_epoch().count()},
                    {"claimed", guest.claimed.time_since_epoch().count()},
                    {"absent", guest.absent.count()},
                    {"spent", pieces_json(guest.spent)},
                    {"written", pieces_json(guest.written)}};
    return json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Result<KeptGuest> parse_guest(std::string_view document) {
    return parse<KeptGuest>("guest", document, [](const Json& json) {
        const Instant changed{Span{read_amount(json.at("changed"))}};
        // Daemons before this one did not write it.
        const Instant since =
            json.contains("since") ? Instant{Span{read_amount(json.at("since"))}} : changed;
        KeptGuest guest{{.domain = read_domain(json.at("domain")),
                         .state = read_state(json.at("state")),
                         .changed = changed,
                         .since = since,
                         .claimed = json.contains("claimed")
                                        ? Instant{Span{read_amount(json.at("claimed"))}}
                                        : since,
                         .absent = Span{read_amount(json.at("absent"))},
                         .spent = read_pieces(json.value("spent", Json::array())),
                         .written = read_pieces(json.value("written", Json::array()))},
                        {}};
        if (json.contains("images"))
            guest.images = read_images(json.at("images"));
        return guest;
    });
}

} // namespace virtguard::json
