#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reads many real domains with domxml and compares with facts somebody else extracted from them.

usage: check_domains.py DOMAIN-JSON [FOLDER]

FOLDER (default: $VIRTGUARD_DOMAINS, else ../shared/data/domains beside the checkout) has domain XML
and INDEX.tsv, a row per file with what the XML says as written. libvirt's rules are applied to
those facts here, in a second implementation. Each file must give a domain that agrees, or an error
that the facts explain. Exit status 77 where the folder is not there.
"""
import collections
import csv
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

KIB, MIB = 1024, 1024 * 1024

# Errors that the columns do not explain: what libvirt says to the file.
ERRORS = {
    'libvirt-go-xml/domain_test.go_02.xml':
        ('less than the memory devices', 'a fragment: a DIMM, no <memory> for it to be part of'),
    'libvirt-go-xml/domain_test.go_44.xml':
        ('<memnode cellid>', "a fragment: 'memnode' is invalid without any guest NUMA cells"),
    'vdsm/tests__devices__data__testComplexVm.xml':
        ('less than the memory devices', 'total size of memory devices exceeds the total'),
    'libvirt-qemuxmlconf/memory-align-fail.xml':
        ('<cell memory>', 'overflows after alignment'),
}

# Values that differ from the facts, and why libvirt's rules give another.
VALUES = {
    ('virt-manager/tests__data__cli__compare__virt-install-memory-hotplug_01.xml', 'requested'):
        'its NVDIMM has a <requested> as well, which libvirt reads of virtio-mem only',
}


def round_up(value, step):
    return -(-value // step) * step


def ids(text):
    """A set as libvirt reads it: '0-3,^1,8'."""
    result = set()
    for item in filter(None, (item.strip() for item in text.split(','))):
        first, _, last = item.lstrip('^').partition('-')
        named = range(int(first), int(last or first) + 1)
        result = result - set(named) if item.startswith('^') else result | set(named)
    return result


def number(text):
    return int(text) if text and text.isdigit() else None


class Row:
    """The facts of one file, with libvirt's rules for what they mean together."""

    def __init__(self, row, root):
        self.row, self.root = row, root
        self.errors = [value for value in row.values() if value and 'ERR:' in value]
        self.cells = {}
        for at, text in enumerate(filter(None, row['numa_cells(id:cpus:KiB)'].split(' '))):
            cell, _, size, *access = text.rsplit(':', 3) if text.count(':') > 2 else text.split(':')
            self.cells[at if cell == '-' else int(cell)] = (number(size), access[0] if access else '')
        self.is_ppc = row['arch'] in ('ppc64', 'ppc64le')
        self.devices = re.findall(r'(\S+)@(\S+)=(\d+):(\d+)', row['memdevs(model@node=n:KiB)'])

    def sizes(self):
        """Bytes of each cell with memory, or of the guest as a whole."""
        step = 256 * MIB if self.is_ppc else MIB
        if any(size for size, _ in self.cells.values()):
            return [round_up(self.cells[cell][0] * KIB, step)
                    for cell in sorted(self.cells) if self.cells[cell][0]]
        rest = number(self.row['memory_KiB']) - sum(int(device[3]) for device in self.devices)
        return [round_up(rest * KIB, step)]

    def vcpus(self):
        maximum = number(self.row['vcpu_max']) or 1
        listed = re.match(r'(\d+)/\d+ enabled', self.row['vcpus_individual'])
        current = int(listed.group(1)) if listed else number(self.row['vcpu_current']) or maximum
        return maximum, current

    def cpus(self):
        """The union of the sets of all vCPUs that have one."""
        count = number(self.row['vcpupin_count']) or 0
        maximum = self.vcpus()[0]
        pins = {pin.get('vcpu'): pin.get('cpuset') for pin in self.root.findall('cputune/vcpupin')
                if int(pin.get('vcpu')) < maximum}
        union = ids(self.row['vcpupin_union']) if len(pins) == count else \
            set().union(*map(ids, pins.values()))
        if len(pins) < maximum and self.row['vcpu_placement'] != 'auto':
            union |= ids(self.row['vcpu_cpuset'])
        return union

    def pages(self):
        """Page size of each initial part: 0 base pages, -1 the default size.

        Without guest cells a page for cells says nothing, but for cell 0 alone."""
        cells = [cell for cell in sorted(self.cells) if self.cells[cell][0]] or [None]
        result = dict.fromkeys(cells, 0)
        specific = {}
        for text in filter(None, self.row['hugepages(KiB@nodeset)'].split(' ')):
            size, nodeset = text.split('@')
            size = -1 if size == 'default' else int(size) * KIB
            if nodeset == 'all' or (not self.cells and ids(nodeset) == {0}):
                result = dict.fromkeys(cells, size)
            else:
                specific.update(dict.fromkeys(ids(nodeset), size))
        return [specific.get(cell, result[cell]) for cell in cells]

    def bound(self):
        """The nodes each initial part is bound to, None where it is to none."""
        mode, _, rest = self.row['numatune(mode@nodeset)'].partition('@')
        nodeset = rest.partition(' ')[0]
        automatic = 'placement=auto' in rest or (
            self.row['vcpu_placement'] == 'auto' and nodeset in ('', '-'))
        binds = mode in ('strict', 'restrictive', '-') and nodeset not in ('', '-')
        guest = ids(nodeset) if binds and not automatic else None
        cells = [cell for cell in sorted(self.cells) if self.cells[cell][0]] or [None]
        result = dict.fromkeys(cells, guest)
        for text in filter(None, self.row['memnodes(cell:mode:nodeset)'].split(' ')):
            cell, mode, nodeset = text.split(':')
            if int(cell) in result:
                result[int(cell)] = ids(nodeset) if mode in ('strict', 'restrictive') else None
        return [result[cell] for cell in cells]

    def vfio(self):
        counted = ('subsystem/pci', '-/pci', 'subsystem/mdev', 'interface/hostdev',
                   'interface/vdpa', 'disk/nvme', 'disk/vhostvdpa')
        total = sum(int(text.partition('=')[2]) for text in self.row['hostdevs'].split(' ')
                    if text.partition('=')[0] in counted)
        others = [device for device in self.root.findall('devices/*')
                  if device.tag in ('hostdev', 'interface')
                  and 'pci' in (device.get('type'), 'pci' if device.get('type') == 'hostdev' else '')
                  and device.find('driver[@name]') is not None
                  and device.find('driver').get('name') not in ('vfio', 'default')]
        behind = [disk for disk in self.root.findall('devices/disk') if disk.get('type') != 'nvme'
                  and any(store.get('type') == 'nvme' for store in disk.iter('backingStore'))]
        return total - len(others) + len(behind)

    def iothreads(self):
        listed = len(self.root.findall('iothreadids/iothread'))
        return max(number(self.row['iothreads']) or 0, listed)


