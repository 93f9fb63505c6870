// SPDX-License-Identifier: Apache-2.0
#include "core/reservation.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "core/wording.hpp"

namespace virtguard::core {

namespace {

bool is_plain(char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || std::string_view("-_.:+").contains(letter);
}

/// Why a part has no places.
Reason lacking(const ReservedPart& part, std::int64_t amount, const Host& host) {
    if (part.node && !host.nodes.contains(*part.node))
        return no_such_node(part.resource, IdSet{*part.node}, amount);
    if (part.resource.kind == Resource::Kind::hugepages && host.pool(part.resource) == nullptr)
        return no_such_page_size(part.resource.page_size, amount);
    return none_there(host, part.resource, part.node, amount);
}

} // namespace

Result<> check(const ReservationId& id) {
    if (id.owner.empty() || id.owner.size() > max_scheduler_bytes || has_control(id.owner))
        return fail(Errc::invalid,
                    "owner: {}: expected the name of a scheduler, of 1 to {} bytes without control "
                    "characters",
                    quote(id.owner), max_scheduler_bytes);
    if (id.name.empty() || id.name.size() > max_reservation_name ||
        !std::ranges::all_of(id.name, is_plain))
        return fail(Errc::invalid,
                    "name: {}: expected 1 to {} letters, digits and characters of \"-_.:+\"",
                    quote(id.name), max_reservation_name);
    return {};
}

Result<ReservedPart> ReservedPart::parse(std::string_view text) {
    const std::size_t at = text.find('@');
    const auto resource = Resource::parse(text.substr(0, at));
    if (!resource)
        return std::unexpected(resource.error());
    ReservedPart part{.resource = *resource, .node = std::nullopt};
    if (at == std::string_view::npos)
        return part;
    const std::string_view node = text.substr(at + 1);
    const auto id = parse_unsigned(node);
    if (!id || *id >= std::uint64_t{IdSet::limit})
        return fail(Errc::invalid, "{} is not a node: expected a number", quote(node));
    part.node = static_cast<int>(*id);
    return part;
}

std::string ReservedPart::text() const {
    return node ? fmt::format("{}@{}", resource.name(), *node) : resource.name();
}

Result<std::int64_t> reserved_amount(const Resource& resource, std::int64_t asked) {
    // A domain's own bound, for the same reason: sums stay below 2^63.
    if (asked <= 0 || asked > max_domain_bytes)
        return fail(Errc::invalid, "{} is not possible: expected above 0, at most {}", asked,
                    format_iec(max_domain_bytes));
    if (resource.kind != Resource::Kind::hugepages)
        return asked;
    if (!is_page_size(resource.page_size))
        return fail(Errc::invalid, "{} is the size of no page", format_iec(resource.page_size));
    const std::int64_t pages = checked_round_up(asked, resource.page_size).value_or(INT64_MAX);
    if (pages > max_domain_bytes)
        return fail(Errc::invalid, "{} in whole pages is more than the {} that are possible", asked,
                    format_iec(max_domain_bytes));
    return pages;
}

IdSet places_of(const ReservedPart& part, const Host& host) {
    const Pool* pool = host.pool(part.resource);
    if (pool == nullptr)
        return {};
    if (!part.node)
        return pool->unbound;
    const IdSet places = host.places_of(part.resource, *part.node) & pool->all();
    return part.resource.kind == Resource::Kind::cpu ? places & host.shared_cpus : places;
}

std::optional<Question> question_of(const Booking& booking) {
    if (booking.match.empty())
        return std::nullopt;
    return Question{.key = fmt::format("reservation.match {}", booking.match),
                    .xpath = booking.match,
                    .namespaces = {}};
}

std::set<Resource> undeclared(const Booking& booking, const Policy& policy) {
    std::set<Resource> resources;
    for (const auto& [part, amount] : booking.amounts)
        if (part.resource.kind == Resource::Kind::custom &&
            !policy.resources.contains(part.resource))
            resources.insert(part.resource);
    return resources;
}

Demand make_demand(const Booking& booking, const Host& host, const Policy& policy) {
    if (booking.domain)
        return make_demand(*booking.domain, host, policy);
    Demand demand;
    const std::set<Resource> unknown = undeclared(booking, policy);
    for (const auto& [part, amount] : booking.amounts) {
        if (unknown.contains(part.resource))
            continue;
        IdSet places = places_of(part, host);
        if (places.empty())
            demand.impossible.push_back(lacking(part, amount, host));
        demand.pieces.push_back({.resource = part.resource,
                                 .places = std::move(places),
                                 .whole = part.resource.kind == Resource::Kind::hugepages,
                                 .amount = amount});
    }
    merge_pieces(demand.pieces);
    return demand;
}

} // namespace virtguard::core
