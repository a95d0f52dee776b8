"""The work of Spark executors: measuring parts, and merging the results.

Python workers import this module, which loads no more than the engine.
"""

import contextlib
import dataclasses
import functools
import os
import sys
import warnings
import zipimport

from . import _flowgauge, errors


def measure_all(parts, pieces, measure, options):
    """Measures the parts of a task. `pieces` is the number of parts of each file."""
    keep_archives()
    files = [part for part in parts if not isinstance(part, Url) and pieces[os.fspath(part.path)] == 1]
    others = [measure_part(part, pieces, measure, options) for part in parts if part not in files]
    return functools.reduce(Partial.merge, [*others, *measure_files(files, pieces, measure, options)])


def keep_archives():
    """Has a worker's importers keep what Spark's own archives hold, which stay as they are while it runs: before
    Python 3.13 they read them again before each task, which takes 0.1 s of a core."""
    home = os.environ.get("SPARK_HOME")
    for path, importer in sys.path_importer_cache.items():
        if home and path.startswith(home) and isinstance(importer, zipimport.zipimporter):
            importer.invalidate_caches = lambda: None


def measure_files(files, pieces, measure, options):
    """Measures whole files in one run, as far as they can be read."""
    if len(files) > 1:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", errors.CaptureWarning)
                reports = _flowgauge._snapshots(files, measure, **options)
        except errors.CaptureError:
            pass
        else:
            paths = [os.fspath(part.path) for part in files]
            named = [(max((path for path in paths if problem.startswith(f"{path}: ")), key=len, default=""), problem) for problem in reports.problems]
            return [Partial({snapshot.measurement: snapshot for snapshot in reports.snapshots}, problems=named)]
    return [measure_part(part, pieces, measure, options) for part in files]


def measure_part(part, pieces, measure, options):
    """Measures a part."""
    path = os.fspath(part.path)
    try:
        with warnings.catch_warnings(), opened(part) as capture:
            warnings.simplefilter("ignore", errors.CaptureWarning)
            reports = _flowgauge._snapshots(capture, measure, **options)
        snapshots, problems = reports.snapshots, reports.problems
    except errors.CaptureError as error:
        snapshots, problems = [], [str(error)]
    snapshots = {snapshot.measurement: snapshot for snapshot in snapshots}
    if pieces[path] == 1:
        return Partial(snapshots, problems=[(path, problem) for problem in problems])
    if problems:
        return Partial({}, again={path})
    return Partial({}, open_={path: (1, pieces[path], snapshots)})


@contextlib.contextmanager
def opened(part):
    """The input: a part, or the stream of a URL."""
    if not isinstance(part, Url):
        yield part
        return
    import fsspec

    try:
        stream = fsspec.open(part.path).open()
    except Exception as error:
        # Each store has its own exceptions.
        raise errors.CaptureError(f"{part.path}: cannot be read: {error}") from None
    with stream:
        yield Named(part.path, stream)


@dataclasses.dataclass(frozen=True)
class Url:
    """A capture opened by fsspec."""

    path: str


class Named:
    """A stream with a name for problems."""

    def __init__(self, name, stream):
        self.name = name
        self.read = stream.read


class Partial:
    """The results of some parts: snapshots by measurement, and files with missing parts."""

    def __init__(self, snapshots, problems=(), open_=None, again=()):
        self.snapshots = snapshots
        self.problems = list(problems)
        # For each cut file: the number of parts so far, the total, and their results.
        self.open = open_ or {}
        # Files to measure as a whole.
        self.again = set(again)

    def merge(self, other):
        """Adds the results of other parts. A cut file counts once all its parts are there."""
        self.problems += other.problems
        self.again |= other.again
        self.snapshots = merged(self.snapshots, other.snapshots)
        for path, (seen, pieces, snapshots) in other.open.items():
            before, _, there = self.open.pop(path, (0, pieces, {}))
            seen, snapshots = before + seen, merged(there, snapshots)
            if seen == pieces:
                self.snapshots = merged(self.snapshots, snapshots)
            else:
                self.open[path] = (seen, pieces, snapshots)
        return self


def merged(own, other):
    """The snapshots of both, by measurement."""
    for name, snapshot in other.items():
        own[name] = own[name].merge(snapshot) if name in own else snapshot
    return own
