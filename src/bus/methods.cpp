// SPDX-License-Identifier: Apache-2.0
#include "bus/methods.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "bus/arguments.hpp"
#include "bus/codec.hpp"
#include "bus/kept_call.hpp"
#include "bus/names.hpp"

namespace virtguard::bus {

namespace {

/// The methods' errors have different codes, so that one table is enough.
const char* error_name(Errc code) {
    switch (code) {
    case Errc::syntax:
        return "org.virtguard1.Error.InvalidXml";
    case Errc::invalid:
        return "org.virtguard1.Error.BadPolicy";
    case Errc::not_found:
        return "org.virtguard1.Error.NoSuchDomain";
    case Errc::refused:
        return "org.virtguard1.Error.Refused";
    case Errc::limit:
        return "org.virtguard1.Error.TooLong";
    case Errc::unavailable:
    case Errc::io:
        return "org.virtguard1.Error.Unavailable";
    }
    std::unreachable();
}

int reply_error(sd_bus_message* call, const Error& error) {
    return sd_bus_reply_method_errorf(call, error_name(error.code), "%s",
                                      valid_utf8(error.what).c_str());
}

/// The same of orders.
const char* order_error_name(Errc code) {
    switch (code) {
    case Errc::invalid:
        return SD_BUS_ERROR_INVALID_ARGS;
    case Errc::not_found:
        return "org.virtguard1.Error.NoSuchReservation";
    case Errc::limit:
        return SD_BUS_ERROR_LIMITS_EXCEEDED;
    case Errc::syntax:
    case Errc::refused:
    case Errc::unavailable:
    case Errc::io:
        return error_name(code);
    }
    std::unreachable();
}

int reply_order(sd_bus_message* call, const Result<>& done) {
    return done ? sd_bus_reply_method_return(call, "")
                : sd_bus_reply_method_errorf(call, order_error_name(done.error().code), "%s",
                                             valid_utf8(done.error().what).c_str());
}

/// Appends to a message, until one step fails.
class Appender {
  public:
    explicit Appender(sd_bus_message* message, int r = 0) : message_(message), r_(r) {}

    template <class Value>
    Appender& add(const Value& value) {
        return step([&] { return append(message_, value); });
    }
    Appender& add(std::string_view text) { return add(std::string(text)); }
    Appender& add_path(const std::string& path) {
        return step([&] { return sd_bus_message_append(message_, "o", path.c_str()); });
    }
    Appender& open(char container, const char* of) {
        return step([&] { return sd_bus_message_open_container(message_, container, of); });
    }
    Appender& close() {
        return step([&] { return sd_bus_message_close_container(message_); });
    }
    [[nodiscard]] int send() {
        return step([&] { return sd_bus_message_send(message_); }).error();
    }
    /// 0, or a negative errno.
    [[nodiscard]] int error() const { return std::min(r_, 0); }

  private:
    template <class Step>
    Appender& step(Step step) {
        if (r_ >= 0)
            r_ = step();
        return *this;
    }