def explains(row, error, what):
    """Whether the facts say that libvirt refuses the file, too, for that."""
    name = row.row['file']
    if name in ERRORS:
        return ERRORS[name][0] in what
    if error == 'syntax':
        return row.row['root'] != 'domain'
    if '<name>: missing' in what:
        return not row.root.findtext('name')
    if 'is not a UUID' in what:
        return not re.fullmatch(r'[0-9a-f]{32}', re.sub(r'[-\s]', '', row.root.findtext('uuid')), re.I)
    if 'no memory:' in what:
        return not number(row.row['memory_KiB']) and not number(row.row['numa_cells_sum_KiB'])
    if 'is not a size' in what:
        return bool(row.errors)
    if '<vcpu>' in what and 'whole number' in what:
        return not row.row['vcpu_max'].isdigit()
    return bool(row.row['libvirt_err'])


def differences(row, domain):
    """(fact, expected, found) of each that differs."""
    initial = [part for part in domain['memory'] if part['kind'] == 'ram']
    as_set = lambda text: None if text is None else ids(text)
    expected, found = {}, {}

    def compare(fact, want, have):
        expected[fact], found[fact] = want, have

    compare('memory', row.sizes(), [part['size'] for part in initial])
    compare('pages', row.pages(), [part['pages'] for part in initial])
    compare('bound to', row.bound(), [as_set(part['bound_to']) for part in initial])
    compare('vcpus', row.vcpus(), (sum(group['maximum'] for group in domain['vcpus']),
                                   sum(group['current'] for group in domain['vcpus'])))
    compare('cpus', row.cpus(),
            set().union(*(ids(group['cpus']) for group in domain['vcpus'] if group['cpus'])))
    for model in ('dimm', 'virtio-mem'):
        parts = [part for part in domain['memory'] if part['kind'] == model]
        devices = [device for device in row.devices if device[0] == model]
        compare(model + 's', sum(int(device[2]) for device in devices), len(parts))
        step, written = 256 * MIB if row.is_ppc else 2 * MIB, sum(int(d[3]) * KIB for d in devices)
        total = sum(part['size'] for part in parts)
        compare(model + ' memory', True, written <= total < written + (len(parts) * step or 1))
    requested = [part['requested'] for part in domain['memory'] if part['kind'] == 'virtio-mem']
    if row.row['virtio_mem_requested_KiB']:
        compare('requested', sum(map(int, re.findall(r'\d+', row.row['virtio_mem_requested_KiB'])))
                * KIB, sum(requested))
    total = sum(part['size'] for part in domain['memory'])
    current = (number(row.row['currentMemory_KiB']) or 0) * KIB
    compare('current memory', min(current, total) if current else total, domain['current_memory'])
    backing = row.row['backing'].split(' ')
    compare('locked', row.row['locked'] == '1', domain['locked'])
    compare('preallocated', 'alloc=immediate' in backing, domain['preallocated'])
    is_file = 'source=file' in backing or ('access=shared' in backing
                                           and 'source=memfd' not in backing)
    if not any(access for _, access in row.cells.values()):
        compare('file', is_file and 0 in [part['pages'] for part in domain['memory']],
                domain['file_backed'])
    compare('confidential', row.row['launchSecurity'] in ('sev', 'sev-snp', 'tdx'),
            domain['confidential'])
    compare('vfio', row.vfio(), domain['vfio_devices'])
    compare('iothreads', row.iothreads(), domain['iothreads'])
    return [(fact, expected[fact], found[fact]) for fact in expected
            if expected[fact] != found[fact]]


