// SPDX-License-Identifier: Apache-2.0
//
// Expressions are the operator's or a manager's; a document is anybody's. What all questions to a
// document cost is bounded whatever they say: libxml2 counts steps and stops at a limit, and a step
// costs at most what there is in document and expression (dearest_step()), so the steps allowed are
// max_cost by that. Functions of strings take longer, and make longer strings, than either: they
// are charged for what they read, as so many steps more. The constants were measured: the worst
// found takes a fifth of a second, and what real domains are asked a hundredth of what is allowed.
//
// Compiled expressions are not kept: libxml2 writes into them while it evaluates, threads would
// have to have their own, and compiling takes some microseconds.
#include "domxml/xpath.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <libxml/xpath.h>
#include <libxml/xpathInternals.h>

#include "base/text.hpp"
#include "core/domain.hpp"
#include "domxml/parse.hpp"
#include "domxml/quiet.hpp"

namespace virtguard::domxml {

namespace {

/// In looks at a node; what comparing so many bytes costs is one, too.
constexpr std::size_t max_cost = 300'000'000;
constexpr std::size_t bytes_per_cost = 4;

const xmlChar* xml_text(const std::string& text) noexcept {
    return reinterpret_cast<const xmlChar*>(text.c_str());
}

using Context = CPtr<xmlXPathContext, xmlXPathFreeContext>;
using Compiled = CPtr<xmlXPathCompExpr, xmlXPathFreeCompExpr>;
using Object = CPtr<xmlXPathObject, xmlXPathFreeObject>;

std::size_t length(const xmlChar* text) {
    return text == nullptr ? 0 : std::strlen(reinterpret_cast<const char*>(text));
}

/// What is in a document.
struct Weight {
    std::size_t nodes = 0;
    std::size_t text = 0; ///< of all nodes' string-values, what is nested counted at each level
    std::size_t longest_name = 0; ///< with its namespace

    template <class Node> // xmlNode and xmlAttr begin alike
    void note(const Node& node) {
        ++nodes;
        const std::size_t uri =
            node.ns == nullptr ? 0 : length(node.ns->prefix) + length(node.ns->href);
        longest_name = std::max(longest_name, length(node.name) + uri);
    }
    /// With those that follow it; `depth` nodes are above them. Documents are not deep.
    void add(const xmlNode* node, std::size_t depth) {
        for (; node != nullptr; node = node->next) {
            note(*node);
            if (node->type != XML_ELEMENT_NODE) {
                text += length(node->content) * (depth + 1);
                continue;
            }
            for (const xmlAttr* each = node->properties; each != nullptr; each = each->next) {
                note(*each);
                text += each->children == nullptr ? 0 : length(each->children->content);
            }
            add(node->children, depth + 1);
        }
    }
};

/// What one step may cost besides what the expression's own text does: it compares a node with all
/// others, or its text with all text, or copies a name.
std::size_t dearest_step(const Document& document) {
    constexpr std::size_t least = 300;
    Weight weight;
    weight.add(document.get()->children, 1);
    return least + weight.nodes + weight.text / bytes_per_cost + weight.longest_name;
}

/// What the questions to one document may cost, all together.
class Budget {
  public:
    explicit Budget(const Document& document) : step_(dearest_step(document)) {}

    [[nodiscard]] std::size_t step_of(const core::Question& question) const {
        return step_ + question.xpath.size();
    }
    [[nodiscard]] unsigned long steps_for(const core::Question& question) const {
        return left_ / step_of(question);
    }
    void take(const core::Question& question, unsigned long steps) {
        left_ -= std::min(left_, steps * step_of(question));
    }
    /// Of a question that would take more than is left.
    [[nodiscard]] std::unexpected<Error> exceeded() const {
        return fail(Errc::invalid, "takes more steps than {} on XML of this size",
                    left_ == max_cost ? "are allowed" : "other questions leave of those allowed");
    }

