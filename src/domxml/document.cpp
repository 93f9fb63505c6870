// SPDX-License-Identifier: Apache-2.0
// Hostile input is stopped here. Nothing outside the text is ever read: no DTD (a DOCTYPE stops the
// parser at once, so that no entity can be declared), no network. Messages of libxml2 go into the
// record of the parse; those it raises without a parser (encodings) are caught for this thread, so
// that it never writes to stderr.
#include "domxml/document.hpp"

#include <algorithm>
#include <cstring>

#include <libxml/parser.h>

#include "base/text.hpp"
#include "domxml/parse.hpp"
#include "domxml/quiet.hpp"

namespace virtguard::domxml {

namespace {

const char* bytes_of(const xmlChar* text) noexcept {
    return reinterpret_cast<const char*>(text);
}

std::string_view view(const xmlChar* text) noexcept {
    return text == nullptr ? std::string_view{} : bytes_of(text);
}

/// What a parse noted while it ran.
struct Record {
    bool has_doctype = false;
    bool too_deep = false;
    int line = 0;
    std::string first_error;
};

void note_error(void* parser, ErrorArgument error) {
    const auto* context = static_cast<xmlParserCtxt*>(parser);
    auto* record = static_cast<Record*>(context->_private);
    if (error->level == XML_ERR_WARNING || !record->first_error.empty())
        return;
    record->too_deep = std::max(context->nameNr, context->nodeNr) > max_document_depth;
    record->line = error->line;
    record->first_error = error->message == nullptr ? "unknown" : error->message;
}

void note_doctype(void* parser, const xmlChar*, const xmlChar*, const xmlChar*) {
    auto* context = static_cast<xmlParserCtxt*>(parser);
    static_cast<Record*>(context->_private)->has_doctype = true;
    xmlStopParser(context);
}

std::size_t count(std::string_view text, std::string_view word) {
    std::size_t found = 0;
    for (auto at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1))
        ++found;
    return found;
}

/// No element has more attributes than are taken: as many "=" with a quotation mark behind stand
/// between two "<" at most. (Text may have them too; so many of them it never has.)
bool has_too_many_attributes(std::string_view xml) {
    int attributes = 0;
    for (std::size_t i = 0; i < xml.size(); ++i) {
        if (xml[i] == '<')
            attributes = 0;
        if (xml[i] != '=')
            continue;
        const std::size_t next = xml.find_first_not_of(" \t\r\n", i + 1);
        if (next == std::string_view::npos)
            break;
        if ((xml[next] == '"' || xml[next] == '\'') && ++attributes > max_attributes)
            return true;
        i = next - 1;
    }
    return false;
}

Result<> check_size(std::string_view xml) {
    if (xml.size() > max_document_bytes)
        return fail(Errc::limit, "XML of {} bytes: at most {} are taken", xml.size(),
                    max_document_bytes);
    // libxml2 takes a NUL for the end and would not look at what follows.
    if (const std::size_t nul = xml.find('\0'); nul != std::string_view::npos)
        return fail(Errc::syntax, "not XML: NUL at byte {}", nul);
    if (has_too_many_attributes(xml))
        return fail(Errc::limit, "XML with more than {} attributes in an element", max_attributes);
    if (count(xml, "xmlns") > std::size_t{max_namespaces})
        return fail(Errc::limit, "XML with more than {} namespaces", max_namespaces);
    return {};
}

std::unexpected<Error> failure(const Record& record) {
    if (record.has_doctype)
        return fail(Errc::syntax, "XML with a DOCTYPE is not taken");
    if (record.too_deep)
        return fail(Errc::limit, "XML nested deeper than {} elements", max_document_depth);
    std::string_view text = record.first_error;
    while (!text.empty() && text.back() == '\n')
        text.remove_suffix(1);
    return fail(Errc::syntax, "line {}: not XML: {}", record.line, printable(text));
}

} // namespace

void initialise() {
    xmlInitParser();
}

Result<Document> Document::parse(std::string_view xml) {
    if (auto checked = check_size(xml); !checked)
        return std::unexpected(checked.error());
    const QuietThread quiet;
    const CPtr<xmlParserCtxt, xmlFreeParserCtxt> parser(xmlNewParserCtxt());
    if (!parser)
        return fail(Errc::unavailable, "no memory for an XML parser");
    Record record;
    parser->_private = &record;
    parser->sax->serror = note_error;
    parser->sax->internalSubset = note_doctype;
    Owner document(xmlCtxtReadMemory(parser.get(), xml.data(), static_cast<int>(xml.size()),
                                     nullptr, nullptr,
                                     XML_PARSE_NONET | XML_PARSE_COMPACT | XML_PARSE_NOBLANKS));
    if (!document || record.has_doctype || !record.first_error.empty())
        return failure(record);
    return Document(std::move(document));
}

Element Document::root() const noexcept {
    return Element(xmlDocGetRootElement(document_.get()));
}

void Document::make_root(Element element) {
    auto* node = const_cast<xmlNode*>(element.node_); // of this document, which is ours
    xmlNode* before = xmlDocSetRootElement(document_.get(), node);
    if (before == nullptr || before == node)
        return;
    xmlReconciliateNs(document_.get(), node); // they may be declared on what goes
    xmlFreeNode(before);
}

std::string_view Element::name() const noexcept {
    return node_ == nullptr ? std::string_view{} : view(node_->name);
}

bool Element::is(std::string_view name, std::string_view uri) const noexcept {
    if (node_ == nullptr || view(node_->name) != name)
        return false;
    return node_->ns == nullptr ? uri.empty() : view(node_->ns->href) == uri;
}

std::string Element::text() const {
    if (node_ == nullptr || node_->children == nullptr)
        return {};
    const xmlNode* only = node_->children;
    if (only->next == nullptr && only->type == XML_TEXT_NODE)
        return std::string(view(only->content));
    struct Free {
        void operator()(xmlChar* text) const noexcept { xmlFree(text); }
    };
    const std::unique_ptr<xmlChar, Free> joined(xmlNodeGetContent(node_));
    return std::string(view(joined.get()));
}

std::optional<std::string> Element::attribute(std::string_view name) const {
    const xmlAttr* found = node_ == nullptr ? nullptr : node_->properties;
    while (found != nullptr && (found->ns != nullptr || view(found->name) != name))
        found = found->next;
    if (found == nullptr)
        return std::nullopt;
    // Without declared entities an attribute's value is one text or nothing.
    return std::string(found->children == nullptr ? std::string_view{}
                                                  : view(found->children->content));
}

Element Element::child(std::string_view name) const noexcept {
    const Children all = children(name);
    return all.begin() == all.end() ? Element{} : *all.begin();
}

Element::Children Element::children() const noexcept {
    return children({});
}

Element::Children Element::children(std::string_view name, std::string_view uri) const noexcept {
    return {node_ == nullptr ? nullptr : node_->children, name, uri};
}

long Element::line() const noexcept {
    return node_ == nullptr ? 0 : xmlGetLineNo(node_);
}

Element::Children::Iterator::Iterator(const xmlNode* node, std::string_view name,
                                      std::string_view uri) noexcept
    : node_(node), name_(name), uri_(uri) {
    skip_others();
}

Element::Children::Iterator& Element::Children::Iterator::operator++() noexcept {
    node_ = node_->next;
    skip_others();
    return *this;
}

void Element::Children::Iterator::skip_others() noexcept {
    while (node_ != nullptr &&
           (node_->type != XML_ELEMENT_NODE || (!name_.empty() && !Element(node_).is(name_, uri_))))
        node_ = node_->next;
}

} // namespace virtguard::domxml
