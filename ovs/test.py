#!/usr/bin/env python3
"""Compares Open vSwitch with flowgauge inside to `flowgauge analyze` of the same captures. Needs no privileges.

    ovs/test.py PREFIX BINARY LIBRARY [TEST ...]

ovs/build.sh prints PREFIX. With FLOWGAUGE_CAPTURES=DIR, one in 20 captures of that folder passes through the switch,
or all of them with FLOWGAUGE_LONG=1.
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

WHOLE = "key=five-tuple task=top top=100000 memory=64MiB epoch=whole"
SAME = ["--key", "five-tuple", "--task", "top", "--top", "100000", "--seed", "1", "--format", "json"]
SHORT = "key=source task=top memory=8MiB"
SECONDS = SHORT + " epoch=1s"
OWN = Path(__file__).resolve().parent.parent / "tests/captures/var-services-std-ports.pcap"
OWN_PACKETS = 263
HEADER = Path(__file__).resolve().parent.parent / "crates/capi"
# A library that a defect stops at the first push.
DYING = """
#include "flowgauge.h"
static fg_meter meter = { .samples = 1 };
static uint64_t pushed;
uint32_t fg_abi_version(void) { return FG_ABI_VERSION; }
const char *fg_error(void) { return "a defect stopped it"; }
int fg_open(const fg_settings *settings, fg_group **group) { *group = (fg_group *)&meter; return FG_OK; }
fg_meter *fg_queue(const fg_group *group, uint32_t queue) { return &meter; }
int fg_push_mbufs(fg_meter *of, uint32_t packets, const void *const *mbufs, const fg_mbuf_layout *layout, int64_t now)
{
    __atomic_fetch_add(&pushed, packets, __ATOMIC_RELAXED);
    return FG_EDEAD;
}
static int state(void) { return __atomic_load_n(&pushed, __ATOMIC_RELAXED) ? FG_EDEAD : FG_OK; }
int fg_advance(fg_meter *of, int64_t now) { return state(); }
int fg_dropped(const fg_group *group, uint64_t *packets)
{
    *packets = __atomic_load_n(&pushed, __ATOMIC_RELAXED);
    return FG_OK;
}
int fg_close(fg_group *group) { return state(); }
"""


class Place:
    """The library's fixed path in the switch. A lock keeps other runs from changing it."""

    def __init__(self, prefix):
        self.path = Path(prefix) / "lib/libflowgauge.so.1"
        self.lock = open(self.path.with_name("flowgauge-test.lock"), "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def put(self, library):
        """Links a library there, or none, and returns the previous one."""
        before = self.path.resolve() if self.path.exists() else None
        self.path.unlink(missing_ok=True)
        if library:
            self.path.symlink_to(library)
        return before


def epochs(reports):
    return [report for report in reports if report["type"] == "epoch"]


def analyzed(*captures):
    """The report of `flowgauge analyze` on captures, as one epoch."""
    done = subprocess.run([BINARY, "analyze", *SAME, *captures], capture_output=True, text=True)
    return epochs(map(json.loads, done.stdout.splitlines()))[0]


def counted(report):
    """The parts that must be equal: the account, and packets and bytes per flow."""
    flows = {
        json.dumps(item["key"], sort_keys=True): (item["packets"]["value"], item["bytes"]["value"])
        for item in report["tasks"]["top"]["items"]
    }
    # The switch gives packets the time at which it received them.
    times = ["late", "backwards", "jumps"]
    return {name: value for name, value in report["account"].items() if name not in times}, flows


def read(reports, kind):
    """Packets in the accounts of reports of a kind."""
    return sum(report["account"]["read"] for report in reports if report["type"] == kind)


def total_received(shown):
    """Packets counted by the threads themselves: measured and missed."""
    threads = shown["threads"]
    measured = shown["past_packets"] + sum(thread["packets"] for thread in threads)
    return measured, shown["past_missed"] + sum(thread["missed"] for thread in threads)


def generated(folder, packets, seed, *options):
    """A capture of synthetic packets."""
    capture = Path(folder) / f"generated-{packets}-{seed}.pcap"
    if not capture.exists():
        command = [BINARY, "generate", "--packets", packets, "--flows", packets // 20, "--seed", seed + 1]
        subprocess.run([*map(str, command), *options, "-o", capture], check=True)
    return capture


def frames(capture):
    """The bytes and wire length of each frame of a classic Ethernet capture.

    None if the file is damaged, or libpcap would refuse it or cut frames to the header's snapshot length.
    """
    bytes_ = Path(capture).read_bytes()
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}
    order = order.get(bytes_[:4])
    if not order or len(bytes_) < 24:
        return None
    *version, most, link = struct.unpack_from(order + "HH8xII", bytes_, 4)
    if version != [2, 4] or link != 1:
        return None
    found, at = [], 24
    while at < len(bytes_):
        if at + 16 > len(bytes_):
            return None
        length, wire = struct.unpack_from(order + "II", bytes_, at + 8)
        start, at = at + 16, at + 16 + length
        if at > len(bytes_) or length > most:
            return None
        found.append((bytes_[start:at], wire))
    return found


class Through(unittest.TestCase):
    # The daemon's main thread runs on core 0.
    cores = [min(1, os.cpu_count() - 1)]
    needs_dpdk = True

    def setUp(self):
        if self.needs_dpdk and not HAS_DPDK:
            self.skipTest("this switch was built without DPDK")
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="flowgauge-ovs-")))
        self.switch = self.enterContext(Switch(PREFIX, self.folder, self.cores))

    def enterContext(self, context):
        # unittest has it since Python 3.11.
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def tearDown(self):
        self.assertTrue(self.switch.is_alive(), "the switch crashed:\n" + self.switch.log()[-3000:])

    def begin(self, options=WHOLE):
        """Switches measurement on, and waits for the meters of all polling threads."""
        # Each queue of a port goes to the next core.
        self.switch.configure(flowgauge="true", flowgauge_options=options, pmd_rxq_assign="roundrobin")
        self.switch.add("null0", "net_null0,size=64,no-rx=1")
        self.switch.flow("in_port=null0,actions=drop")
        self.switch.flow("ip,nw_src=0.0.0.0/1,actions=output:null0")
        self.switch.flow("ip,nw_src=128.0.0.0/1,actions=output:null0")
        self.wait_for_threads(1 + len(self.cores))
        self.switch.wait(lambda: f"measuring with {1 + len(self.cores)} meters" in self.switch.log(), "no meters")

    def wait_for_threads(self, number):
        self.switch.wait(lambda: len(self.switch.show()["threads"]) == number, f"there are not {number} threads")

    def replay(self, number, packets, *captures):
        """Replays captures once, each on its own queue of a new port."""
        before = sum(total_received(self.switch.show()))
        queues = "".join(f",rx_pcap={capture}" for capture in captures)
        self.switch.add(f"pcap{number}", f"net_pcap{number}{queues}", len(captures))
        self.received(before + packets)

    def received(self, packets):
        """Waits for packets, and checks that no more came and none was missed."""
        self.switch.wait(lambda: sum(total_received(self.switch.show())) >= packets, f"{packets} packets did not come")
        self.assertEqual(total_received(self.switch.show()), (packets, 0))

    def flood(self, number=0):
        """Replays a capture without end."""
        device = f"net_pcap{number},rx_pcap={generated(self.folder, 2000, number)},infinite_rx=1"
        self.switch.add(f"pcap{number}", device)

    def wait_for_flood(self):
        self.switch.wait(lambda: total_received(self.switch.show())[0] > 1000, "no packets")

    def closed(self):
        """Switches measurement off, and returns the output after the last group has closed."""
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

    def equals_analyze(self, shown, *captures):
        """The last epoch equals `flowgauge analyze` of the captures."""
        self.assertEqual(counted(epochs(shown["reports"])[-1]), counted(analyzed(*captures)))

    def nothing_lost(self, shown):
        """Every measured packet is in a report; returns the number of missed packets."""
        measured, missed = total_received(shown)
        self.assertGreater(measured, 1000)
        self.assertEqual(read(shown["reports"], "total"), measured)
        return missed

    def ended_early(self, reason):
        self.assertIn(f"{reason}: the open epoch is reported early", self.switch.log())

    def wait_for_epochs(self, packets):
        """Waits until the closed epochs hold this many packets."""
        self.switch.wait(lambda: read(self.switch.show()["reports"], "epoch") == packets, "no epoch ended", 5)


