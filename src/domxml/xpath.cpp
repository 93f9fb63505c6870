// SPDX-License-Identifier: Apache-2.0
//
// An expression is the operator's; a document is anybody's. libxml2 counts steps and stops at a
// limit, but one step may cost as much as the whole document (the text of its root, a set of all
// its nodes): so the steps that all questions to a document may take together, times its size, stay
// below a constant, which was measured at 0.5 s in the worst case found. Expressions that look at
// each node a few times may do so on domains several times as large as real ones.
//
// Compiled expressions are not kept: libxml2 writes into them while it evaluates, threads would
// have to have their own, and compiling takes some microseconds.
#include "domxml/xpath.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include <libxml/xpath.h>
#include <libxml/xpathInternals.h>

#include "base/text.hpp"
#include "core/domain.hpp"
#include "domxml/parse.hpp"
#include "domxml/quiet.hpp"

namespace virtguard::domxml {

namespace {

constexpr std::size_t max_cost = 300'000'000;
constexpr std::size_t max_steps = 1'000'000;

const xmlChar* xml_text(const std::string& text) noexcept {
    return reinterpret_cast<const xmlChar*>(text.c_str());
}

using Context = CPtr<xmlXPathContext, xmlXPathFreeContext>;
using Compiled = CPtr<xmlXPathCompExpr, xmlXPathFreeCompExpr>;
using Object = CPtr<xmlXPathObject, xmlXPathFreeObject>;

/// What the questions to one document may take, all together.
class Steps {
  public:
    explicit Steps(const Document& document)
        : allowed_(std::min(max_steps, max_cost / std::max<std::size_t>(document.size(), 1) + 1)),
          left_(allowed_) {}

    [[nodiscard]] unsigned long left() const { return left_; }
    void take(unsigned long steps) { left_ -= std::min(left_, steps); }
    /// Of a question that would take more than are left.
    [[nodiscard]] std::unexpected<Error> exceeded() const {
        return fail(Errc::invalid, "takes more steps than {} on XML of this size",
                    left_ == allowed_ ? "are allowed" : "other questions leave of those allowed");
    }

