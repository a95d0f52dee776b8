#!/usr/bin/env python3
"""Open vSwitch with flowgauge inside, beside `flowgauge analyze` of the same captures. Needs no privileges.

    ovs/test.py PREFIX BINARY LIBRARY [TEST ...]

PREFIX is what ovs/build.sh prints. With FLOWGAUGE_CAPTURES, the captures of that folder go through the switch:
every twentieth one, or all of them with FLOWGAUGE_LONG=1.
"""

import csv
import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from switch import Switch

HERE = Path(__file__).resolve().parent
EXACT = "key=five-tuple task=top top=100000 memory=64MiB"
WHOLE = EXACT + " epoch=whole"
SECONDS = "key=source task=top memory=8MiB epoch=1s"
OWN = HERE.parent / "tests/captures/var-services-std-ports.pcap"


class Place:
    """The library's fixed path in the switch. Only one run at a time may change it."""

    def __init__(self, prefix):
        self.path = Path(prefix) / "lib/libflowgauge.so.1"
        self.lock = open(self.path.with_name("flowgauge-test.lock"), "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def put(self, library):
        """Installs a library there, or none; returns the previous one."""
        before = self.path.resolve() if self.path.exists() else None
        self.path.unlink(missing_ok=True)
        if library:
            self.path.symlink_to(library)
        return before


def analyzed(*captures):
    """The report of `flowgauge analyze` on captures, as one epoch."""
    options = ["--key", "five-tuple", "--task", "top", "--top", "100000", "--seed", "1", "--format", "json"]
    done = subprocess.run([BINARY, "analyze", *options, *captures], capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return next(line for line in lines if line["type"] == "epoch")


def counted(report):
    """The parts that must be equal: the account, and packets and bytes per flow."""
    items = report["tasks"]["top"]["items"]
    flows = {
        json.dumps(item["key"], sort_keys=True): (item["packets"]["value"], item["bytes"]["value"]) for item in items
    }
    # Packets have the time at which the switch received them.
    times = ["late", "backwards", "jumps"]
    return {name: value for name, value in report["account"].items() if name not in times}, flows


def total_read(shown):
    """Packets in the accounts of all closed groups."""
    return sum(report["account"]["read"] for report in shown["reports"] if report["type"] == "total")


def total_received(shown):
    """Packets counted by the threads themselves: measured and missed."""
    threads = shown["threads"]
    measured = shown["past_packets"] + sum(thread["packets"] for thread in threads)
    return measured, shown["past_missed"] + sum(thread["missed"] for thread in threads)


class Through(unittest.TestCase):
    # The daemon's main thread is on core 0.
    cores = [min(1, os.cpu_count() - 1)]
    needs_dpdk = True

    def setUp(self):
        if self.needs_dpdk and not HAS_DPDK:
            self.skipTest("this switch was built without DPDK")
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="flowgauge-ovs-")))
        self.switch = self.enterContext(Switch(PREFIX, self.folder, self.cores))

    def enterContext(self, context):
        # unittest has it from Python 3.11 on.
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def tearDown(self):
        self.assertTrue(self.switch.is_alive(), "the switch crashed:\n" + self.switch.log()[-3000:])

    def begin(self, options=WHOLE):
        """Switches measurement on, with all polling threads there, before packets come."""
        # Queues of one port go to one core after the other.
        self.switch.configure(flowgauge="true", flowgauge_options=options, pmd_rxq_assign="roundrobin")
        self.switch.add("null0", "net_null0,size=64,no-rx=1")
        self.switch.flow("in_port=null0,actions=drop")
        self.switch.flow("ip,nw_src=0.0.0.0/1,actions=output:null0")
        self.switch.flow("ip,nw_src=128.0.0.0/1,actions=output:null0")
        self.switch.wait(lambda: len(self.switch.show()["threads"]) == 1 + len(self.cores), "threads are missing")
        self.switch.wait(lambda: f"measuring with {1 + len(self.cores)} meters" in self.switch.log(), "no meters")

    def replay(self, number, packets, *captures):
        """Replays captures once, each on a queue of a new port."""
        before = sum(total_received(self.switch.show()))
        queues = "".join(f",rx_pcap={capture}" for capture in captures)
        self.switch.add(f"pcap{number}", f"net_pcap{number}{queues}", len(captures))
        self.received(before + packets)

    def received(self, packets):
        """Waits for packets, and for more than there should be."""
        self.switch.wait(lambda: sum(total_received(self.switch.show())) >= packets, f"{packets} packets did not come")
        self.assertEqual(total_received(self.switch.show()), (packets, 0))

    def flood(self, number=0):
        """Sends packets of a capture again and again."""
        device = f"net_pcap{number},rx_pcap={generated(self.folder, 2000, number)},infinite_rx=1"
        self.switch.add(f"pcap{number}", device)

    def closed(self):
        """Switches measurement off; returns the output after the last group has closed."""
        self.switch.configure(flowgauge="false")
        return self.shown_when_closed()

    def shown_when_closed(self):
        groups = len(re.findall(r"measuring with \d+ meters", self.switch.log()))

        def shown():
            shown = self.switch.show()
            totals = sum(report["type"] == "total" for report in shown["reports"])
            return shown if totals == groups else None

        shown = self.switch.wait(shown, "the group did not close")
        self.assertEqual(shown["forgotten"], 0)
        return shown

    def nothing_lost(self, shown):
        """Every packet that a thread measured is in a report."""
        measured, missed = total_received(shown)
        self.assertGreater(measured, 1000)
        self.assertEqual(total_read(shown), measured)
        return missed

    def in_epochs(self):
        """Packets of the epochs that have ended."""
        return sum(r["account"]["read"] for r in self.switch.show()["reports"] if r["type"] == "epoch")

    def last_epoch(self, shown):
        return [report for report in shown["reports"] if report["type"] == "epoch"][-1]


