// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdio>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "base/unique.hpp"
#include "builder.hpp"

namespace virtguard::domxml {

namespace {

std::string repeated(std::string_view text, std::size_t times) {
    std::string result;
    result.reserve(text.size() * times);
    for (std::size_t i = 0; i < times; ++i)
        result += text;
    return result;
}

std::string admission(std::string_view content) {
    return fmt::format("<metadata><virtguard:admission "
                       "xmlns:virtguard='https://virtguard.org/xmlns/admission/1'>{}"
                       "</virtguard:admission></metadata>",
                       content);
}

/// What is written to stderr while it lives.
class CapturedStderr {
  public:
    CapturedStderr() : saved_(::dup(2)) {
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
        read_.reset(ends[0]);
        ::dup2(ends[1], 2);
        ::close(ends[1]);
    }
    ~CapturedStderr() { ::dup2(saved_.get(), 2); }
    CapturedStderr(const CapturedStderr&) = delete;
    CapturedStderr& operator=(const CapturedStderr&) = delete;

    std::string text() const {
        std::array<char, 4096> buffer{};
        const ssize_t got = ::read(read_.get(), buffer.data(), buffer.size());
        return got <= 0 ? "" : std::string(buffer.data(), static_cast<std::size_t>(got));
    }

  private:
    UniqueFd saved_;
    UniqueFd read_;
};

} // namespace

TEST_CASE("a status file of libvirt's is the domain as it runs, and its QEMU's pid") {
    const std::string domain = "<domain type='kvm' id='3'><name>web</name><memory>1024</memory>"
                               "<vcpu>2</vcpu><os><type>hvm</type></os></domain>";
    const auto status = parse_status("<domstatus state='running' reason='booted' pid='4711'>"
                                     "<monitor path='/x' type='unix'/>" +
                                     domain + "</domstatus>");
    REQUIRE(status.has_value());
    CHECK(status->pid == 4711);
    CHECK(status->domain == parsed(domain));
}

TEST_CASE("a status file that is none says what was expected") {
    const auto [xml, code, what] = GENERATE(table<std::string, Errc, std::string>({
        {"<domain/>", Errc::syntax, "root element is <domain>: expected <domstatus>"},
        {"<domstatus/>", Errc::invalid, "line 1: <domstatus>: pid: expected a number"},
        {"<domstatus pid='-1'/>", Errc::invalid, "line 1: <domstatus>: pid: expected a number"},
        {"<domstatus pid='1'/>", Errc::invalid, "line 1: <domstatus>: expected a <domain> in it"},
        {"<domstatus pid='1'><domain/></domstatus>", Errc::invalid, "line 1: <name>: missing"},
    }));
    const auto status = parse_status(xml);
    REQUIRE_FALSE(status.has_value());
    CHECK(status.error().code == code);
    CHECK(status.error().what == what);
}

TEST_CASE("a domain is read whole") {
    const core::Domain domain = parsed(R"(<domain type='kvm' id='3'>
  <name>web &amp; shop</name>
  <uuid>4DEA22B3-1d52-d8f3-2516-782e98ab3fa0</uuid>
  <metadata>
    <v:admission xmlns:v="https://virtguard.org/xmlns/admission/1">
      <v:scheduler>
        cortex
      </v:scheduler>
    </v:admission>
  </metadata>
  <memory unit='KiB'>4194304</memory>
  <currentMemory unit='KiB'>2097152</currentMemory>
  <memoryBacking><hugepages><page size='2048' unit='KiB' nodeset='0'/></hugepages><locked/></memoryBacking>
  <vcpu placement='static' current='2'>4</vcpu>
  <iothreads>2</iothreads>
  <cputune><vcpupin vcpu='0' cpuset='4'/></cputune>
  <numatune><memory mode='strict' nodeset='1'/></numatune>
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os>
  <cpu><numa>
    <cell id='0' cpus='0-1' memory='2097152' unit='KiB'/>
    <cell id='1' cpus='2-3' memory='2097152' unit='KiB'/>
  </numa></cpu>
  <devices>
    <hostdev mode='subsystem' type='pci' managed='yes'/>
    <video><model type='vga' vram='16384' heads='1' primary='yes'/></video>
    <tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>
  </devices>
</domain>)");
    CHECK(domain == core::Domain{
                        .name = "web & shop",
                        .uuid = Uuid::parse("4dea22b3-1d52-d8f3-2516-782e98ab3fa0"),
                        .scheduler = "cortex",
                        .vcpus = {{IdSet{4}, 1, 1}, {std::nullopt, 1, 3}},
                        .memory = {{.size = 2 * gib,
                                    .requested = 2 * gib,
                                    .pages = core::PagesOf{2 * mib},
                                    .bound_to = IdSet{1}},
                                   {.size = 2 * gib,
                                    .requested = 2 * gib,
                                    .pages = core::BasePages{},
                                    .bound_to = IdSet{1}}},
                        .current_memory = 2 * gib,
                        .locked = true,
                        .vfio_devices = 1,
                        .iothreads = 2,
                        .video_ram = 16 * mib,
                        .tpm = true,
                    });
}

TEST_CASE("the identity of a domain is its name and, where there is one, its UUID") {
    CHECK(parsed(guest_of("")).uuid == std::nullopt);
    CHECK(parsed(guest_of("<uuid/>")).uuid == std::nullopt);
    CHECK(parsed(guest_of("<uuid>4dea22b31d52d8f32516782e98ab3fa0</uuid>")).uuid ==
          Uuid::parse("4dea22b3-1d52-d8f3-2516-782e98ab3fa0"));
    CHECK(invalid(guest_of("<uuid>4dea22b3</uuid>")) ==
          "line 2: <uuid>: \"4dea22b3\" is not a UUID");
    CHECK(invalid("<domain><memory>1</memory></domain>") == "line 1: <name>: missing");
    CHECK(invalid("<domain xmlns='urn:x'><name>a</name><memory>1</memory></domain>") ==
          "line 1: <name>: missing");
}

TEST_CASE("the scheduler is named in the metadata, by namespace and not by prefix") {
    const auto [name, metadata, expected] = GENERATE(table<std::string, std::string, std::string>({
        {"none", "", ""},
        {"empty metadata", "<metadata/>", ""},
        {"named", admission("<virtguard:scheduler>cortex</virtguard:scheduler>"), "cortex"},
        {"with spaces around", admission("<virtguard:scheduler>\n cortex\t</virtguard:scheduler>"),
         "cortex"},
        {"empty", admission("<virtguard:scheduler> </virtguard:scheduler>"), ""},
        {"the same twice",
         admission("<virtguard:scheduler>a</virtguard:scheduler>"
                   "<virtguard:scheduler>a</virtguard:scheduler>"),
         "a"},
        {"default namespace",
         "<metadata><admission xmlns='https://virtguard.org/xmlns/admission/1'>"
         "<scheduler>cortex</scheduler></admission></metadata>",
         "cortex"},
        {"another namespace",
         "<metadata><virtguard:admission xmlns:virtguard='urn:other'>"
         "<virtguard:scheduler>cortex</virtguard:scheduler></virtguard:admission></metadata>",
         ""},
        {"no namespace within", admission("<scheduler>cortex</scheduler>"), ""},
        {"as long as in a policy",
         admission("<virtguard:scheduler>" + repeated("s", 255) + "</virtguard:scheduler>"),
         repeated("s", 255)},
    }));
    CAPTURE(name);
    CHECK(parsed(guest_of(metadata)).scheduler == expected);
}

TEST_CASE("a misspelt element of our metadata meant the default scheduler without a word") {
    const auto [metadata, unknown] = GENERATE(table<std::string, std::string>({
        {"", ""},
        {admission(""), ""},
        {admission("<!-- a comment --><virtguard:scheduler>cortex</virtguard:scheduler>"), ""},
        {admission("<virtguard:schedular>cortex</virtguard:schedular>"), "schedular"},
        {admission("<virtguard:scheduler>cortex</virtguard:scheduler><virtguard:x/><virtguard:y/>"),
         "x"},
        {admission("<scheduler>cortex</scheduler>"), "scheduler"},
        {"<metadata><admision xmlns='https://virtguard.org/xmlns/admission/1'>"
         "<scheduler>cortex</scheduler></admision></metadata>",
         "admision"},
        {"<metadata><x:schedular xmlns:x='urn:other'>cortex</x:schedular></metadata>", ""},
        {admission("<\xc3\xbc/>"), "\xc3\xbc"},
        {admission("<" + repeated("s", 200) + "/>"), repeated("s", 120) + "..."},
    }));
    CHECK(parsed(guest_of(metadata)).unknown_metadata == unknown);
}

TEST_CASE("a scheduler's name that is longer than any policy could name, or a second one, is "
          "refused") {
    CHECK(invalid(guest_of(admission("<virtguard:scheduler>" + repeated("s", 256) +
                                     "</virtguard:scheduler>"))) ==
          "line 2: <scheduler>: 256 bytes: expected at most 255");
    CHECK(invalid(guest_of(admission("<virtguard:scheduler>a</virtguard:scheduler>\n"
                                     "<virtguard:scheduler>b</virtguard:scheduler>"))) ==
          "line 3: <scheduler>: \"a\" and \"b\": expected one");
}

TEST_CASE("what is not the XML of a domain is a syntax error") {
    const auto [name, xml, text] = GENERATE(table<std::string, std::string, std::string>({
        {"nothing", "", "line 1: not XML: Document is empty"},
        {"spaces", " \n", "line 2: not XML: Start tag expected, '<' not found"},
        {"text", "hello", "line 1: not XML: Start tag expected, '<' not found"},
        {"cut off", "<domain>\n<name>a",
         "line 2: not XML: Premature end of data in tag name line 2"},
        {"not closed", "<domain>\n<name></domain>",
         "line 2: not XML: Opening and ending tag mismatch: name line 2 and domain"},
        {"two roots", "<domain/><domain/>",
         "line 1: not XML: Extra content at the end of the document"},
        {"bytes that are not UTF-8", "<domain><name>\xff\xfe</name></domain>",
         "line 1: not XML: Input is not proper UTF-8, indicate encoding !\\x0aBytes: 0xFF 0xFE "
         "0x3C 0x2F"},
        {"an unknown entity", "<domain><name>&who;</name></domain>",
         "line 1: not XML: Entity 'who' not defined"},
        {"a NUL", std::string("<domain><name>a\0b</name></domain>", 34), "not XML: NUL at byte 15"},
        {"a NUL behind", guest_of("") + std::string("\0rest", 5), "not XML: NUL at byte 71"},
        {"a status file", "<domstatus state='running'><domain/></domstatus>",
         "root element is <domstatus>: expected <domain>"},
        {"a snapshot", "<domainsnapshot/>", "root element is <domainsnapshot>: expected <domain>"},
        {"an unknown encoding", "<?xml version='1.0' encoding='ebc-dic-x'?><domain/>",
         "line 1: not XML: Unsupported encoding ebc-dic-x"},
    }));
    CAPTURE(name);
    const Error error = refused(xml);
    CHECK(error.code == Errc::syntax);
    CHECK(error.what == text);
}

TEST_CASE("a DOCTYPE is refused before anything in it is read") {
    const std::string laughs = "<!DOCTYPE domain [<!ENTITY a 'ha'>"
                               "<!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;'>"
                               "<!ENTITY c '&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;'>]>"
                               "<domain><name>&c;</name><memory>1</memory></domain>";
    const auto xml = GENERATE_COPY(values<std::string>({
        "<!DOCTYPE domain><domain/>",
        "<!DOCTYPE domain SYSTEM 'file:///etc/passwd'><domain/>",
        "<!DOCTYPE domain PUBLIC 'x' 'http://127.0.0.1:1/'><domain/>",
        "<!DOCTYPE domain [<!ENTITY e SYSTEM "
        "'file:///etc/passwd'>]><domain><name>&e;</name></domain>",
        laughs,
    }));
    const Error error = refused(xml);
    CHECK(error.code == Errc::syntax);
    CHECK(error.what == "XML with a DOCTYPE is not taken");
}

TEST_CASE("XML beyond the limits is refused at once") {
    const auto nested = [](std::size_t depth) {
        return guest_of("<metadata>" + repeated("<x>", depth) + repeated("</x>", depth) +
                        "</metadata>");
    };
    const auto attributes = [](int count) {
        std::string tag = "<x";
        for (int i = 0; i < count; ++i)
            tag += fmt::format(" a{} =\n'1'", i);
        return guest_of("<metadata>" + tag + "/></metadata>");
    };
    const auto [name, xml, text] = GENERATE_COPY(table<std::string, std::string, std::string>({
        {"4 MiB and a byte", guest_of(repeated(" ", max_document_bytes + 1 - guest_of("").size())),
         "XML of 4194305 bytes: at most 4194304 are taken"},
        {"100 MB", repeated("<domain>", 12'500'000),
         "XML of 100000000 bytes: at most 4194304 are taken"},
        {"depth", nested(max_document_depth), "XML nested deeper than 256 elements"},
        {"much depth", repeated("<domain>", 500'000), "XML nested deeper than 256 elements"},
        {"attributes", attributes(max_attributes + 1),
         "XML with more than 256 attributes in an element"},
        {"namespaces",
         guest_of("<metadata>" + repeated("<x xmlns:a='urn:a'/>", max_namespaces + 1) +
                  "</metadata>"),
         "XML with more than 256 namespaces"},
    }));
    CAPTURE(name);
    const Error error = refused(xml);
    CHECK(error.code == Errc::limit);
    CHECK(error.what == text);
    CHECK(parsed(nested(max_document_depth - 3)).name == "web-3");
    CHECK(parsed(attributes(max_attributes)).name == "web-3");
}

TEST_CASE("hostile documents of the full size are answered") {
    const auto fill = [](std::string_view before, std::string_view text, std::string_view after) {
        const std::size_t room = max_document_bytes - before.size() - after.size() - 200;
        return guest_of(std::string(before) + repeated(text, room / text.size()) +
                        std::string(after));
    };
    CHECK(invalid(fill("<cpu><numa>", "<cell memory='1'/>", "</numa></cpu>"))
              .ends_with("cells: expected 1 to 1024"));
    CHECK(invalid(fill("<devices>", "<memory model='dimm'><target><size>1</size></target></memory>",
                       "</devices>")) == "line 2: <memory>: more than 1024 memory devices");
    CHECK(parsed(fill("<vcpu cpuset='", "0-16383,", "0'>1</vcpu>")).vcpus.size() == 1);
    CHECK(parsed(fill("<metadata>", "<x/>", "</metadata>")).name == "web-3");
    CHECK(parsed(fill("<devices>", "<hostdev type='pci'/>", "</devices>")).vfio_devices > 190'000);
    std::string pins;
    for (int i = 0; i < 16384; ++i)
        pins += fmt::format("<vcpupin vcpu='{}' cpuset='{}-16383'/>", i, i);
    CHECK(invalid(guest_of("<vcpu>16384</vcpu><cputune>" + pins + "</cputune>")) ==
          "line 2: <vcpupin cpuset>: 16384 different sets: expected at most 4096");
}

TEST_CASE("every beginning of a document is answered, and none but the whole is a domain") {
    const std::string xml =
        guest_of("<vcpu current='2'>4</vcpu><cputune><vcpupin vcpu='0' "
                 "cpuset='1'/></cputune><memoryBacking><locked/></memoryBacking>");
    for (std::size_t length = 0; length < xml.size(); ++length)
        CHECK(refused(xml.substr(0, length)).code == Errc::syntax);
}

TEST_CASE("nothing is ever written to stderr") {
    std::string written;
    {
        const CapturedStderr captured;
        for (const std::string_view xml :
             {"<domain", "<domain>&x;</domain>", "<domain>\xff</domain>",
              "<?xml version='1.0' encoding='UTF-16'?><domain/>",
              "<?xml version='1.0' encoding='EUC-JP'?><domain>\xff\xff\x8f</domain>",
              "<domain xmlns='::relative'><a:b/></domain>", "<domain xml:base='%%'/>"})
            (void)parse_domain(xml);
        written = captured.text();
    }
    CHECK(written == "");
}

TEST_CASE("two threads read documents of their own") {
    const std::string good = guest_of("<vcpu>4</vcpu>");
    const std::string bad = "<domain>\n<name></domain>";
    const auto read_many = [&](bool& agreed) {
        for (int i = 0; i < 500 && agreed; ++i) {
            const auto domain = parse_domain(good);
            const auto error = parse_domain(bad);
            agreed = domain && domain->vcpus.front().maximum == 4 && !error &&
                     error.error().what.starts_with("line 2: not XML: Opening");
        }
    };
    initialise();
    bool first = true;
    bool second = true;
    std::thread other([&] { read_many(second); });
    read_many(first);
    other.join();
    CHECK(first);
    CHECK(second);
}

} // namespace virtguard::domxml

TEST_CASE("a domain that cannot be still says who it is") {
    const auto impossible = virtguard::domxml::parse_identity(
        "<domain><name>none</name><memory>0</memory>"
        "<uuid>6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b11</uuid></domain>");
    CHECK(impossible.name == "none");
    CHECK(impossible.uuid == virtguard::Uuid::parse("6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b11"));
    const auto marked = virtguard::domxml::parse_identity(
        "<domain><metadata><v:admission xmlns:v='https://virtguard.org/xmlns/admission/1'>"
        "<v:scheduler>cortex</v:scheduler></v:admission></metadata></domain>",
        {{.key = "q", .xpath = "domain/metadata", .namespaces = {}}});
    CHECK(marked.scheduler == "cortex");
    CHECK(marked.facts.at("q").value == 1);
    CHECK(virtguard::domxml::parse_identity("<domain><uuid>none</uuid></domain>") ==
          virtguard::core::Domain{});
    CHECK(virtguard::domxml::parse_identity("not XML") == virtguard::core::Domain{});
}
