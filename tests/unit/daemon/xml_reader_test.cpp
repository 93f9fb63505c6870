// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "daemon/xml_reader.hpp"
#include "domxml/parse.hpp"

using namespace virtguard;
using daemon::ReadDomain;
using daemon::XmlReader;

namespace {

std::string domain(const std::string& name) {
    return "<domain><name>" + name +
           "</name><memory>1</memory><vcpu>1</vcpu><os><type>hvm</type></os></domain>";
}

std::shared_ptr<const std::string> shared(std::string text) {
    return std::make_shared<const std::string>(std::move(text));
}

} // namespace

TEST_CASE("what is read is told in the loop, in the order it came") {
    domxml::initialise();
    auto loop = loop::Loop::create().value();
    auto reader = XmlReader::create(loop).value();
    std::vector<std::string> told;
    const auto tell = [&](const ReadDomain& read) {
        told.push_back(read.domain ? read.domain->name : read.domain.error().what);
    };
    reader->read(shared(domain("web")), {}, tell);
    reader->read(shared("?"), {}, tell);
    reader->read(shared(domain("mail")), {}, [&](const ReadDomain& read) {
        tell(read);
        loop.stop(0);
    });
    CHECK(told.empty());
    REQUIRE(loop.run().has_value());
    REQUIRE(told.size() == 3);
    CHECK(told[0] == "web");
    CHECK(told[1] == "line 1: not XML: Start tag expected, '<' not found");
    CHECK(told[2] == "mail");
}

TEST_CASE("who was forgotten is told nothing") {
    domxml::initialise();
    auto loop = loop::Loop::create().value();
    auto reader = XmlReader::create(loop).value();
    bool told = false;
    reader->read(shared(domain("web")), {}, [&](const ReadDomain&) { told = true; });
    reader->forget();
    reader->read(shared(domain("mail")), {}, [&](const ReadDomain&) { loop.stop(0); });
    REQUIRE(loop.run().has_value());
    CHECK_FALSE(told);
}

TEST_CASE("when too much waits to be read, that is told at once") {
    domxml::initialise();
    auto loop = loop::Loop::create().value();
    auto reader = XmlReader::create(loop).value();
    const auto long_one = shared(domain(std::string(256 << 10, 'x')));
    std::vector<std::string> refused;
    for (int i = 0; i < 1000 && refused.empty(); ++i)
        reader->read(long_one, {}, [&](const ReadDomain& read) {
            if (!read.domain)
                refused.push_back(read.domain.error().what);
        });
    CHECK(refused == std::vector<std::string>{"too many domains wait for being read"});
}
