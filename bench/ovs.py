#!/usr/bin/env python3
"""Measures what ways of measuring cost an Open vSwitch, for the lab (`flowgauge-lab run switch/...`).

    bench/ovs.py PREFIX CAPTURE ROUNDS SECONDS < WAYS

PREFIX is what ovs/build.sh prints; its lib/libflowgauge.so.1 is measured. The packets of CAPTURE come again and
again from net_pcap and go to net_null; one polling thread. WAYS has a JSON object a line:

    {"path": PATH, "kind": KIND, "argument": ARGUMENT}

PATH: emc (the exact-match cache), megaflow (the same rules without that cache), simple (port to port), drop (simple,
without sending). KIND: none, measure (options for flowgauge), sflow or ipfix (one packet in so many, sent to a socket
that nobody reads), mirror (a flowgauge built with DPDK, which reads a vhost-user port).

Every round runs every way once, for so many seconds of the polling thread's own CPU time, since other load may take its
core. Printed is a JSON object a line: first what was measured on, then one for each way of each round: nanoseconds of
that time for each packet; of the packets, how many were received and read; and the sizes of the flows that the options name.
A way that flowgauge refuses is printed once, with the cause. Needs two cores. As root with 512 free huge pages of
2 MiB it is about twice as fast as without.
"""

import contextlib
import fcntl
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ovs"))
from switch import WITHOUT_PRIVILEGES, Switch

HUGE_PAGES = "--no-pci --in-memory --single-file-segments --no-telemetry"
HALVES = [f"ip,nw_src={half},actions=output:null0" for half in ["0.0.0.0/1", "128.0.0.0/1"]]
# Rules of each path, the chance of a packet's flow to enter the exact-match cache (one in so many; 0 for never), and
# the look-up that finds packets then.
PATHS = {
    "emc": (HALVES, None, "emc hits"),
    "megaflow": (HALVES, "0", "megaflow hits"),
    "simple": (["in_port=pcap0,actions=output:null0"], None, "simple match hits"),
    "drop": (["in_port=pcap0,actions=drop"], None, "simple match hits"),
}
LOOKUPS = {look_up for _, _, look_up in PATHS.values()}
SETTLE_SECONDS = 0.3


class Refused(Exception):
    """A way that cannot be measured."""


def quiet():
    """Raises the priority of child processes, so that other load takes less of their time."""
    os.setsid() if os.getpid() != os.getsid(0) else None
    try:
        Path("/proc/self/autogroup").write_text("-15")
        os.nice(-15)
        return "raised"
    except OSError:
        return "normal"


def memory():
    """Memory options for DPDK, and their description."""
    free = re.search(r"HugePages_Free: +(\d+)", Path("/proc/meminfo").read_text())
    if os.geteuid() == 0 and free and int(free[1]) >= 512:
        return HUGE_PAGES, "huge"
    return WITHOUT_PRIVILEGES, "small"


