// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>

#include <catch2/catch.hpp>

#include "../journal.hpp"
#include "daemon/messages.hpp"

using namespace virtguard;
using namespace virtguard::core;
using namespace virtguard::daemon;

namespace {

const Uuid uuid = Uuid::parse("6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b11").value();

Reason short_of(Resource resource, Mode mode = Mode::enforce) {
    return {.code = Code::insufficient_node_capacity,
            .resource = resource,
            .mode = mode,
            .text = resource.name() + ": no"};
}

DecidedStart start(Verdict verdict, std::vector<Reason> reasons) {
    return {.name = "web-1",
            .uuid = uuid,
            .scheduler = "cortex",
            .verdict = verdict,
            .reasons = std::move(reasons)};
}

/// "NAME=value" lines of an entry from its MESSAGE_ID on, which is left out, and its MESSAGE.
std::string fields_of(const std::string& entry) {
    const std::size_t id = entry.find("MESSAGE_ID=");
    return entry.substr(0, entry.find('\n') + 1) + entry.substr(entry.find('\n', id) + 1);
}

std::string value_of(const std::string& entry, const std::string& name) {
    const std::size_t at = ("\n" + entry).find("\n" + name + "=") + name.size() + 1;
    return entry.substr(at, entry.find('\n', at) - at);
}

/// The text behind each MESSAGE_ID of the catalog.
std::map<std::string, std::string> catalog() {
    std::ifstream file(VIRTGUARD_SOURCE_ROOT "/conf/virtguard.catalog");
    std::map<std::string, std::string> result;
    std::string id;
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("-- "))
            id = line.substr(3);
        else if (!id.empty())
            result[id] += line + "\n";
    return result;
}

} // namespace

TEST_CASE("a refusal is an entry with who was refused, and each reason and resource once") {
    const Journal journal;
    log_start(start(Verdict::refuse, {short_of(Resource::memory()), short_of(Resource::memory()),
                                      short_of(Resource::cpu(), Mode::observe)}));
    CHECK(fields_of(journal.entry().value()) ==
          "MESSAGE=refused web-1: memory: no (insufficient-node-capacity); memory: no "
          "(insufficient-node-capacity); cpu: no (insufficient-node-capacity)\n"
          "VIRTGUARD_DOMAIN=web-1\n"
          "VIRTGUARD_UUID=6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b11\n"
          "VIRTGUARD_SCHEDULER=cortex\n"
          "VIRTGUARD_VERDICT=refuse\n"
          "VIRTGUARD_REASON=insufficient-node-capacity\n"
          "VIRTGUARD_RESOURCE=memory\n");
    CHECK(journal.entry() == std::nullopt);
    CHECK(journal.lines().empty());
}

TEST_CASE("a start that only mode observe let in is an entry, one that fits is none") {
    const Journal journal;
    log_start(start(Verdict::would_refuse, {short_of(Resource::cpu(), Mode::observe)}));
    log_start(start(Verdict::admit, {}));
    const std::string entry = journal.entry().value();
    CHECK(entry.starts_with(
        "MESSAGE=would refuse web-1: cpu: no (insufficient-node-capacity)\nPRIORITY=5\n"));
    CHECK(value_of(entry, "VIRTGUARD_VERDICT") == "would-refuse");
    CHECK(value_of(entry, "VIRTGUARD_RESOURCE") == "cpu");
    CHECK(journal.entry() == std::nullopt);
}

TEST_CASE("a domain without name or UUID is spoken of as such") {
    const Journal journal;
    log_start({.verdict = Verdict::refuse,
               .reasons = {{.code = Code::invalid_domain, .text = "invalid domain: x"}}});
    CHECK(fields_of(journal.entry().value()) ==
          "MESSAGE=refused a domain without a name: invalid domain: x (invalid-domain)\n"
          "VIRTGUARD_DOMAIN=\nVIRTGUARD_SCHEDULER=\nVIRTGUARD_VERDICT=refuse\n"
          "VIRTGUARD_REASON=invalid-domain\n");
}

TEST_CASE("the catalog explains each message, and with fields that the message has") {
    const Journal journal;
    log_start(start(Verdict::refuse, {short_of(Resource::memory())}));
    log_start(start(Verdict::would_refuse, {short_of(Resource::memory())}));
    log_undecided({.name = "web-1", .uuid = uuid}, "web-1 was let in");
    log_over_capacity(Resource::memory());
    auto explained = catalog();
    while (const auto entry = journal.entry()) {
        const std::string id = value_of(*entry, "MESSAGE_ID");
        CAPTURE(id);
        CHECK(std::regex_match(id, std::regex("[0-9a-f]{32}")));
        REQUIRE(explained.contains(id));
        const std::string text = explained.extract(id).mapped();
        CHECK(text.starts_with("Subject: "));
        const std::regex field("@(\\w+)@");
        for (std::sregex_iterator each(text.begin(), text.end(), field), end; each != end; ++each)
            CHECK(entry->find("\n" + (*each)[1].str() + "=") != std::string::npos);
    }
    CHECK(explained.empty());
}
