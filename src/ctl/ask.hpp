// SPDX-License-Identifier: Apache-2.0
#pragma once
// Questions to virtguardd and to libvirt of a person who waits for the answer, but not for ever.

#include <chrono>
#include <future>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "core/report.hpp"
#include "core/run_time.hpp"
#include "ctl/progress.hpp"
#include "wire/protocol.hpp"

namespace virtguard::ctl {

inline constexpr std::chrono::seconds patience{10};

/// The document that virtguardd answers with. Errc::unavailable where it does not answer, with what
/// to do about it; Errc::limit where the question is too long; Errc::invalid where it says why it
/// has no answer; Errc::refused of an order.
[[nodiscard]] Result<std::string> ask_daemon(const std::string& socket, wire::Operation operation,
                                             std::string_view body = {});

/// Has virtguardd carry out an order, read from a person's words; the exit status, with what is
/// wrong shown.
[[nodiscard]] int give_order(const std::string& socket, const Result<core::Order>& order);

/// What virtguardd says, as it wrote it, which may be more than we know of, and as we read it.
template <class T>
struct Said {
    std::string document;
    T content;
};
/// Errors as of ask_daemon(), and Errc::invalid where the document is none of ours.
[[nodiscard]] Result<Said<core::Status>> ask_status(const std::string& socket);
[[nodiscard]] Result<Said<core::Outcome>> ask_check(const std::string& socket,
                                                    std::string_view xml);

/// What the question, which may take for ever, is answered within our patience, or
/// Errc::unavailable. Then it goes on in a thread of its own, and the process is to end soon.
template <class Question>
[[nodiscard]] auto ask(const std::string& whom, Question question) -> decltype(question()) {
    std::packaged_task<decltype(question())()> task(std::move(question));
    auto answer = task.get_future();
    std::thread(std::move(task)).detach();
    const Progress progress("waiting for " + whom);
    if (answer.wait_for(patience) != std::future_status::ready)
        return fail(Errc::unavailable, "{}: has not answered for {} s", whom, patience.count());
    auto given = answer.get();
    if (!given)
        return context(given.error(), whom);
    return given;
}

template <class Question>
[[nodiscard]] auto ask_libvirt(Question question) -> decltype(question()) {
    return ask("libvirt", std::move(question));
}

} // namespace virtguard::ctl