  private:
    unsigned long allowed_;
    unsigned long left_;
};

std::unexpected<Error> failure(const xmlXPathContext& context, const Steps& steps) {
    const auto because = [](std::string_view text) {
        return std::unexpected(Error{Errc::invalid, std::string(text)});
    };
    switch (context.lastError.code) {
    case int{XML_XPATH_EXPRESSION_OK} + XPATH_OP_LIMIT_EXCEEDED:
    case int{XML_XPATH_EXPRESSION_OK} + XPATH_RECURSION_LIMIT_EXCEEDED:
        return steps.exceeded();
    case XML_XPATH_MEMORY_ERROR:
        return because("takes more memory than is allowed");
    case XML_XPATH_UNDEF_PREFIX_ERROR:
        return because("has a prefix that its namespaces do not declare");
    case XML_XPATH_UNKNOWN_FUNC_ERROR:
        return because("calls a function that XPath 1.0 does not have");
    case XML_XPATH_INVALID_ARITY:
        return because("calls a function with too few or too many arguments");
    case XML_XPATH_INVALID_TYPE:
        return because("gives a function or operator what it does not take");
    default:
        return fail(Errc::invalid, "is no XPath 1.0, from its character {} on",
                    std::max(context.lastError.int1, 0) + 1);
    }
}

Result<Context> make_context(const Document& document, const core::Question& question,
                             const Steps& steps) {
    Context context(xmlXPathNewContext(document.get()));
    if (!context)
        return fail(Errc::unavailable, "there is no memory for it");
    for (const auto& [prefix, uri] : question.namespaces)
        if (xmlXPathRegisterNs(context.get(), xml_text(prefix), xml_text(uri)) != 0)
            return fail(Errc::invalid, "prefix {} cannot be declared", quote(prefix));
    context->node =
        reinterpret_cast<xmlNode*>(document.get()); // else a relative path finds nothing
    context->opLimit = steps.left();
    context->error = drop_error;
    return context;
}

Result<Object> evaluate(const Document& document, const core::Question& question, Steps& steps) {
    if (steps.left() == 0) // for libxml2 that is no limit
        return steps.exceeded();
    auto context = make_context(document, question, steps);
    if (!context)
        return std::unexpected(context.error());
    const Compiled compiled(xmlXPathCtxtCompile(context->get(), xml_text(question.xpath)));
    if (!compiled)
        return failure(**context, steps);
    Object object(xmlXPathCompiledEval(compiled.get(), context->get()));
    Result<Object> result = object ? Result<Object>(std::move(object)) : failure(**context, steps);
    steps.take((*context)->opCount);
    return result;
}

std::string_view type_name(xmlXPathObjectType type) {
    switch (type) {
    case XPATH_NODESET:
        return "nodes";
    case XPATH_BOOLEAN:
        return "true or false";
    case XPATH_NUMBER:
        return "a number";
    default:
        return "a string";
    }
}

Result<std::int64_t> match_of(const xmlXPathObject& result) {
    switch (result.type) {
    case XPATH_BOOLEAN:
        return result.boolval;
    case XPATH_NODESET:
        return xmlXPathNodeSetIsEmpty(result.nodesetval) ? 0 : 1;
    default: // a string that is not empty would be true, whatever it says
        return fail(Errc::invalid, "gives {}: expected true or false, or nodes",
                    type_name(result.type));
    }
}

Result<double> number_of(xmlXPathObject& result) {
    if (result.type == XPATH_NUMBER)
        return result.floatval;
    if (result.type != XPATH_NODESET)
        return fail(Errc::invalid, "gives {}: expected a number, or a node with one",
                    type_name(result.type));
    const int nodes = xmlXPathNodeSetGetLength(result.nodesetval);
    if (nodes > 1)
        return fail(Errc::invalid, "gives {} nodes: expected one at most; sum() adds them up",
                    nodes);
    return nodes == 0 ? 0 : xmlXPathCastToNumber(&result);
}

/// A part of a thing is a thing: it is not there for others.
Result<std::int64_t> amount_of(xmlXPathObject& result) {
    const auto number = number_of(result);
    if (!number)
        return std::unexpected(number.error());
    const double up = std::ceil(*number);
    if (std::isnan(up))
        return fail(Errc::invalid, "gives no number; sum() of no nodes is 0, number() is not");
    if (up < 0 || up > static_cast<double>(core::max_domain_bytes))
        return fail(Errc::invalid, "gives {}: expected 0 to {}", *number, core::max_domain_bytes);
    return static_cast<std::int64_t>(up);
}

Result<std::int64_t> answer(const Document& document, const core::Question& question,
                            Steps& steps) {
    const auto result = evaluate(document, question, steps);
    if (!result)
        return std::unexpected(result.error());
    return question.kind == core::Question::Kind::match ? match_of(**result) : amount_of(**result);
}

/// Walks through the names of an expression. What is nested in a predicate is evaluated only where
/// there is something for it, so evaluating it once would not find all that libxml2 does not know.
class Names {
  public:
    Names(std::string_view text, const std::map<std::string, std::string>& namespaces)
        : text_(text), namespaces_(namespaces) {}

    Result<> check() && {
        while (at_ < text_.size())
            if (auto checked = step(); !checked)
                return checked;
        return {};
    }

  private:
    static bool begins_name(char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
               static_cast<unsigned char>(c) >= 0x80;
    }
    static bool is_in_name(char c) {
        return begins_name(c) || (c >= '0' && c <= '9') || c == '-' || c == '.';
    }
    bool follows(std::string_view what) const { return text_.substr(at_).starts_with(what); }
    std::string_view take_name() {
        const std::size_t first = at_;
        while (at_ < text_.size() && is_in_name(text_[at_]))
            ++at_;
        return text_.substr(first, at_ - first);
    }
    void skip_spaces() {
        while (at_ < text_.size() && text_[at_] == ' ')
            ++at_;
    }

