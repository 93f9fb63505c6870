// SPDX-License-Identifier: Apache-2.0
#include "virt/queries.hpp"

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

Result<std::vector<DomainPtr>> list_active(virConnectPtr connect) {
    virDomainPtr* list = nullptr;
    const int count = virConnectListAllDomains(connect, &list, VIR_CONNECT_LIST_DOMAINS_ACTIVE);
    if (count < 0)
        return std::unexpected(last_error("list of domains"));
    std::vector<DomainPtr> domains(list, list + count);
    std::free(list);
    return domains;
}

Result<TextPtr> live_xml(virDomainPtr domain) {
    TextPtr xml(virDomainGetXMLDesc(domain, 0));
    if (!xml && !is_gone())
        return std::unexpected(last_error("domain XML"));
    // Asked after the XML was given: an inactive domain has XML too, of what it may become.
    const int active = xml ? virDomainIsActive(domain) : 0;
    if (active < 0 && !is_gone())
        return std::unexpected(last_error("domain state"));
    if (active <= 0)
        xml.reset();
    return xml;
}

Result<std::vector<LiveDomain>> live_domains(const std::string& uri) {
    virSetErrorFunc(nullptr, [](void*, virErrorPtr) {}); // libvirt would print every error
    const ConnectPtr connect(virConnectOpenReadOnly(uri.c_str()));
    if (!connect)
        return std::unexpected(last_error(printable(uri)));
    const auto domains = list_active(connect.get());
    if (!domains)
        return std::unexpected(domains.error());
    std::vector<LiveDomain> result;
    for (const DomainPtr& domain : *domains) {
        const auto xml = live_xml(domain.get());
        if (!xml)
            return std::unexpected(xml.error());
        if (*xml)
            result.push_back({uuid_of(domain.get()), virDomainGetName(domain.get()), xml->get()});
    }
    return result;
}

} // namespace virtguard::virt
