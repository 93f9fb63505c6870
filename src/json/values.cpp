// SPDX-License-Identifier: Apache-2.0
#include "json/values.hpp"

namespace virtguard::json {

std::string dump(const Json& json) {
    return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string dump_line(const Json& json) {
    return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::int64_t read_integer(const Json& json) {
    if (!json.is_number_integer() ||
        (json.is_number_unsigned() && json.get<std::uint64_t>() > std::uint64_t{INT64_MAX}))
        reject("a number is no integer below 2^63");
    return json.get<std::int64_t>();
}

std::int64_t read_amount(const Json& json) {
    const std::int64_t amount = read_integer(json);
    if (amount < 0)
        reject("an amount is negative");
    return amount;
}

const Json& require_array(const Json& json) {
    if (!json.is_array())
        reject("a list is none");
    return json;
}

const Json& require_object(const Json& json) {
    if (!json.is_object())
        reject("an object is none");
    return json;
}

int read_id(const Json& json) {
    const std::int64_t id = read_integer(json);
    if (id < 0 || id >= IdSet::limit)
        reject("an id is out of range");
    return static_cast<int>(id);
}

core::Resource read_resource(const std::string& name) {
    return require(core::Resource::parse(name));
}

core::GuestState read_state(const Json& json) {
    for (const core::GuestState state :
         {core::GuestState::pending, core::GuestState::running, core::GuestState::returning})
        if (json.get<std::string>() == core::state_name(state))
            return state;
    reject("a domain's state is unknown");
}

Json uuid_json(const std::optional<Uuid>& uuid) {
    return uuid ? Json(uuid->text()) : Json("");
}

std::optional<Uuid> read_uuid(const Json& json) {
    const auto text = json.get<std::string>();
    const auto uuid = Uuid::parse(text);
    if (!uuid && !text.empty())
        reject("a UUID is none");
    return uuid;
}

} // namespace virtguard::json
