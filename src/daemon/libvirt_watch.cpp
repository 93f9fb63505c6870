// SPDX-License-Identifier: Apache-2.0
#include "daemon/libvirt_watch.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/log.hpp"
#include "base/text.hpp"

namespace virtguard::daemon {

namespace {

std::string age(Span span) {
    return fmt::format("{} s", std::chrono::duration_cast<std::chrono::seconds>(span).count());
}

} // namespace

Result<std::unique_ptr<LibvirtWatch>> LibvirtWatch::create(loop::Loop& loop,
                                                           const core::Guard& guard,
                                                           std::function<void()> changed,
                                                           std::chrono::nanoseconds wait) {
    std::unique_ptr<LibvirtWatch> watch(new LibvirtWatch(guard, wait));
    auto timer = loop.timer("libvirt's answer", [raw = watch.get(), changed = std::move(changed)] {
        raw->silent_ = true;
        log(Level::warning, "libvirt: has not answered for {}; deciding on what is known",
            age(loop::now() - *raw->question_));
        changed();
    });
    if (!timer)
        return std::unexpected(timer.error());
    watch->timer_ = std::make_unique<loop::Timer>(*std::move(timer));
    return watch;
}

void LibvirtWatch::note(const virt::Message& message) {
    if (const auto* question = std::get_if<virt::Asked>(&message))
        return asked(question->when);
    answered();
    if (const auto* lost = std::get_if<virt::Lost>(&message))
        lost_ = lost->why; // which the libvirt thread has logged
    else
        lost_.clear();
    if (const auto* look = std::get_if<virt::Look>(&message))
        return note_look(*look);
    if (const auto* look = std::get_if<virt::DomainLook>(&message)) {
        if (look->active)
            note_guest(*look->active);
        else
            unreadable_.erase(look->uuid);
    }
}

void LibvirtWatch::asked(Instant when) {
    question_ = when;
    timer_->arm(when + wait_);
}

void LibvirtWatch::answered() {
    timer_->disarm();
    if (std::exchange(silent_, false) && question_)
        log(Level::notice, "libvirt: answers again, after {}", age(loop::now() - *question_));
    question_.reset();
}

void LibvirtWatch::note_look(const virt::Look& look) {
    last_look_ = look.began;
    std::erase_if(unreadable_, [&](const Uuid& uuid) {
        return std::ranges::find(look.active, uuid, &virt::ActiveDomain::uuid) == look.active.end();
    });
    for (const virt::ActiveDomain& domain : look.active)
        note_guest(domain);
}

void LibvirtWatch::note_guest(const virt::ActiveDomain& domain) {
    if (domain.domain) {
        unreadable_.erase(domain.uuid);
        return;
    }
    if (unreadable_.insert(domain.uuid).second)
        log(Level::warning, "{} {}: {}", printable(domain.name), how_counted(domain.uuid),
            domain.domain.error().what);
}

std::string_view LibvirtWatch::how_counted(const Uuid& uuid) const {
    return guard_.ledger().find(uuid.text()) != nullptr ? "runs and is counted as it was last known"
                                                        : "runs and is not counted";
}

std::vector<std::string> LibvirtWatch::problems(Instant now) const {
    std::vector<std::string> problems;
    const std::string known =
        last_look_ ? fmt::format("what is known of it is {} old", age(now - *last_look_))
                   : "nothing is known of it yet";
    if (silent_)
        problems.push_back(
            fmt::format("libvirt: has not answered for {}; {}", age(now - *question_), known));
    if (!lost_.empty())
        problems.push_back(fmt::format("libvirt: {}; {}", lost_, known));
    for (const Uuid& uuid : unreadable_)
        problems.push_back(fmt::format("libvirt: {} {}", uuid.text(), how_counted(uuid)));
    return problems;
}

} // namespace virtguard::daemon
