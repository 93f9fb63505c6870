# SPDX-License-Identifier: Apache-2.0
"""The documents of a host, and of a refusal, that screens are made from."""
from fake_daemon import GIB, domain, figures

QEMU = 64 << 20  # what a guest's QEMU is counted with


def status():
    """Two nodes, a pool that was shrunk under its guests, a start in flight, a reservation."""
    guests = [domain("db-1", 1, cpu=16, memory=2 * GIB, hugepages_1Gi=64 * GIB),
              domain("web-1", 2, cpu=4, memory=8 * GIB + QEMU),
              domain("web-2", 3, cpu=4, memory=8 * GIB + QEMU),
              domain("build-runner-of-the-night", 4, scheduler="cortex-staging", accepted=False, cpu=40,
                     memory=60 * GIB + 3 * QEMU),
              domain("router", 5, state="pending", cpu=2, memory=GIB // 2, hugepages_2Mi=GIB),
              domain("cache", 6, state="returning", cpu=2, memory=12 * GIB + QEMU)]
    memory = sum(guest["demand"]["memory"] for guest in guests if guest["state"] == "running")
    host = figures(cpu=(32, 2, 3, 0, 64, 4, 0, 0),
                   memory=(180 * GIB, GIB // 2, 1.25, 2 * GIB, memory, 12 * GIB + QEMU + GIB // 2, 8 * GIB, 0),
                   hugepages_2Mi=(8 * GIB, 0, 1, 0, 0, GIB, 0, GIB // 4),
                   hugepages_1Gi=(60 * GIB, 0, 1, 0, 64 * GIB, 0, 0, 0))
    nodes = [{"id": 0, "cpus": "0-7,16-23", **figures(
                  free={"cpu": 22, "memory": 41 * GIB + QEMU}, cpu=(16, 2, 3, 0, 16, 0, 0, 0),
                  memory=(88 * GIB, GIB // 2, 1.25, 2 * GIB, 10 * GIB, 0, 8 * GIB, 0),
                  hugepages_2Mi=(4 * GIB, 0, 1, 0, 0, GIB, 0, GIB // 4),
                  hugepages_1Gi=(30 * GIB, 0, 1, 0, 32 * GIB, 0, 0, 0))},
             {"id": 1, "cpus": "8-15,24-31", **figures(
                 free={"cpu": 22, "memory": 97 * GIB}, cpu=(16, 0, 3, 0, 0, 0, 0, 0),
                 memory=(92 * GIB, 0, 1.25, 0, 0, 0, 0, 0), hugepages_2Mi=(4 * GIB, 0, 1, 0, 0, 0, 0, 0),
                 hugepages_1Gi=(30 * GIB, 0, 1, 0, 32 * GIB, 0, 0, 0))}]
    return {"version": "0.1.0", "state": "degraded",
            "problems": ["policy: /etc/virtguard/virtguard.toml:12:1: overcomit: unknown key; did you mean "
                         "\"overcommit\"?"],
            "mode": "enforce", "decisions": {"admitted": 1204, "refused": 17, "would_refuse": 0},
            "overcommit": {"cpu": "3", "memory": "1.25", "hugepages-2Mi": "1", "hugepages-1Gi": "1"},
            "over_capacity": ["hugepages-1Gi"], "host": host, "nodes": nodes, "foreign_memory": 3 * GIB,
            "domains": guests, "reservations": reservations()}


def reservations():
    """One for certain guests, one that should have ended."""
    made = {"uuids": [], "match": "", "origin": "run time by cortex at 2026-11-30 19:25:21 UTC"}
    return [{**made, "owner": "cortex-staging", "name": "spot-a", "asked": {"cpu": 8, "memory@0": 8 * GIB + QEMU},
             "booked": {"cpu": 8, "memory@0": 8 * GIB}, "uuids": ["00000000-0000-4000-8000-00000000000a"],
             "match": "/domain/title = 'big'", "expires_us": 253_402_300_799_000_000},
            {**made, "owner": "nova", "name": "n-1", "asked": {"hugepages-2Mi": GIB}, "booked": {}, "expires_us": 1577836799000000}]


def outcome():
    """Refused for a node's memory, and in mode observe for its scheduler."""
    return {"domain": "analytics", "uuid": "00000000-0000-4000-8000-000000000009", "verdict": "refuse",
            "mode": "enforce", "scheduler": "nova", "overhead": 3 * QEMU,
            "demand": {"cpu": 8, "memory": 120 * GIB + 3 * QEMU, "hugepages-2Mi": 2 * GIB},
            "pieces": [], "notes": ["vCPUs 0-7 may run on PU 0 (reserved), which is not accounted"],
            "reasons": [
                {"code": "foreign-scheduler", "resource": "", "nodes": [], "requested": 0, "free": 0, "effective": 0,
                 "mode": "observe", "text": "it belongs to scheduler nova, this host serves default-scheduler"},
                {"code": "insufficient-node-capacity", "resource": "memory", "nodes": [1],
                 "requested": 120 * GIB + 3 * QEMU, "free": 97 * GIB, "effective": 115 * GIB, "mode": "enforce",
                 "text": "memory on node 1: needs 120.19 GiB, 97 GiB free of 115 GiB"}],
            "fits": [{"resource": "cpu", "largest": 8, "nodes": [0, 1],
                      "per_node": [{"node": 0, "largest": 8}, {"node": 1, "largest": 8}]},
                     {"resource": "memory", "largest": 97 * GIB, "nodes": [],
                      "per_node": [{"node": 1, "largest": 97 * GIB}]},
                     {"resource": "hugepages-2Mi", "largest": 2 * GIB, "nodes": [0, 1],
                      "per_node": [{"node": 0, "largest": 2 * GIB}, {"node": 1, "largest": 2 * GIB}]}]}


def history():
    """The last of some starts, the latest first; of one of them more than a line can be said."""
    analytics = outcome()
    start = {"uuid": "", "scheduler": "default-scheduler", "reasons": []}
    quota = {"code": "scheduler-quota", "resource": "memory", "nodes": [], "requested": 60 * GIB + 3 * QEMU, "free": 12 * GIB,
             "effective": 100 * GIB, "mode": "observe",
             "text": "memory: needs 60.19 GiB, 12 GiB left of the quota of 100 GiB of scheduler.accept.cortex"}
    return {"starts": [
        {**start, "time_us": 1796066721000000, "domain": "analytics", "scheduler": "nova", "verdict": "refuse",
         "reasons": analytics["reasons"]},
        {**start, "time_us": 1796066720000000, "domain": "build-runner-of-the-night", "scheduler": "cortex-staging",
         "verdict": "would-refuse", "reasons": [quota]},
        {**start, "time_us": 1796066719000000, "domain": "web-1", "verdict": "admit"}]}


def policy():
    """Of what is in force, the ratios: one of the files, one set at run time."""
    return {"settings": [{"key": "overcommit.cpu", "value": "3", "origin": "/etc/virtguard/conf.d/50-site.toml:4"},
                         {"key": "overcommit.memory", "value": "1.25",
                          "origin": "run time by kvm-operator at 2026-11-30 19:25:21 UTC"}],
            "replaced": [{"key": "overcommit.memory", "value": "1.5", "origin": "/etc/virtguard/conf.d/50-site.toml:5"}],
            "problems": []}
