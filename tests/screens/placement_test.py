#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A real OpenStack Placement service, in this process and on SQLite, takes the inventories of virtguardctl export.

    placement_test.py VIRTGUARDCTL          (needs Debian's python3-placement)
"""
import io
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    from oslo_config import cfg
    from placement import conf as placement_conf
    from placement import db_api, deploy
    from placement.db.sqlalchemy import migration
except ImportError as error:
    print(f"SKIPPED: no Placement service here ({error}): apt-get install python3-placement")
    sys.exit(77)

from fake_daemon import STATUS, FakeDaemon
from documents import status

PROVIDER = "00000000-0000-4000-8000-000000000001"
CONSUMER = "00000000-0000-4000-8000-000000000002"


def start_service(folder):
    config = cfg.ConfigOpts()
    placement_conf.register_opts(config)
    file = pathlib.Path(folder) / "placement.conf"
    file.write_text(f"[api]\nauth_strategy = noauth2\n[placement_database]\nconnection = sqlite:///{folder}/db\n",
                    encoding="utf-8")
    config([], default_config_files=[str(file)], default_config_dirs=[])
    db_api.configure(config)
    migration.create_schema(db_api.placement_context_manager.writer.get_engine())
    return deploy.loadapp(config)


def ask(application, method, path, body=None):
    """The status line's number and the answer's document."""
    data = json.dumps(body).encode() if body is not None else b""
    answer = {}

    def start_response(line, _headers, _info=None):
        answer["status"] = int(line.split()[0])
    environment = {"REQUEST_METHOD": method, "PATH_INFO": path, "SCRIPT_NAME": "", "QUERY_STRING": "",
                   "SERVER_NAME": "localhost", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1",
                   "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(data),
                   "wsgi.errors": sys.stderr, "wsgi.multithread": False, "wsgi.multiprocess": False,
                   "wsgi.run_once": False, "HTTP_X_AUTH_TOKEN": "admin", "HTTP_ACCEPT": "application/json",
                   "HTTP_OPENSTACK_API_VERSION": "placement 1.36"}
    if body is not None:
        environment |= {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(data))}
    text = b"".join(application(environment, start_response))
    return answer["status"], json.loads(text) if text else None


def expect(wanted, answer):
    if answer[0] != wanted:
        sys.exit(f"Placement answers {answer[0]}, not {wanted}: {answer[1]}")
    return answer[1]


def main():
    if os.geteuid() != 0:
        print("SKIPPED: virtguardd's socket is root's, and this is not root")
        return 77
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        daemon = FakeDaemon(f"{folder}/hook.sock", {STATUS: status()})
        exported = subprocess.run([sys.argv[1], "--socket", f"{folder}/hook.sock", "export", "--format", "placement"],
                                  capture_output=True, check=True).stdout
        daemon.close()
        inventories = json.loads(exported)["inventories"]
        application = start_service(folder)
        expect(200, ask(application, "POST", "/resource_providers", {"name": "host", "uuid": PROVIDER}))
        for name in inventories:
            if name.startswith("CUSTOM_"):
                expect(201, ask(application, "PUT", f"/resource_classes/{name}"))
        expect(200, ask(application, "PUT", f"/resource_providers/{PROVIDER}/inventories",
                        {"resource_provider_generation": 0, "inventories": inventories}))
        kept = expect(200, ask(application, "GET", f"/resource_providers/{PROVIDER}/inventories"))["inventories"]
        if kept != inventories:
            sys.exit(f"Placement keeps {kept}, not {inventories}")

        # What one guest can have is given, and no more.
        def claim(amount):
            return ask(application, "PUT", f"/allocations/{CONSUMER}", {
                "allocations": {PROVIDER: {"resources": {"MEMORY_MB": amount}}}, "project_id": "p", "user_id": "u",
                "consumer_generation": None})
        largest = inventories["MEMORY_MB"]["max_unit"]
        expect(409, claim(largest + 1))
        expect(204, claim(largest))
    return 0


if __name__ == "__main__":
    sys.exit(main())