class OnePmd(Through):
    def test_counts_equal_analyze(self):
        capture = generated(self.folder, 100_000, 0, "--ipv6", "0.2", "--size", "imix")
        self.begin()
        self.replay(0, 100_000, capture)
        shown = self.closed()
        self.equals_analyze(shown, capture)
        self.assertEqual((shown["state"], shown["dropped"]), ("off", 0))

    def test_a_real_capture_equals_analyze(self):
        self.begin()
        self.replay(0, OWN_PACKETS, OWN)
        self.equals_analyze(self.closed(), OWN)

    def test_text_names_what_json_has(self):
        self.begin()
        self.replay(0, OWN_PACKETS, OWN)
        text = self.switch.appctl("flowgauge/show")
        self.assertIn("state: on", text)
        self.assertIn(f"core {self.cores[0]} of ovs-dummy: {OWN_PACKETS} packets", text)
        self.assertIn("main thread of ovs-dummy: 0 packets", text)
        self.assertIn(f"options: {WHOLE}", text)

    def test_a_sampler_before_headers_counts_every_packet(self):
        self.begin(SHORT + " epoch=whole accelerator=uniform:sample=100,before=headers")
        self.replay(0, 100_000, generated(self.folder, 100_000, 0))
        account = epochs(self.closed()["reports"])[-1]["account"]
        self.assertEqual(account["read"], 100_000)
        self.assertEqual(account["skipped"] + account["keyed"], 100_000)
        self.assertTrue(500 < account["keyed"] < 1500, account)
        self.assertEqual(account["skipped_bytes"] + account["keyed_bytes"], 64 * 100_000)

    def test_epochs_end_without_packets(self):
        self.begin(SHORT + " epoch=200ms")
        self.replay(0, OWN_PACKETS, OWN)
        self.wait_for_epochs(OWN_PACKETS)

    def test_the_closing_thread_leaves_polling_cores(self):
        if os.cpu_count() < 2:
            self.skipTest("needs two cores")
        self.begin()
        process = self.switch.children[-1].pid
        names = {task.name: (task / "comm").read_text() for task in Path(f"/proc/{process}/task").iterdir()}
        ours = {task: name for task, name in names.items() if name.startswith("flowgauge")}
        self.assertTrue(ours)
        for task, name in ours.items():
            self.assertNotIn(self.cores[0], os.sched_getaffinity(int(task)), name)

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
        self.ended_early("measurement was switched off")
        self.assertGreaterEqual(shown["cut_short"], 5)

    def test_options_change_at_the_end_of_an_epoch(self):
        self.begin(SECONDS)
        self.flood()
        self.wait_for_flood()
        changed = SECONDS.replace("key=source", "key=destination")
        self.switch.configure(flowgauge_options=changed)
        is_changed = lambda: self.switch.show()["options"] == changed
        if not is_changed():
            self.assertEqual(self.switch.show().get("next_options", changed), changed)
        self.switch.wait(is_changed, "the options did not change", 5)
        self.switch.remove("pcap0")
        shown = self.closed()
        self.assertEqual(self.nothing_lost(shown), 0)
        self.assertEqual({report["key"] for report in epochs(shown["reports"])}, {"source", "destination"})
        # Epochs with the old options have their full length, except for the one that the change ended.
        old = [report["account"]["read"] for report in epochs(shown["reports"]) if report["key"] == "source"]
        old = [packets for packets in old if packets]
        self.assertGreaterEqual(len(old), 2)
        self.assertLess(old[-1], sum(old) / 2)

    def failing(self, cause, options=WHOLE):
        """Checks that measurement cannot start, and that packets still pass."""
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
        passed = lambda: re.search(rf"Rx packets: +{OWN_PACKETS}\b", self.switch.appctl("dpif-netdev/pmd-perf-show"))
        self.switch.wait(passed, "packets did not pass")

    def test_options_that_do_not_parse_stop_measurement_only(self):
        self.failing("'sauce'", "key=sauce")
        self.switch.configure(flowgauge_options=WHOLE)
        self.replay(1, OWN_PACKETS, OWN)
        self.equals_analyze(self.closed(), OWN)

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
        self.replay(1, OWN_PACKETS, OWN)

    def test_a_library_that_dies_stops_measurement_only(self):
        source, other = self.folder / "dying.c", self.folder / "dying.so"
        source.write_text(DYING)
        compiler = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-I", HEADER]
        subprocess.run([*compiler, source, "-o", other], check=True)
        self.addCleanup(PLACE.put, PLACE.put(other))
        self.begin()
        cut_short = self.switch.show()["cut_short"]
        self.flood()
        self.switch.wait(lambda: self.switch.show()["state"] == "failed", "the switch did not notice")
        # The polling thread may be in the middle of a burst.
        all_dropped = lambda shown: shown if shown["dropped"] == total_received(shown)[0] else None
        shown = self.switch.wait(lambda: all_dropped(self.switch.show()), "dropped packets are not counted")
        self.assertGreater(shown["dropped"], 0)
        self.assertEqual(shown["cause"], "a defect stopped it; switch measurement off and on")
        self.assertEqual(shown["cut_short"], cut_short)
        log = self.switch.log()
        self.assertEqual((log.count("not measuring"), log.count("a defect stopped it")), (1, 1))

    def test_the_database_names_no_path(self):
        names = ["flowgauge-library", "flowgauge-path", "flowgauge-lib"]
        self.switch.configure(**dict.fromkeys(names, "/nowhere/lib.so"))
        self.begin()
        self.assertEqual(self.switch.show()["library"], str(PLACE.path))

    def test_deleting_the_bridge_loses_nothing(self):
        self.begin(SECONDS)
        self.flood()
        self.wait_for_flood()
        self.switch.vsctl("del-br", "br0")
        shown = self.shown_when_closed()
        self.assertEqual(shown["state"], "waiting")
        self.nothing_lost(shown)
        self.ended_early("the last datapath was deleted")


