// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/text.hpp"
#include "host/residency.hpp"
#include "tree.hpp"

using namespace virtguard;
using core::Resource;
using host::read_residency;
using host::RunningGuest;

namespace {

constexpr std::int64_t kib = 1024;
constexpr std::int64_t mib = 1024 * kib;
constexpr std::int64_t gib = 1024 * mib;
const std::string uuid_text = "6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b11";
const std::string scope = R"(machine.slice/machine-qemu\x2d3\x2dweb.scope)";

/// What QEMU's command line looks like in /proc.
std::string command_line(const std::string& uuid) {
    using namespace std::string_literals;
    return "/usr/bin/qemu-system-x86_64\0-name\0guest=web\0-uuid\0"s + uuid +
           "\0-no-user-config\0"s;
}

/// A host on which "web" runs as process 4242.
class Machine : public Tree {
  public:
    Machine()
        : Tree{{"run/libvirt/qemu/web.pid", "4242\n"},
               {"proc/4242/cmdline", command_line(uuid_text)},
               {"proc/4242/cgroup", "0::/system.slice/libvirtd.service\n"}} {}

    /// "memory 0:3 1:4, hugepages-2Mi 0:2": KiB by node; or the error.
    [[nodiscard]] std::string residency(const std::vector<std::int64_t>& page_sizes = {},
                                        const std::string& name = "web") const {
        const auto read = read_residency(
            root(), {.name = name, .uuid = *Uuid::parse(uuid_text), .page_sizes = page_sizes});
        if (!read) {
            std::string text = read.error().what;
            for (std::size_t at; (at = text.find(root().native())) != std::string::npos;)
                text.erase(at, root().native().size());
            return text;
        }
        std::string text;
        for (const auto& [resource, by_node] : *read) {
            text += (text.empty() ? "" : ", ") + resource.name();
            for (const auto& [node, bytes] : by_node)
                text += fmt::format(" {}:{}", node, bytes / kib);
        }
        return text;
    }
};

const std::string maps =
    "5587bff21000 default file=/usr/bin/qemu-system-x86_64 mapped=900 N0=900 kernelpagesize_kB=4\n"
    "5587c1000000 default heap anon=30 dirty=30 active=0 N0=20 N1=10 kernelpagesize_kB=4\n"
    "7f30a0000000 bind:1 anon=7 dirty=7 N1=7 kernelpagesize_kB=4\n"
    "7f30b0000000 default\n"
    "7f30b8000000 default file=/memfd:pc\\040ram\\040(deleted) dirty=5 N3=5 kernelpagesize_kB=4\n"
    "7f30c0000000 bind:0 file=/dev/hugepages/libvirt/qemu/3-web/ram huge dirty=4 N0=3 N1=1 "
    "kernelpagesize_kB=2048\n"
    "7f3100000000 prefer:0 file=/memfd:ram huge dirty=1 N0=1 kernelpagesize_kB=1048576\n"
    "7ffc00000000 default stack anon=2 dirty=2 N0=2 kernelpagesize_kB=4\n";

const std::string stat = "anon N0=1048576 N1=2048\nfile N0=8192 N1=0\nkernel_stack N0=1024 N1=0\n"
                         "pagetables N0=4096 N1=0\nshmem N0=1024 N1=512\nfile_mapped N0=4096 N1=0\n"
                         "anon_thp N0=1048576 N1=0\n";

} // namespace

TEST_CASE("without a cgroup of its own, a guest's mappings tell what it occupies") {
    const Machine machine;
    machine.write("proc/4242/numa_maps", maps);
    CHECK(machine.residency({2 * mib}) ==
          "memory 0:88 1:68 3:20, hugepages-2Mi 0:6144 1:2048, hugepages-1Gi 0:1048576");
    CHECK(machine.residency({64 * kib}) == "memory 0:88 1:68 3:20, hugepages-64Ki, "
                                           "hugepages-2Mi 0:6144 1:2048, hugepages-1Gi 0:1048576");
}

TEST_CASE("the cgroup of one guest is what libvirt made for it, whatever the hierarchy") {
    struct Row {
        std::string cgroup; ///< the process's
        std::string folder; ///< where the guest's files are
    };
    const auto row = GENERATE(values<Row>({
        {"0::/" + scope + "/libvirt/emulator\n", "sys/fs/cgroup/" + scope},
        {"0::/" + scope + "\n", "sys/fs/cgroup/" + scope},
        {"1:name=systemd:/" + scope + "\n0::/" + scope + "/libvirt\n", "sys/fs/cgroup/" + scope},
        {"0::/machine/qemu-3-web.libvirt-qemu/emulator\n",
         "sys/fs/cgroup/machine/qemu-3-web.libvirt-qemu"},
        {"0::/customer.slice/customer-a.slice/machine-qemu\\x2d3\\x2dweb.scope/libvirt\n",
         "sys/fs/cgroup/customer.slice/customer-a.slice/machine-qemu\\x2d3\\x2dweb.scope"},
    }));
    CAPTURE(row.cgroup);
    const Machine machine;
    machine.write("proc/4242/cgroup", row.cgroup);
    machine.write(row.folder + "/memory.numa_stat", stat);
    machine.write(row.folder + "/hugetlb.2MB.numa_stat", "total=6291456 N0=4194304 N1=2097152\n");
    machine.write(row.folder + "/hugetlb.1GB.numa_stat", "total=0 N0=0 N1=0\n");
    CHECK(machine.residency({2 * mib, gib}) ==
          "memory 0:1029 1:2, hugepages-2Mi 0:4096 1:2048, hugepages-1Gi 0:0 1:0");
    CHECK(machine.residency() == "memory 0:1029 1:2");
}

