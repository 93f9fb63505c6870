// SPDX-License-Identifier: Apache-2.0
#pragma once
// The policy's questions, put to a document.

#include "core/question.hpp"
#include "domxml/document.hpp"

namespace virtguard::domxml {

/// An answer to each. What one may cost is bounded, whatever it and the document say.
[[nodiscard]] core::Facts answers(const Document& document, const core::Questions& questions);

} // namespace virtguard::domxml