class Injected(Through):
    """Packets of ports that need no DPDK."""

    needs_dpdk = False

    def inject(self, kind):
        self.switch.configure(flowgauge="true", flowgauge_options=WHOLE)
        self.switch.add_port("in0", f"type={kind}")
        packets = [packet.hex() for packet, _ in frames(OWN)]
        # A port queues 100 packets.
        for first in range(0, len(packets), 50):
            some = packets[first : first + 50]
            self.switch.appctl("netdev-dummy/receive", "in0", *some)
            self.received(first + len(some))
        return self.closed()

    def test_the_main_thread_measures_ports_without_a_polling_thread(self):
        shown = self.inject("dummy")
        self.equals_analyze(shown, OWN)
        self.assertEqual([thread["packets"] for thread in shown["threads"] if "core" not in thread], [OWN_PACKETS])

    def test_a_polling_thread_measures_ports_without_dpdk(self):
        shown = self.inject("dummy-pmd")
        self.equals_analyze(shown, OWN)
        self.assertEqual(sum(thread["packets"] for thread in shown["threads"] if "core" in thread), OWN_PACKETS)


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
        self.equals_analyze(shown, *captures)
        by_core = {thread["core"]: thread["packets"] for thread in shown["threads"] if "core" in thread}
        self.assertEqual(by_core, {0: 50_000, 1: 50_000})

    def test_a_thread_without_queues_delays_no_epoch(self):
        self.begin(SHORT + " epoch=2s")
        # After the removal, one thread has no queue and does not advance its meter.
        self.replay(0, 2 * OWN_PACKETS, OWN, OWN)
        self.switch.remove("pcap0")
        self.wait_for_epochs(2 * OWN_PACKETS)
        reports = epochs(self.switch.show()["reports"])
        notes = [note for report in reports for note in report["notes"] if "lock" not in note]
        self.assertEqual(notes, [])

    def test_changing_the_polling_threads_loses_nothing(self):
        self.begin(SECONDS)
        self.flood(0)
        self.flood(1)
        for mask in ["0x1", "0x3", "0x2"]:
            self.wait_for_flood()
            self.switch.configure(pmd_cpu_mask=mask)
            self.wait_for_threads(1 + bin(int(mask, 16)).count("1"))
        self.switch.remove("pcap0")
        self.switch.remove("pcap1")
        shown = self.closed()
        self.nothing_lost(shown)
        self.ended_early("the threads that receive packets changed")


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
        """Replays a capture, and compares it if all its packets are whole and within the MTU."""
        packets = frames(capture)
        is_whole = bool(packets) and all(len(packet) == wire <= 1518 for packet, wire in packets)
        self.switch.configure(flowgauge="true")
        before = self.switch.show()
        try:
            self.switch.add(f"pcap{number}", f"net_pcap{number},rx_pcap={capture}")
        except RuntimeError:
            # libpcap refuses the file, so the switch refuses the port.
            self.assertFalse(is_whole)
        if is_whole:
            self.received(total_received(before)[0] + len(packets))
        self.switch.remove(f"pcap{number}")
        self.switch.configure(flowgauge="false")
        # The epoch and the total come; older reports may be forgotten.
        made = lambda shown: shown["forgotten"] + len(shown["reports"])
        self.switch.wait(lambda: made(self.switch.show()) == made(before) + 2, "the group did not close")
        if is_whole:
            self.equals_analyze(self.switch.show(), capture)
        self.assertTrue(self.switch.is_alive(), f"the switch crashed on {capture}")
        return is_whole