    Result<> step() {
        const char c = text_[at_];
        if (c == '"' || c == '\'') {
            const std::size_t end = text_.find(c, at_ + 1);
            at_ = end == std::string_view::npos ? text_.size() : end + 1;
        } else if (c == '$')
            return fail(Errc::invalid, "has a variable: there are none");
        else if (begins_name(c))
            return name(take_name());
        else if (is_in_name(c)) // a number
            (void)take_name();
        else
            ++at_;
        return {};
    }

    Result<> name(std::string_view name) {
        if (follows(":") && !follows("::")) {
            if (!namespaces_.contains(std::string(name)))
                return fail(Errc::invalid, "has the prefix {}, which its namespaces do not declare",
                            quote(name));
            ++at_;
            const std::string_view local = take_name();
            skip_spaces();
            return follows("(") ? no_function(local) : Result<>{};
        }
        skip_spaces();
        return follows("(") && !may_be_called(name) ? no_function(name) : Result<>{};
    }

    static Result<> no_function(std::string_view name) {
        return fail(Errc::invalid, "calls {}, which is no function of XPath 1.0", quote(name));
    }

    /// Functions, and what else may stand before a parenthesis: node types and operators.
    static bool may_be_called(std::string_view name) {
        constexpr std::array<std::string_view, 35> known{"last",
                                                         "position",
                                                         "count",
                                                         "id",
                                                         "local-name",
                                                         "namespace-uri",
                                                         "name",
                                                         "string",
                                                         "concat",
                                                         "starts-with",
                                                         "contains",
                                                         "substring-before",
                                                         "substring",
                                                         "translate",
                                                         "substring-after",
                                                         "boolean",
                                                         "not",
                                                         "string-length",
                                                         "true",
                                                         "false",
                                                         "normalize-space",
                                                         "lang",
                                                         "number",
                                                         "sum",
                                                         "floor",
                                                         "ceiling",
                                                         "round",
                                                         "comment",
                                                         "text",
                                                         "node",
                                                         "and",
                                                         "or",
                                                         "div",
                                                         "mod",
                                                         "processing-instruction"};
        return std::ranges::find(known, name) != known.end();
    }

    std::string_view text_;
    const std::map<std::string, std::string>& namespaces_;
    std::size_t at_ = 0;
};

/// What every domain has.
constexpr std::string_view small_domain =
    "<domain type='kvm'><name>a</name><uuid>00000000-0000-0000-0000-000000000000</uuid>"
    "<memory unit='KiB'>0</memory><currentMemory unit='KiB'>0</currentMemory><vcpu>1</vcpu>"
    "<os><type arch='x86_64' machine='pc'>hvm</type></os><devices/></domain>";

} // namespace

core::Facts answers(const Document& document, const core::Questions& questions) {
    core::Facts facts;
    if (questions.empty())
        return facts;
    const QuietThread quiet;
    Steps steps(document);
    for (const core::Question& question : questions) {
        const auto told = answer(document, question, steps);
        core::Fact fact{.question = core::id_of(question)};
        if (told)
            fact.value = *told;
        else
            fact.problem = told.error().what;
        facts.emplace(question.key, std::move(fact));
    }
    return facts;
}

Result<> check_question(const core::Question& question) {
    if (auto known = Names(question.xpath, question.namespaces).check(); !known)
        return known;
    const auto document = Document::parse(small_domain);
    if (!document)
        return std::unexpected(document.error());
    const QuietThread quiet;
    Steps steps(*document);
    const auto told = answer(*document, question, steps);
    return told ? Result<>{} : std::unexpected(told.error());
}

} // namespace virtguard::domxml