def main():
    program = sys.argv[1]
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../shared/data/domains')
    folder = sys.argv[2] if len(sys.argv) > 2 else os.environ.get('VIRTGUARD_DOMAINS', beside)
    index = os.path.join(folder, 'INDEX.tsv')
    if not os.path.exists(index):
        print(f'SKIPPED: no {index}: the real domains are not part of the project')
        return 77
    with open(index, encoding='utf-8') as file:
        rows = list(csv.DictReader(file, delimiter='\t', quoting=csv.QUOTE_NONE))
    paths = [os.path.join(folder, row['file']) for row in rows]
    run = subprocess.run([program], input='\n'.join(paths) + '\n', capture_output=True, text=True,
                         check=True, timeout=300)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    problems = [] if not run.stderr else [f'stderr: {run.stderr}']
    if len(answers) != len(rows):
        problems.append(f'{len(answers)} answers to {len(rows)} files')
    counts, unused = collections.Counter(), set(VALUES)
    for facts, path, answer in zip(rows, paths, answers):
        row = Row(facts, root_of(path))
        if 'error' in answer:
            counts['error ' + answer['error']] += 1
            counts['error in a complete qemu or kvm domain'] += facts['complete'] == '1' and \
                facts['type'] in ('qemu', 'kvm')
            if not explains(row, answer['error'], answer['what']):
                problems.append(f"{facts['file']}: not explained: {answer['what']}")
            continue
        counts['domain'] += 1
        for fact, expected, found in differences(row, answer):
            if (facts['file'], fact) in VALUES:
                unused.discard((facts['file'], fact))
                continue
            problems.append(f"{facts['file']}: {fact}: expected {expected}, found {found}")
    problems += [f'exception not needed: {key}' for key in unused]
    print('\n'.join(problems))
    print(f'{len(rows)} files:', ', '.join(f'{counts[key]} {key}' for key in sorted(counts)) + ';',
          f'{len(problems)} problems')
    return 1 if problems else 0


def root_of(path):
    try:
        return ElementTree.parse(path).getroot()
    except ElementTree.ParseError:
        return ElementTree.Element('none')


if __name__ == '__main__':
    sys.exit(main())
