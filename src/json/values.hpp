// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the documents of this folder are written with and read with. A field that is missing or of
// another type must be an error, not a crash: nlohmann's exceptions are caught in parse().

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/idset.hpp"
#include "base/uuid.hpp"
#include "core/ledger.hpp"
#include "core/resource.hpp"

namespace virtguard::json {

using Json = nlohmann::ordered_json;

/// An error inside a reading function that is ours: nlohmann's own type, so that parse() has one
/// thing to catch.
[[noreturn]] inline void reject(const std::string& what) {
    throw Json::other_error::create(0, what, nullptr);
}

template <class T>
T require(Result<T> result) {
    if (!result)
        reject(result.error().what);
    return *std::move(result);
}

/// What read makes of a document; whose it is goes into the error.
template <class T, class Read>
Result<T> parse(std::string_view whose, std::string_view document, Read read) {
    try {
        return read(Json::parse(document));
    } catch (const Json::exception& error) {
        return fail(Errc::invalid, "{}: {}", whose, error.what());
    }
}

/// A UTF-8 text as it is; bytes that are none become U+FFFD, so that a document always is one.
[[nodiscard]] std::string dump(const Json& json);
/// The same on one line.
[[nodiscard]] std::string dump_line(const Json& json);

/// In the place of get<int64_t>(), which takes any number and, if it has to, cuts it.
[[nodiscard]] std::int64_t read_integer(const Json& json);
/// Not negative.
[[nodiscard]] std::int64_t read_amount(const Json& json);
[[nodiscard]] const Json& require_array(const Json& json);
[[nodiscard]] const Json& require_object(const Json& json);

/// A PU or node.
[[nodiscard]] int read_id(const Json& json);
[[nodiscard]] core::Resource read_resource(const std::string& name);
[[nodiscard]] core::GuestState read_state(const Json& json);

/// All that is known of a domain; a field that is not known is ignored when it is read.
[[nodiscard]] Json domain_json(const core::Domain& domain);
[[nodiscard]] core::Domain read_domain(const Json& json);

/// Nothing is "".
[[nodiscard]] Json uuid_json(const std::optional<Uuid>& uuid);
[[nodiscard]] std::optional<Uuid> read_uuid(const Json& json);

} // namespace virtguard::json
