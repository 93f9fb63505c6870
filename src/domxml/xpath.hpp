// SPDX-License-Identifier: Apache-2.0
#pragma once
// The policy's questions, put to a document.

#include "core/question.hpp"
#include "domxml/document.hpp"

namespace virtguard::domxml {

/// An answer to each, in their order. What all of them together may cost is bounded, whatever they
/// and the document say: those that come last may go without an answer.
[[nodiscard]] core::Facts answers(const Document& document, const core::Questions& questions);

} // namespace virtguard::domxml
