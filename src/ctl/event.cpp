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

Result<Event> parse_start(const std::string& file, bool already_runs) {
    auto text = read_file(file, domxml::max_document_bytes);
    if (!text)
        return std::unexpected(text.error());
    auto domain = domxml::parse_domain(*text);
    // A domain that cannot be is refused; one that should run already has nothing to be counted by.
    if (!domain && (domain.error().code != Errc::invalid || already_runs))
        return context(domain.error(), printable(file));
    return Start{already_runs, std::move(domain)};
}

Result<Event> parse_ratio(std::string_view text) {
    const auto [name, value] = split(text, '=');
    const auto resource = core::Resource::parse(name);
    if (!resource)
        return std::unexpected(resource.error());
    const auto ratio = Ratio::parse(value);
    if (!ratio)
        return std::unexpected(ratio.error());
    if (resource->kind == core::Resource::Kind::hugepages && !ratio->is_one())
        return fail(Errc::invalid, "{} takes no ratio other than 1", resource->name());
    return SetRatio{*resource, *ratio};
}

Result<Reserve::Item> parse_item(std::string_view text) {
    const auto [target, value] = split(text, '=');
    const auto [name, node] = split(target, '@');
    const auto resource = core::Resource::parse(name);
    if (!resource)
        return std::unexpected(resource.error());
    Reserve::Item item{.resource = *resource};
    if (target.contains('@')) {
        const auto id = parse_unsigned(node);
        if (!id || *id >= std::uint64_t{IdSet::limit})
            return fail(Errc::invalid, "{} is not a node: expected a number", quote(node));
        item.node = static_cast<int>(*id);
    }
    const auto amount =
        resource->kind == core::Resource::Kind::cpu ? parse_count(value) : parse_size(value);
    if (!amount)
        return std::unexpected(amount.error());
    item.amount = *amount;
    if (resource->kind == core::Resource::Kind::hugepages) {
        const auto pages = checked_round_up(item.amount, resource->page_size);
        if (!pages)
            return fail(Errc::invalid, "{} is too large", quote(value));
        item.amount = *pages;
    }
    return item;
}

Result<Event> parse_reserve(std::string_view text) {
    const auto [name, rest] = split(text, ':');
    auto [items, guest] = split(rest, ':');
    if (name.empty() || items.empty())
        return fail(Errc::invalid,
                    "expected reserve:NAME:RESOURCE[@NODE]=VALUE[,...][:NAME-or-UUID]");
    Reserve reserve{.name = std::string(name)};
    if (!guest.empty())
        reserve.guest = std::string(guest);
    while (!items.empty()) {
        const auto [first, others] = split(items, ',');
        items = others;
        auto item = parse_item(first);
        if (!item)
            return std::unexpected(item.error());
        reserve.items.push_back(*item);
    }
    return reserve;
}

Result<Event> parse_by_kind(const std::string& argument) {
    const auto [kind, rest] = split(argument, ':');
    const std::string value(rest);
    if (kind == "start")
        return parse_start(value, /*already_runs=*/false);
    if (kind == "running")
        return parse_start(value, /*already_runs=*/true);
    if (kind == "stop")
        return value.empty() ? Result<Event>(fail(Errc::invalid, "expected stop:NAME-or-UUID"))
                             : Stop{value};
    if (kind == "ratio")
        return parse_ratio(value);
    if (kind == "reserve")
        return parse_reserve(value);
    return parse_start(argument, /*already_runs=*/false);
}

} // namespace

Result<Event> parse_event(const std::string& argument) {
    auto event = parse_by_kind(argument);
    if (!event)
        return context(event.error(), fmt::format("event {}", quote(argument)));
    return event;
}

Result<std::vector<core::Piece>> pieces_of(const Reserve& reserve, const core::Host& host) {
    std::vector<core::Piece> pieces;
    for (const Reserve::Item& item : reserve.items) {
        const core::Pool* pool = host.pool(item.resource);
        if (pool == nullptr)
            return fail(Errc::not_found, "reservation {}: this host has no {}",
                        printable(reserve.name), item.resource.name());
        IdSet places = pool->unbound;
        if (item.node) {
            if (!host.node_cpus.contains(*item.node))
                return fail(Errc::not_found, "reservation {}: this host has no node {}",
                            printable(reserve.name), *item.node);
            places = host.places_of(item.resource, *item.node);
            if (item.resource.kind == core::Resource::Kind::cpu)
                places &= host.shared_cpus;
        }
        pieces.push_back({.resource = item.resource,
                          .places = places,
                          .whole = item.resource.kind == core::Resource::Kind::hugepages,
                          .amount = item.amount});
    }
    return pieces;
}

} // namespace virtguard::ctl
