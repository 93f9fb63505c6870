// SPDX-License-Identifier: Apache-2.0
#pragma once
// Answers that take more than a turn of the loop: of all objects, all domains, all decisions. They
// are built a part a turn, so that a start never waits for more than a part, and one after the
// other, so that there is one in memory.

#include <deque>
#include <functional>
#include <utility>

#include "bus/callers.hpp"
#include "bus/handles.hpp"

namespace virtguard::bus {

class LongAnswers {
  public:
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

    /// Will answer by an array of elements of this type, or refuses at once.
    void ask(sd_bus_message* call, const char* element, Part part);
    [[nodiscard]] bool has_more() const { return !waiting_.empty(); }
    /// One was begun, and is not at its end.
    [[nodiscard]] bool is_amid() const { return answer_ != nullptr; }
    /// Builds a part.
    void go_on();

  private:
    struct Waiting {
        Callers::Place place;
        MessagePtr call;
        const char* element;
        Part part;
    };

    [[nodiscard]] int begin();
    [[nodiscard]] int build();
    void end(int r);

    Callers callers_;
    Handlers handlers_;
    std::deque<Waiting> waiting_;
    MessagePtr answer_; ///< to the first, as far as it is built
};

} // namespace virtguard::bus