    sd_bus_message* message_;
    int r_;
};

int reply_outcome(sd_bus_message* call, const Result<core::Outcome>& outcome) {
    if (!outcome)
        return reply_error(call, outcome.error());
    const core::Verdict verdict = outcome->admitted ? core::Verdict::admit : core::Verdict::refuse;
    sd_bus_message* raw = nullptr;
    const int r = sd_bus_message_new_method_return(call, &raw);
    const MessagePtr reply(raw);
    return Appender(raw, r)
        .add(core::verdict_name(verdict))
        .add(outcome->reasons)
        .add(without_zeros(outcome->demand))
        .send();
}

// Elements of long answers, and a turn's share of them: a fifth of a millisecond of work.
constexpr const char* domain_type = "(ssssa{sx}o)";
constexpr int domains_per_turn = 64;
constexpr const char* decision_type = "(tssssa(sssxxxss))";
constexpr std::size_t decisions_per_turn = 8;

void append_domain(Appender& to, const std::string& path, const core::GuestReport& guest) {
    to.open(SD_BUS_TYPE_STRUCT, "ssssa{sx}o")
        .add(guest.name)
        .add(guest.uuid.value_or(Uuid{}).text())
        .add(guest.scheduler)
        .add(core::state_name(guest.state))
        .add(without_zeros(guest.demand))
        .add_path(path)
        .close();
}

constexpr const char* reservation_type = "(ssa{sx}a{sx}t)";
constexpr std::size_t reservations_per_turn = 4; // of 64 amounts each at most

void append_reservation(Appender& to, const core::ReservationReport& reservation) {
    to.open(SD_BUS_TYPE_STRUCT, "ssa{sx}a{sx}t")
        .add(reservation.id.owner)
        .add(reservation.id.name)
        .add(reservation.asked)
        .add(reservation.booked)
        .add(reservation.expiry)
        .close();
}

void append_decision(Appender& to, const core::DecidedStart& start) {
    to.open(SD_BUS_TYPE_STRUCT, "tssssa(sssxxxss)")
        .add(std::optional(start.time))
        .add(start.name)
        .add(start.uuid ? start.uuid->text() : "")
        .add(start.scheduler)
        .add(core::verdict_name(start.verdict))
        .add(start.reasons)
        .close();
}

} // namespace

template <auto Member>
int Methods::call(sd_bus_message* message, void* self, sd_bus_error*) {
    return (static_cast<Methods*>(self)->*Member)(message);
}

// Anyone may call them all: those that change something ask who it is.
const sd_bus_vtable Methods::vtable[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_METHOD_WITH_ARGS("Check", SD_BUS_ARGS("s", xml),
                            SD_BUS_RESULT("s", verdict, "a(sssxxxss)", reasons, "a{sx}", demand),
                            call<&Methods::check>, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("Explain", SD_BUS_ARGS("s", domain),
                            SD_BUS_RESULT("s", verdict, "a(sssxxxss)", reasons, "a{sx}", demand),
                            call<&Methods::explain>, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("ListDomains", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(ssssa{sx}o)", domains),
                            call<&Methods::list_domains>, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("RecentDecisions", SD_BUS_ARGS("u", max),
                            SD_BUS_RESULT("a(tssssa(sssxxxss))", decisions),
                            call<&Methods::recent_decisions>, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("SetOvercommit", SD_BUS_ARGS("s", resource, "s", ratio),
                            SD_BUS_NO_RESULT, call<&Methods::set_overcommit>,
                            SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("ResetOvercommit", SD_BUS_ARGS("s", resource), SD_BUS_NO_RESULT,
                            call<&Methods::reset_overcommit>, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("SetMode", SD_BUS_ARGS("s", mode, "s", message), SD_BUS_NO_RESULT,
                            call<&Methods::set_mode>, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS(
        "Reserve", SD_BUS_ARGS("s", owner, "s", name, "a{sx}", resources, "a{sv}", options),
        SD_BUS_NO_RESULT, call<&Methods::reserve>, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("RenewReservation", SD_BUS_ARGS("s", owner, "s", name, "t", expiry),
                            SD_BUS_NO_RESULT, call<&Methods::renew_reservation>,
                            SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("CancelReservation", SD_BUS_ARGS("s", owner, "s", name),
                            SD_BUS_NO_RESULT, call<&Methods::cancel_reservation>,
                            SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("ListReservations", SD_BUS_NO_ARGS,
                            SD_BUS_RESULT("a(ssa{sx}a{sx}t)", reservations),
                            call<&Methods::list_reservations>, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("Reload", SD_BUS_NO_ARGS, SD_BUS_NO_RESULT, call<&Methods::reload>,
                            SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_METHOD_WITH_ARGS("Resync", SD_BUS_NO_ARGS, SD_BUS_NO_RESULT, call<&Methods::resync>,
                            SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_SIGNAL_WITH_ARGS(
        "Admitted", SD_BUS_ARGS("s", name, "s", uuid, "s", scheduler, "a(sssxxxss)", reasons), 0),
    SD_BUS_SIGNAL_WITH_ARGS(
        "Refused", SD_BUS_ARGS("s", name, "s", uuid, "s", scheduler, "a(sssxxxss)", reasons), 0),
    SD_BUS_SIGNAL_WITH_ARGS("OverCapacityChanged", SD_BUS_ARGS("as", resources), 0),
    SD_BUS_VTABLE_END};

Result<> Methods::add() {
    sd_bus_slot* slot = nullptr;
    const int r =
        sd_bus_add_object_vtable(bus_, &slot, manager_path, manager_interface, vtable, this);
    slot_.reset(slot);
    if (r < 0)
        return failed("methods", r);
    return {};
}

int Methods::check(sd_bus_message* message) {
    std::string xml;
    const auto read = read_text(message, "xml", max_xml, xml);
    return read ? ask(message, actions_.check, std::move(xml)) : reply_error(message, read.error());
}

int Methods::explain(sd_bus_message* message) {
    std::string domain;
    const auto read = read_text(message, "domain", max_name, domain);
    return read ? ask(message, actions_.explain, std::move(domain))
                : reply_error(message, read.error());
}

int Methods::ask(sd_bus_message* message, const Ask& ask, std::string about) {
    if (auto place = callers_.enter(message))
        ask(std::move(about), sd_bus_message_get_sender(message),
            [call = kept_call(message),
             place = *std::move(place)](const Result<core::Outcome>& outcome) {
                (void)reply_outcome(call.get(), outcome);
            });
    return 1;
}

int Methods::list_domains(sd_bus_message* message) {
    auto part = [this, last = std::string()](sd_bus_message* answer) mutable {
        Appender to(answer);
        int left = domains_per_turn;
        const auto& domains = picture_.domains;
        for (auto each = domains.upper_bound(last); left > 0 && each != domains.end(); ++each) {
            append_domain(to, each->first, each->second.guest);
            last = each->first;
            --left;
        }
        return to.error() < 0 ? to.error() : left == 0 ? 1 : 0;
    };
    answers_.ask(message, domain_type, std::move(part));
    return 1;
}

int Methods::recent_decisions(sd_bus_message* message) {
    std::uint32_t most = 0;
    if (const int r = sd_bus_message_read(message, "u", &most); r < 0)
        return r;
    auto part = [this, most, starts = std::optional<std::vector<core::DecidedStart>>(),
                 next = std::size_t{0}](sd_bus_message* answer) mutable {
        if (!starts)
            starts = actions_.recent(most); // not before: many may ask, each for a megabyte
        Appender to(answer);
        const std::size_t end = std::min(next + decisions_per_turn, starts->size());
        for (; next < end; ++next)
            append_decision(to, (*starts)[next]);
        return to.error() < 0 ? to.error() : next < starts->size() ? 1 : 0;
    };
    answers_.ask(message, decision_type, std::move(part));
    return 1;
}

int Methods::set_overcommit(sd_bus_message* message) {
    return carry_out(message, read_set_overcommit(message));
}

int Methods::reset_overcommit(sd_bus_message* message) {
    return carry_out(message, read_reset_overcommit(message));
}

int Methods::set_mode(sd_bus_message* message) {
    return carry_out(message, read_set_mode(message));
}

int Methods::reserve(sd_bus_message* message) {
    return carry_out(message, read_reserve(message));
}

int Methods::renew_reservation(sd_bus_message* message) {
    return carry_out(message, read_renew(message));
}

int Methods::cancel_reservation(sd_bus_message* message) {
    return carry_out(message, read_cancel(message));
}

int Methods::list_reservations(sd_bus_message* message) {
    auto part = [this, all = std::optional<std::vector<core::ReservationReport>>(),
                 next = std::size_t{0}](sd_bus_message* answer) mutable {
        if (!all)
            all = actions_.reservations();
        Appender to(answer);
        const std::size_t end = std::min(next + reservations_per_turn, all->size());
        for (; next < end; ++next)
            append_reservation(to, (*all)[next]);
        return to.error() < 0 ? to.error() : next < all->size() ? 1 : 0;
    };
    answers_.ask(message, reservation_type, std::move(part));
    return 1;
}

/// Only who may give orders learns what is wrong with one.
int Methods::carry_out(sd_bus_message* message, Result<core::Order> order) {
    return authority_.ask(message, [this, order = std::move(order)](MessagePtr call,
                                                                    std::uint32_t user) {
        if (!order) {
            const auto& [code, what] = order.error();
            (void)(code == Errc::limit ? reply_error(call.get(), order.error())
                                       : reply_order(call.get(), fail(Errc::invalid, "{}", what)));
            return;
        }
        actions_.order(*order, user, [call = std::move(call)](const Result<>& done) {
            (void)reply_order(call.get(), done);
        });
    });
}

int Methods::reload(sd_bus_message* message) {
    return authority_.ask(message, [this](MessagePtr call, std::uint32_t) {
        actions_.reload([call = std::move(call)](Result<> loaded) {
            // Who asked may be gone by now, and with him the bus.
            (void)(loaded ? sd_bus_reply_method_return(call.get(), "")
                          : reply_error(call.get(), loaded.error()));
        });
    });
}

int Methods::resync(sd_bus_message* message) {
    return authority_.ask(message, [this](MessagePtr call, std::uint32_t) {
        actions_.resync();
        (void)sd_bus_reply_method_return(call.get(), "");
    });
}

Result<> Methods::announce(const core::DecidedStart& start) {
    const bool refused = start.verdict == core::Verdict::refuse;
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_signal(bus_, &raw, manager_path, manager_interface,
                                      refused ? "Refused" : "Admitted");
    const MessagePtr signal(raw);
    r = Appender(raw, r)
            .add(start.name)
            .add(start.uuid ? start.uuid->text() : "")
            .add(start.scheduler)
            .add(start.reasons)
            .send();
    if (r < 0)
        return failed("signals", r);
    return {};
}

} // namespace virtguard::bus
