// SPDX-License-Identifier: Apache-2.0
#include "bus/follower.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "bus/handles.hpp"
#include "bus/names.hpp"
#include "bus/sender.hpp"

namespace virtguard::bus {

namespace {

constexpr const char* properties_interface = "org.freedesktop.DBus.Properties";

/// Reads from a message, until one step fails.
class Reader {
  public:
    explicit Reader(sd_bus_message* message) : message_(message) {}

    Reader& read(std::string& text) {
        const char* found = "";
        take([&] { return sd_bus_message_read_basic(message_, SD_BUS_TYPE_STRING, &found); });
        text = found;
        return *this;
    }
    Reader& read(std::int64_t& number) {
        return take(
            [&] { return sd_bus_message_read_basic(message_, SD_BUS_TYPE_INT64, &number); });
    }
    Reader& read(std::vector<std::string>& texts) {
        texts.clear();
        return read_array("s", [&] { read(texts.emplace_back()); });
    }
    Reader& read(std::map<std::string, std::string>& texts) {
        texts.clear();
        return read_array("{ss}", [&] {
            read_in(SD_BUS_TYPE_DICT_ENTRY, "ss", [&] {
                std::string key;
                read(key).read(texts[key]);
            });
        });
    }
    Reader& read(core::HeardReason& reason) {
        return read_in(SD_BUS_TYPE_STRUCT, "sssxxxss", [&] {
            read(reason.code).read(reason.resource).read(reason.nodes);
            read(reason.requested).read(reason.free).read(reason.effective);
            read(reason.mode).read(reason.text);
        });
    }
    template <class Element>
    Reader& read_array(const char* of, Element element) {
        return read_in(SD_BUS_TYPE_ARRAY, of, [&] {
            while (r_ >= 0 && sd_bus_message_at_end(message_, /*complete=*/0) == 0)
                element();
        });
    }
    template <class Inside>
    Reader& read_in(char container, const char* of, Inside inside) {
        take([&] { return sd_bus_message_enter_container(message_, container, of); });
        if (r_ >= 0)
            inside();
        if (r_ >= 0)
            r_ = sd_bus_message_exit_container(message_);
        return *this;
    }
    Reader& skip(const char* of) {
        return take([&] { return sd_bus_message_skip(message_, of); });
    }
    /// 0, or a negative errno.
    [[nodiscard]] int error() const { return std::min(r_, 0); }

  private:
    /// What is not there (0) is as bad as what is something else.
    template <class Step>
    Reader& take(Step step) {
        if (r_ >= 0)
            r_ = step();
        if (r_ == 0)
            r_ = -EBADMSG;
        return *this;
    }

    sd_bus_message* message_;
    int r_ = 1;
};

template <auto Member>
void read_variant(Reader& reader, const char* type, core::HeardHost& host) {
    reader.read_in(SD_BUS_TYPE_VARIANT, type, [&] { reader.read(host.*Member); });
}

/// A property of the host that is followed.
struct Followed {
    std::string_view name;
    const char* type;
    void (*read)(Reader&, const char*, core::HeardHost&);
};

using Host = core::HeardHost;
constexpr std::array followed{Followed{"Version", "s", read_variant<&Host::version>},
                              Followed{"Mode", "s", read_variant<&Host::mode>},
                              Followed{"State", "s", read_variant<&Host::state>},
                              Followed{"Problems", "as", read_variant<&Host::problems>},
                              Followed{"Overcommit", "a{ss}", read_variant<&Host::overcommit>},
                              Followed{"OverCapacity", "as", read_variant<&Host::over_capacity>}};

/// Those of a{sv} that are followed.
void read_properties(Reader& reader, core::HeardHost& host) {
    reader.read_array("{sv}", [&] {
        reader.read_in(SD_BUS_TYPE_DICT_ENTRY, "sv", [&] {
            std::string name;
            reader.read(name);
            const auto* known = std::ranges::find(followed, name, &Followed::name);
            if (known == followed.end())
                reader.skip("v");
            else
                known->read(reader, known->type, host);
        });
    });
}

/// One connection.
class Follower {
  public:
    explicit Follower(FollowHandlers handlers) : handlers_(std::move(handlers)) {}