  private:
    std::size_t step_;
    std::size_t left_ = max_cost;
};

std::size_t step_of(const xmlXPathParserContext& parser) {
    return *static_cast<const std::size_t*>(parser.context->funcLookupData);
}

/// Less than a step is in the step that the call itself is. False: that is more than is left.
bool charge(xmlXPathParserContext& parser, std::size_t cost) {
    xmlXPathContext& context = *parser.context;
    const unsigned long steps = cost / step_of(parser);
    const bool is_covered = steps <= context.opLimit - context.opCount;
    context.opCount = is_covered ? context.opCount + steps : context.opLimit;
    if (!is_covered)
        xmlXPathErr(&parser, XPATH_OP_LIMIT_EXCEEDED);
    return is_covered;
}

/// Makes the arguments, on top of the stack, strings where they are nodes, and charges for reading
/// all, as often as there are arguments (concat() does), and the first for each byte of the others.
bool charge_arguments(xmlXPathParserContext& parser, int count, std::size_t cost_of_pair) {
    constexpr std::size_t cost_of_byte = 4;
    if (parser.valueNr < count)
        return true; // which the function will say
    std::size_t first = 0;
    std::size_t all = 0;
    for (int i = 0; i < count; ++i) {
        xmlXPathObject*& argument = parser.valueTab[parser.valueNr - count + i];
        if (argument != nullptr && argument->type == XPATH_NODESET)
            argument = xmlXPathConvertString(argument);
        parser.value = parser.valueTab[parser.valueNr - 1];
        if (argument == nullptr) {
            xmlXPathErr(&parser, XPATH_MEMORY_ERROR);
            return false;
        }
        const std::size_t bytes = argument->type == XPATH_STRING ? length(argument->stringval) : 0;
        if (!charge(parser, bytes * cost_of_byte)) // before there is more of them
            return false;
        first = i == 0 ? bytes : first;
        all += bytes;
    }
    return charge(parser,
                  all * static_cast<std::size_t>(count) + first * (all - first) * cost_of_pair);
}

/// A function of libxml2 that reads strings; what it gives may not be longer than what else a step
/// may meet. It is C that calls: nothing here throws.
template <xmlXPathFunction function, std::size_t cost_of_pair = 0>
void charged(xmlXPathParserContext* parser, int count) {
    if (count == 0) { // means the node it is called on
        valuePush(parser, xmlXPathNewNodeSet(parser->context->node));
        count = 1;
    }
    if (!charge_arguments(*parser, count, cost_of_pair))
        return;
    function(parser, count);
    const xmlXPathObject* result = parser->value;
    if (parser->error == XPATH_EXPRESSION_OK && result != nullptr && result->type == XPATH_STRING &&
        length(result->stringval) > step_of(*parser) * bytes_per_cost)
        xmlXPathErr(parser, XPATH_MEMORY_ERROR);
}

xmlXPathFunction find_charged(void*, const xmlChar* name, const xmlChar*) {
    struct Entry {
        std::string_view name;
        xmlXPathFunction function;
    };
    // Those that look for a text compare it at each place; translate() looks for each character.
    static constexpr std::array<Entry, 11> functions{
        {{"string", charged<xmlXPathStringFunction>},
         {"concat", charged<xmlXPathConcatFunction>},
         {"starts-with", charged<xmlXPathStartsWithFunction>},
         {"contains", charged<xmlXPathContainsFunction, 1>},
         {"substring-before", charged<xmlXPathSubstringBeforeFunction, 1>},
         {"substring-after", charged<xmlXPathSubstringAfterFunction, 1>},
         {"substring", charged<xmlXPathSubstringFunction>},
         {"string-length", charged<xmlXPathStringLengthFunction>},
         {"normalize-space", charged<xmlXPathNormalizeFunction>},
         {"translate", charged<xmlXPathTranslateFunction, 8>},
         {"number", charged<xmlXPathNumberFunction>}}};
    const auto* found = std::ranges::find(
        functions, std::string_view(reinterpret_cast<const char*>(name)), &Entry::name);
    return found == functions.end() ? nullptr : found->function;
}

std::unexpected<Error> failure(const xmlXPathContext& context, const Budget& budget) {
    const auto because = [](std::string_view text) {
        return std::unexpected(Error{Errc::invalid, std::string(text)});
    };
    switch (context.lastError.code) {
    case int{XML_XPATH_EXPRESSION_OK} + XPATH_OP_LIMIT_EXCEEDED:
    case int{XML_XPATH_EXPRESSION_OK} + XPATH_RECURSION_LIMIT_EXCEEDED:
        return budget.exceeded();
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

/// The cost of a step outlives it.
Result<Context> make_context(const Document& document, const core::Question& question,
                             unsigned long steps, std::size_t& cost_of_step) {
    Context context(xmlXPathNewContext(document.get()));
    if (!context)
        return fail(Errc::unavailable, "there is no memory for it");
    for (const auto& [prefix, uri] : question.namespaces)
        if (xmlXPathRegisterNs(context.get(), xml_text(prefix), xml_text(uri)) != 0)
            return fail(Errc::invalid, "prefix {} cannot be declared", quote(prefix));
    context->node =
        reinterpret_cast<xmlNode*>(document.get()); // else a relative path finds nothing
    context->opLimit = steps;
    context->error = drop_error;
    xmlXPathRegisterFuncLookup(context.get(), find_charged, &cost_of_step); // before its own
    return context;
}

Result<Object> evaluate(const Document& document, const core::Question& question, Budget& budget) {
    const unsigned long steps = budget.steps_for(question);
    if (steps == 0) // for libxml2 that is no limit
        return budget.exceeded();
    std::size_t cost_of_step = budget.step_of(question);
    auto context = make_context(document, question, steps, cost_of_step);
    if (!context)
        return std::unexpected(context.error());
    if (!Compiled(xmlXPathCtxtCompile(context->get(), xml_text(question.xpath))))
        return failure(**context, budget);
    // A plain path libxml2 gives to an evaluator of its own, which does not count what it does:
    // "//*//*//*" never ends there. One in parentheses it does not.
    const std::string counted = "(" + question.xpath + ")";
    const Compiled compiled(xmlXPathCtxtCompile(context->get(), xml_text(counted)));
    if (!compiled && (*context)->lastError.code == XML_XPATH_EXPR_ERROR)
        return fail(Errc::invalid, "has a parenthesis that is not closed");
    if (!compiled)
        return failure(**context, budget);
    Object object(xmlXPathCompiledEval(compiled.get(), context->get()));
    Result<Object> result = object ? Result<Object>(std::move(object)) : failure(**context, budget);
    budget.take(question, (*context)->opCount);
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

/// Walks through the names of an expression. What is nested in a predicate is evaluated only where
/// there is something for it, so evaluating it once would not find all that libxml2 does not know.
/// Nor is all taken that it knows: id() and the namespace axis cost more than their steps.
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
    void skip_spaces() { at_ = std::min(text_.find_first_not_of(' ', at_), text_.size()); }

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
        if (name == "namespace" && follows("::"))
            return fail(Errc::invalid, "has the namespace axis: namespace-uri() is for that");
        return follows("(") && !may_be_called(name) ? no_function(name) : Result<>{};
    }

    static Result<> no_function(std::string_view name) {
        if (name == "id")
            return fail(Errc::invalid, "calls \"id\": XML without a DTD has no IDs");
        return fail(Errc::invalid, "calls {}, which is no function of XPath 1.0", quote(name));
    }

    /// Functions, and what else may stand before a parenthesis: node types and operators.
    static bool may_be_called(std::string_view name) {
        constexpr std::array<std::string_view, 34> known{"last",
                                                         "position",
                                                         "count",
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

Result<std::int64_t> answer(const Document& document, const core::Question& question,
                            Budget& budget) {
    if (auto known = Names(question.xpath, question.namespaces).check(); !known)
        return std::unexpected(known.error());
    const auto result = evaluate(document, question, budget);
    if (!result)
        return std::unexpected(result.error());
    return question.kind == core::Question::Kind::match ? match_of(**result) : amount_of(**result);
}

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
    Budget budget(document);
    for (const core::Question& question : questions) {
        const auto told = answer(document, question, budget);
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
    const auto document = Document::parse(small_domain);
    if (!document)
        return std::unexpected(document.error());
    const QuietThread quiet;
    Budget budget(*document);
    const auto told = answer(*document, question, budget);
    return told ? Result<>{} : std::unexpected(told.error());
}

} // namespace virtguard::domxml
