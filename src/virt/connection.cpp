// SPDX-License-Identifier: Apache-2.0
#include "virt/connection.hpp"

#include <utility>

#include "base/log.hpp"
#include "virt/queries.hpp"

namespace virtguard::virt {
namespace {

// An idle connection to a libvirtd that stands still is given up after 40 s (measured: the interval
// times the count and one). Not so during a call (measured with 9.0: no probe is sent), which lasts
// until libvirtd answers or dies. libvirtd's main loop answers the probes, so a hook that holds up
// its workers does not make it look dead.
constexpr int keepalive_seconds = 10;
constexpr unsigned keepalive_count = 3;

std::string close_reason(int reason) {
    switch (reason) {
    case VIR_CONNECT_CLOSE_REASON_EOF:
        return "libvirtd closed the connection";
    case VIR_CONNECT_CLOSE_REASON_KEEPALIVE:
        return "libvirtd does not answer";
    default:
        return "the connection broke";
    }
}

} // namespace

Result<std::unique_ptr<Connection>> Connection::open(const Options& options,
                                                     const std::atomic<bool>& stopping) {
    ConnectPtr connect(virConnectOpenReadOnly(options.uri.c_str()));
    if (!connect)
        return std::unexpected(last_error(printable(options.uri)));
    std::unique_ptr<Connection> made(new Connection(std::move(connect), options, stopping));
    made->subscribe();
    return made;
}

/// None of it is worth giving up a connection for: looks on a timer find out the same, later.
void Connection::subscribe() {
    virConnectPtr connect = connect_.get();
    if (virConnectRegisterCloseCallback(connect, closed, this, nullptr) < 0)
        log(Level::warning, "{}, ignoring", last_error("libvirt: watching the connection").what);
    // In-process drivers (test) have none and need none.
    (void)virConnectSetKeepAlive(connect, keepalive_seconds, keepalive_count);

    struct Event {
        virDomainEventID id;
        virConnectDomainEventGenericCallback callback;
        std::string_view name;
    };
    const auto generic = [](auto* function) {
        // Over a third type: this is what GCC takes as "meant".
        return reinterpret_cast<virConnectDomainEventGenericCallback>(
            reinterpret_cast<void (*)()>(function));
    };
    const Event events[] = {
        {VIR_DOMAIN_EVENT_ID_LIFECYCLE, generic(touched<int, int>), "lifecycle"},
        {VIR_DOMAIN_EVENT_ID_DEVICE_ADDED, generic(touched<const char*>), "device-added"},
        {VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, generic(touched<const char*>), "device-removed"},
        {VIR_DOMAIN_EVENT_ID_TUNABLE, generic(touched<virTypedParameterPtr, int>), "tunable"},
        {VIR_DOMAIN_EVENT_ID_BALLOON_CHANGE, generic(touched<unsigned long long>),
         "balloon-change"},
        {VIR_DOMAIN_EVENT_ID_MEMORY_DEVICE_SIZE_CHANGE,
         generic(touched<const char*, unsigned long long>), "memory-device-size-change"},
        {VIR_DOMAIN_EVENT_ID_METADATA_CHANGE, generic(touched<int, const char*>),
         "metadata-change"},
    };
    for (const Event& event : events) {
        const int id = virConnectDomainEventRegisterAny(connect, nullptr, event.id, event.callback,
                                                        this, nullptr);
        if (id >= 0)
            subscriptions_.push_back(id);
        else
            log(Level::warning, "libvirt: no {} events: {}, ignoring", event.name,
                printable(virGetLastErrorMessage()));
    }
}

Connection::~Connection() {
    // Each holds a reference to the connection, which would else stay open. A failure means that
    // the other side is gone, and the reference with it.
    for (const int id : subscriptions_)
        (void)virConnectDomainEventDeregisterAny(connect_.get(), id);
    (void)virConnectUnregisterCloseCallback(connect_.get(), closed);
}

void Connection::closed(virConnectPtr, int reason, void* self) {
    static_cast<Connection*>(self)->closed_ = close_reason(reason);
}

template <class... Details>
void Connection::touched(virConnectPtr, virDomainPtr domain, Details..., void* self) {
    static_cast<Connection*>(self)->touched_.insert(uuid_of(domain));
}

std::optional<std::string> Connection::lost() const {
    if (!closed_ && virConnectIsAlive(connect_.get()) == 0) // asks no one
        return close_reason(VIR_CONNECT_CLOSE_REASON_ERROR);
    return closed_;
}

std::set<Uuid> Connection::take_touched() {
    return std::exchange(touched_, {});
}

/// Nothing: it is not active.
Result<std::optional<ActiveDomain>> Connection::see(virDomainPtr domain) const {
    const auto xml = live_xml(domain);
    if (!xml)
        return std::unexpected(xml.error());
    if (!*xml)
        return std::nullopt;
    return ActiveDomain{uuid_of(domain), virDomainGetName(domain), options_.parse(xml->get())};
}

Result<Look> Connection::look(Instant began) {
    Look look{.began = began, .active = {}};
    const auto domains = list_domains(connect_.get(), VIR_CONNECT_LIST_DOMAINS_ACTIVE);
    if (!domains)
        return std::unexpected(domains.error());
    for (const DomainPtr& domain : *domains) {
        if (stopping_ || closed_)
            return fail(Errc::unavailable, "broken off");
        auto seen = see(domain.get());
        if (!seen)
            look.active.push_back({uuid_of(domain.get()), virDomainGetName(domain.get()),
                                   std::unexpected(std::move(seen.error()))});
        else if (*seen)
            look.active.push_back(std::move(**seen));
    }
    return look;
}

Result<DomainLook> Connection::look(const Uuid& uuid, Instant began) {
    DomainLook look{.began = began, .uuid = uuid, .active = {}};
    const DomainPtr domain(virDomainLookupByUUID(connect_.get(), uuid.bytes.data()));
    if (!domain && is_gone())
        return look;
    if (!domain)
        return std::unexpected(last_error("domain lookup"));
    auto seen = see(domain.get());
    if (!seen)
        return std::unexpected(std::move(seen.error()));
    look.active = std::move(*seen);
    return look;
}

} // namespace virtguard::virt
