#!/usr/bin/env python3
"""Archives on Spark beside the command, in one run: ten captures of two million packets on two cores.

Usage: spark.py FLOWGAUGE [PACKETS]

Spark runs as local[2]. Its start-up is not counted: the session is open, and its Python workers have
measured once. A job without work, of as many tasks, says what Spark itself costs.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

import flowgauge.spark
import pyspark

ROUNDS = 5
CAPTURES = 10
OPTIONS = {"key": "source", "task": "top,cardinality,entropy", "seed": 1}


def timed(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def idle(context):
    """The job of a summary with nothing to do."""
    tasks = context.parallelize(range(CAPTURES), CAPTURES)
    tasks.map(lambda task: task).treeReduce(lambda one, other: one + other)


def main():
    command = sys.argv[1]
    packets = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000_000
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = pyspark.sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
    session = session.config("spark.ui.showConsoleProgress", False).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / f"{number}.pcap" for number in range(CAPTURES)]
        for number, path in enumerate(paths):
            generate = [command, "generate", "--packets", str(packets), "--profile", "backbone", "--seed", str(number)]
            subprocess.run([*generate, "-o", path], check=True)
        flags = [flag for option, value in OPTIONS.items() for flag in (f"--{option}", str(value))]
        run = [command, "analyze", "--workers", "2", "--quiet", "--format", "json", *flags, *paths]
        seconds = {"command": [], "spark": [], "idle": []}
        for round_ in range(ROUNDS + 1):
            times = {
                "command": timed(lambda: subprocess.run(run, check=True, stdout=subprocess.DEVNULL)),
                "spark": timed(lambda: flowgauge.spark.summarize(session, paths, **OPTIONS)),
                "idle": timed(lambda: idle(session.sparkContext)),
            }
            if round_ > 0:
                for name, value in times.items():
                    seconds[name].append(value)
    session.stop()
    best = {name: min(values) for name, values in seconds.items()}
    print(f"analyze --workers 2   {best['command']:.3f} s")
    print(f"summarize, local[2]   {best['spark']:.3f} s, {best['spark'] / best['command']:.2f} of it")
    print(f"a job without work    {best['idle']:.3f} s")


if __name__ == "__main__":
    main()
