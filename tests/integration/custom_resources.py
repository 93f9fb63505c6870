#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Resources that the policy declares, asked for by real guests."""
import pathlib
import unittest

import lab

LICENCES = pathlib.Path("/var/licences")
DECLARED = """
[resource."licence/acme"]
capacity = {capacity}
unit = "seats"
namespaces.l = "urn:licence"
demand = "sum(/domain/metadata/l:use/@count)"
"""

host = None


def setUpModule():
    global host
    host = unittest.enterModuleContext(lab.Lab(policy=DECLARED.format(capacity=4)))


def guest(name, seats):
    return lab.domain_xml(name, metadata=f"<l:use xmlns:l='urn:licence' count='{seats}'/>")


class CustomResources(unittest.TestCase):
    def setUp(self):
        self.addCleanup(host.destroy_all)
        host.reload_policy(DECLARED.format(capacity=4))

    def start(self, name, seats):
        host.define(guest(name, seats))
        self.addCleanup(host.virsh, "undefine", name)
        return host.virsh("start", name)

    def figures(self):
        status = host.status()
        return {column: status["host"][column]["licence/acme"] for column in ("effective", "allocated", "free")}

    def test_a_guest_gets_what_there_is_and_the_next_is_refused(self):
        self.assertEqual(self.start("web", 3).status, 0)
        refused = self.start("mail", 2)
        self.assertEqual(refused.status, 1)
        self.assertIn("virtguard: refused mail: licence/acme: needs 2 seats, 1 free of 4", refused.err)
        self.assertEqual(self.start("dns", 1).status, 0)
        host.settle()
        self.assertEqual(self.figures(), {"effective": 4, "allocated": 4, "free": 0})
        self.assertEqual(host.running(), {"dns", "web"})

    def test_less_capacity_than_use_touches_nothing_and_is_said(self):
        self.assertEqual(self.start("web", 3).status, 0)
        host.settle()
        before = host.qemu_pid("web")
        host.reload_policy(DECLARED.format(capacity=1))
        self.assertEqual(self.figures(), {"effective": 1, "allocated": 3, "free": -2})
        self.assertEqual(host.status()["over_capacity"], ["licence/acme"])
        self.assertIn("over capacity: licence/acme", lab.ctl("status").out)
        self.assertEqual(host.qemu_pid("web"), before)
        self.assertEqual(host.virsh("domstate", "web").out, "running")
        self.assertIn("none free of 1 (over by 2)", self.start("mail", 1).err)
        self.assertEqual(self.start("dns", 0).status, 0)

    def test_a_capacity_in_a_file_is_that_of_the_file(self):
        LICENCES.write_text("2\n")
        self.addCleanup(LICENCES.unlink, missing_ok=True)
        in_file = DECLARED.format(capacity=f'{{ file = "{LICENCES}" }}')
        host.reload_policy(in_file)
        self.assertEqual(self.start("web", 2).status, 0)
        LICENCES.unlink()
        host.reload_policy(in_file)
        status = lab.wait_until(lambda: (told := host.status())["state"] == "degraded" and told, "it is a problem")
        self.assertEqual(status["problems"], ['resource."licence/acme".capacity.file: /var/licences: '
                                              "No such file or directory; it stays 2"])
        self.assertEqual(self.figures(), {"effective": 2, "allocated": 2, "free": 0})


if __name__ == "__main__":
    lab.main()
