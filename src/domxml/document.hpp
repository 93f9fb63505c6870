// SPDX-License-Identifier: Apache-2.0
#pragma once
// A parsed document and its elements, for the readers of this folder only: libxml2 ends here.

#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <libxml/tree.h>

#include "base/error.hpp"
#include "base/unique.hpp"

namespace virtguard::domxml {

/// An element of a document that outlives it, or none. Names are looked up among elements without
/// a namespace, as libvirt's are. None has no text, attributes or children, so look-ups can be
/// chained.
class Element {
  public:
    Element() = default;
    explicit Element(const xmlNode* node) noexcept : node_(node) {}

    [[nodiscard]] explicit operator bool() const noexcept { return node_ != nullptr; }
    [[nodiscard]] std::string_view name() const noexcept;
    /// Has that name in that namespace; in none where it is empty.
    [[nodiscard]] bool is(std::string_view name, std::string_view uri = {}) const noexcept;
    /// The text in it, that of its descendants included, as XPath's string().
    [[nodiscard]] std::string text() const;
    [[nodiscard]] std::optional<std::string> attribute(std::string_view name) const;

    /// The first child element of that name.
    [[nodiscard]] Element child(std::string_view name) const noexcept;

    class Children;
    /// All child elements, whatever their namespace.
    [[nodiscard]] Children children() const noexcept;
    /// Those of that name.
    [[nodiscard]] Children children(std::string_view name,
                                    std::string_view uri = {}) const noexcept;

    /// Errc::invalid, led by the line of this element.
    template <class... Args>
    [[nodiscard]] std::unexpected<Error> invalid(fmt::format_string<Args...> text,
                                                 Args&&... args) const {
        return fail(Errc::invalid, "line {}: {}", line(),
                    fmt::format(text, std::forward<Args>(args)...));
    }

  private:
    friend class Document;
    [[nodiscard]] long line() const noexcept;

    const xmlNode* node_ = nullptr;
};

/// For range-based loops over an element's children.
class Element::Children {
  public:
    struct End {};
    class Iterator {
      public:
        Iterator(const xmlNode* node, std::string_view name, std::string_view uri) noexcept;
        Element operator*() const noexcept { return Element(node_); }
        Iterator& operator++() noexcept;
        bool operator==(End) const noexcept { return node_ == nullptr; }

      private:
        void skip_others() noexcept;

        const xmlNode* node_;
        std::string_view name_;
        std::string_view uri_;
    };

    Children(const xmlNode* first, std::string_view name, std::string_view uri) noexcept
        : first_(first), name_(name), uri_(uri) {}
    [[nodiscard]] Iterator begin() const noexcept { return {first_, name_, uri_}; }
    [[nodiscard]] End end() const noexcept { return {}; }

  private:
    const xmlNode* first_;
    std::string_view name_;
    std::string_view uri_;
};

/// Owns a parsed document.
class Document {
  public:
    /// Errc::limit or Errc::syntax, as parse_domain() says.
    [[nodiscard]] static Result<Document> parse(std::string_view xml);

    [[nodiscard]] Element root() const noexcept;
    /// Makes one of its elements the root; what is outside of that is gone.
    void make_root(Element element);

    [[nodiscard]] xmlDoc* get() const noexcept { return document_.get(); }

  private:
    using Owner = CPtr<xmlDoc, xmlFreeDoc>;
    explicit Document(Owner document) noexcept : document_(std::move(document)) {}

    Owner document_;
};

} // namespace virtguard::domxml