    [[nodiscard]] Result<> run(const std::string& address, Bus bus);

  private:
    [[nodiscard]] int start(const std::string& address, Bus bus);
    [[nodiscard]] int subscribe();
    [[nodiscard]] int ask();
    [[nodiscard]] int on_owner(sd_bus_message* signal);
    [[nodiscard]] int on_properties(sd_bus_message* reply);
    [[nodiscard]] int on_change(sd_bus_message* signal);
    [[nodiscard]] int on_start(sd_bus_message* signal, core::Verdict verdict);
    [[nodiscard]] int on_signal(sd_bus_message* signal);
    int go_on(bool goes_on);

    template <auto Member>
    static int call(sd_bus_message* message, void* self, sd_bus_error*) {
        auto* follower = static_cast<Follower*>(self);
        const int r = (follower->*Member)(message);
        if (r < 0 && follower->problem_.empty())
            follower->problem_ = failed(service_name, r).error().what;
        return 0;
    }

    FollowHandlers handlers_;
    std::string owner_;                   ///< unique name of who is there; "" while unknown
    std::optional<core::HeardHost> host_; ///< as it was told; nothing while nobody is there
    bool ended_ = false;
    std::string problem_; ///< what was no good answer or signal
    BusPtr bus_;
    SlotPtr asking_; ///< for the properties of who is there now
};

int Follower::start(const std::string& address, Bus bus) {
    sd_bus* raw = nullptr;
    int r = sd_bus_new(&raw);
    bus_.reset(raw);
    if (r >= 0)
        r = sd_bus_set_address(raw, address.c_str());
    if (r >= 0)
        r = sd_bus_set_bus_client(raw, /*b=*/1);
    if (r >= 0)
        r = sd_bus_set_watch_bind(raw, bus == Bus::that_comes ? 1 : 0);
    if (r >= 0)
        r = sd_bus_start(raw);
    if (r >= 0)
        r = subscribe();
    return r < 0 ? r : ask();
}

int Follower::subscribe() {
    const auto hear = [&](const char* sender, const char* path, const char* interface,
                          const char* member, sd_bus_message_handler_t handler) {
        return sd_bus_match_signal_async(bus_.get(), nullptr, sender, path, interface, member,
                                         handler, /*install_callback=*/nullptr, this);
    };
    int r = sd_bus_add_match_async(
        bus_.get(), nullptr,
        fmt::format("type='signal',sender='{0}',path='/org/freedesktop/DBus',interface='{0}',"
                    "member='NameOwnerChanged',arg0='{1}'",
                    bus_name, service_name)
            .c_str(),
        call<&Follower::on_owner>, /*install_callback=*/nullptr, this);
    if (r >= 0)
        r = hear(service_name, manager_path, properties_interface, "PropertiesChanged",
                 call<&Follower::on_change>);
    if (r >= 0)
        r = hear(service_name, manager_path, manager_interface, nullptr,
                 call<&Follower::on_signal>);
    return r;
}

/// After subscribing, so that nothing is missed; without having the bus start a virtguardd.
int Follower::ask() {
    sd_bus_message* raw = nullptr;
    int r = sd_bus_message_new_method_call(bus_.get(), &raw, service_name, manager_path,
                                           properties_interface, "GetAll");
    const MessagePtr call_message(raw);
    if (r >= 0)
        r = sd_bus_message_append(raw, "s", manager_interface);
    if (r >= 0)
        r = sd_bus_message_set_auto_start(raw, /*b=*/0);
    sd_bus_slot* slot = nullptr;
    if (r >= 0)
        r = sd_bus_call_async(bus_.get(), &slot, raw, call<&Follower::on_properties>, this,
                              /*usec=*/0);
    asking_.reset(slot);
    return r;
}

int Follower::on_properties(sd_bus_message* reply) {
    if (const sd_bus_error* error = sd_bus_message_get_error(reply); error != nullptr) {
        if (sd_bus_error_has_name(error, SD_BUS_ERROR_SERVICE_UNKNOWN) > 0 ||
            sd_bus_error_has_name(error, SD_BUS_ERROR_NAME_HAS_NO_OWNER) > 0)
            return go_on(handlers_.absent());
        if (sd_bus_error_has_name(error, SD_BUS_ERROR_NO_REPLY) > 0)
            return 0; // it has gone meanwhile, and the bus says so
        return -sd_bus_error_get_errno(error);
    }
    Reader reader(reply);
    core::HeardHost host;
    read_properties(reader, host);
    if (reader.error() < 0)
        return reader.error();
    owner_ = sd_bus_message_get_sender(reply);
    host_ = std::move(host);
    return go_on(handlers_.host(*host_));
}

int Follower::on_owner(sd_bus_message* signal) {
    if (!is_from(signal, bus_name))
        return 0;
    std::string name;
    std::string before;
    std::string now;
    if (const int r = Reader(signal).read(name).read(before).read(now).error(); r < 0)
        return r;
    asking_.reset();
    owner_ = now;
    host_.reset();
    if (!before.empty() && !go_on(handlers_.absent()))
        return 0;
    return now.empty() ? 0 : ask();
}

/// What comes before the answer to ask() is in the answer.
int Follower::on_change(sd_bus_message* signal) {
    if (!host_ || !is_from(signal, owner_))
        return 0;
    Reader reader(signal);
    std::string interface;
    reader.read(interface);
    if (interface != manager_interface)
        return reader.error();
    core::HeardHost host = *host_;
    read_properties(reader, host);
    if (reader.error() < 0 || host == host_)
        return reader.error();
    host_ = std::move(host);
    return go_on(handlers_.host(*host_));
}

int Follower::on_signal(sd_bus_message* signal) {
    if (!is_from(signal, owner_))
        return 0;
    const std::string_view member = sd_bus_message_get_member(signal);
    if (member == "Admitted")
        return on_start(signal, core::Verdict::admit);
    if (member == "Refused")
        return on_start(signal, core::Verdict::refuse);
    return 0; // what is over capacity is a property, too
}

int Follower::on_start(sd_bus_message* signal, core::Verdict verdict) {
    core::HeardStart start{.verdict = verdict};
    Reader reader(signal);
    reader.read(start.name).read(start.uuid).read(start.scheduler);
    reader.read_array("(sssxxxss)", [&] { reader.read(start.reasons.emplace_back()); });
    if (reader.error() < 0)
        return reader.error();
    if (verdict == core::Verdict::admit && !start.reasons.empty())
        start.verdict = core::Verdict::would_refuse;
    return go_on(handlers_.start(start));
}

/// 0: it does not.
int Follower::go_on(bool goes_on) {
    ended_ = ended_ || !goes_on;
    return goes_on ? 1 : 0;
}

Result<> Follower::run(const std::string& address, Bus bus) {
    int r = start(address, bus);
    while (r >= 0 && !ended_) {
        r = sd_bus_process(bus_.get(), nullptr);
        if (!problem_.empty())
            return fail(Errc::unavailable, "{}", problem_);
        if (r == 0 && !ended_)
            r = sd_bus_wait(bus_.get(), UINT64_MAX);
        r = r == -EINTR ? 0 : r;
    }
    if (r < 0)
        return fail(Errc::unavailable, "bus: {}: {}", address, std::strerror(-r));
    return {};
}

} // namespace

Result<> follow(const std::string& address, Bus bus, FollowHandlers handlers) {
    return Follower(std::move(handlers)).run(address, bus);
}

} // namespace virtguard::bus
