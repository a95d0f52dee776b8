"""Apache Spark: archives of captures, of which each part is measured where it is read, so that only snapshots
travel; and the snapshots that agents send to Kafka, merged by Structured Streaming.

Executors need this package and open captures under the same paths as the driver. Archives need Spark's RDDs,
which Spark Connect does not have.
"""

import collections
import concurrent.futures
import functools
import glob
import heapq
import os
import secrets

import pyarrow

from . import _flowgauge, errors
from ._parts import Partial, Url, measure_all
from ._streaming import collect, frame, tables

ENDINGS = tuple(f".{kind}{packed}" for kind in ("pcap", "pcapng", "cap", "dmp") for packed in ("", ".gz", ".zst"))

# Maximum number of full-size parts per task.
PARTS = 16


def summarize(spark, paths, measure=None, *, part_bytes=256 << 20, **options):
    """Measures captures on Spark, and merges what their parts give.

    `paths` are files, patterns such as 'day/*.pcap.gz', or folders, whose captures are found by their
    names; or URLs of what fsspec opens, such as 's3://archive/day.pcap.gz', of which each is one part. Large
    plain captures are cut into parts of about `part_bytes`; every other capture is one part.
    `measure` and options are those of `flowgauge.analyze`, without epochs: all packets make up one. Without
    a seed one is drawn, so that the parts add up.

    A damaged capture counts up to the damage, as in `analyze`, and stands in `problems` of the summary.
    """
    if not {"task", "config", "preset"} & options.keys() and measure is None:
        # Findings need the times of packets, which do not merge.
        options["preset"] = "flows"
    if options.get("seed") is None and options.get("seed_file") is None:
        options["seed"] = secrets.randbits(64)
    asked = _flowgauge._asked(measure, **options)
    context = spark.sparkContext
    bundles = bundled(cut(found(paths), part_bytes), part_bytes, context.defaultParallelism)
    pieces = collections.Counter(os.fspath(part.path) for bundle in bundles for part in bundle)

    def measured(bundles):
        each = context.parallelize(bundles, len(bundles))
        return each.map(functools.partial(measure_all, pieces=pieces, measure=measure, options=options)).treeReduce(Partial.merge)

    whole = measured(bundles)
    if whole.again:
        # The parts after a problem are unproven: such a file is measured as a whole.
        pieces = dict.fromkeys(whole.again, 1)
        whole.merge(measured([[_flowgauge.Part(path)] for path in sorted(whole.again)]))
    if not whole.snapshots:
        raise errors.CaptureError("; ".join(problem for _, problem in sorted(whole.problems)))
    return Summary(spark, asked, whole.snapshots, sorted(whole.problems))


def found(paths):
    """The captures that paths name, without duplicates."""
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    captures = []
    for path in map(os.fspath, paths):
        if "://" in path:
            some = [path]
        elif os.path.isdir(path):
            below = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
            some = sorted(name for name in below if name.endswith(ENDINGS))
        else:
            some = sorted(glob.glob(path)) or [path]
        captures += (name for name in some if name not in captures)
    if not captures:
        raise errors.OptionError("no capture given; name files or folders with captures")
    return captures


def cut(captures, part_bytes):
    """The parts of captures. An unreadable capture is one part; measuring it gives the reason."""

    def one(path):
        if "://" in path:
            return [Url(path)]
        try:
            return _flowgauge.cut(path, max(1, -(-os.path.getsize(path) // part_bytes)))
        except OSError:
            return [_flowgauge.Part(path)]

    with concurrent.futures.ThreadPoolExecutor() as threads:
        return [part for parts in threads.map(one, captures) for part in parts]


def bundled(parts, part_bytes, cores):
    """Parts for a task each. A task costs Spark some time whatever it does, and its result is merged: there is
    one for each core; two where they read at least 4 parts each; more where they would read more than PARTS
    parts, and fewer where these would be small.

    Parts of the same file that follow each other in a task are joined, since each part has a result of its own.
    """

    def size(part):
        if isinstance(part, Url):
            return part_bytes
        if part.length is not None:
            return part.length
        return part.path.stat().st_size if part.path.exists() else 0

    sizes = {part: size(part) for part in parts}
    bytes_ = sum(sizes.values())
    for_each = 2 if bytes_ >= 2 * cores * 4 * part_bytes else 1
    tasks = max(for_each * cores, -(-bytes_ // (PARTS * part_bytes)))
    tasks = max(1, min(tasks, -(-bytes_ // part_bytes), len(parts)))
    pieces = collections.Counter(os.fspath(part.path) for part in parts)
    whole = [part for part in parts if pieces[os.fspath(part.path)] == 1]
    # The parts of cut files fill one task after the other.
    bundles, placed = [[] for _ in range(tasks)], 0
    for part in parts:
        if pieces[os.fspath(part.path)] > 1:
            bundles[int((placed + sizes[part] / 2) * tasks / bytes_)].append(part)
            placed += sizes[part]
    # Whole files go to the task with least to do, long ones first, so that all end at about the same time.
    loads = [(sum(sizes[part] for part in bundle), number) for number, bundle in enumerate(bundles)]
    heapq.heapify(loads)
    for part in sorted(whole, key=sizes.get, reverse=True):
        load, number = loads[0]
        bundles[number].append(part)
        heapq.heapreplace(loads, (load + sizes[part], number))
    longest_first = sorted(loads, key=lambda load: (-load[0], load[1]))
    return [joined(bundles[number]) for _, number in longest_first if bundles[number]]


def joined(parts):
    """Parts, of which those of a file that follow each other are one."""
    runs = []
    for part in parts:
        last = runs[-1] if runs else None
        if last and last.path == part.path:
            part = _flowgauge.Part(part.path, runs.pop().offset, last.length + part.length)
        runs.append(part)
    return runs


class Summary:
    """What all captures give together.

    `snapshots` has the merged snapshot of each measurement by its name, `report` its report, and `problems`
    is a DataFrame of the captures that are damaged or cannot be read. A task's name gives its DataFrame.
    """

    def __init__(self, spark, asked, snapshots, problems):
        self._spark = spark
        self._reports = {}
        self.snapshots = snapshots
        for one in asked:
            name, task, flow, top = one["measurement"], one["task"], one["flow"], one["top"]
            self._reports[name] = snapshots[name].query(task, flow=flow, top=top)
        self._problems = problems

    @functools.cached_property
    def problems(self):
        return self._spark.createDataFrame(self._problems, "path string, problem string")

    def report(self, measurement=None):
        """The report of a measurement; it may be left out where there is one."""
        if measurement is None:
            if len(self._reports) > 1:
                raise errors.OptionError(f"name one of the measurements {', '.join(self._reports)}")
            measurement = next(iter(self._reports))
        if measurement not in self._reports:
            raise KeyError(f"no measurement '{measurement}'; available: {', '.join(self._reports)}")
        return self._reports[measurement]

    def table(self, name, measurement=None):
        """A table of a report as a DataFrame."""
        return frame(self._spark, pyarrow.table(self.report(measurement)[name]))

    def __getitem__(self, name):
        return self.table(name)

    def __repr__(self):
        return f"<flowgauge.spark.Summary: {', '.join(self._reports)}>"
