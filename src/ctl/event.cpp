// SPDX-License-Identifier: Apache-2.0
#include "ctl/event.hpp"

#include <utility>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "ctl/file.hpp"
#include "domxml/parse.hpp"

namespace virtguard::ctl {

namespace {

/// Splits at the first separator; the second part is empty where there is none.
std::pair<std::string_view, std::string_view> split(std::string_view text, char separator) {
    const std::size_t at = text.find(separator);
    if (at == std::string_view::npos)
        return {text, {}};
    return {text.substr(0, at), text.substr(at + 1)};
}

Result<Event> parse_start(const std::string& file, bool already_runs, const core::Policy& policy) {
    if (file.empty())
        return fail(Errc::invalid, "expected a domain XML file");
    auto text = read_input(file, domxml::max_document_bytes);
    if (!text)
        return std::unexpected(text.error());
    const core::Questions questions = policy.questions();
    auto domain = domxml::parse_domain(*text, questions);
    // A domain that cannot be is refused; one that should run already has nothing to be counted by.
    if (!domain && (domain.error().code != Errc::invalid || already_runs))
        return context(domain.error(), printable(file));
    core::Domain identity = domain ? core::Domain{} : domxml::parse_identity(*text, questions);
    return Start{already_runs, std::move(domain), std::move(identity)};
}

Result<Event> parse_ratio(std::string_view text, const core::Policy& policy) {
    if (!text.contains('='))
        return fail(Errc::invalid, "expected ratio:RESOURCE=VALUE");
    const auto [name, value] = split(text, '=');
    const auto resource = policy.find_resource(name);
    if (!resource)
        return std::unexpected(resource.error());
    const auto ratio = Ratio::parse(value);
    if (!ratio)
        return std::unexpected(ratio.error());
    if (resource->kind == core::Resource::Kind::hugepages && !ratio->is_one())
        return fail(Errc::invalid, "{} takes no ratio other than 1", resource->name());
    return SetRatio{*resource, *ratio};
}

/// A UUID as guests are known by it, whatever its case; any other name as it is.
std::string guest_name(std::string_view text) {
    const auto uuid = Uuid::parse(text);
    return uuid && text.size() == uuid->text().size() ? uuid->text() : std::string(text);
}

Result<Event> parse_reserve(std::string_view text, const core::Policy& policy) {
    const auto [name, rest] = split(text, ':');
    auto [items, guest] = split(rest, ':');
    if (name.empty() || items.empty() || rest.ends_with(':'))
        return fail(Errc::invalid,
                    "expected reserve:NAME:RESOURCE[@NODE]=VALUE[,...][:NAME-or-UUID]");
    Reserve reserve{.name = std::string(name)};
    if (!guest.empty())
        reserve.guest = guest_name(guest);
    for (bool more = true; more;) {
        const auto [first, others] = split(items, ',');
        more = items.contains(',');
        items = others;
        auto item = parse_reserved(first);
        if (item)
            if (const auto known = policy.find_resource(item->part.resource.name()); !known)
                return std::unexpected(known.error());
        if (!item)
            return std::unexpected(item.error());
        reserve.items.push_back(*item);
    }
    return reserve;
}

Result<Event> parse_by_kind(const std::string& argument, const core::Policy& policy) {
    const auto [kind, rest] = split(argument, ':');
    const std::string value(rest);
    if (!argument.contains(':'))
        return parse_start(argument, /*already_runs=*/false, policy);
    if (kind == "start")
        return parse_start(value, /*already_runs=*/false, policy);
    if (kind == "running")
        return parse_start(value, /*already_runs=*/true, policy);
    if (kind == "stop")
        return value.empty() ? Result<Event>(fail(Errc::invalid, "expected stop:NAME-or-UUID"))
                             : Stop{guest_name(value)};
    if (kind == "ratio")
        return parse_ratio(value, policy);
    if (kind == "reserve")
        return parse_reserve(value, policy);
    auto event = parse_start(argument, /*already_runs=*/false, policy);
    if (!event && event.error().code == Errc::not_found)
        event.error().what +=
            ", and the event is none of start:, running:, stop:, ratio:, reserve:";
    return event;
}

/// Never empty: what is booked must lie somewhere.
Result<IdSet> booked_places(const core::ReservedPart& part, const core::Host& host) {
    if (host.pool(part.resource) == nullptr)
        return fail(Errc::not_found, "this host has no {}", part.resource.name());
    if (part.node && !host.node_cpus.contains(*part.node))
        return fail(Errc::not_found, "this host has no node {}", *part.node);
    IdSet places = core::places_of(part, host);
    if (places.empty())
        return fail(Errc::not_found, "{} has no {}",
                    part.node ? fmt::format("node {}", *part.node) : "this host",
                    part.resource.kind == core::Resource::Kind::cpu
                        ? "cpu that shared vCPUs may use"
                        : part.resource.name());
    return places;
}

} // namespace

Result<Event> parse_event(const std::string& argument, const core::Policy& policy) {
    auto event = parse_by_kind(argument, policy);
    if (!event)
        return context(event.error(), fmt::format("event {}", quote(argument)));
    return event;
}

Result<Reserve::Item> parse_reserved(std::string_view text) {
    if (!text.contains('='))
        return fail(Errc::invalid, "{}: expected RESOURCE[@NODE]=VALUE", quote(text));
    const auto [name, value] = split(text, '=');
    const auto part = core::ReservedPart::parse(name);
    if (!part)
        return std::unexpected(part.error());
    const core::Resource& resource = part->resource;
    const auto amount = resource.is_bytes() ? parse_size(value) : parse_count(value);
    if (!amount)
        return context(amount.error(), part->text());
    // A domain's own bound, for the same reason: sums stay below 2^63.
    if (*amount > core::max_domain_bytes)
        return fail(Errc::invalid, "{}: {} is too large: expected at most {}", part->text(),
                    quote(value), format_iec(core::max_domain_bytes));
    return Reserve::Item{*part,
                         resource.kind == core::Resource::Kind::hugepages
                             ? checked_round_up(*amount, resource.page_size).value_or(*amount)
                             : *amount};
}

Result<std::vector<core::Piece>> pieces_of(const Reserve& reserve, const core::Host& host) {
    std::vector<core::Piece> pieces;
    for (const Reserve::Item& item : reserve.items) {
        auto places = booked_places(item.part, host);
        if (!places)
            return std::unexpected(places.error());
        pieces.push_back({.resource = item.part.resource,
                          .places = *std::move(places),
                          .whole = item.part.resource.kind == core::Resource::Kind::hugepages,
                          .amount = item.amount});
    }
    return pieces;
}

} // namespace virtguard::ctl
