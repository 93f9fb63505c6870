# SPDX-License-Identifier: Apache-2.0
"""Images of guests, wherever they are: virtguardd reads what its unit's sandbox lets it."""
import json

import suite
from suite import MIB, MachineTest

STORAGE = "ephemeral-storage"
IMAGE_MIB = 256  # as run.py makes it
LIBVIRTS = "/var/lib/libvirt/images/image.qcow2"
HOME = "/home/somebody/image.qcow2"
TEMPORARY = "/var/tmp/image.qcow2"


def disk(path):
    return (f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{path}'/>"
            "<target dev='vda' bus='virtio'/></disk>")


class Storage(MachineTest):
    @classmethod
    def setUpClass(cls):
        suite.mount_payload()
        for path in (LIBVIRTS, HOME, TEMPORARY):
            suite.host.do(f"install -D --mode=600 /payload/image.qcow2 {path}")
        suite.host.do("chown -R nobody /home/somebody; chmod 711 /home/somebody")  # QEMU has to get there, too
        cls().set_policy(suite.ROOMY + '[storage]\npaths = ["/var/lib/libvirt/images"]\nunknown = "refuse"\n')

    @classmethod
    def tearDownClass(cls):
        cls().remove_guests()
        suite.host.do(f"rm -rf /home/somebody {LIBVIRTS} {TEMPORARY}")
        cls().set_policy(suite.ROOMY)

    def assert_counts(self, name, path):
        self.assert_starts(name, devices=disk(path))
        guest = next(guest for guest in suite.status()["domains"] if guest["name"] == name)
        self.assertAlmostEqual(guest["demand"][STORAGE], IMAGE_MIB * MIB, delta=MIB)

    def test_an_image_in_libvirts_folder_counts_with_what_it_may_grow(self):
        self.assert_counts("libvirts", LIBVIRTS)

    def test_an_image_in_a_home_that_is_for_its_owner_alone_counts(self):
        suite.host.do("chmod 700 /home/somebody")
        xml = self.define("home", devices=disk(HOME))
        told = json.loads(suite.host.do("virtguardctl check --json /dev/stdin", stdin=xml))
        self.assertAlmostEqual(told["demand"][STORAGE], IMAGE_MIB * MIB, delta=MIB)
        suite.host.do("chmod 711 /home/somebody")
        self.assert_counts("home", HOME)

    def test_an_image_among_temporary_files_counts(self):
        self.assert_counts("temporary", TEMPORARY)
        self.assert_ledger_agrees()

    def test_an_image_that_may_outgrow_the_file_system_is_refused(self):
        suite.host.do("truncate --size=1T /var/lib/libvirt/images/large.img")
        large = disk("/var/lib/libvirt/images/large.img").replace("qcow2", "raw")
        self.assert_refused(self.start("outgrows", devices=large), f"{STORAGE}: needs 1 TiB, ")
        suite.host.do("rm /var/lib/libvirt/images/large.img")
