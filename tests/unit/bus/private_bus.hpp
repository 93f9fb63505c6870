// SPDX-License-Identifier: Apache-2.0
#pragma once
// A dbus-daemon of a test's own, and a client on it. Whoever asks and whoever answers are on one
// loop, so asking runs it.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#include <catch2/catch.hpp>

#include "../folder.hpp"
#include "bus/handles.hpp"

namespace virtguard {

class PrivateBus {
  public:
    PrivateBus() {
        std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755)); // for any user
        folder_.write("bus.conf", "<busconfig><listen>" + address() +
                                      "</listen><auth>EXTERNAL</auth><policy context='default'>"
                                      "<allow user='*'/><allow own='*'/><allow send_type='*'/>"
                                      "<allow eavesdrop='true'/></policy></busconfig>");
    }
    PrivateBus(const PrivateBus&) = delete;
    PrivateBus& operator=(const PrivateBus&) = delete;
    ~PrivateBus() { end(); }

    [[nodiscard]] std::string address() const { return "unix:path=" + folder_.file("socket"); }

    void begin() {
        const std::string config = "--config-file=" + folder_.file("bus.conf");
        pid_ = ::fork();
        REQUIRE(pid_ >= 0);
        if (pid_ == 0) {
            ::execlp("dbus-daemon", "dbus-daemon", config.c_str(), "--nofork", nullptr);
            ::_exit(127);
        }
    }
    void signal(int number) const { REQUIRE(::kill(pid_, number) == 0); }
    void end() {
        if (pid_ <= 0)
            return;
        (void)::kill(pid_, SIGKILL);
        (void)::waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }

  private:
    Folder folder_;
    pid_t pid_ = 0;
};

/// Runs the loop until it is so, for ten seconds at most.
inline void run_until(sd_event* loop, const std::function<bool()>& is_so) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!is_so()) {
        REQUIRE(std::chrono::steady_clock::now() < deadline);
        REQUIRE(sd_event_run(loop, /*usec=*/10'000) >= 0);
    }
}

class Client {
  public:
    Client(sd_event* loop, const std::string& address) : loop_(loop) {
        sd_bus* bus = nullptr;
        REQUIRE(sd_bus_new(&bus) >= 0);
        bus_.reset(bus);
        REQUIRE(sd_bus_set_address(bus, address.c_str()) >= 0);
        REQUIRE(sd_bus_set_bus_client(bus, 1) >= 0);
        REQUIRE(sd_bus_set_watch_bind(bus, 1) >= 0);
        REQUIRE(sd_bus_start(bus) >= 0);
        REQUIRE(sd_bus_attach_event(bus, loop, SD_EVENT_PRIORITY_NORMAL) >= 0);
        // All signals of the name's owner, as "Member path" each.
        REQUIRE(sd_bus_add_match_async(bus, nullptr, "type='signal',sender='org.virtguard1'",
                                       on_signal, nullptr, this) >= 0);
        (void)call("/org/freedesktop/DBus", "org.freedesktop.DBus", "GetId",
                   "org.freedesktop.DBus");
    }

    /// The answer; an error's name is error_of() it.
    template <class... Args>
    bus::MessagePtr call(const char* path, const char* interface, const char* member,
                         const char* service = "org.virtguard1", Args... args) {
        sd_bus_message* raw = nullptr;
        REQUIRE(sd_bus_message_new_method_call(bus_.get(), &raw, service, path, interface,
                                               member) >= 0);
        const bus::MessagePtr message(raw);
        if constexpr (sizeof...(args) > 0)
            REQUIRE(sd_bus_message_append(raw, args...) >= 0);
        bus::MessagePtr reply;
        REQUIRE(sd_bus_call_async(bus_.get(), nullptr, raw, on_reply, &reply, 0) >= 0);
        run_until(loop_, [&] { return reply != nullptr; });
        return reply;
    }
    template <class... Args>
    bus::MessagePtr manager(const char* member, Args... args) {
        return call("/org/virtguard1", "org.virtguard1.Manager", member, "org.virtguard1", args...);
    }
    bus::MessagePtr property(const char* path, const char* interface, const char* name) {
        bus::MessagePtr reply = call(path, "org.freedesktop.DBus.Properties", "Get",
                                     "org.virtguard1", "ss", interface, name);
        REQUIRE(error_of(reply) == "");
        REQUIRE(sd_bus_message_enter_container(reply.get(), 'v', nullptr) > 0);
        return reply;
    }
    std::string text_property(const char* path, const char* interface, const char* name) {
        const bus::MessagePtr reply = property(path, interface, name);
        const char* text = nullptr;
        REQUIRE(sd_bus_message_read(reply.get(), "s", &text) > 0);
        return text;
    }
    static std::string error_of(const bus::MessagePtr& reply) {
        const sd_bus_error* error = sd_bus_message_get_error(reply.get());
        return error == nullptr ? "" : error->name;
    }
    static std::string message_of(const bus::MessagePtr& reply) {
        const sd_bus_error* error = sd_bus_message_get_error(reply.get());
        return error == nullptr ? "" : error->message;
    }

    [[nodiscard]] sd_bus* get() const { return bus_.get(); }

    std::vector<std::string> signals;

  private:
    static int on_reply(sd_bus_message* reply, void* kept, sd_bus_error*) {
        static_cast<bus::MessagePtr*>(kept)->reset(sd_bus_message_ref(reply));
        return 1;
    }
    /// "PropertiesChanged /org/virtguard1 Mode Problems": with the names of what has changed.
    static int on_signal(sd_bus_message* signal, void* self, sd_bus_error*) {
        const std::string member = sd_bus_message_get_member(signal);
        std::string text = member + " " + sd_bus_message_get_path(signal);
        if (member == "PropertiesChanged")
            text += changed_names(signal);
        else if (const char* path = nullptr;
                 member.starts_with("Interfaces") && sd_bus_message_read(signal, "o", &path) > 0)
            text = member + " " + path;
        static_cast<Client*>(self)->signals.push_back(text);
        return 0;
    }
    static std::string changed_names(sd_bus_message* signal) {
        std::string names;
        const char* interface = nullptr;
        REQUIRE(sd_bus_message_read(signal, "s", &interface) > 0);
        REQUIRE(sd_bus_message_enter_container(signal, 'a', "{sv}") > 0);
        while (sd_bus_message_enter_container(signal, 'e', "sv") > 0) {
            const char* name = nullptr;
            REQUIRE(sd_bus_message_read(signal, "s", &name) > 0);
            REQUIRE(sd_bus_message_skip(signal, "v") >= 0);
            REQUIRE(sd_bus_message_exit_container(signal) >= 0);
            names += std::string(" ") + name;
        }
        return names;
    }

    sd_event* loop_;
    bus::BusPtr bus_;
};

} // namespace virtguard
