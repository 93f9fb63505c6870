// SPDX-License-Identifier: Apache-2.0
#pragma once
// Answers that take more than a turn of the loop: of all objects, all domains, all decisions. They
// are built a part a turn, so that a start never waits for more than a part, and one after the
// other, so that there is one in memory. Who asks again before it is answered has a few of them
// waiting and is refused then: others are answered in between.

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "bus/handles.hpp"

namespace virtguard::bus {

class LongAnswers {
  public:
    /// Calls of one client that wait for their answers; libraries ask once for each user they have.
    static constexpr std::size_t max_of_one = 4;
    /// And of all. A call is some hundred bytes.
    static constexpr std::size_t max_of_all = 256;

    /// Appends elements of the array that the answer is, below a millisecond of work: positive
    /// while there are more, 0 at their end, or a negative errno.
    using Part = std::move_only_function<int(sd_bus_message* answer)>;

    struct Handlers {
        std::function<void()> begins; ///< until its end, what is shown must stay the same
        std::function<void()> waits;  ///< the first that waits: go_on() is to be called
    };

    explicit LongAnswers(Handlers handlers) : handlers_(std::move(handlers)) {}
    LongAnswers(const LongAnswers&) = delete;
    LongAnswers& operator=(const LongAnswers&) = delete;
    /// Calls that still wait get no answer.
    ~LongAnswers() = default;

    /// Will answer by an array of elements of this type, or refuses at once. What sd-bus returns.
    [[nodiscard]] int ask(sd_bus_message* call, const char* element, Part part);
    [[nodiscard]] bool has_more() const { return !waiting_.empty(); }
    /// One was begun, and is not at its end.
    [[nodiscard]] bool is_amid() const { return answer_ != nullptr; }
    /// Builds a part.
    void go_on();

  private:
    struct Waiting {
        MessagePtr call;
        const char* element;
        Part part;
    };

    [[nodiscard]] int begin();
    [[nodiscard]] int build();
    void end(int r);

    Handlers handlers_;
    std::deque<Waiting> waiting_;
    std::map<std::string, std::size_t> callers_; ///< of those that wait, how many
    MessagePtr answer_;                          ///< to the first, as far as it is built
};

} // namespace virtguard::bus