def generated(folder, packets, seed, *options):
    capture = Path(folder) / f"generated-{packets}-{seed}.pcap"
    if not capture.exists():
        command = [BINARY, "generate", "--packets", packets, "--flows", packets // 20, "--seed", seed + 1]
        subprocess.run([*map(str, command), *options, "-o", capture], check=True)
    return capture


class OnePmd(Through):
    def test_counts_equal_analyze(self):
        capture = generated(self.folder, 100_000, 0, "--ipv6", "0.2", "--size", "imix")
        self.begin()
        self.replay(0, 100_000, capture)
        shown = self.closed()
        self.assertEqual(counted(self.last_epoch(shown)), counted(analyzed(capture)))
        self.assertEqual((shown["state"], shown["dropped"]), ("off", 0))

    def test_a_real_capture_equals_analyze(self):
        self.begin()
        self.replay(0, 263, OWN)
        self.assertEqual(counted(self.last_epoch(self.closed())), counted(analyzed(OWN)))

    def test_text_names_what_json_has(self):
        self.begin()
        self.replay(0, 263, OWN)
        text = self.switch.appctl("flowgauge/show")
        self.assertIn("state: on", text)
        self.assertIn(f"core {self.cores[0]} of ovs-dummy: 263 packets", text)
        self.assertIn("main thread of ovs-dummy: 0 packets", text)
        self.assertIn(f"options: {WHOLE}", text)

    def test_a_sampler_before_headers_counts_every_packet(self):
        sampler = "accelerator=uniform:sample=100,before=headers"
        self.begin(f"key=source task=top epoch=whole memory=8MiB {sampler}")
        self.replay(0, 100_000, generated(self.folder, 100_000, 0))
        account = self.last_epoch(self.closed())["account"]
        self.assertEqual(account["read"], 100_000)
        self.assertEqual(account["skipped"] + account["keyed"], 100_000)
        self.assertTrue(500 < account["keyed"] < 1500, account)
        self.assertEqual(account["skipped_bytes"] + account["keyed_bytes"], 64 * 100_000)

    def test_epochs_end_without_packets(self):
        self.begin("key=source task=top memory=8MiB epoch=200ms")
        self.replay(0, 263, OWN)
        self.switch.wait(lambda: self.in_epochs() == 263, "no epoch ended", 5)

    def test_the_closing_thread_leaves_polling_cores(self):
        if os.cpu_count() < 2:
            self.skipTest("needs two cores")
        self.begin()
        process = self.switch.children[-1].pid
        threads = [task for task in Path(f"/proc/{process}/task").iterdir()]
        named = [task for task in threads if (task / "comm").read_text().startswith("flowgauge")]
        self.assertTrue(named)
        for task in named:
            self.assertNotIn(self.cores[0], os.sched_getaffinity(int(task.name)), (task / "comm").read_text())

    def test_switching_off_and_on_loses_nothing(self):
        self.begin(SECONDS)
        self.flood()
        for _ in range(4):
            self.switch.configure(flowgauge="false")
            self.assertEqual(self.switch.show()["state"], "off")
            self.switch.configure(flowgauge="true")
        self.switch.remove("pcap0")
        shown = self.closed()
        self.nothing_lost(shown)
        self.assertIn("measurement was switched off: the open epoch is reported early", self.switch.log())
        self.assertGreaterEqual(shown["cut_short"], 5)

    def test_options_change_at_the_end_of_an_epoch(self):
        self.begin(SECONDS)
        self.flood()
        self.switch.wait(lambda: total_received(self.switch.show())[0] > 1000, "no packets")
        changed = SECONDS.replace("key=source", "key=destination")
        self.switch.configure(flowgauge_options=changed)
        is_changed = lambda: self.switch.show()["options"] == changed
        if not is_changed():
            shown = self.switch.show()
            self.assertIn(shown.get("next_options", changed), [changed])
        self.switch.wait(is_changed, "the options did not change", 5)
        self.switch.remove("pcap0")
        shown = self.closed()
        self.assertEqual(self.nothing_lost(shown), 0)
        keys = {report["key"] for report in shown["reports"] if report["type"] == "epoch"}
        self.assertEqual(keys, {"source", "destination"})
        # Measurements with the old options ended at the end of an epoch, except at the change.
        old = [r for r in shown["reports"] if r["type"] == "epoch" and r["key"] == "source" and r["account"]["read"]]
        self.assertGreaterEqual(len(old), 2)
        self.assertLess(old[-1]["account"]["read"], sum(report["account"]["read"] for report in old) / 2)

    def failing(self, cause, options=WHOLE):
        """Measurement cannot start, but packets still pass."""
        self.switch.configure(flowgauge="true", flowgauge_options=options)
        self.switch.add("null0", "net_null0,size=64,no-rx=1")
        self.switch.flow("actions=output:null0")
        shown = self.switch.show()
        self.assertEqual(shown["state"], "failed")
        self.assertIn(cause, shown["cause"])
        lines = [line for line in self.switch.log().splitlines() if "not measuring" in line]
        self.assertEqual(len(lines), 1, lines)
        self.assertIn(cause, lines[0])
        self.assertRegex(lines[0], "; (change|install)")
        self.switch.add("pcap0", f"net_pcap0,rx_pcap={OWN}")
        passed = lambda: re.search(r"Rx packets: +263\b", self.switch.appctl("dpif-netdev/pmd-perf-show"))
        self.switch.wait(passed, "packets did not pass")

    def test_options_that_do_not_parse_stop_measurement_only(self):
        self.failing("'sauce'", "key=sauce")
        self.switch.configure(flowgauge_options=WHOLE)
        self.replay(1, 263, OWN)
        self.assertEqual(counted(self.last_epoch(self.closed())), counted(analyzed(OWN)))

    def test_no_memory_stops_measurement_only(self):
        self.failing("lower --memory", "key=source task=top memory=900TiB")

    def test_no_library_stops_measurement_only(self):
        self.addCleanup(PLACE.put, PLACE.put(None))
        self.failing("install libflowgauge at this path")

    def test_a_library_of_another_version_stops_measurement_only(self):
        source, other = self.folder / "other.c", self.folder / "other.so"
        source.write_text("unsigned fg_abi_version(void) { return 99; }\n")
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", source, "-o", other], check=True)
        before = PLACE.put(other)
        self.addCleanup(PLACE.put, before)
        self.failing("has ABI version 99, but this switch needs version 1")
        PLACE.put(before)
        self.switch.configure(flowgauge="false")
        self.switch.configure(flowgauge="true")
        self.replay(1, 263, OWN)

    def test_the_database_names_no_path(self):
        for name in ["flowgauge-library", "flowgauge-path", "flowgauge-lib"]:
            self.switch.configure(**{name: "/nowhere/lib.so"})
        self.begin()
        self.assertEqual(self.switch.show()["library"], str(PLACE.path))

    def test_deleting_the_bridge_loses_nothing(self):
        self.begin(SECONDS)
        self.flood()
        self.switch.wait(lambda: total_received(self.switch.show())[0] > 1000, "no packets")
        self.switch.vsctl("del-br", "br0")
        shown = self.shown_when_closed()
        self.assertEqual(shown["state"], "waiting")
        self.nothing_lost(shown)
        self.assertIn("the last datapath was deleted: the open epoch is reported early", self.switch.log())


class Injected(Through):
    """Packets of ports that need no DPDK."""

    needs_dpdk = False

    def inject(self, kind, packets):
        self.switch.configure(flowgauge="true", flowgauge_options=WHOLE)
        self.switch.vsctl("add-port", "br0", "in0", "--", "set", "Interface", "in0", f"type={kind}")
        # A port queues 100 packets.
        for first in range(0, len(packets), 50):
            some = packets[first : first + 50]
            self.switch.appctl("netdev-dummy/receive", "in0", *[packet.hex() for packet in some])
            self.received(first + len(some))

    def test_the_main_thread_measures_ports_that_nobody_polls(self):
        self.inject("dummy", whole_frames(OWN))
        shown = self.closed()
        self.assertEqual(counted(self.last_epoch(shown)), counted(analyzed(OWN)))
        self.assertEqual([thread["packets"] for thread in shown["threads"] if "core" not in thread], [263])

    def test_a_polling_thread_measures_ports_without_dpdk(self):
        self.inject("dummy-pmd", whole_frames(OWN))
        shown = self.closed()
        self.assertEqual(counted(self.last_epoch(shown)), counted(analyzed(OWN)))
        self.assertEqual(sum(thread["packets"] for thread in shown["threads"] if "core" in thread), 263)


class TwoPmds(Through):
    cores = [0, 1]

    def setUp(self):
        if os.cpu_count() < 2:
            self.skipTest("needs two cores")
        super().setUp()

    def test_counts_of_two_threads_equal_analyze_of_both(self):
        captures = [generated(self.folder, 50_000, seed, "--ipv6", "0.2") for seed in range(2)]
        self.begin()
        self.replay(0, 100_000, *captures)
        shown = self.closed()
        self.assertEqual(counted(self.last_epoch(shown)), counted(analyzed(*captures)))
        by_core = {thread["core"]: thread["packets"] for thread in shown["threads"] if "core" in thread}
        self.assertEqual(by_core, {0: 50_000, 1: 50_000})

    def test_a_thread_that_lost_its_queues_holds_no_epoch_up(self):
        self.begin("key=source task=top memory=8MiB epoch=2s")
        # Two queues; when they are removed, one thread has none, and does not know the time.
        self.replay(0, 2 * 263, OWN, OWN)
        self.switch.remove("pcap0")
        self.switch.wait(lambda: self.in_epochs() == 2 * 263, "no epoch ended", 5)
        epochs = [report for report in self.switch.show()["reports"] if report["type"] == "epoch"]
        notes = [note for report in epochs for note in report["notes"] if "lock" not in note]
        self.assertEqual(notes, [])

    def test_changing_the_polling_threads_loses_nothing(self):
        self.begin(SECONDS)
        self.flood(0)
        self.flood(1)
        for mask in ["0x1", "0x3", "0x2"]:
            self.switch.wait(lambda: total_received(self.switch.show())[0] > 1000, "no packets")
            self.switch.configure(pmd_cpu_mask=mask)
            threads = 1 + bin(int(mask, 16)).count("1")
            self.switch.wait(lambda: len(self.switch.show()["threads"]) == threads, "the threads did not change")
        self.switch.remove("pcap0")
        self.switch.remove("pcap1")
        shown = self.closed()
        self.nothing_lost(shown)
        self.assertIn("the threads that receive packets changed: the open epoch", self.switch.log())


def frames(capture):
    """The lengths of a classic capture's frames, captured and on the wire; None where it is damaged, or
    libpcap refuses its version, or would cut some to the length that its header gives."""
    bytes_ = capture.read_bytes()
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}
    order = order.get(bytes_[:4])
    if not order or len(bytes_) < 24 or struct.unpack_from(order + "I", bytes_, 20)[0] != 1:
        return None
    version, most = struct.unpack_from(order + "HH", bytes_, 4), struct.unpack_from(order + "I", bytes_, 16)[0]
    if version != (2, 4):
        return None
    lengths, at = [], 24
    while at < len(bytes_):
        if at + 16 > len(bytes_):
            return None
        captured, wire = struct.unpack_from(order + "II", bytes_, at + 8)
        at += 16 + captured
        if at > len(bytes_) or captured > most:
            return None
        lengths.append((captured, wire))
    return lengths