class Mirrored(Through):
    """Another process reads the packets of a mirror port through DPDK."""

    def test_a_mirror_shows_what_the_switch_receives(self):
        # The device's queue holds 1,024 packets, so none is lost on the way to the reader.
        capture, socket = generated(self.folder, 500, 1), self.folder / "mirror.sock"
        virtio = f"net_virtio_user0,path={socket},server=1,queues=1,queue_size=1024"
        dpdk = f"--no-huge -m 256 -n 1 --no-pci --no-telemetry --no-shconf --vdev={virtio}"
        live = [BINARY, "live", "--engine", "dpdk", "-i"]
        done = subprocess.run([*live, "x"], capture_output=True, text=True)
        if "built without DPDK" in done.stderr:
            self.skipTest("the command was built without DPDK")
        with open(self.folder / "mirror.json", "wb") as out:
            command = [*live, "net_virtio_user0", "--dpdk-args", dpdk, *SAME, "--epoch", "whole"]
            reader = subprocess.Popen(command, stdout=out)
        self.addCleanup(lambda: reader.poll() is None and (reader.kill(), reader.wait()))
        self.switch.add_port("mirror0", "type=dpdkvhostuserclient", f"options:vhost-server-path={socket}")
        port = ["--id=@port", "get", "Port", "mirror0"]
        created = ["--id=@mirror", "create", "Mirror", "name=flowgauge", "select-all=true", "output-port=@port"]
        self.switch.vsctl("--", *port, "--", *created, "--", "set", "Bridge", "br0", "mirrors=@mirror")
        # The switch drops the packets, since it has no flows, but still mirrors them.
        served = lambda: re.search(r"State of queue \d .*mirror.sock' changed to 'enabled'", self.switch.log())
        self.switch.wait(served, "the reader does not serve the mirror")
        # A dummy port gets its packets after the mirror knows it; those of net_pcap may arrive before.
        self.switch.add_port("in0", "type=dummy")
        packets = [packet.hex() for packet, _ in frames(capture)]
        for first in range(0, len(packets), 100):
            self.switch.appctl("netdev-dummy/receive", "in0", *packets[first : first + 100])
        mirrored = lambda: "tx_packets=500" in self.switch.vsctl("get", "Mirror", "flowgauge", "statistics")
        # The switch counts them every 5 s, and with three polling threads it may wait for a core.
        self.switch.wait(mirrored, "packets are not mirrored", seconds=60)
        reader.send_signal(signal.SIGINT)
        self.assertEqual(reader.wait(20), 0)
        lines = (self.folder / "mirror.json").read_text().splitlines()
        self.equals_analyze({"reports": map(json.loads, lines)}, capture)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    PREFIX, BINARY, LIBRARY = (str(Path(name).resolve()) for name in sys.argv[1:4])
    version = subprocess.run([f"{PREFIX}/sbin/ovs-vswitchd", "--version"], capture_output=True, text=True)
    HAS_DPDK = "DPDK" in version.stdout
    PLACE = Place(PREFIX)
    before = PLACE.put(LIBRARY)
    try:
        ran = unittest.main(argv=[sys.argv[0], *sys.argv[4:]], exit=False)
    finally:
        PLACE.put(before)
    sys.exit(not ran.result.wasSuccessful())
