// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who waits for an answer that takes more than a turn of the loop. A client that asks again and
// again before it is answered is refused, so that others are answered in between.

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "bus/handles.hpp"

namespace virtguard::bus {

class Callers {
  public:
    /// Calls of one client; libraries ask once for each user they have.
    static constexpr std::size_t max_of_one = 4;
    static constexpr std::size_t max_of_all = 256;

    /// A call waits as long as this lives.
    class Place {
      public:
        Place(Callers& callers, std::string caller);
        Place(const Place&) = delete;
        Place& operator=(const Place&) = delete;
        Place(Place&& other) noexcept;
        Place& operator=(Place&&) = delete;
        ~Place();

      private:
        Callers* callers_; ///< nothing when it was moved from
        std::string caller_;
    };

    Callers() = default;
    Callers(const Callers&) = delete;
    Callers& operator=(const Callers&) = delete;
    /// Places must be gone.
    ~Callers() = default;

    /// Nothing: too many wait, and so the call was answered.
    [[nodiscard]] std::optional<Place> enter(sd_bus_message* call);

  private:
    std::map<std::string, std::size_t> waiting_; ///< calls by client; no zeros
    std::size_t all_ = 0;
};

} // namespace virtguard::bus
