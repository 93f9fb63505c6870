// SPDX-License-Identifier: Apache-2.0
// Reads the domain files named on stdin, one per line, and prints a line of JSON for each: the
// domain as read, or the error. For scripts that compare many files with other sources.

#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "domxml/parse.hpp"

using namespace virtguard;

namespace {

std::string json(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            result += '\\';
        if (static_cast<unsigned char>(c) < 0x20)
            result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
            result += c;
    }
    return result + '"';
}

std::string json(const std::optional<IdSet>& set) {
    return set ? json(set->text()) : "null";
}

/// Bytes of a page; 0 base pages, -1 the kernel's default hugepage.
std::int64_t page_number(const core::PageKind& pages) {
    if (const auto* sized = std::get_if<core::PagesOf>(&pages))
        return sized->size;
    return std::holds_alternative<core::DefaultHugepages>(pages) ? -1 : 0;
}

std::string json(const core::MemoryPart& part) {
    constexpr std::array<std::string_view, 3> kinds{"ram", "dimm", "virtio-mem"};
    return fmt::format(R"({{"kind":{},"size":{},"requested":{},"pages":{},"bound_to":{}}})",
                       json(kinds[static_cast<std::size_t>(part.kind)]), part.size, part.requested,
                       page_number(part.pages), json(part.bound_to));
}

std::string json(const core::VcpuGroup& group) {
    return fmt::format(R"({{"cpus":{},"current":{},"maximum":{}}})", json(group.cpus),
                       group.current, group.maximum);
}

template <class T>
std::string json(const std::vector<T>& values) {
    std::string result;
    for (const T& value : values)
        result += (result.empty() ? "" : ",") + json(value);
    return "[" + result + "]";
}

std::string json(const core::Domain& domain) {
    return fmt::format(
        R"({{"name":{},"uuid":{},"scheduler":{},"vcpus":{},"memory":{},"current_memory":{},)"
        R"("locked":{},"preallocated":{},"confidential":{},"file_backed":{},"vfio_devices":{},)"
        R"("iothreads":{},"video_ram":{},"tpm":{}}})",
        json(domain.name), domain.uuid ? json(domain.uuid->text()) : "null", json(domain.scheduler),
        json(domain.vcpus), json(domain.memory), domain.current_memory, domain.locked,
        domain.preallocated, domain.confidential, domain.file_backed, domain.vfio_devices,
        domain.iothreads, domain.video_ram, domain.tpm);
}

std::string_view code_name(Errc code) {
    if (code == Errc::limit)
        return "limit";
    return code == Errc::syntax ? "syntax" : "invalid";
}

} // namespace

int main() {
    domxml::initialise();
    for (std::string path; std::getline(std::cin, path);) {
        std::ifstream file(path, std::ios::binary);
        const std::string xml{std::istreambuf_iterator<char>(file), {}};
        const auto domain = domxml::parse_domain(xml);
        std::cout << (domain ? json(*domain)
                             : fmt::format(R"({{"error":{},"what":{}}})",
                                           json(code_name(domain.error().code)),
                                           json(domain.error().what)))
                  << '\n';
    }
}
