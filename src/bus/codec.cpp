// SPDX-License-Identifier: Apache-2.0
#include "bus/codec.hpp"

#include <algorithm>
#include <cstddef>

#include <systemd/sd-bus.h>

#include "base/utf8.hpp"

namespace virtguard::bus {

namespace {

template <class Range, class One>
int append_array(sd_bus_message* message, const char* of, const Range& range, One append_one) {
    int r = sd_bus_message_open_container(message, SD_BUS_TYPE_ARRAY, of);
    for (auto each = range.begin(); r >= 0 && each != range.end(); ++each)
        r = append_one(*each);
    return r < 0 ? r : sd_bus_message_close_container(message);
}

} // namespace

std::string valid_utf8(std::string_view text) {
    text = text.substr(0, text.find('\0'));
    std::string result;
    result.reserve(text.size());
    while (!text.empty()) {
        const std::size_t length = first_character(text).length;
        result += length > 0 ? text.substr(0, length) : "\xef\xbf\xbd";
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return result;
}

core::Quantities without_zeros(const core::Quantities& amounts) {
    core::Quantities result = amounts;
    std::erase_if(result, [](const auto& entry) { return entry.second == 0; });
    return result;
}

int append(sd_bus_message* message, const std::string& text) {
    return sd_bus_message_append(message, "s", valid_utf8(text).c_str());
}

int append(sd_bus_message* message, std::uint32_t number) {
    return sd_bus_message_append(message, "u", number);
}

int append(sd_bus_message* message, std::uint64_t number) {
    return sd_bus_message_append(message, "t", number);
}

int append(sd_bus_message* message, const std::optional<WallTime>& time) {
    return append(message, time ? static_cast<std::uint64_t>(time->time_since_epoch().count()) : 0);
}

int append(sd_bus_message* message, const std::vector<std::string>& texts) {
    return append_array(message, "s", texts,
                        [&](const std::string& text) { return append(message, text); });
}

int append(sd_bus_message* message, const std::vector<core::Resource>& resources) {
    return append_array(message, "s", resources, [&](const core::Resource& resource) {
        return append(message, resource.name());
    });
}

int append(sd_bus_message* message, const core::Quantities& amounts) {
    return append_array(message, "{sx}", amounts, [&](const auto& entry) {
        return sd_bus_message_append(message, "{sx}", entry.first.name().c_str(), entry.second);
    });
}

int append(sd_bus_message* message, const core::ShownAmounts& amounts) {
    return append_array(message, "{sx}", amounts, [&](const auto& entry) {
        return sd_bus_message_append(message, "{sx}", entry.first.c_str(), entry.second);
    });
}

int append(sd_bus_message* message, const std::map<core::Resource, Ratio>& ratios) {
    return append_array(message, "{ss}", ratios, [&](const auto& entry) {
        return sd_bus_message_append(message, "{ss}", entry.first.name().c_str(),
                                     entry.second.text().c_str());
    });
}

int append(sd_bus_message* message, const std::vector<core::ShownPiece>& pieces) {
    return append_array(message, "(sxsb)", pieces, [&](const core::ShownPiece& piece) {
        return sd_bus_message_append(message, "(sxsb)", piece.resource.name().c_str(), piece.amount,
                                     piece.nodes.text().c_str(), piece.whole ? 1 : 0);
    });
}

int append(sd_bus_message* message, const std::vector<core::Reason>& reasons) {
    return append_array(message, "(sssxxxss)", reasons, [&](const core::Reason& reason) {
        const std::string resource = reason.resource ? reason.resource->name() : "";
        return sd_bus_message_append(
            message, "(sssxxxss)", std::string(core::code_name(reason.code)).c_str(),
            resource.c_str(), reason.nodes.text().c_str(), reason.requested, reason.free,
            reason.effective, std::string(core::mode_name(reason.mode)).c_str(),
            valid_utf8(reason.text).c_str());
    });
}

} // namespace virtguard::bus
