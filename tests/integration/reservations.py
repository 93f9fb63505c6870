#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A scheduler takes space before its guests come: real guests, and virtguardd killed in between."""
import json
import signal
import unittest
import uuid as uuids

import lab

ROOM_MIB, GUEST_MIB = 200, 64
POLICY = "[scheduler]\naccept-any = true\n"


class Reservations(unittest.TestCase):
    def setUp(self):
        self.host = self.enterContext(lab.Lab())
        self.addCleanup(lab.ctl, "reservation", "cancel", "cortex", "spot")
        self.addCleanup(self.host.destroy_all)
        self.host.reload_policy(self.host.policy_with_room(ROOM_MIB, more=POLICY))
        lab.wait_until(lambda: self.host.ledger() == {}, "guests of the test before are known to have ended")
        self.define("own", "cortex")
        self.define("rival", "other")

    def define(self, name, scheduler, more=""):
        uuid = uuids.uuid5(uuids.NAMESPACE_DNS, name)  # the next test defines it anew
        self.host.define(lab.domain_xml(name, memory_mib=GUEST_MIB, scheduler=scheduler, more=more, uuid=uuid))

    def order(self, *words, stdin=""):
        done = lab.ctl("reservation", *words, stdin=stdin)
        self.assertEqual((done.status, done.out, done.err), (0, "", ""))

    def booked(self):
        """MiB of memory by name."""
        found = json.loads(lab.ctl("reservation", "list", "--json").out)["reservations"]
        return {each["name"]: each["booked"].get("memory", 0) // lab.MIB for each in found}

    def kill_daemon(self):
        self.host.stop_daemon(signal.SIGKILL)
        self.host.start_daemon()

    def starts(self, name, refusal=None):
        done = self.host.virsh("start", name, "--paused")
        if refusal is None:
            self.assertEqual(done.status, 0, done)
        else:
            self.assertIn(f"virtguard: refused {name}: {refusal}", done.err)

    def test_space_is_its_owners_before_its_guest_and_after_it_also_when_virtguardd_is_killed(self):
        refusal = f"memory: needs {GUEST_MIB} MiB, 40 MiB free of {ROOM_MIB} MiB"
        self.order("add", "cortex", "spot", "memory=160Mi")
        self.assertEqual(self.booked(), {"spot": 160})
        self.starts("rival", refusal)
        self.kill_daemon()
        self.assertEqual(self.booked(), {"spot": 160})
        self.starts("rival", refusal)
        self.starts("own")
        self.assertEqual(self.booked(), {"spot": 160 - GUEST_MIB})
        self.kill_daemon()
        self.assertEqual(self.booked(), {"spot": 160 - GUEST_MIB})
        self.order("add", "cortex", "spot", "memory=160Mi")  # again, which books nothing twice
        self.assertEqual(self.booked(), {"spot": 160 - GUEST_MIB})
        lab.wait_until(self.host.ledger_agrees, "the ledger is what libvirt runs")
        self.host.virsh("destroy", "own")
        lab.wait_until(lambda: self.booked() == {"spot": 160}, "what it drew is booked again")
        self.starts("rival", refusal)
        self.starts("own")
        self.order("cancel", "cortex", "spot")
        self.starts("rival")
        self.assertEqual(self.host.held("memory"), 2 * GUEST_MIB * lab.MIB)
        self.assertEqual(self.host.held("memory", "booked"), 0)

    def test_what_does_not_fit_is_refused_and_made_by_force(self):
        done = lab.ctl("reservation", "add", "cortex", "spot", "memory=201Mi")
        self.assertEqual((done.status, done.err),
                         (1, "virtguardctl: refused: memory: needs 201 MiB, 200 MiB free of 200 MiB"))
        self.assertEqual(self.booked(), {})
        self.order("add", "cortex", "spot", "memory=201Mi", "--force", "--expires", "never")
        self.assertEqual(self.host.held("memory", "free"), -lab.MIB)
        self.assertIn("memory 201 MiB", lab.ctl("reservation").out)
        self.assertIn("never", lab.ctl("reservation").out)
        self.order("renew", "cortex", "spot", "--expires", "2h")
        self.assertIn("UTC", lab.ctl("reservation").out)

    def test_a_guest_draws_that_matches_and_is_no_older(self):
        self.define("titled", "cortex", more="<title>big</title>")
        match = ("memory=70Mi", "--match", "boolean(/domain/title[.='big'])")
        self.starts("titled")
        self.order("add", "cortex", "spot", *match)
        self.assertEqual(self.booked(), {"spot": 70})  # it was there before
        self.host.virsh("destroy", "titled")
        lab.wait_until(lambda: self.host.ledger() == {}, "its place is not kept for its return any more")
        self.starts("own")  # from what is free
        self.assertEqual(self.booked(), {"spot": 70})
        self.starts("titled")
        self.assertEqual(self.booked(), {"spot": 70 - GUEST_MIB})

    def test_of_two_guests_that_have_their_reservations_one_ends(self):
        self.order("add", "cortex", "web-7", f"memory={GUEST_MIB}Mi")
        self.starts("own")
        self.order("add", "cortex", "spot", f"memory={GUEST_MIB}Mi")
        self.order("cancel", "cortex", "web-7")
        self.assertEqual(self.booked(), {"spot": GUEST_MIB})
        self.kill_daemon()
        self.assertEqual(self.booked(), {"spot": GUEST_MIB})

    def test_a_domain_stands_for_amounts(self):
        xml = lab.domain_xml("planned", memory_mib=100)
        self.order("add", "cortex", "spot", "--xml", "-", "--uuid", self.host.virsh("domuuid", "own").out, stdin=xml)
        self.assertEqual(self.booked(), {"spot": 100})
        self.starts("own")
        self.assertEqual(self.booked(), {"spot": 100 - GUEST_MIB})
        done = lab.ctl("reservation", "cancel", "cortex", "sport")
        self.assertEqual((done.status, done.err), (2, 'virtguardctl: "cortex" has no reservation "sport"'))


if __name__ == "__main__":
    lab.main()
