// SPDX-License-Identifier: Apache-2.0
#include "bus/arguments.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <systemd/sd-bus.h>

#include "base/text.hpp"
#include "bus/handles.hpp"
#include "bus/methods.hpp"

namespace virtguard::bus {

namespace {

Result<> read_id(sd_bus_message* call, core::ReservationId& id) {
    auto read = read_text(call, "owner", Methods::max_word, id.owner);
    return read ? read_text(call, "name", Methods::max_word, id.name) : read;
}

/// Enters an array, has each element read, and leaves it. More than so many are an error.
template <class One>
Result<> read_array(sd_bus_message* call, const char* name, const char* of, std::size_t most,
                    One read_one) {
    int r = sd_bus_message_enter_container(call, SD_BUS_TYPE_ARRAY, of);
    for (std::size_t read = 0; r >= 0; ++read) {
        r = sd_bus_message_at_end(call, /*complete=*/0);
        if (r != 0)
            break;
        if (read == most)
            return fail(Errc::invalid, "{}: more than {}", name, most);
        if (auto one = read_one(); !one)
            return one;
    }
    if (r >= 0)
        r = sd_bus_message_exit_container(call);
    return r < 0 ? failed(name, r) : Result<>{};
}

/// The same of a dictionary with texts for keys, of which each may be there once.
template <class Value>
Result<> read_dictionary(sd_bus_message* call, const char* name, const char* entry,
                         std::size_t most, Value read_value) {
    const std::string of = std::string("{") + entry + "}";
    std::set<std::string> keys;
    return read_array(call, name, of.c_str(), most, [&]() -> Result<> {
        int r = sd_bus_message_enter_container(call, SD_BUS_TYPE_DICT_ENTRY, entry);
        if (r < 0)
            return failed(name, r);
        std::string key;
        if (auto read = read_text(call, name, Methods::max_word, key); !read)
            return read;
        if (!keys.insert(key).second)
            return fail(Errc::invalid, "{}: {} is there twice", name, quote(key));
        if (auto value = read_value(key); !value)
            return value;
        r = sd_bus_message_exit_container(call);
        return r < 0 ? failed(name, r) : Result<>{};
    });
}

Result<> read_amounts(sd_bus_message* call, core::ReserveWords& words) {
    return read_dictionary(call, "resources", "sx", core::max_reserved_parts,
                           [&](const std::string& key) -> Result<> {
                               std::int64_t amount = 0;
                               if (const int r = sd_bus_message_read(call, "x", &amount); r < 0)
                                   return failed("resources", r);
                               words.amounts.emplace(key, amount);
                               return {};
                           });
}

Result<> read_uuids(sd_bus_message* call, core::ReserveWords& words) {
    std::vector<std::string>& uuids = words.uuids.emplace();
    return read_array(call, "uuids", "s", core::max_reservation_uuids, [&]() -> Result<> {
        return read_text(call, "uuids", Methods::max_word, uuids.emplace_back());
    });
}

Result<> read_expiry_option(sd_bus_message* call, core::ReserveWords& words) {
    std::uint64_t microseconds = 0;
    if (const int r = sd_bus_message_read(call, "t", &microseconds); r < 0)
        return failed("expiry", r);
    const auto expiry = core::read_expiry(microseconds);
    if (!expiry)
        return std::unexpected(expiry.error());
    words.expiry = *expiry;
    return {};
}

Result<> read_force(sd_bus_message* call, core::ReserveWords& words) {
    int force = 0;
    if (const int r = sd_bus_message_read(call, "b", &force); r < 0)
        return failed("force", r);
    words.force = force != 0;
    return {};
}

Result<> read_option(sd_bus_message* call, std::string_view key, core::ReserveWords& words) {
    const auto within = [&](const char* type, auto read) -> Result<> {
        if (sd_bus_message_enter_container(call, SD_BUS_TYPE_VARIANT, type) <= 0)
            return fail(Errc::invalid, "options: {}: expected a value of type {}", key, type);
        if (auto value = read(); !value)
            return value;
        const int r = sd_bus_message_exit_container(call);
        return r < 0 ? failed("options", r) : Result<>{};
    };
    if (key == "uuids")
        return within("as", [&] { return read_uuids(call, words); });
    if (key == "match")
        return within("s",
                      [&] { return read_text(call, key, core::max_match, words.match.emplace()); });
    if (key == "xml")
        return within("s", [&] {
            return read_text(call, key, core::max_reservation_xml, words.xml.emplace());
        });
    if (key == "expiry")
        return within("t", [&] { return read_expiry_option(call, words); });
    if (key == "force")
        return within("b", [&] { return read_force(call, words); });
    return fail(Errc::invalid, "options: {} is none: expected uuids, match, xml, expiry or force",
                quote(key));
}

} // namespace

Result<> read_text(sd_bus_message* call, std::string_view name, std::size_t most,
                   std::string& target) {
    const char* text = nullptr;
    if (const int r = sd_bus_message_read(call, "s", &text); r < 0)
        return failed(name, r);
    if (std::string_view(text).size() > most)
        return fail(Errc::limit, "{}: longer than {} bytes", name, most);
    target = text;
    return {};
}

Result<core::Order> read_set_overcommit(sd_bus_message* call) {
    std::string resource;
    std::string ratio;
    auto read = read_text(call, "resource", Methods::max_word, resource);
    if (read)
        read = read_text(call, "ratio", Methods::max_word, ratio);
    return read ? core::read_set_overcommit(resource, ratio) : std::unexpected(read.error());
}

Result<core::Order> read_reset_overcommit(sd_bus_message* call) {
    std::string resource;
    const auto read = read_text(call, "resource", Methods::max_word, resource);
    return read ? core::read_reset_overcommit(resource) : std::unexpected(read.error());
}

Result<core::Order> read_set_mode(sd_bus_message* call) {
    std::string mode;
    std::string message;
    auto read = read_text(call, "mode", Methods::max_word, mode);
    if (read)
        read = read_text(call, "message", core::max_message, message);
    return read ? core::read_set_mode(mode, message) : std::unexpected(read.error());
}

Result<core::Order> read_reserve(sd_bus_message* call) {
    core::ReserveWords words;
    auto read = read_id(call, words.id);
    if (read)
        read = read_amounts(call, words);
    constexpr std::size_t most_options = 5;
    if (read)
        read = read_dictionary(call, "options", "sv", most_options,
                               [&](std::string_view key) { return read_option(call, key, words); });
    return read ? core::read_reserve(std::move(words)) : std::unexpected(read.error());
}

Result<core::Order> read_renew(sd_bus_message* call) {
    core::ReservationId id;
    if (auto read = read_id(call, id); !read)
        return std::unexpected(read.error());
    std::uint64_t microseconds = 0;
    if (const int r = sd_bus_message_read(call, "t", &microseconds); r < 0)
        return failed("expiry", r);
    const auto expiry = core::read_expiry(microseconds);
    return expiry ? core::read_renew(std::move(id), *expiry) : std::unexpected(expiry.error());
}

Result<core::Order> read_cancel(sd_bus_message* call) {
    core::ReservationId id;
    const auto read = read_id(call, id);
    return read ? core::read_cancel(std::move(id)) : std::unexpected(read.error());
}

} // namespace virtguard::bus
