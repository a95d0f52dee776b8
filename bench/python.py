#!/usr/bin/env python3
"""The Python package beside the command, in one run: a capture of 20 million packets, and columns of as many.

Usage: python.py FLOWGAUGE [PACKETS]

Both read the same file from the page cache by turns, and the fastest of seven rounds counts, since other
programs only slow a round down. Columns are pushed into a Count-Min of 1 MiB, of 100,000 flows by a Zipf
law; the processor's time of the pushing thread stands beside the time that passed.
"""

import pathlib
import subprocess
import sys
import tempfile
import time

import flowgauge
import numpy

ROUNDS = 7
OPTIONS = {
    "linear-table": {"task": "top", "seed": 1},
    "count-min": {"algorithm": "count-min", "memory": "1MiB", "task": "top", "seed": 1},
}


def timed(work):
    """Wall seconds, and CPU seconds of this thread."""
    begin, used = time.perf_counter(), time.thread_time()
    work()
    return time.perf_counter() - begin, time.thread_time() - used


def captures(command, path, packets):
    """The command and `analyze`, in turns."""
    print(f"{'analyze':<16}{'command':>10}{'Python':>10}{'ratio':>8}")
    for name, options in OPTIONS.items():
        flags = [flag for option, value in options.items() for flag in (f"--{option}", str(value))]
        run = [command, "analyze", path, "--format", "json", "--quiet", *flags]
        seconds = {"command": [], "python": []}
        for _ in range(ROUNDS):
            seconds["command"].append(timed(lambda: subprocess.run(run, check=True, stdout=subprocess.DEVNULL))[0])
            seconds["python"].append(timed(lambda: flowgauge.analyze(path, **options)[0].json())[0])
        own, other = min(seconds["python"]), min(seconds["command"])
        print(f"{name:<16}{other:>8.3f} s{own:>8.3f} s{own / other:>8.3f}")


def columns(packets):
    """NumPy columns into a Count-Min."""
    random = numpy.random.default_rng(1)
    weights = 1 / numpy.arange(1, 100_001)
    flow = random.choice(100_000, packets, p=weights / weights.sum())
    of_flow = {
        "source": random.integers(0, 2**32, 100_000, "uint32"),
        "destination": random.integers(0, 2**32, 100_000, "uint32"),
        "source_port": random.integers(1024, 2**16, 100_000, "uint16"),
        "destination_port": random.integers(0, 1024, 100_000, "uint16"),
        "protocol": random.choice(numpy.array([6, 17], "uint8"), 100_000),
    }
    pushed = {name: values[flow] for name, values in of_flow.items()}
    pushed["length"] = random.integers(60, 1500, packets, "uint32")
    print(f"{'push_columns':<16}{'passed':>15}{'processor':>15}")
    for key in ("five-tuple", "source"):
        with flowgauge.Meter(key=key, **OPTIONS["count-min"]) as meter:
            best = [0.0, 0.0]
            for number in range(ROUNDS):
                pushed["time_ns"] = numpy.arange(number * packets, (number + 1) * packets, dtype="int64") * 1000
                rates = [packets / seconds / 1e6 for seconds in timed(lambda: meter.push_columns(**pushed))]
                best = list(map(max, best, rates))
        assert meter.reports().totals[0].dict()["account"]["keyed"] == ROUNDS * packets
        print(f"{key:<16}{best[0]:>10.1f} Mpps{best[1]:>10.1f} Mpps")


def main():
    command = sys.argv[1]
    packets = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.pcap"
        generate = [command, "generate", "--packets", str(packets), "--profile", "backbone", "--size", "64", "-o", path]
        subprocess.run(generate, check=True)
        captures(command, path, packets)
    columns(packets)


if __name__ == "__main__":
    main()
