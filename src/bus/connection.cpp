// SPDX-License-Identifier: Apache-2.0
#include "bus/connection.hpp"

#include <string_view>
#include <utility>

#include "bus/names.hpp"
#include "bus/tree.hpp"

namespace virtguard::bus {

namespace {

/// A turn's share of signals: below a millisecond of work.
constexpr int signals_per_turn = 32;

/// sd-bus's own messages about the connection come from here.
constexpr const char* local_name = "org.freedesktop.DBus.Local";
constexpr const char* local_path = "/org/freedesktop/DBus/Local";

std::string error_text(sd_bus_message* reply) {
    const sd_bus_error* error = sd_bus_message_get_error(reply);
    return error == nullptr || error->message == nullptr ? "no reason given" : error->message;
}

/// A connection that sd_bus_start() begins as soon as something listens.
int make_client(BusPtr& connection, const std::string& address) {
    sd_bus* bus = nullptr;
    int r = sd_bus_new(&bus);
    connection.reset(bus);
    if (r >= 0)
        r = sd_bus_set_address(bus, address.c_str());
    if (r >= 0)
        r = sd_bus_set_bus_client(bus, /*b=*/1);
    if (r >= 0)
        r = sd_bus_set_watch_bind(bus, /*b=*/1);
    if (r >= 0)
        r = sd_bus_set_connected_signal(bus, /*b=*/1);
    return r;
}

} // namespace

/// The member function that a message of sd-bus's is for. 0: whoever else wants it gets it, too.
template <auto Member>
int Connection::call(sd_bus_message* message, void* self, sd_bus_error*) {
    return (static_cast<Connection*>(self)->*Member)(message);
}

Result<std::unique_ptr<Connection>> Connection::open(sd_event* loop, std::int64_t priority,
                                                     const std::string& address, Handlers handlers,
                                                     Actions actions) {
    std::unique_ptr<Connection> connection(new Connection(std::move(handlers)));
    if (const int r = connection->start(loop, priority, address); r < 0)
        return failed(address, r);
    auto slots = add_tree(connection->bus_.get(), connection->shown_);
    if (!slots)
        return std::unexpected(slots.error());
    for (SlotPtr& slot : *slots)
        connection->slots_.push_back(std::move(slot));
    connection->methods_ = std::make_unique<Methods>(
        connection->bus_.get(), connection->shown_, connection->answers_, std::move(actions),
        connection->asker_.get(), [self = connection.get()](bool now) { self->read_calls(now); });
    if (auto added = connection->methods_->add(); !added)
        return std::unexpected(added.error());
    return connection;
}

int Connection::start(sd_event* loop, std::int64_t priority, const std::string& address) {
    loop_ = loop;
    priority_ = static_cast<int>(priority);
    int r = make_client(bus_, address);
    if (r >= 0)
        r = make_client(asker_, address);
    if (r >= 0)
        r = serve_calls();
    if (r >= 0)
        r = watch(asker_.get(), "Disconnected", call<&Connection::on_disconnected>);
    for (sd_bus* each : {bus_.get(), asker_.get()}) {
        if (r >= 0)
            r = sd_bus_start(each);
        if (r >= 0)
            r = sd_bus_attach_event(each, loop_, priority_);
    }
    return r;
}

/// The connection's beginning and its end, and all that comes in.
int Connection::serve_calls() {
    sd_bus_slot* slot = nullptr;
    int r = sd_bus_add_filter(bus_.get(), &slot, call<&Connection::filter>, this);
    slots_.emplace_back(slot);
    if (r >= 0)
        r = watch(bus_.get(), "Connected", call<&Connection::on_connected>);
    if (r >= 0)
        r = watch(bus_.get(), "Disconnected", call<&Connection::on_disconnected>);
    return r;
}

int Connection::watch(sd_bus* bus, const char* event, sd_bus_message_handler_t handler) {
    sd_bus_slot* match = nullptr;
    const int r = sd_bus_match_signal_async(bus, &match, local_name, local_path, local_name, event,
                                            handler, /*install_callback=*/nullptr, this);
    slots_.emplace_back(match);
    return r;
}

/// What nobody reads waits in the bus, which has limits for it.
void Connection::read_calls(bool now) {
    const int r =
        now ? sd_bus_attach_event(bus_.get(), loop_, priority_) : sd_bus_detach_event(bus_.get());
    if (r < 0)
        end(failed("calls", r).error().what);
}

int Connection::on_connected(sd_bus_message*) {
    shown_ = handlers_.picture();
    sd_bus_slot* slot = nullptr;
    const int r = sd_bus_request_name_async(bus_.get(), &slot, service_name, /*flags=*/0,
                                            call<&Connection::on_name>, this);
    slots_.emplace_back(slot);
    if (r < 0)
        end(failed(service_name, r).error().what);
    return 0;
}

int Connection::on_disconnected(sd_bus_message*) {
    end("bus: the connection has ended");
    return 0;
}

int Connection::on_name(sd_bus_message* reply) {
    std::uint32_t outcome = 0;
    constexpr std::uint32_t primary_owner = 1; // DBUS_REQUEST_NAME_REPLY_PRIMARY_OWNER
    if (sd_bus_message_is_method_error(reply, nullptr) > 0)
        end(fmt::format("bus: {}: {}", service_name, error_text(reply)));
    else if (sd_bus_message_read(reply, "u", &outcome) < 0 || outcome != primary_owner)
        end(fmt::format("bus: {}: another has this name", service_name));
    else {
        told_ = shown_; // who finds us now reads it all
        joined_ = true;
        handlers_.joined();
    }
    return 1;
}

/// Sees each message before anybody else. 1: it goes no further.
int Connection::filter(sd_bus_message* message) {
    if (ended_)
        return 1;
    (void)answer(); // whoever asks and asks does not keep others waiting for ever
    const std::uint64_t behind = unsent();
    if (sd_bus_message_is_method_call(message, nullptr, nullptr) <= 0)
        return 0;
    if (behind < max_unsent)
        return ask_for_objects(message);
    if (behind < max_unsent_errors)
        (void)sd_bus_reply_method_errorf(message, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                         "too many answers wait for being read");
    return 1;
}

/// 1: it was that call. sd-bus's own answer would take all of its time in one turn.
int Connection::ask_for_objects(sd_bus_message* call) {
    if (sd_bus_message_is_method_call(call, "org.freedesktop.DBus.ObjectManager",
                                      "GetManagedObjects") <= 0 ||
        sd_bus_message_get_path(call) != std::string_view(manager_path) ||
        sd_bus_message_has_signature(call, "") <= 0)
        return 0;
    answers_.ask(call, "{oa{sa{sv}}}",
                 [this, path = std::string()](sd_bus_message* answer) mutable {
                     return append_objects(answer, shown_, path);
                 });
    return 1;
}

Told Connection::answer() {
    if (!answers_.has_more())
        return Told::all;
    if (unsent() >= max_unsent)
        return Told::behind;
    answers_.go_on();
    return answers_.has_more() ? Told::more : Told::all;
}

Told Connection::tell() {
    if (!joined_)
        return Told::all;
    if (unsent() > 0)
        return Told::behind;
    const auto told = tell_changes(bus_.get(), told_, shown_, signals_per_turn);
    if (!told)
        end(told.error().what);
    return told.value_or(true) ? Told::all : Told::more;
}

bool Connection::announce(const core::DecidedStart& start) {
    if (!joined_)
        return true;
    if (unsent() > 0)
        return false;
    if (const auto announced = methods_->announce(start); !announced)
        end(announced.error().what);
    return true;
}

std::uint64_t Connection::unsent() const {
    std::uint64_t count = 0;
    return sd_bus_get_n_queued_write(bus_.get(), &count) < 0 ? 0 : count;
}

void Connection::end(const std::string& why) {
    joined_ = false;
    // Whoever calls now hears at once that nobody has the name.
    sd_bus_close(bus_.get());
    sd_bus_close(asker_.get());
    if (!std::exchange(ended_, true))
        handlers_.lost(why);
}

} // namespace virtguard::bus
