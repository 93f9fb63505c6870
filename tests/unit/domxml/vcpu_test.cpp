// SPDX-License-Identifier: Apache-2.0
#include "builder.hpp"

namespace virtguard::domxml {

using Groups = std::vector<core::VcpuGroup>;

TEST_CASE("vCPUs are grouped by where they may run") {
    const auto [name, content, expected] = GENERATE(table<std::string, std::string, Groups>({
        {"absent: one", "", {{std::nullopt, 1, 1}}},
        {"a number", "<vcpu>4</vcpu>", {{std::nullopt, 4, 4}}},
        {"some enabled", "<vcpu current='2'>4</vcpu>", {{std::nullopt, 2, 4}}},
        {"the most", "<vcpu>16384</vcpu>", {{std::nullopt, 16384, 16384}}},
        {"a set for all", "<vcpu cpuset='0-3,^1'>4</vcpu>", {{IdSet{0, 2, 3}, 4, 4}}},
        {"numad: the set is not used",
         "<vcpu placement='auto' cpuset='0'>4</vcpu>",
         {{std::nullopt, 4, 4}}},
        {"static", "<vcpu placement='static' cpuset='8'>2</vcpu>", {{IdSet{8}, 2, 2}}},
        {"pins win over the set",
         "<vcpu cpuset='8-9'>4</vcpu><cputune><vcpupin vcpu='2' cpuset='1'/>"
         "<vcpupin vcpu='0' cpuset='5'/></cputune>",
         {{IdSet{5}, 1, 1}, {IdSet{8, 9}, 2, 2}, {IdSet{1}, 1, 1}}},
        {"equal pins are one group, the set's own too",
         "<vcpu cpuset='8-9'>4</vcpu><cputune><vcpupin vcpu='0' cpuset='1,2'/>"
         "<vcpupin vcpu='3' cpuset='1-2'/><vcpupin vcpu='1' cpuset='8,9'/></cputune>",
         {{IdSet{1, 2}, 2, 2}, {IdSet{8, 9}, 2, 2}}},
        {"pins count where numad places the others",
         "<vcpu placement='auto'>2</vcpu><cputune><vcpupin vcpu='1' cpuset='6'/></cputune>",
         {{std::nullopt, 1, 1}, {IdSet{6}, 1, 1}}},
        {"pins of vCPUs that are not there are ignored",
         "<vcpu>1</vcpu><cputune><vcpupin vcpu='1' cpuset=''/></cputune>",
         {{std::nullopt, 1, 1}}},
        {"the first are the enabled ones",
         "<vcpu current='1'>2</vcpu><cputune><vcpupin vcpu='0' cpuset='1'/>"
         "<vcpupin vcpu='1' cpuset='2'/></cputune>",
         {{IdSet{1}, 1, 1}, {IdSet{2}, 0, 1}}},
        {"one by one; what is not listed is disabled",
         "<vcpu current='6'>6</vcpu><vcpus><vcpu id='3' enabled='no'/><vcpu id='5' enabled='yes'/>"
         "<vcpu id='0' enabled='yes' hotpluggable='no' order='1'/></vcpus>"
         "<cputune><vcpupin vcpu='5' cpuset='7'/></cputune>",
         {{std::nullopt, 1, 5}, {IdSet{7}, 1, 1}}},
    }));
    CAPTURE(name);
    CHECK(parsed(guest_of(content)).vcpus == expected);
}

TEST_CASE("impossible vCPUs are refused with their place") {
    const auto [content, text] = GENERATE(table<std::string, std::string>({
        {"<vcpu>0</vcpu>", "line 2: <vcpu>: 0 vCPUs: expected 1 to 16384"},
        {"<vcpu>16385</vcpu>", "line 2: <vcpu>: 16385 vCPUs: expected 1 to 16384"},
        {"<vcpu>4294967295</vcpu>", "line 2: <vcpu>: 4294967295 vCPUs: expected 1 to 16384"},
        {"<vcpu>4294967296</vcpu>",
         "line 2: <vcpu>: \"4294967296\" is not a whole number below 2^32"},
        {"<vcpu>-1</vcpu>", "line 2: <vcpu>: \"-1\" is not a whole number below 2^32"},
        {"<vcpu/>", "line 2: <vcpu>: \"\" is not a whole number below 2^32"},
        {"<vcpu>two</vcpu>", "line 2: <vcpu>: \"two\" is not a whole number below 2^32"},
        {"<vcpu current='5'>4</vcpu>", "line 2: <vcpu current>: 5 of 4 vCPUs: expected 1 to 4"},
        {"<vcpu current='0'>4</vcpu>", "line 2: <vcpu current>: 0 of 4 vCPUs: expected 1 to 4"},
        {"<vcpu current=''>4</vcpu>",
         "line 2: <vcpu current>: \"\" is not a whole number below 2^32"},
        {"<vcpu placement='here'>4</vcpu>",
         "line 2: <vcpu placement>: \"here\": expected \"static\" or \"auto\""},
        {"<vcpu cpuset=''>4</vcpu>", "line 2: <vcpu cpuset>: \"\" is an empty set"},
        {"<vcpu cpuset='16384'>4</vcpu>",
         "line 2: <vcpu cpuset>: \"16384\" is not a list of ids: expected such as \"0-3,8\", each "
         "below 16384"},
        {"<cputune><vcpupin cpuset='1'/></cputune>", "line 2: <vcpupin vcpu>: missing"},
        {"<cputune><vcpupin vcpu='0'/></cputune>", "line 2: <vcpupin cpuset>: missing"},
        {"<cputune><vcpupin vcpu='0' cpuset='1'/>\n<vcpupin vcpu='0' cpuset='1'/></cputune>",
         "line 3: <vcpupin vcpu>: vCPU 0 is pinned twice"},
        {"<cputune><vcpupin vcpu='0' cpuset='3-1'/></cputune>",
         "line 2: <vcpupin cpuset>: \"3-1\" is not a list of ids: expected such as \"0-3,8\", each "
         "below 16384"},
        {"<vcpus><vcpu enabled='yes'/></vcpus>", "line 2: <vcpu id>: expected 0 to 0"},
        {"<vcpus><vcpu id='1' enabled='yes'/></vcpus>", "line 2: <vcpu id>: expected 0 to 0"},
        {"<vcpus><vcpu id='0'/></vcpus>",
         "line 2: <vcpu enabled>: \"\": expected \"yes\" or \"no\""},
        {"<vcpus><vcpu id='0' enabled='no'/></vcpus>", "line 2: <vcpus>: none is enabled"},
    }));
    CHECK(invalid(guest_of(content)) == text);
}

TEST_CASE("vCPUs have no more different sets of CPUs than can be decided on in time") {
    const auto pinned = [](std::size_t sets) {
        std::string pins;
        for (std::size_t i = 0; i < sets; ++i)
            pins += fmt::format("<vcpupin vcpu='{}' cpuset='{},16000'/>", i, i);
        return guest_of(fmt::format("<vcpu>{}</vcpu><cputune>{}</cputune>", sets, pins));
    };
    CHECK(parsed(pinned(max_vcpu_sets)).vcpus.size() == max_vcpu_sets);
    CHECK(invalid(pinned(max_vcpu_sets + 1)) ==
          "line 2: <vcpupin cpuset>: 4097 different sets: expected at most 4096");
}

TEST_CASE("I/O threads are as many as counted or listed, whichever is more") {
    const auto [content, expected] = GENERATE(table<std::string, std::int64_t>({
        {"", 0},
        {"<iothreads/>", 0},
        {"<iothreads>4</iothreads>", 4},
        {"<iothreadids><iothread id='1'/><iothread id='7'/></iothreadids>", 2},
        {"<iothreads>4</iothreads><iothreadids><iothread id='7'/></iothreadids>", 4},
        {"<iothreads>1</iothreads><iothreadids><iothread id='7'/><iothread id='8'/></iothreadids>",
         2},
    }));
    CHECK(parsed(guest_of(content)).iothreads == expected);
    CHECK(invalid(guest_of("<iothreads>many</iothreads>")) ==
          "line 2: <iothreads>: \"many\" is not a whole number below 2^32");
    CHECK(invalid(guest_of("<iothreads>4294967295</iothreads>")) ==
          "line 1: <iothreads>: 4294967295 I/O threads: expected at most 16384");
}

} // namespace virtguard::domxml