class Captures(Through):
    def test_captures_pass_and_equal_analyze(self):
        folder = os.environ.get("FLOWGAUGE_CAPTURES")
        if not folder:
            self.skipTest("FLOWGAUGE_CAPTURES names no folder of captures")
        with open(Path(folder) / "MANIFEST.tsv", newline="") as manifest:
            rows = list(csv.DictReader(manifest, delimiter="\t"))
        rows = rows if os.environ.get("FLOWGAUGE_LONG") else rows[::20]
        self.begin()
        compared = 0
        for number, row in enumerate(rows):
            capture = Path(folder) / row["corpus"] / row["file"]
            with self.subTest(capture=str(capture)):
                compared += self.pass_through(number, capture)
        print(f"{len(rows)} captures passed, {compared} of them compared", file=sys.stderr)

    def pass_through(self, number, capture):
        lengths = frames(capture)
        is_whole = bool(lengths) and all(captured == wire <= 1518 for captured, wire in lengths)
        self.switch.configure(flowgauge="true")
        before = self.switch.show()
        try:
            self.switch.add(f"pcap{number}", f"net_pcap{number},rx_pcap={capture}")
        except RuntimeError:
            # libpcap refuses it, and the port with it.
            self.assertFalse(is_whole)
        if is_whole:
            self.received(total_received(before)[0] + len(lengths))
        self.switch.remove(f"pcap{number}")
        self.switch.configure(flowgauge="false")

        def closed():
            shown = self.switch.show()
            # The epoch and the total; older reports may be forgotten.
            more = lambda shown: shown["forgotten"] + len(shown["reports"])
            return shown if more(shown) == more(before) + 2 else None

        epoch = self.last_epoch(self.switch.wait(closed, "the group did not close"))
        if is_whole:
            self.assertEqual(counted(epoch), counted(analyzed(capture)))
        self.assertTrue(self.switch.is_alive(), f"the switch crashed on {capture}")
        return is_whole


