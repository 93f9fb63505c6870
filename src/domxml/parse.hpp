// SPDX-License-Identifier: Apache-2.0
#pragma once
// A domain's XML, as libvirt writes it or an operator wrote it, into what matters for admission.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "core/domain.hpp"

namespace virtguard::domxml {

/// Bytes of XML taken: libvirt's own limit for a string in a message (REMOTE_STRING_MAX).
inline constexpr std::size_t max_document_bytes = std::size_t{4} << 20;
/// Elements within elements taken: libxml2's own limit, which libvirt keeps.
inline constexpr int max_document_depth = 256;
/// Attributes of one element and namespaces of one document taken. libvirt has a dozen of either;
/// libxml2 compares each with each, so that the size limit alone would allow minutes of that.
inline constexpr int max_attributes = 256;
inline constexpr int max_namespaces = 256;
/// Guest cells, and memory devices of RAM. QEMU knows 128 nodes and 256 memory slots.
inline constexpr int max_memory_parts = 1024;
/// Different sets of CPUs among the pins of one guest's vCPUs. QEMU knows 4096 vCPUs; deciding on
/// as many sets on a host of thousands of CPUs takes seconds, and on more of them minutes.
inline constexpr std::size_t max_vcpu_sets = 4096;
/// I/O threads of one guest. (And core::max_disks of its disks.)
inline constexpr int max_iothreads = 16384;

/// The namespace of <virtguard:admission> in a domain's <metadata>.
inline constexpr std::string_view admission_namespace = "https://virtguard.org/xmlns/admission/1";

/// Prepares libxml2. To be called once, before a second thread exists.
void initialise();

/// Reads a domain with libvirt's rules for units, defaults and rounding. What is refused is what
/// has no meaning for admission: a domain that libvirt would refuse for other reasons is read.
/// Errc::limit: larger or deeper than the limits above. Errc::syntax: not XML, a document with a
/// DOCTYPE (libvirt never writes one), or one whose root is not <domain>. Errc::invalid: a domain
/// that cannot be; the text has the line, the element and what was expected.
/// Threads may call it at the same time. It keeps nothing of the text.
/// A question that cannot be answered is no error: its fact says why.
[[nodiscard]] Result<core::Domain> parse_domain(std::string_view xml,
                                                const core::Questions& questions = {});

/// A domain that libvirt runs.
struct Status {
    core::Domain domain;
    std::uint64_t pid = 0; ///< of its QEMU
};

/// Reads what libvirt keeps of a domain that is active, /run/libvirt/qemu/NAME.xml: the domain as
/// it is now, within a <domstatus>. Errors as those of parse_domain().
[[nodiscard]] Result<Status> parse_status(std::string_view xml,
                                          const core::Questions& questions = {});

/// Errc::invalid, with what is wrong: it is no XPath 1.0, names a function or prefix that is not
/// there, or gives no answer on a small domain without devices.
[[nodiscard]] Result<> check_question(const core::Question& question);

/// Who a domain is that parse_domain() says cannot be: its name, its UUID and its scheduler, as far
/// as they can be read, and the answers to the questions; nothing else of it is set.
[[nodiscard]] core::Domain parse_identity(std::string_view xml,
                                          const core::Questions& questions = {});

} // namespace virtguard::domxml
