#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Schedulers that share a host of a real libvirtd: each has its quota, and comes and goes by a file of its own."""
import pathlib
import unittest

import lab

ROOM_MIB = 256
CONF_D = pathlib.Path("/etc/virtguard/conf.d")
NOVA = pathlib.Path(__file__).resolve().parents[2] / "conf/recognise/nova.toml"
NOVA_METADATA = "<nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'/>"

host = None


def setUpModule():
    global host
    host = unittest.enterModuleContext(lab.Lab())


class Schedulers(unittest.TestCase):
    def setUp(self):
        CONF_D.mkdir(exist_ok=True)
        self.plug_in("nova", NOVA.read_text() + '[scheduler.accept.nova.quota]\nmemory = "50%"\n')
        self.plug_in("cortex", '[scheduler.accept.cortex]\nquota = { memory = "96MiB", cpu = "2" }\n')
        host.reload_policy(host.policy_with_room(ROOM_MIB, more="[scheduler]\naccept-default = false\n"))
        lab.wait_until(lambda: host.ledger() == {}, "the ledger is empty")

    def tearDown(self):
        host.destroy_all()
        host.end_kept_places()

    def plug_in(self, name, text):
        (CONF_D / f"{name}.toml").write_text(text)

    def reload(self):
        host.reload_policy(lab.POLICY.read_text())

    def start(self, name, **asked):
        host.define(lab.domain_xml(name, **asked))
        self.addCleanup(host.virsh, "undefine", name)
        return host.virsh("start", name)

    def assert_runs(self, name, **asked):
        self.assertEqual(self.start(name, **asked).status, 0, name)

    def assert_refused(self, name, reason, **asked):
        result = self.start(name, **asked)
        self.assertEqual(result.status, 1, result)
        self.assertIn(f"virtguard: refused {name}: {reason}", result.err)

    def owners(self):
        """Scheduler, and whether it is accepted, by guest."""
        return {guest["name"]: (guest["scheduler"], guest["accepted"]) for guest in host.status()["domains"]}

    def test_each_has_its_quota_and_a_third_has_no_place(self):
        self.assert_runs("nova-1", memory_mib=96, metadata=NOVA_METADATA)
        self.assert_runs("cortex-1", memory_mib=64, scheduler="cortex")
        self.assert_refused("nova-2", "memory: needs 64 MiB, 32 MiB left of the quota of 128 MiB of scheduler.accept.nova",
                            memory_mib=64, metadata=NOVA_METADATA)
        self.assert_refused("cortex-2", "memory: needs 64 MiB, 32 MiB left of the quota of 96 MiB of "
                                        "scheduler.accept.cortex", memory_mib=64, scheduler="cortex")
        self.assert_refused("cortex-3", "cpu: needs 2 vCPUs, 1 left of the quota of 2 of scheduler.accept.cortex",
                            vcpus=2, memory_mib=16, scheduler="cortex")
        self.assert_refused("ovirt-1", 'it belongs to scheduler "ovirt", and this host serves cortex, nova', memory_mib=16,
                            scheduler="ovirt")
        self.assert_refused("plain-1", 'it belongs to scheduler "default-scheduler", and this host serves cortex, nova',
                            memory_mib=16)
        self.assert_runs("nova-3", memory_mib=32, metadata=NOVA_METADATA)  # to the last MiB of the quota
        self.assertEqual(self.owners(), {"nova-1": ("nova", True), "nova-3": ("nova", True), "cortex-1": ("cortex", True)})

        self.assertEqual(host.virsh("destroy", "cortex-1").status, 0)
        host.end_kept_places()
        self.assertEqual(host.virsh("start", "cortex-2").status, 0, "what has ended counts no more")

    def test_one_is_plugged_out_and_in_again_while_its_guests_run(self):
        self.assert_runs("nova-1", memory_mib=64, metadata=NOVA_METADATA)
        self.assert_runs("cortex-1", memory_mib=32, scheduler="cortex")
        (CONF_D / "cortex.toml").unlink()
        self.reload()
        self.assertEqual(host.running(), {"nova-1", "cortex-1"})
        self.assertEqual(self.owners(), {"nova-1": ("nova", True), "cortex-1": ("cortex", False)})
        self.assertRegex(lab.ctl("status").out, "domains: 2 running; 1 of schedulers that are not accepted\n")
        self.assert_refused("cortex-2", 'it belongs to scheduler "cortex", and this host serves nova', memory_mib=16,
                            scheduler="cortex")

        (CONF_D / "nova.toml").unlink()  # and with it goes what knows its guests
        self.reload()
        self.assertEqual(self.owners(), {"nova-1": ("default-scheduler", False), "cortex-1": ("cortex", False)})
        self.assert_refused("nova-2", 'it belongs to scheduler "default-scheduler", and this host serves none',
                            memory_mib=16, metadata=NOVA_METADATA)

        self.plug_in("nova", NOVA.read_text())
        self.plug_in("cortex", '[scheduler.accept.cortex]\nquota.memory = "48MiB"\n')
        self.reload()
        lab.wait_until(lambda: self.owners() == {"nova-1": ("nova", True), "cortex-1": ("cortex", True)},
                       "libvirt has told anew of the guests that run")
        self.assertEqual(host.running(), {"nova-1", "cortex-1"})
        self.assertEqual(host.virsh("start", "nova-2").status, 0)
        self.assertEqual(host.virsh("start", "cortex-2").status, 0, "what runs counts in the new quota: 16 MiB are left")
        self.assert_refused("cortex-3", "memory: needs 16 MiB, 0 left of the quota of 48 MiB", memory_mib=16,
                            scheduler="cortex")
        self.assertEqual(host.running(), {"nova-1", "nova-2", "cortex-1", "cortex-2"})


if __name__ == "__main__":
    lab.main()
