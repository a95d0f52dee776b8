#!/usr/bin/env python3
"""What measuring costs an Open vSwitch: packets a second of one polling thread, with and without.

    bench/ovs.py PREFIX BINARY [ROUNDS [SECONDS]]

PREFIX is what ovs/build.sh prints; its lib/libflowgauge.so.1 is measured. Needs root, two cores and 512 huge
pages of 2 MiB (echo 512 > /proc/sys/vm/nr_hugepages). 16,384 packets of 64 bytes come again and again from
net_pcap, are found in the exact-match cache, and go to net_null. Every round runs every way once, for so many
seconds of the polling thread's own time, since other load may take its core; printed are medians over rounds of
its rate, and of what it lost against the bare run of its round.
"""

import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ovs"))
from switch import Switch

COUNT_MIN = "algorithm=count-min:rows=4,columns=65536"
UNIVMON = "algorithm=univmon memory=8MiB"
WAYS = {
    "without measurement": None,
    "count-min 4 x 65536": f"{COUNT_MIN} task=top",
    "count-min without candidates": f"{COUNT_MIN},candidates=0 task=flow-size flow=source=10.0.0.1",
    "linear-table": "algorithm=linear-table task=top",
    "univmon behind agg-evict": f"{UNIVMON} accelerator=agg-evict task=top",
    "uniform before headers, 1 in 100": f"{COUNT_MIN} task=top accelerator=uniform:sample=100,before=headers",
    "skipper before headers": f"{COUNT_MIN} task=top accelerator=skipper:before=headers",
    "nitro before headers, p = 0.01": f"{COUNT_MIN} task=top accelerator=nitro:p=0.01,before=headers",
}
HUGE_PAGES = "--no-pci --in-memory --single-file-segments --no-telemetry"


def quiet():
    """Raises the priority of what this process starts, so that other load takes less of its time."""
    os.setsid() if os.getpid() != os.getsid(0) else None
    try:
        Path("/proc/self/autogroup").write_text("-15")
        os.nice(-15)
    except OSError as error:
        print(f"at normal priority: {error}")


def polling_thread(switch):
    tasks = Path(f"/proc/{switch.children[-1].pid}/task").iterdir()
    return next(task for task in tasks if (task / "comm").read_text().startswith("pmd-c01"))


def received(switch, thread):
    """Packets received so far, and nanoseconds that the thread had its core."""
    shown = switch.appctl("dpif-netdev/pmd-perf-show", "-pmd", "1")
    packets = re.search(r"Rx packets: +(\d+)", shown)[1]
    return int(packets), int((thread / "schedstat").read_text().split()[0])


def rate(switch, seconds):
    """Millions of packets in a second of the polling thread's own time."""
    thread = polling_thread(switch)
    before = received(switch, thread)
    time.sleep(seconds)
    packets, nanoseconds = (after - earlier for after, earlier in zip(received(switch, thread), before))
    return packets / nanoseconds * 1000


def run(switch, options, seconds):
    switch.configure(flowgauge="false")
    if options is not None:
        switch.configure(flowgauge="true", flowgauge_options=f"key=source {options} epoch=10s")
    state = "off" if options is None else "on"
    shown = switch.show()
    if shown["state"] != state:
        sys.exit(f"{options}: {shown.get('cause', shown['state'])}")
    time.sleep(0.3)
    return rate(switch, seconds)


def touched(switch):
    """The share of packets that were read, in the last epoch with packets."""
    accounts = [r["account"] for r in switch.show()["reports"] if r["type"] == "epoch" and r["account"]["read"]]
    return 1 - accounts[-1]["skipped"] / accounts[-1]["read"]


def main():
    prefix, binary = sys.argv[1:3]
    rounds, seconds = int((sys.argv[3:] or [9])[0]), float((sys.argv[4:] or [2])[0])
    quiet()
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    version = subprocess.run([f"{prefix}/sbin/ovs-vswitchd", "--version"], capture_output=True, text=True).stdout
    print(f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}")
    print(", ".join(version.split("\n")[:2]), f"load {os.getloadavg()[0]:.1f}", sep="; ")
    with tempfile.TemporaryDirectory(prefix="flowgauge-ovs-") as folder:
        capture = Path(folder) / "traffic.pcap"
        traffic = ["--packets", "16384", "--flows", "4000", "--skew", "1"]
        subprocess.run([binary, "generate", *traffic, "-o", capture], check=True)
        with Switch(prefix, folder, [1], HUGE_PAGES) as switch:
            switch.add("null0", "net_null0,size=64,no-rx=1")
            for half in ["0.0.0.0/1", "128.0.0.0/1"]:
                switch.flow(f"ip,nw_src={half},actions=output:null0")
            switch.add("pcap0", f"net_pcap0,rx_pcap={capture},infinite_rx=1")
            time.sleep(2)
            measured = {way: [] for way in WAYS}
            shares = {}
            for _ in range(rounds):
                for way, options in WAYS.items():
                    measured[way].append(run(switch, options, seconds))
                    switch.configure(flowgauge="false")
                    time.sleep(0.1)
                    if options is not None:
                        shares[way] = touched(switch)
    bare = measured["without measurement"]
    print(f"{rounds} rounds of {seconds:g} s\n")
    print("| | Mpps | ns added | lost | quartiles | packets read |\n|---|---|---|---|---|---|")
    for way, figures in measured.items():
        lost = [1 - one / against for one, against in zip(figures, bare)]
        added = statistics.median(1000 / one - 1000 / against for one, against in zip(figures, bare))
        quartiles = statistics.quantiles(lost, n=4) if rounds > 1 else [0, lost[0], 0]
        share = f"{shares[way]:.2%}" if way in shares else ""
        spread = f"{quartiles[0]:.1%} to {quartiles[2]:.1%}"
        print(f"| {way} | {statistics.median(figures):.2f} | {added:.1f} | {statistics.median(lost):.1%} | {spread} | {share} |")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main()