def whole_frames(capture):
    """The bytes of each packet of a capture in this machine's byte order."""
    bytes_, at, found = Path(capture).read_bytes(), 24, []
    while at < len(bytes_):
        end = at + 16 + struct.unpack_from("<I", bytes_, at + 8)[0]
        found.append(bytes_[at + 16 : end])
        at = end
    return found


class Mirrored(Through):
    """Outside the switch: a mirror port, whose packets another process reads through DPDK."""

    def test_a_mirror_shows_what_the_switch_receives(self):
        # The device's queue holds 1,024 packets, so none is lost on the way to the reader.
        capture, socket = generated(self.folder, 500, 1), self.folder / "mirror.sock"
        virtio = f"net_virtio_user0,path={socket},server=1,queues=1,queue_size=1024"
        dpdk = f"--no-huge -m 256 -n 1 --no-pci --no-telemetry --no-shconf --vdev={virtio}"
        options = ["--key", "five-tuple", "--task", "top", "--top", "100000", "--seed", "1", "--format", "json"]
        command = [BINARY, "live", "--engine", "dpdk", "--dpdk-args", dpdk, "-i", "net_virtio_user0"]
        done = subprocess.run([BINARY, "live", "--engine", "dpdk", "-i", "x"], capture_output=True, text=True)
        if "built without DPDK" in done.stderr:
            self.skipTest("the command was built without DPDK")
        with open(self.folder / "mirror.json", "wb") as out:
            reader = subprocess.Popen([*command, *options, "--epoch", "whole"], stdout=out)
        self.addCleanup(lambda: reader.poll() is None and (reader.kill(), reader.wait()))
        mirror = ["type=dpdkvhostuserclient", f"options:vhost-server-path={socket}"]
        self.switch.vsctl("add-port", "br0", "mirror0", "--", "set", "Interface", "mirror0", *mirror)
        port = ["--id=@port", "get", "Port", "mirror0"]
        created = ["--id=@mirror", "create", "Mirror", "name=flowgauge", "select-all=true", "output-port=@port"]
        self.switch.vsctl("--", *port, "--", *created, "--", "set", "Bridge", "br0", "mirrors=@mirror")
        # The switch drops the packets, since it has no flows, but still mirrors them.
        served = lambda: re.search(r"State of queue \d .*mirror.sock' changed to 'enabled'", self.switch.log())
        self.switch.wait(served, "the reader does not serve the mirror")
        # A port whose packets arrive after the switch knows it; those of net_pcap may arrive before.
        self.switch.vsctl("add-port", "br0", "in0", "--", "set", "Interface", "in0", "type=dummy")
        frames = [frame.hex() for frame in whole_frames(capture)]
        for first in range(0, len(frames), 100):
            self.switch.appctl("netdev-dummy/receive", "in0", *frames[first : first + 100])
        mirrored = lambda: "tx_packets=500" in self.switch.vsctl("get", "Mirror", "flowgauge", "statistics")
        self.switch.wait(mirrored, "packets are not mirrored")
        reader.send_signal(signal.SIGINT)
        self.assertEqual(reader.wait(20), 0)
        lines = [json.loads(line) for line in (self.folder / "mirror.json").read_text().splitlines()]
        epoch = next(line for line in lines if line["type"] == "epoch")
        self.assertEqual(counted(epoch), counted(analyzed(capture)))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    PREFIX, BINARY, LIBRARY = (str(Path(name).resolve()) for name in sys.argv[1:4])
    if not (Path(PREFIX) / "sbin/ovs-vswitchd").exists():
        print(f"skipped: no switch in {PREFIX}; build it by 'make ovs'")
        sys.exit(0)
    version = subprocess.run([f"{PREFIX}/sbin/ovs-vswitchd", "--version"], capture_output=True, text=True)
    HAS_DPDK = "DPDK" in version.stdout
    PLACE = Place(PREFIX)
    before = PLACE.put(LIBRARY)
    try:
        ran = unittest.main(argv=[sys.argv[0], *sys.argv[4:]], exit=False)
    finally:
        PLACE.put(before)
    sys.exit(not ran.result.wasSuccessful())
