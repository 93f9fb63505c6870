// SPDX-License-Identifier: Apache-2.0
#include "builder.hpp"

namespace virtguard::domxml {

using core::BasePages;
using core::DefaultHugepages;
using core::MemoryPart;
using core::PagesOf;

namespace {

const std::string two_cells = "<cpu><numa><cell memory='2097152'/><cell memory='1048576'/>"
                              "</numa></cpu>";

std::string with_cells(std::string_view content) {
    return domain_of(two_cells + std::string(content));
}

std::string dimm(std::string_view source, std::string_view node = "<node>1</node>") {
    return fmt::format("<devices><memory model='dimm'>{}<target><size>524288</size>{}</target>"
                       "</memory></devices>",
                       source, node);
}

std::vector<std::int64_t> sizes(const core::Domain& domain) {
    std::vector<std::int64_t> result;
    for (const MemoryPart& part : domain.memory)
        result.push_back(part.size);
    return result;
}

std::vector<core::PageKind> pages(const core::Domain& domain) {
    std::vector<core::PageKind> result;
    for (const MemoryPart& part : domain.memory)
        result.push_back(part.pages);
    return result;
}

std::vector<std::optional<IdSet>> bindings(const core::Domain& domain) {
    std::vector<std::optional<IdSet>> result;
    for (const MemoryPart& part : domain.memory)
        result.push_back(part.bound_to);
    return result;
}

} // namespace

TEST_CASE("a size is read in any unit libvirt takes, up to KiB, up to the guest's MiB") {
    const auto [written, bytes] = GENERATE(table<std::string, std::int64_t>({
        {"<memory>1048576</memory>", gib},
        {"<memory unit=''>1048576</memory>", gib},
        {"<memory unit='KiB'>1048576</memory>", gib},
        {"<memory unit='k'>1048576</memory>", gib},
        {"<memory unit='kib'>1048576</memory>", gib},
        {"<memory unit='GiB'>1</memory>", gib},
        {"<memory unit='g'>1</memory>", gib},
        {"<memory unit='TiB'>2</memory>", 2048 * gib},
        {"<memory unit='P'>1</memory>", 1024 * 1024 * gib},
        {"<memory unit='GB'>10</memory>", 9537 * mib},
        {"<memory unit='kb'>1048</memory>", mib},
        {"<memory unit='b'>1073741824</memory>", gib},
        {"<memory unit='Byte'>1073741825</memory>", gib + mib},
        {"<memory unit='bytes'>1</memory>", mib},
        {"<memory>1048577</memory>", gib + mib},
        {"<memory> \n+1048576</memory>", gib},
        {"<memory>1048<!-- split -->576</memory>", gib},
        {"<memory>&#49;048576</memory>", gib},
        {"<memory><![CDATA[1048576]]></memory>", gib},
        {"<memory>1048576</memory><memory>5</memory>", gib},
    }));
    CAPTURE(written);
    const core::Domain domain = parsed(domain_of(written));
    CHECK(sizes(domain) == std::vector{bytes});
    CHECK(domain.memory[0].kind == MemoryPart::Kind::ram);
    CHECK(domain.memory[0].requested == bytes);
    CHECK(domain.current_memory == bytes);
}

TEST_CASE("an impossible amount of memory is refused with its place") {
    const auto [written, text] = GENERATE(table<std::string, std::string>({
        {"", "line 1: <memory>: no memory: expected some here or in guest cells"},
        {"<memory/>", "line 2: <memory>: no memory: expected some here or in guest cells"},
        {"<memory>0</memory>", "line 2: <memory>: no memory: expected some here or in guest cells"},
        {"<memory>6G</memory>", "line 2: <memory>: \"6G\" is not a size: expected a whole number"},
        {"<memory>-1</memory>", "line 2: <memory>: \"-1\" is not a size: expected a whole number"},
        {"<memory>1.5</memory>",
         "line 2: <memory>: \"1.5\" is not a size: expected a whole number"},
        {"<memory>1024 </memory>",
         "line 2: <memory>: \"1024 \" is not a size: expected a whole number"},
        {"<memory>18446744073709551616</memory>",
         "line 2: <memory>: \"18446744073709551616\" is not a size: expected a whole number"},
        {"<memory>18446744073709551615</memory>",
         "line 2: <memory>: 18446744073709551615 is more than any guest can have (4 PiB)"},
        {"<memory unit='EiB'>18446744073709551615</memory>",
         "line 2: <memory>: 18446744073709551615EiB is more than any guest can have (4 PiB)"},
        {"<memory unit='PiB'>5</memory>",
         "line 2: <memory>: 5PiB is more than any guest can have (4 PiB)"},
        {"<memory unit='Gib '>1</memory>", "line 2: <memory>: unknown unit \"Gib \": expected such "
                                           "as \"KiB\", \"MB\", \"bytes\""},
        {"<memory unit='GBi'>1</memory>", "line 2: <memory>: unknown unit \"GBi\": expected such "
                                          "as \"KiB\", \"MB\", \"bytes\""},
        {"<memory>1024</memory><currentMemory>x</currentMemory>",
         "line 2: <currentMemory>: \"x\" is not a size: expected a whole number"},
        {"<memory>1024</memory><devices><memory model='nvdimm'><target><size>2048</size></target>"
         "</memory></devices>",
         "line 2: <memory>: less than the memory devices in it"},
        {"<memory>2048</memory><devices><memory model='nvdimm'><target><size>2048</size></target>"
         "</memory></devices>",
         "line 2: <memory>: no memory: expected some here or in guest cells"},
        {"<cpu><numa><cell memory='4' unit='PiB'/><cell memory='1'/></numa></cpu>",
         "line 1: <memory>: the sum of all parts is more than any guest can have (4 PiB)"},
        {"<memory>x</memory><cpu><numa><cell memory='1024'/></numa></cpu>",
         "line 2: <memory>: \"x\" is not a size: expected a whole number"},
    }));
    CHECK(invalid(domain_of(written)) == text);
}

TEST_CASE("as many parts as are taken, each as large as is taken, do not overflow") {
    std::string cells;
    std::string devices;
    for (int i = 0; i < max_memory_parts; ++i) {
        cells += "<cell memory='4' unit='PiB'/>";
        devices += "<memory model='dimm'><target><size unit='PiB'>4</size><node>0</node></target>"
                   "</memory>";
    }
    CHECK(invalid(domain_of("<cpu><numa>" + cells + "</numa></cpu><devices>" + devices +
                            "</devices>")) ==
          "line 1: <memory>: the sum of all parts is more than any guest can have (4 PiB)");
    CHECK(invalid(guest_of("<devices>" + devices + "</devices>")) ==
          "line 2: <memory>: less than the memory devices in it");
}

TEST_CASE("current memory is what is written, and all where it is not or is more") {
    const auto [written, bytes] = GENERATE(table<std::string, std::int64_t>({
        {"<currentMemory>524288</currentMemory>", gib / 2},
        {"<currentMemory unit='MiB'>100</currentMemory>", 100 * mib},
        {"<currentMemory>0</currentMemory>", gib},
        {"<currentMemory/>", gib},
        {"<currentMemory>9999999</currentMemory>", gib},
    }));
    CHECK(parsed(guest_of(written)).current_memory == bytes);
}

TEST_CASE("cells and devices win over <memory>, each rounded by itself") {
    const auto [name, content,
                expected] = GENERATE(table<std::string, std::string, std::vector<std::int64_t>>({
        {"cells", two_cells + "<memory>1</memory>", {2 * gib, gib}},
        {"cells without <memory>", two_cells, {2 * gib, gib}},
        {"cells listed out of order",
         "<cpu><numa><cell id='1' memory='1'/><cell id='0' memory='3' unit='GiB'/></numa></cpu>",
         {3 * gib, mib}},
        {"cells partly without id",
         "<cpu><numa><cell memory='1024'/><cell id='1' memory='2048'/></numa></cpu>",
         {mib, 2 * mib}},
        {"a cell without memory is no part",
         "<cpu><numa><cell memory='0'/><cell memory='2048'/></numa></cpu>",
         {2 * mib}},
        {"a device is taken out of <memory> as written, then both are rounded",
         "<memory>163194</memory><devices><memory model='dimm'><target><size>65537</size>"
         "</target></memory></devices>",
         {96 * mib, 66 * mib}},
        {"with cells a device comes on top", two_cells + dimm(""), {2 * gib, gib, gib / 2}},
        {"what is not RAM is only taken out",
         "<memory>3145728</memory><devices>"
         "<memory model='nvdimm'><target><size>1048576</size></target></memory>"
         "<memory model='virtio-pmem'><target><size>524288</size></target></memory>"
         "<memory model='sgx-epc'><target><size>524288</size></target></memory></devices>",
         {gib}},
        {"ppc64 in steps of 256 MiB",
         "<os><type arch='ppc64le'>hvm</type></os><memory>1048577</memory><devices>"
         "<memory model='dimm'><target><size>1</size></target></memory></devices>",
         {gib, 256 * mib}},
    }));
    CAPTURE(name);
    CHECK(sizes(parsed(domain_of(content))) == expected);
}

TEST_CASE("a virtio-mem device has a size and what is requested of it") {
    const core::Domain domain = parsed(with_cells(
        "<devices><memory model='virtio-mem'><target><size unit='GiB'>3</size><node>0</node>"
        "<block unit='KiB'>2048</block><requested unit='KiB'>1572864</requested></target></memory>"
        "<memory model='virtio-mem'><target><size>1</size><node>0</node></target></memory>"
        "</devices>"));
    REQUIRE(domain.memory.size() == 4);
    CHECK(domain.memory[2].kind == MemoryPart::Kind::virtio_mem);
    CHECK(domain.memory[2].size == 3 * gib);
    CHECK(domain.memory[2].requested == 1536 * mib);
    CHECK(domain.memory[3].size == 2 * mib);
    CHECK(domain.memory[3].requested == 0);
    CHECK(domain.current_memory == 6 * gib + 2 * mib);
}

TEST_CASE("impossible cells and devices are refused with their place") {
    const auto [content, text] = GENERATE(table<std::string, std::string>({
        {"<cpu><numa/></cpu>", "line 2: <numa>: 0 cells: expected 1 to 1024"},
        {"<cpu><numa><cell/></numa></cpu>", "line 2: <cell memory>: missing"},
        {"<cpu><numa><cell id='x' memory='1'/></numa></cpu>",
         "line 2: <cell id>: \"x\" is not a whole number below 2^32"},
        {"<cpu><numa>\n<cell id='0' memory='1'/>\n<cell id='2' memory='1'/></numa></cpu>",
         "line 4: <cell id>: 2: expected each of 0 to 1 once"},
        {"<cpu><numa><cell id='1' memory='1'/><cell memory='1'/></numa></cpu>",
         "line 2: <cell id>: 1: expected each of 0 to 1 once"},
        {"<cpu><numa><cell memory='6G'/></numa></cpu>",
         "line 2: <cell memory>: \"6G\" is not a size: expected a whole number"},
        {"<devices><memory model='ram'/></devices>",
         "line 2: <memory model>: \"ram\": expected \"dimm\", \"virtio-mem\", \"nvdimm\", "
         "\"virtio-pmem\" or \"sgx-epc\""},
        {"<devices><memory model='dimm'><target/></memory></devices>",
         "line 2: <memory model>: its <target> has no <size>"},
        {dimm(""), "line 2: <node>: 1: expected one of 0 guest cells"},
        {two_cells + dimm("", "<node>2</node>"),
         "line 2: <node>: 2: expected one of 2 guest cells"},
        {two_cells + dimm("", ""),
         "line 2: <target>: <node> is missing: expected one of 2 guest cells"},
        {two_cells + "<devices><memory model='virtio-mem'><target><size>1</size><node>0</node>"
                     "<requested>2</requested></target></memory></devices>",
         "line 2: <requested>: more than <size>"},
        {two_cells + dimm("<source><nodemask>^0</nodemask></source>"),
         "line 2: <nodemask>: \"^0\" is an empty set"},
        {two_cells + dimm("<source><pagesize>2M</pagesize></source>"),
         "line 2: <pagesize>: \"2M\" is not a size: expected a whole number"},
    }));
    CHECK(invalid(domain_of(content + "<memory>1048576</memory>")) == text);
}

TEST_CASE("without guest NUMA a device may name node 0") {
    const core::Domain domain = parsed(guest_of(dimm("", "<node>0</node>")));
    CHECK(sizes(domain) == std::vector{gib / 2, gib / 2});
}

TEST_CASE("pages are those of the cell, else of the page without nodeset, else base pages") {
    using Kinds = std::vector<core::PageKind>;
    const PagesOf small{2 * mib};
    const PagesOf large{gib};
    const auto [name, backing, expected] = GENERATE_COPY(table<std::string, std::string, Kinds>({
        {"none", "", {BasePages{}, BasePages{}, BasePages{}}},
        {"the default size",
         "<hugepages/>",
         {DefaultHugepages{}, DefaultHugepages{}, DefaultHugepages{}}},
        {"one for all", "<hugepages><page size='2048'/></hugepages>", {small, small, small}},
        {"one for a cell and the devices in it",
         "<hugepages><page size='2' unit='M' nodeset='1'/></hugepages>",
         {BasePages{}, small, small}},
        {"a cell's own before that of the others",
         "<hugepages><page size='1' unit='G' nodeset='0'/><page size='2048'/></hugepages>",
         {large, small, small}},
        {"one per cell",
         "<hugepages><page size='1' unit='G' nodeset='0'/><page size='2048' nodeset=' 0-1,^0'/>"
         "</hugepages>",
         {large, small, small}},
        {"no power of two",
         "<hugepages><page size='5' unit='M'/></hugepages>",
         {PagesOf{5 * mib}, PagesOf{5 * mib}, PagesOf{5 * mib}}},
        {"the base page is a size like any",
         "<hugepages><page size='4' unit='KiB'/></hugepages>",
         {PagesOf{4096}, PagesOf{4096}, PagesOf{4096}}},
    }));
    CAPTURE(name);
    CHECK(pages(parsed(with_cells("<memoryBacking>" + backing + "</memoryBacking>" + dimm("")))) ==
          expected);
}

TEST_CASE("the page size of a device is its own before that of its cell") {
    const core::Domain domain = parsed(
        with_cells("<memoryBacking><hugepages><page size='2048'/></hugepages></memoryBacking>" +
                   dimm("<source><pagesize unit='GiB'>1</pagesize></source>")));
    CHECK(domain.memory[2].pages == core::PageKind(PagesOf{gib}));
}

TEST_CASE("without guest NUMA only the page without nodeset counts; libvirt drops nodeset 0") {
    const auto [page, expected] = GENERATE(table<std::string, core::PageKind>({
        {"<page size='2048'/>", PagesOf{2 * mib}},
        {"<page size='2048' nodeset='0'/>", PagesOf{2 * mib}},
        {"<page size='2048' nodeset='1'/>", BasePages{}},
        {"<page size='2048'/><page size='1048576' nodeset='1'/>", PagesOf{2 * mib}},
    }));
    CAPTURE(page);
    const core::Domain domain =
        parsed(guest_of("<memoryBacking><hugepages>" + page + "</hugepages></memoryBacking>" +
                        dimm("", "<node>0</node>")));
    CHECK(pages(domain) == std::vector{expected, expected});
}

TEST_CASE("impossible pages are refused with their place") {
    const auto [page, text] = GENERATE(table<std::string, std::string>({
        {"<page/>", "line 2: <page size>: missing or 0"},
        {"<page size='0'/>", "line 2: <page size>: missing or 0"},
        {"<page size='2M'/>", "line 2: <page size>: \"2M\" is not a size: expected a whole number"},
        {"<page size='2048' nodeset=''/>", "line 2: <page nodeset>: \"\" is an empty set"},
        {"<page size='2048' nodeset='2'/>",
         "line 2: <page nodeset>: 2: the guest's cells are 0 to 1"},
        {"<page size='2048' nodeset='0-1'/><page size='4' nodeset='1'/>",
         "line 2: <page nodeset>: 1: names a cell of another page"},
        {"<page size='2048'/>\n<page size='4'/>", "line 3: <page>: a second one without nodeset"},
    }));
    CHECK(invalid(with_cells("<memoryBacking><hugepages>" + page +
                             "</hugepages></memoryBacking>")) == text);
}

TEST_CASE("strict and restrictive bind; preferred, interleave and numad are wishes") {
    using Sets = std::vector<std::optional<IdSet>>;
    const auto [tune, expected] = GENERATE(table<std::string, Sets>({
        {"", {std::nullopt, std::nullopt, std::nullopt}},
        {"<memory nodeset='3'/>", {IdSet{3}, IdSet{3}, IdSet{3}}},
        {"<memory mode='strict' nodeset='0-3,^2'/>",
         {IdSet{0, 1, 3}, IdSet{0, 1, 3}, IdSet{0, 1, 3}}},
        {"<memory mode='restrictive' nodeset='0 - 1'/>", {IdSet{0, 1}, IdSet{0, 1}, IdSet{0, 1}}},
        {"<memory mode='preferred' nodeset='3'/>", {std::nullopt, std::nullopt, std::nullopt}},
        {"<memory mode='interleave' nodeset='3'/>", {std::nullopt, std::nullopt, std::nullopt}},
        {"<memory mode='strict' placement='auto'/>", {std::nullopt, std::nullopt, std::nullopt}},
        {"<memory mode='strict' placement='auto' nodeset='3'/>",
         {std::nullopt, std::nullopt, std::nullopt}},
        {"<memory mode='strict' placement='static' nodeset='3'/>", {IdSet{3}, IdSet{3}, IdSet{3}}},
        {"<memory nodeset='3'/><memnode cellid='1' mode='strict' nodeset='5'/>",
         {IdSet{3}, IdSet{5}, IdSet{5}}},
        {"<memory nodeset='3'/><memnode cellid='1' mode='preferred' nodeset='5'/>",
         {IdSet{3}, std::nullopt, std::nullopt}},
        {"<memory mode='interleave' nodeset='3'/><memnode cellid='0' nodeset='5'/>",
         {IdSet{5}, std::nullopt, std::nullopt}},
        {"<memnode cellid='0' mode='restrictive' nodeset='5'/>",
         {IdSet{5}, std::nullopt, std::nullopt}},
    }));
    CAPTURE(tune);
    CHECK(bindings(parsed(with_cells("<numatune>" + tune + "</numatune>" + dimm("")))) == expected);
}

TEST_CASE("a device's nodemask replaces the nodes, in the mode of its cell") {
    const auto [tune, expected] = GENERATE(table<std::string, std::optional<IdSet>>({
        {"", IdSet{7}},
        {"<memory nodeset='3'/>", IdSet{7}},
        {"<memory mode='preferred' nodeset='3'/>", std::nullopt},
        {"<memory mode='preferred' nodeset='3'/><memnode cellid='1' nodeset='5'/>", IdSet{7}},
        {"<memory mode='preferred' nodeset='3'/><memnode cellid='0' nodeset='5'/>", std::nullopt},
        {"<memory nodeset='3'/><memnode cellid='1' mode='interleave' nodeset='5'/>", std::nullopt},
        {"<memory placement='auto'/>", IdSet{7}},
        {"<memory mode='interleave' placement='auto'/>", std::nullopt},
    }));
    CAPTURE(tune);
    CHECK(parsed(with_cells("<numatune>" + tune + "</numatune>" +
                            dimm("<source><nodemask>7</nodemask></source>")))
              .memory[2]
              .bound_to == expected);
}

TEST_CASE("impossible NUMA tuning is refused with its place") {
    const auto [tune, text] = GENERATE(table<std::string, std::string>({
        {"<memory mode='strict'/>", "line 2: <memory nodeset>: missing"},
        {"<memory placement='static'/>", "line 2: <memory nodeset>: missing"},
        {"<memory mode='soft' nodeset='0'/>",
         "line 2: <memory mode>: \"soft\": expected \"strict\", "
         "\"restrictive\", \"preferred\" or \"interleave\""},
        {"<memory placement='here' nodeset='0'/>",
         "line 2: <memory placement>: \"here\": expected \"static\" or \"auto\""},
        {"<memory nodeset='0,^0'/>", "line 2: <memory nodeset>: \"0,^0\" is an empty set"},
        {"<memory nodeset='a'/>", "line 2: <memory nodeset>: \"a\" is not a list of ids: expected "
                                  "such as \"0-3,8\", each below 16384"},
        {"<memnode nodeset='0'/>", "line 2: <memnode cellid>: expected one of 2 guest cells"},
        {"<memnode cellid='2' nodeset='0'/>",
         "line 2: <memnode cellid>: expected one of 2 guest cells"},
        {"<memnode cellid='1'/>", "line 2: <memnode nodeset>: missing"},
        {"<memnode cellid='1' nodeset='0'/><memnode cellid='1' nodeset='0'/>",
         "line 2: <memnode cellid>: a second one for cell 1"},
        {"<memory placement='auto'/><memnode cellid='1' nodeset='0'/>",
         "line 2: <memnode>: not possible with automatic placement"},
    }));
    CHECK(invalid(with_cells("<numatune>" + tune + "</numatune>")) == text);
}

TEST_CASE("vCPUs that numad places have their memory placed by it") {
    const std::string automatic = "<vcpu placement='auto'>2</vcpu><numatune>{}</numatune>";
    CHECK(bindings(parsed(with_cells(fmt::format(fmt::runtime(automatic), "<memory/>")))) ==
          std::vector<std::optional<IdSet>>{std::nullopt, std::nullopt});
    CHECK(bindings(
              parsed(with_cells(fmt::format(fmt::runtime(automatic), "<memory nodeset='1'/>")))) ==
          std::vector<std::optional<IdSet>>{IdSet{1}, IdSet{1}});
    CHECK(invalid(with_cells(
              fmt::format(fmt::runtime(automatic), "<memnode cellid='0' nodeset='0'/>"))) ==
          "line 2: <memnode>: not possible with automatic placement");
}

TEST_CASE("memory backing says whether memory is locked, preallocated, or a file's") {
    struct Facts {
        bool locked, preallocated, file_backed;
        bool operator==(const Facts&) const = default;
    };
    const auto [backing, expected] = GENERATE(table<std::string, Facts>({
        {"", {false, false, false}},
        {"<nosharepages/><discard/>", {false, false, false}},
        {"<locked/>", {true, false, false}},
        {"<allocation mode='immediate'/>", {false, true, false}},
        {"<allocation mode='ondemand'/>", {false, false, false}},
        {"<source type='file'/>", {false, false, true}},
        {"<source type='file'/><access mode='private'/>", {false, false, true}},
        {"<source type='memfd'/><access mode='shared'/>", {false, false, false}},
        {"<source type='anonymous'/>", {false, false, false}},
        {"<access mode='shared'/>", {false, false, true}},
        {"<access mode='private'/>", {false, false, false}},
        {"<hugepages/><source type='file'/><access mode='shared'/><locked/>", {true, false, false}},
    }));
    CAPTURE(backing);
    const core::Domain domain = parsed(guest_of("<memoryBacking>" + backing + "</memoryBacking>"));
    CHECK(Facts{domain.locked, domain.preallocated, domain.file_backed} == expected);
}

TEST_CASE("memory is a file's only when all of its base pages are") {
    const std::string cells = "<cpu><numa><cell memory='1024' memAccess='{}'/>"
                              "<cell memory='1024' memAccess='{}'/></numa></cpu>{}";
    const auto [first, second, rest,
                expected] = GENERATE(table<std::string, std::string, std::string, bool>({
        {"shared", "shared", "", true},
        {"shared", "private", "", false},
        {"private", "private", "<memoryBacking><access mode='shared'/></memoryBacking>", false},
        {"shared", "private",
         "<memoryBacking><hugepages><page size='2048' nodeset='1'/></hugepages></memoryBacking>",
         true},
    }));
    CHECK(parsed(domain_of(fmt::format(fmt::runtime(cells), first, second, rest))).file_backed ==
          expected);
}

} // namespace virtguard::domxml
