"""A private Open vSwitch for tests and benchmarks: its database, daemon and ports live in one folder.

It runs the dummy datapath, which is the userspace datapath without kernel devices. So it needs no privileges and
leaves nothing behind.
"""

import json
import os
import subprocess
import time
from pathlib import Path

WITHOUT_PRIVILEGES = "--no-huge --legacy-mem -m 1024 --no-pci --no-shconf --no-telemetry"


class Switch:
    """A context manager; the switch runs until the end of the block."""

    def __init__(self, prefix, folder, cores, dpdk=WITHOUT_PRIVILEGES):
        self.prefix, self.folder = Path(prefix), Path(folder)
        places = ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"]
        self.environment = dict(os.environ, **dict.fromkeys(places, str(folder)))
        self.children = []
        mask = sum(1 << core for core in cores)
        self.settings = {
            "dpdk-init": "true",
            "dpdk-lcore-mask": "0x1",
            "pmd-cpu-mask": f"{mask:#x}",
            "dpdk-extra": dpdk,
        }

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        database, socket = self.folder / "conf.db", self.folder / "db.sock"
        schema = self.prefix / "share/openvswitch/vswitch.ovsschema"
        self.run("ovsdb-tool", "create", database, schema)
        self._child("ovsdb-server", database, f"--remote=punix:{socket}")
        self.wait(socket.exists, "the database does not answer")
        self.vsctl("--no-wait", "init")
        self.configure(wait=False, **self.settings)
        self._child("ovs-vswitchd", f"unix:{socket}", "--enable-dummy=system", "--disable-system")
        bridge = ["set", "bridge", "br0", "datapath_type=dummy", "fail_mode=secure"]
        self.vsctl("add-br", "br0", "--", *bridge)

    def _child(self, program, *arguments):
        options = [f"--log-file={self.folder}/{program}.log", "--pidfile", "-vconsole:off", "--no-chdir"]
        command = [self._path(program), *map(str, arguments), *options]
        with open(self.folder / f"{program}.err", "wb") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self.children.append(subprocess.Popen(command, env=self.environment, **streams))

    def __exit__(self, *_):
        # The daemon ends before its database.
        for child in reversed(self.children):
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self.children.clear()

    def _path(self, program):
        folder = "sbin" if program in ["ovsdb-server", "ovs-vswitchd"] else "bin"
        return str(self.prefix / folder / program)

    def run(self, program, *arguments):
        command = [self._path(program), *map(str, arguments)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}\n{self.log()[-2000:]}")
        return done.stdout

    def vsctl(self, *arguments):
        return self.run("ovs-vsctl", "--timeout=30", f"--db=unix:{self.folder}/db.sock", *arguments)

    def appctl(self, *arguments):
        return self.run("ovs-appctl", "--timeout=30", *arguments)

    def flow(self, flow):
        self.run("ovs-ofctl", "add-flow", f"unix:{self.folder}/br0.mgmt", flow)

    def configure(self, wait=True, **settings):
        """Sets keys of other_config, or removes those with the value None. Underscores stand for dashes."""
        words = [] if wait else ["--no-wait"]
        for name, value in settings.items():
            name = name.replace("_", "-")
            if value is None:
                words += ["--", "remove", "Open_vSwitch", ".", "other_config", name]
            else:
                words += ["--", "set", "Open_vSwitch", ".", f"other_config:{name}={json.dumps(value)}"]
        self.vsctl(*words)

    def add(self, port, device, queues=1):
        """Adds a DPDK port."""
        self.add_port(port, "type=dpdk", f"options:dpdk-devargs={json.dumps(device)}", f"options:n_rxq={queues}")

    def add_port(self, port, *settings):
        self.vsctl("add-port", "br0", port, "--", "set", "Interface", port, *settings)

    def remove(self, port):
        self.vsctl("del-port", "br0", port)

    def show(self):
        return json.loads(self.appctl("flowgauge/show", "json"))

    def log(self):
        log = self.folder / "ovs-vswitchd.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def is_alive(self):
        return all(child.poll() is None for child in self.children)

    def wait(self, condition, otherwise, seconds=20):
        """Waits until a condition is true, and returns its value."""
        end = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > end or not self.is_alive():
                raise AssertionError(f"{otherwise}\n{self.log()[-3000:]}")
            time.sleep(0.01)
        return value
