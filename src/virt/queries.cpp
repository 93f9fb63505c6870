// SPDX-License-Identifier: Apache-2.0
#include "virt/queries.hpp"

#include <string_view>

#include "virt/domains.hpp"

namespace virtguard::virt {

Uuid uuid_of(virDomainPtr domain) {
    Uuid uuid;
    (void)virDomainGetUUID(domain, uuid.bytes.data()); // fails only on a null pointer
    return uuid;
}

bool is_gone() {
    return virGetLastErrorCode() == VIR_ERR_NO_DOMAIN;
}

Result<std::vector<DomainPtr>> list_domains(virConnectPtr connect, unsigned kinds) {
    virDomainPtr* list = nullptr;
    const int count = virConnectListAllDomains(connect, &list, kinds);
    if (count < 0)
        return std::unexpected(last_error("list of domains"));
    std::vector<DomainPtr> domains(list, list + count);
    std::free(list);
    return domains;
}

namespace {

/// An inactive domain has XML, too, of what it may become, but an active one alone has an id.
bool has_id(std::string_view xml) {
    return xml.substr(0, xml.find('>')).contains(" id='");
}

} // namespace

Result<TextPtr> live_xml(virDomainPtr domain) {
    TextPtr xml(virDomainGetXMLDesc(domain, 0));
    if (!xml && !is_gone())
        return std::unexpected(last_error("domain XML"));
    if (xml && has_id(xml.get())) // which libvirt need not be asked: half of the cost of a look
        return xml;
    const int active = xml ? virDomainIsActive(domain) : 0;
    if (active < 0 && !is_gone())
        return std::unexpected(last_error("domain state"));
    if (active <= 0)
        xml.reset();
    return xml;
}

namespace {

Result<ConnectPtr> connect_once(const std::string& uri) {
    virSetErrorFunc(nullptr, [](void*, virErrorPtr) {}); // libvirt would print every error
    ConnectPtr connect(virConnectOpenReadOnly(uri.c_str()));
    if (!connect)
        return std::unexpected(last_error(printable(uri)));
    return connect;
}

/// A name that reads as a UUID is one where there is such a domain.
DomainPtr look_up(virConnectPtr connect, const std::string& name_or_uuid) {
    DomainPtr found;
    if (const auto uuid = Uuid::parse(name_or_uuid))
        found.reset(virDomainLookupByUUID(connect, uuid->bytes.data()));
    if (!found)
        found.reset(virDomainLookupByName(connect, name_or_uuid.c_str()));
    return found;
}

} // namespace

Result<DomainXml> find_domain(const std::string& uri, const std::string& name_or_uuid) {
    const auto connect = connect_once(uri);
    if (!connect)
        return std::unexpected(connect.error());
    const DomainPtr domain = look_up(connect->get(), name_or_uuid);
    if (!domain && is_gone())
        return fail(Errc::not_found, "there is no domain {}", quote(name_or_uuid));
    const TextPtr xml(domain ? virDomainGetXMLDesc(domain.get(), 0) : nullptr);
    if (!xml)
        return std::unexpected(last_error(printable(name_or_uuid)));
    return DomainXml{uuid_of(domain.get()), virDomainGetName(domain.get()), xml.get()};
}

Result<std::vector<DomainXml>> live_domains(const std::string& uri) {
    const auto connect = connect_once(uri);
    if (!connect)
        return std::unexpected(connect.error());
    const auto domains = list_domains(connect->get(), VIR_CONNECT_LIST_DOMAINS_ACTIVE);
    if (!domains)
        return std::unexpected(domains.error());
    std::vector<DomainXml> result;
    for (const DomainPtr& domain : *domains) {
        const auto xml = live_xml(domain.get());
        if (!xml)
            return std::unexpected(xml.error());
        if (*xml)
            result.push_back({uuid_of(domain.get()), virDomainGetName(domain.get()), xml->get()});
    }
    return result;
}

Result<std::vector<DomainXml>> autostart_domains(const std::string& uri) {
    const auto connect = connect_once(uri);
    if (!connect)
        return std::unexpected(connect.error());
    const auto domains = list_domains(connect->get(), VIR_CONNECT_LIST_DOMAINS_INACTIVE |
                                                          VIR_CONNECT_LIST_DOMAINS_AUTOSTART);
    if (!domains)
        return std::unexpected(domains.error());
    std::vector<DomainXml> result;
    for (const DomainPtr& domain : *domains) {
        const TextPtr xml(virDomainGetXMLDesc(domain.get(), VIR_DOMAIN_XML_INACTIVE));
        if (!xml && !is_gone())
            return std::unexpected(last_error("domain XML"));
        if (xml)
            result.push_back({uuid_of(domain.get()), virDomainGetName(domain.get()), xml.get()});
    }
    return result;
}

} // namespace virtguard::virt