TEST_CASE("cgroups of version 1 count pages, by the kernel's lists") {
    const Machine machine;
    machine.write("proc/4242/cgroup", "9:cpu,cpuacct:/" + scope + "/emulator\n4:memory:/" + scope +
                                          "\n3:hugetlb:/" + scope + "\n0::/" + scope + "\n");
    machine.write("sys/fs/cgroup/memory/" + scope + "/memory.numa_stat",
                  "total=9 N0=9 N1=0\nanon=5 N0=5 N1=0\nunevictable=0 N0=0 N1=0\n"
                  "hierarchical_total=29 N0=9 N1=20\nhierarchical_file=9 N0=9 N1=0\n"
                  "hierarchical_anon=15 N0=5 N1=10\nhierarchical_unevictable=3 N0=1 N1=2\n");
    machine.write("sys/fs/cgroup/hugetlb/" + scope + "/hugetlb.64KB.numa_stat",
                  "total=0 N0=0 N1=0\nhierarchical_total=65536 N0=0 N1=65536\n");
    const std::int64_t page = ::sysconf(_SC_PAGESIZE) / kib;
    CHECK(machine.residency({64 * kib}) ==
          fmt::format("memory 0:{} 1:{}, hugepages-64Ki 0:0 1:64", 6 * page, 12 * page));
}

TEST_CASE("what the guest's cgroup does not count, its mappings tell") {
    const Machine machine;
    machine.write("proc/4242/cgroup", "0::/" + scope + "/libvirt/emulator\n");
    machine.write("sys/fs/cgroup/" + scope + "/memory.numa_stat", stat);
    CHECK(machine.residency({2 * mib}) == "memory 0:1029 1:2"); // no mappings to read
    machine.write("proc/4242/numa_maps", maps);
    CHECK(machine.residency() == "memory 0:1029 1:2"); // none that need to be read
    CHECK(machine.residency({2 * mib}) ==
          "memory 0:1029 1:2, hugepages-2Mi 0:6144 1:2048, hugepages-1Gi 0:1048576");
}

TEST_CASE("a cgroup that is not one guest's own is not asked") {
    const auto cgroup =
        GENERATE(as<std::string>{}, "0::/system.slice/libvirtd.service\n", "0::/machine.slice\n",
                 "0::/../" + scope + "\n", "4:memory:/user.slice\n0::/" + scope + "\n",
                 "0::/machine-lxc\\x2d3.scope\n", "", "0", "\n::\n");
    CAPTURE(cgroup);
    const Machine machine;
    machine.write("proc/4242/cgroup", cgroup);
    for (const char* folder : {"", "system.slice/libvirtd.service/", "machine.slice/"})
        machine.write(std::string("sys/fs/cgroup/") + folder + "memory.numa_stat", stat);
    machine.write("sys/fs/cgroup/" + scope + "/memory.numa_stat", stat);
    machine.write("proc/4242/numa_maps", "7f30a0000000 default anon=7 N1=7 kernelpagesize_kB=4\n");
    CHECK(machine.residency() == "memory 1:28");
}

TEST_CASE("another process of the same number is not taken for the guest's") {
    const auto line = GENERATE(
        as<std::string>{}, "", "sleep", command_line("6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b12"),
        std::string("qemu\0-uuid\0", 11), std::string("qemu\0-uuid", 10), "-uuid " + uuid_text);
    const Machine machine;
    machine.write("proc/4242/cmdline", line);
    machine.write("proc/4242/numa_maps", maps);
    CHECK(machine.residency() == "/proc/4242: not the QEMU of " + uuid_text);
}

