// SPDX-License-Identifier: Apache-2.0
// What reading a domain's XML costs, against libxml2 alone on the same text, in turn. It prints
// lines for figures.py.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <libxml/parser.h>

#include "domxml/parse.hpp"

namespace {

using namespace virtguard;
using Clock = std::chrono::steady_clock;

constexpr int runs = 5000;

/// A guest of two cells with hugepages and pins, and disks enough to make the size.
std::string domain_xml(std::size_t size) {
    std::string xml =
        "<domain type='kvm' id='7'>\n  <name>parse-bench</name>\n"
        "  <uuid>6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b11</uuid>\n"
        "  <memory unit='KiB'>16777216</memory>\n  <vcpu placement='static'>8</vcpu>\n"
        "  <memoryBacking><hugepages><page size='2048' unit='KiB'/></hugepages></memoryBacking>\n"
        "  <cputune>\n";
    for (int vcpu = 0; vcpu < 8; ++vcpu)
        xml += fmt::format("    <vcpupin vcpu='{}' cpuset='{}'/>\n", vcpu, 4 + vcpu);
    xml += "  </cputune>\n  <numatune><memory mode='strict' nodeset='0-1'/></numatune>\n"
           "  <os><type arch='x86_64' machine='q35'>hvm</type></os>\n"
           "  <cpu><numa><cell id='0' cpus='0-3' memory='8388608' unit='KiB'/>"
           "<cell id='1' cpus='4-7' memory='8388608' unit='KiB'/></numa></cpu>\n  <devices>\n";
    for (int disk = 0; xml.size() < size; ++disk)
        xml += fmt::format("    <disk type='file' device='disk'>\n"
                           "      <driver name='qemu' type='qcow2'/>\n"
                           "      <source file='/var/lib/libvirt/images/{}.qcow2'/>\n"
                           "      <target dev='vd{}' bus='virtio'/>\n    </disk>\n",
                           disk, disk);
    return xml + "  </devices>\n</domain>\n";
}

double median(std::vector<double> times) {
    std::ranges::nth_element(times, times.begin() + runs / 2);
    return times[runs / 2];
}

template <class Parse>
double time(Parse parse) {
    const auto begin = Clock::now();
    parse();
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

} // namespace

int main() {
    domxml::initialise();
    for (const std::size_t size : {10'000, 50'000}) {
        const std::string xml = domain_xml(size);
        std::vector<double> ours;
        std::vector<double> alone;
        for (int run = 0; run < runs; ++run) {
            ours.push_back(time([&] {
                if (!domxml::parse_domain(xml))
                    std::exit(EXIT_FAILURE);
            }));
            alone.push_back(time([&] {
                xmlFreeDoc(xmlReadMemory(xml.data(), static_cast<int>(xml.size()), "domain",
                                         nullptr, XML_PARSE_NONET));
            }));
        }
        const double microseconds = median(ours);
        const std::string how = fmt::format("in turn, medians of {} runs", runs);
        fmt::print("figure|{} bytes of XML|{:.1f}|us||{}\n", xml.size(), microseconds, how);
        fmt::print("figure|{} bytes of XML / libxml2 alone|{:.2f}|x||{}\n", xml.size(),
                   microseconds / median(alone), how);
    }
    return EXIT_SUCCESS;
}
