// SPDX-License-Identifier: Apache-2.0
#include "domxml/parse.hpp"

#include "base/text.hpp"
#include "domxml/devices.hpp"
#include "domxml/document.hpp"
#include "domxml/memory.hpp"
#include "domxml/vcpu.hpp"
#include "domxml/xpath.hpp"

namespace virtguard::domxml {

namespace {

std::string trimmed(std::string_view text) {
    constexpr std::string_view spaces = " \t\r\n";
    const std::size_t first = text.find_first_not_of(spaces);
    if (first == std::string_view::npos)
        return {};
    return std::string(text.substr(first, text.find_last_not_of(spaces) - first + 1));
}

Result<std::optional<Uuid>> read_uuid(Element root) {
    const Element element = root.child("uuid");
    const std::string text = element.text();
    if (text.empty())
        return std::nullopt;
    const auto uuid = Uuid::parse(text);
    if (!uuid)
        return element.invalid("<uuid>: {} is not a UUID", quote(text));
    return uuid;
}

/// Without a word about it, a misspelt <virtguard:scheduler> would mean the default scheduler.
void note_unknown(Element element, core::Domain& domain) {
    if (domain.unknown_metadata.empty())
        domain.unknown_metadata = printable(element.name());
}

Result<> read_admission(Element admission, core::Domain& domain) {
    for (const Element element : admission.children()) {
        if (!element.is("scheduler", admission_namespace)) {
            note_unknown(element, domain);
            continue;
        }
        const std::string named = trimmed(element.text());
        if (named.size() > core::max_scheduler_bytes)
            return element.invalid("<scheduler>: {} bytes: expected at most {}", named.size(),
                                   core::max_scheduler_bytes);
        if (!domain.scheduler.empty() && !named.empty() && named != domain.scheduler)
            return element.invalid("<scheduler>: {} and {}: expected one", quote(domain.scheduler),
                                   quote(named));
        if (domain.scheduler.empty())
            domain.scheduler = named;
    }
    return {};
}

/// What is in our namespace, whatever the prefix; all else in the metadata is others'.
Result<> read_metadata(Element root, core::Domain& domain) {
    for (const Element metadata : root.children("metadata")) {
        for (const Element element : metadata.children()) {
            if (element.is("admission", admission_namespace)) {
                if (auto done = read_admission(element, domain); !done)
                    return done;
            } else if (element.is(element.name(), admission_namespace))
                note_unknown(element, domain);
        }
    }
    return {};
}

/// SEV, SEV-SNP and TDX pin all of a guest's memory; the protection of s390 does not.
bool is_confidential(Element root) {
    const auto type = root.child("launchSecurity").attribute("type");
    return type == "sev" || type == "sev-snp" || type == "tdx";
}

Result<core::Domain> read_identity(Element root) {
    core::Domain domain;
    domain.name = root.child("name").text();
    if (domain.name.empty())
        return root.invalid("<name>: missing");
    auto uuid = read_uuid(root);
    if (!uuid)
        return std::unexpected(uuid.error());
    domain.uuid = *uuid;
    if (auto done = read_metadata(root, domain); !done)
        return std::unexpected(done.error());
    domain.confidential = is_confidential(root);
    return domain;
}

Result<> add_cpus(Element root, core::Domain& domain) {
    auto vcpus = read_vcpus(root);
    if (!vcpus)
        return std::unexpected(vcpus.error());
    domain.vcpus = *std::move(vcpus);
    const auto iothreads = read_iothreads(root);
    if (!iothreads)
        return std::unexpected(iothreads.error());
    domain.iothreads = *iothreads;
    return {};
}

Result<> add_memory_and_devices(Element root, core::Domain& domain) {
    auto memory = read_memory(root);
    if (!memory)
        return std::unexpected(memory.error());
    domain.memory = std::move(memory->parts);
    domain.current_memory = memory->current;
    domain.locked = memory->locked;
    domain.preallocated = memory->preallocated;
    domain.file_backed = memory->file_backed;
    auto devices = read_devices(root);
    if (!devices)
        return std::unexpected(devices.error());
    domain.vfio_devices = devices->vfio;
    domain.video_ram = devices->video_ram;
    domain.tpm = devices->tpm;
    domain.disks = std::move(devices->disks);
    return {};
}

/// The root of a document, which has to have that name.
Result<Element> expect_root(const Document& document, std::string_view name) {
    const Element root = document.root();
    if (root.name() != name)
        return fail(Errc::syntax, "root element is <{}>: expected <{}>", printable(root.name()),
                    name);
    return root;
}

Result<core::Domain> read_domain(Element root) {
    auto domain = read_identity(root);
    if (!domain)
        return domain;
    if (auto done = add_cpus(root, *domain); !done)
        return std::unexpected(done.error());
    if (auto done = add_memory_and_devices(root, *domain); !done)
        return std::unexpected(done.error());
    return domain;
}

} // namespace

Result<core::Domain> parse_domain(std::string_view xml, const core::Questions& questions) {
    const auto document = Document::parse(xml);
    if (!document)
        return std::unexpected(document.error());
    const auto root = expect_root(*document, "domain");
    if (!root)
        return std::unexpected(root.error());
    auto domain = read_domain(*root);
    if (domain)
        domain->facts = answers(*document, questions);
    return domain;
}

Result<Status> parse_status(std::string_view xml, const core::Questions& questions) {
    auto document = Document::parse(xml);
    if (!document)
        return std::unexpected(document.error());
    const auto root = expect_root(*document, "domstatus");
    if (!root)
        return std::unexpected(root.error());
    const auto pid = parse_unsigned(root->attribute("pid").value_or(""));
    if (!pid)
        return root->invalid("<domstatus>: pid: expected a number");
    const Element inner = root->child("domain");
    if (!inner)
        return root->invalid("<domstatus>: expected a <domain> in it");
    auto domain = read_domain(inner);
    if (!domain)
        return std::unexpected(domain.error());
    document->make_root(inner);
    domain->facts = answers(*document, questions);
    return Status{.domain = *std::move(domain), .pid = *pid};
}

core::Domain parse_identity(std::string_view xml, const core::Questions& questions) {
    core::Domain domain;
    if (const auto document = Document::parse(xml)) {
        const Element root = document->root();
        domain.name = root.child("name").text();
        domain.uuid = Uuid::parse(root.child("uuid").text());
        (void)read_metadata(root, domain); // what is wrong with it may be what cannot be
        domain.facts = answers(*document, questions);
    }
    return domain;
}

} // namespace virtguard::domxml