class Bench:
    """A switch with one port that receives and one that sends."""

    def __init__(self, switch, folder, capture):
        self.switch, self.folder = switch, folder
        self.path = None
        switch.add("null0", "net_null0,size=64,no-rx=1")
        switch.add("pcap0", f"net_pcap0,rx_pcap={capture},infinite_rx=1")
        tasks = Path(f"/proc/{switch.children[-1].pid}/task")
        named = lambda: [task for task in tasks.iterdir() if (task / "comm").read_text().startswith("pmd-c01")]
        self.thread = switch.wait(named, "no polling thread")[0]
        switch.wait(lambda: self.received()[0], "no packets")

    def take(self, path):
        """Sends packets along a path of the switch."""
        if path != self.path:
            flows, chance, look_up = PATHS[path]
            self.switch.run("ovs-ofctl", "del-flows", f"unix:{self.folder}/br0.mgmt")
            self.switch.configure(emc_insert_inv_prob=chance)
            for flow in flows:
                self.switch.flow(flow)
            # Narrower flows of the previous path would stay.
            self.switch.appctl("revalidator/purge")
            # Packets that reach the megaflows before they are cached do not matter.
            others = LOOKUPS - {look_up} - ({"megaflow hits"} if path == "emc" else set())
            self.switch.wait(lambda: self.goes(look_up, others, path == "drop"), f"packets do not take {path}")
            self.path = path
            # The cache inserts one packet in a hundred.
            self.spend(SETTLE_SECONDS)

    def goes(self, look_up, others, dropped):
        """Whether packets are found by this look-up and not by others, and whether they are dropped."""
        before = self.found()
        time.sleep(0.05)
        found = {name: hits - before[name] for name, hits in self.found().items()}
        drops = "actions:drop" in self.switch.appctl("dpctl/dump-flows")
        return found[look_up] and not any(found[name] for name in others) and drops == dropped

    def found(self):
        """Packets found by each look-up so far."""
        shown = self.switch.appctl("dpif-netdev/pmd-stats-show", "-pmd", "1")
        return {name: int(re.search(rf"{name}: *(\d+)", shown)[1]) for name in LOOKUPS}

    def received(self):
        """Packets received so far, and CPU nanoseconds of the polling thread."""
        shown = self.switch.appctl("dpif-netdev/pmd-perf-show", "-pmd", "1")
        packets = re.search(r"Rx packets: +(\d+)", shown)[1]
        return int(packets), int((self.thread / "schedstat").read_text().split()[0])

    def spend(self, seconds):
        """Waits for this much CPU time of the polling thread; returns packets and nanoseconds of that time."""
        before, nanoseconds = self.received(), 0
        while (left := seconds - nanoseconds / 1e9) > 0:
            time.sleep(max(left, 0.01))
            packets, nanoseconds = (after - earlier for after, earlier in zip(self.received(), before))
        return packets, nanoseconds

    def time(self, seconds):
        """Nanoseconds per packet."""
        self.spend(SETTLE_SECONDS)
        packets, nanoseconds = self.spend(seconds)
        return {"ns": nanoseconds / packets}

    def none(self, _, seconds):
        return self.time(seconds)

    def measure(self, options, seconds):
        """Measures with flowgauge in the switch, and reads its report."""
        closed = self.reports()
        try:
            self.switch.configure(flowgauge="true", flowgauge_options=options)
            shown = self.switch.show()
            if shown["state"] != "on":
                raise Refused(shown.get("cause", shown["state"]))
            figures = self.time(seconds)
        finally:
            self.switch.configure(flowgauge="false")
        self.switch.wait(lambda: self.reports() >= closed + 2, "no report")
        epoch, total = self.switch.show()["reports"][-2:]
        account = total["account"]
        items = epoch["tasks"].get("flow-size", {"items": []})["items"]
        sizes = [item["packets"]["value"] for item in items]
        return {**figures, "received": account["read"], "read": account["read"] - account["skipped"], "sizes": sizes}

    def reports(self):
        """Reports that the switch has made so far: of an epoch that lasts from on to off, and its total."""
        shown = self.switch.show()
        return shown["forgotten"] + len(shown["reports"])

    def sampled(self, record, columns, sample, seconds):
        """Samples by the switch itself, which sends its records to a socket."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
            collector.bind(("127.0.0.1", 0))
            target = f'targets="127.0.0.1:{collector.getsockname()[1]}"'
            created = ["--id=@it", "create", record, target, f"sampling={sample}", *columns]
            self.switch.vsctl("--", *created, "--", "set", "Bridge", "br0", f"{record.lower()}=@it")
            samples = lambda: "sample(" in self.switch.appctl("dpctl/dump-flows") or sample == 1
            try:
                self.switch.wait(samples, f"{record} does not sample")
                return {**self.time(seconds), "received": sample, "read": 1}
            finally:
                self.switch.vsctl("clear", "Bridge", "br0", record.lower())
                self.switch.wait(lambda: "userspace(" not in self.switch.appctl("dpctl/dump-flows"), "it samples on")

    def sflow(self, sample, seconds):
        # The agent's address is that of a port of the dummy datapath.
        self.switch.appctl("netdev-dummy/ip4addr", "br0", "127.0.0.2/8")
        return self.sampled("sFlow", ["agent=br0", "header=128", "polling=0"], sample, seconds)

    def ipfix(self, sample, seconds):
        return self.sampled("IPFIX", [], sample, seconds)

    def mirror(self, binary, seconds):
        """Copies every packet to a port that another process reads, on the other core."""
        with contextlib.ExitStack() as stack:
            path = f"{self.folder}/mirror.sock"
            virtio = f"net_virtio_user0,path={path},server=1,queues=1,queue_size=1024"
            dpdk = f"--no-huge -m 512 -n 1 --no-pci --no-telemetry --no-shconf --vdev={virtio}"
            measured = ["--key", "source", "--task", "top", "--epoch", "whole", "--algorithm", "linear-table"]
            command = [binary, "live", "--engine", "dpdk", "--dpdk-args", dpdk, "-i", "net_virtio_user0", *measured]
            if not Path(binary).exists():
                raise Refused(f"there is no {binary}")
            error = stack.enter_context(open(f"{self.folder}/reader.err", "w+"))
            streams = {"stdout": subprocess.DEVNULL, "stderr": error}
            reader = subprocess.Popen(["taskset", "-c", "0", *command], **streams)
            stack.callback(reader.wait)
            stack.callback(reader.terminate)
            created = ["type=dpdkvhostuserclient", f"options:vhost-server-path={path}"]
            begun = self.switch.log().count("changed to 'enabled'")
            stack.callback(self.switch.vsctl, "--if-exists", "del-port", "br0", "mirror0")
            self.switch.vsctl("add-port", "br0", "mirror0", "--", "set", "Interface", "mirror0", *created)
            port = ["--id=@port", "get", "Port", "mirror0"]
            mirror = ["--id=@it", "create", "Mirror", "name=flowgauge", "select-all=true", "output-port=@port"]
            stack.callback(self.switch.vsctl, "clear", "Bridge", "br0", "mirrors")
            self.switch.vsctl("--", *port, "--", *mirror, "--", "set", "Bridge", "br0", "mirrors=@it")
            ended = lambda: reader.poll() is not None
            self.switch.wait(
                lambda: ended() or self.switch.log().count("changed to 'enabled'") > begun, "the mirror is not read"
            )
            if ended():
                error.seek(0)
                raise Refused(error.read().strip().split("\n")[-1])
            figures = self.time(seconds)
            # The switch reads a port's statistics every few seconds.
            time.sleep(5)
            shown = self.switch.vsctl("get", "Interface", "mirror0", "statistics")
            sent, dropped = (int(re.search(rf"{name}=(\d+)", shown)[1]) for name in ["tx_packets", "tx_dropped"])
            return {**figures, "received": sent + dropped, "read": sent}


def main():
    prefix, capture, rounds, seconds = sys.argv[1:]
    ways = [json.loads(line) for line in sys.stdin]
    say = lambda figures: print(json.dumps(figures), flush=True)
    priority, (dpdk, pages) = quiet(), memory()
    refused = set()
    with contextlib.ExitStack() as stack:
        # Tests must not change the switch's library meanwhile.
        lock = stack.enter_context(open(f"{prefix}/lib/flowgauge-test.lock", "w"))
        fcntl.flock(lock, fcntl.LOCK_SH)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="flowgauge-ovs-"))
        switch = stack.enter_context(Switch(prefix, folder, [1], dpdk))
        version = switch.run("ovs-vswitchd", "--version").split("\n")
        say({"switch": ", ".join(version[:2]), "priority": priority, "pages": pages, "load": os.getloadavg()[0]})
        bench = Bench(switch, folder, capture)
        for _ in range(int(rounds)):
            for number, way in enumerate(ways):
                if number in refused:
                    continue
                bench.take(way["path"])
                try:
                    figures = getattr(bench, way["kind"])(way.get("argument"), float(seconds))
                except Refused as cause:
                    figures = {"refused": str(cause)}
                    refused.add(number)
                say({"way": number, **figures})
        say({"load": os.getloadavg()[0]})


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main()
