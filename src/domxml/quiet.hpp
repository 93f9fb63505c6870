// SPDX-License-Identifier: Apache-2.0
#pragma once
// libxml2's messages, kept off stderr.

#include <type_traits>

#include <libxml/xmlerror.h>

namespace virtguard::domxml {

// libxml2 2.12 made the error const.
using ErrorArgument = std::conditional_t<(LIBXML_VERSION >= 21200), const xmlError*, xmlErrorPtr>;

/// For a structured error handler that has nothing to do.
inline void drop_error(void*, ErrorArgument) {}

/// For text that comes through none; C's way of passing it is libxml2's.
inline void drop_text(void*, const char*, ...) {}

/// While it lives, this thread's errors that belong to no parser are dropped.
class QuietThread {
  public:
    QuietThread() noexcept
        : structured_(xmlStructuredError), structured_context_(xmlStructuredErrorContext),
          generic_(xmlGenericError), generic_context_(xmlGenericErrorContext) {
        xmlSetStructuredErrorFunc(nullptr, drop_error);
        xmlSetGenericErrorFunc(nullptr, drop_text);
    }
    ~QuietThread() {
        xmlSetStructuredErrorFunc(structured_context_, structured_);
        xmlSetGenericErrorFunc(generic_context_, generic_);
    }
    QuietThread(const QuietThread&) = delete;
    QuietThread& operator=(const QuietThread&) = delete;

  private:
    xmlStructuredErrorFunc structured_;
    void* structured_context_;
    xmlGenericErrorFunc generic_;
    void* generic_context_;
};

} // namespace virtguard::domxml