TEST_CASE("a guest that cannot be read says why") {
    const Machine machine;
    SECTION("it does not run") {
        CHECK(machine.residency({}, "db") == "/run/libvirt/qemu/db.pid: No such file or directory");
    }
    SECTION("it ended a moment ago") {
        machine.write("run/libvirt/qemu/web.pid", "4243\n");
        CHECK(machine.residency() == "/proc/4243/cmdline: No such file or directory");
    }
    SECTION("nothing tells") {
        CHECK(machine.residency() == "/proc/4242/numa_maps: No such file or directory");
    }
    SECTION("its name would lead elsewhere") {
        CHECK(machine.residency({}, "../../../proc/4242") ==
              "\"../../../proc/4242\" is no name of a domain");
        CHECK(machine.residency({}, std::string("web\0", 4)) ==
              "\"web\\x00\" is no name of a domain");
    }
    SECTION("its pid is none") {
        const auto [text, shown] = GENERATE(table<std::string, std::string>({
            {"", "\"\" is no pid"},
            {"-1\n", "\"-1\\x0a\" is no pid"},
            {"../1", "\"../1\" is no pid"},
        }));
        machine.write("run/libvirt/qemu/web.pid", text);
        CHECK(machine.residency() == "/run/libvirt/qemu/web.pid: " + shown);
    }
    SECTION("its pid is a novel") {
        machine.write("run/libvirt/qemu/web.pid", std::string(33, '1'));
        CHECK(machine.residency() == "/run/libvirt/qemu/web.pid: longer than 32 B");
    }
}

TEST_CASE("the QEMUs of any libvirtd are found by their command lines, and nothing else is") {
    const std::string uuid_1 = "00000000-0000-4000-8000-000000000001";
    const std::string uuid_2 = "00000000-0000-4000-8000-000000000002";
    const auto words = [](std::initializer_list<std::string> list) {
        std::string text;
        for (const std::string& word : list)
            text += word + '\0';
        return text;
    };
    const Tree tree{
        {"proc/7/cmdline", words({"/usr/bin/qemu-system-x86_64", "-name",
                                  "guest=a,debug-threads=on", "-uuid", uuid_1})},
        {"proc/8/cmdline", words({"/opt/emulator", "-name", "guest=b", "-uuid", uuid_2})},
        {"proc/9/cmdline", words({"grep", "-uuid", "00000000-0000-4000-8000-000000000003"})},
        {"proc/10/cmdline", words({"qemu", "-name", "guest=c", "-uuid", "none"})},
        {"proc/11/cmdline", ""},
        {"proc/12/comm", "without a command line"},
        {"proc/self/cmdline",
         words({"qemu", "-name", "guest=d", "-uuid", "00000000-0000-4000-8000-000000000004"})}};
    CHECK(host::read_qemus(tree.root()) == std::set{*Uuid::parse(uuid_1), *Uuid::parse(uuid_2)});
}

TEST_CASE("libvirt escapes a domain's name in that of its pid file") {
    const Machine machine;
    machine.write("run/libvirt/qemu/&lt;it&apos;s &quot;R&amp;D&quot;&gt;.pid", "4242\n");
    machine.write("proc/4242/numa_maps", maps);
    CHECK(machine.residency({}, "<it's \"R&D\">").starts_with("memory 0:88 "));
}

TEST_CASE("odd words in the kernel's files are passed over") {
    const Machine machine;
    machine.write("proc/4242/numa_maps",
                  "x default anon=1 N=1 N0 N0= N0=x N-1=1 N99999=1 N1=2 kernelpagesize_kB=4\n"
                  "x default N0=99999999999999999999 N0=9223372036854775807 kernelpagesize_kB=4\n"
                  "x default N0=5\nx default N0=5 kernelpagesize_kB=x\n\n"
                  "x default N2=9007199254740991 kernelpagesize_kB=1\n"
                  "x default N2=9007199254740991 kernelpagesize_kB=1");
    CHECK(machine.residency() == fmt::format("memory 1:8 2:{}", INT64_MAX / kib));
}

TEST_CASE("memory in use is what is in no pool and not to be had") {
    const auto [text, expected] = GENERATE(table<std::string, std::int64_t>({
        {"MemTotal:       1000 kB\nMemFree:         1 kB\nMemAvailable:    300 kB\n"
         "HugePages_Total:       1\nHugetlb:            200 kB\n",
         500 * kib},
        {"MemTotal: 1000 kB\nMemAvailable: 300 kB\n", 700 * kib},
        {"MemTotal: 100 kB\nMemAvailable: 90 kB\nHugetlb: 20 kB\n", 0},
    }));
    CHECK(host::read_memory_in_use(Tree{{"proc/meminfo", text}}.root()) == expected);
}

TEST_CASE("a meminfo without what is asked is an error") {
    const Tree tree{{"proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: x kB\n"}};
    CHECK(host::read_memory_in_use(tree.root()).error().what ==
          (tree.root() / "proc/meminfo").native() + ": no MemTotal and MemAvailable");
    CHECK(host::read_memory_in_use(Tree{}.root()).error().code == Errc::not_found);
}

TEST_CASE("this machine's memory in use can be read") {
    const auto in_use = host::read_memory_in_use("/");
    REQUIRE(in_use.has_value());
    CHECK(*in_use > 0);
}
