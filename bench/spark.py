#!/usr/bin/env python3
"""Archives on Spark beside the command, in one run: ten captures of two million packets on two cores.

Usage: spark.py FLOWGAUGE [PACKETS]

Spark runs as local[2], by an exact table and by a sketch, whose snapshots are small. Its start-up is not
counted: the session is open, its Python workers have measured once, and the Java machine compiles its code in
the first of the rounds, of which the fastest counts. A job without work, of as many tasks, says what Spark
itself costs. Seconds of CPU, of all processes, say more than time where other programs run, too. Then a cluster
of two workers loses an executor.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import flowgauge.spark

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "crates" / "python" / "tests"))
from cluster import builder, cluster, executors

ROUNDS = 15
KILLS = 3
CAPTURES = 10
OPTIONS = {"key": "source", "task": "top,cardinality,entropy", "seed": 1}
SKETCH = {"key": "source", "task": "top", "algorithm": "count-min", "seed": 1}
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s():
    """CPU seconds of this process and its descendants, including ended children."""
    stats = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        stats[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS

    def is_own(process):
        while process in stats and process != os.getpid():
            process = stats[process][0]
        return process == os.getpid()

    return sum(cpu for process, (_, cpu) in stats.items() if is_own(process))


def timed(work):
    """Wall and CPU seconds."""
    begin, cpu = time.perf_counter(), cpu_s()
    work()
    return time.perf_counter() - begin, cpu_s() - cpu


def idle(context, tasks):
    """An empty job of a summary."""
    context.parallelize(range(tasks), tasks).map(lambda task: task).treeReduce(lambda one, other: one + other)


def kill_one(folder, after):
    """Kills an executor of a cluster some seconds from now."""

    def kill():
        time.sleep(after)
        os.kill(executors(folder)[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    return killer


def in_one_process(command, paths, options):
    session = builder("local[2]").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    flags = [flag for option, value in options.items() for flag in (f"--{option}", str(value))]
    run = [command, "analyze", "--workers", "2", "--quiet", "--format", "json", *flags, *paths]
    parts = flowgauge.spark.cut(flowgauge.spark.found(paths), 256 << 20)
    tasks = len(flowgauge.spark.bundled(parts, 256 << 20, 2))
    works = {
        "analyze --workers 2": lambda: subprocess.run(run, check=True, stdout=subprocess.DEVNULL),
        "summarize, local[2]": lambda: flowgauge.spark.summarize(session, paths, **options),
        f"{tasks} tasks without work": lambda: idle(session.sparkContext, tasks),
    }
    rounds = [{name: timed(work) for name, work in works.items()} for _ in range(ROUNDS + 1)][1:]
    session.stop()
    print(f"by {options.get('algorithm', 'linear-table')}:")
    for name in works:
        seconds, cpu = (min(times[name][which] for times in rounds) for which in (0, 1))
        print(f"  {name:22} {seconds:6.2f} s, {cpu:.2f} s of CPU")


def with_a_killed_executor(paths, folder):
    with cluster(folder) as session:
        summarize = lambda: flowgauge.spark.summarize(session, paths, **OPTIONS)
        whole = min(timed(summarize)[0] for _ in range(ROUNDS + 1))
        empty = min(timed(lambda: idle(session.sparkContext, 2))[0] for _ in range(ROUNDS))
        killed = []
        for _ in range(KILLS):
            killer = kill_one(folder, whole / 2)
            killed.append(timed(summarize)[0])
            killer.join()
            while len(executors(folder)) < 2:
                time.sleep(0.1)
            summarize()
    print(f"cluster of two workers {whole:6.2f} s, without work {empty:.2f} s; with an executor killed midway {min(killed):.2f} to {max(killed):.2f} s")


def main():
    command = sys.argv[1]
    packets = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000_000
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        paths = [folder / f"{number}.pcap" for number in range(CAPTURES)]
        for number, path in enumerate(paths):
            generate = [command, "generate", "--packets", str(packets), "--profile", "backbone", "--seed", str(number)]
            subprocess.run([*generate, "-o", path], check=True)
        print(f"load before: {os.getloadavg()[0]:.1f}")
        for options in (OPTIONS, SKETCH):
            in_one_process(command, paths, options)
        with_a_killed_executor(paths, folder)
        print(f"load after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
