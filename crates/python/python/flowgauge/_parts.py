"""What the executors of an archive do: parts are measured, and what they give is merged.

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
    """What the parts of a task give. `pieces` says how many parts the file of each has."""
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
    """What whole files give, all in one run, where they can be read."""
    if len(files) > 1:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", errors.CaptureWarning)
                reports = _flowgauge.analyze(files, measure, snapshots=True, **options)
        except errors.CaptureError:
            pass
        else:
            paths = [os.fspath(part.path) for part in files]
            named = [(max((path for path in paths if problem.startswith(f"{path}: ")), key=len, default=""), problem) for problem in reports.problems]
            return [Partial({snapshot.measurement: snapshot for snapshot in reports.snapshots}, problems=named)]
    return [measure_part(part, pieces, measure, options) for part in files]


def measure_part(part, pieces, measure, options):
    """What a part gives."""
    path = os.fspath(part.path)
    try:
        with warnings.catch_warnings(), opened(part) as capture:
            warnings.simplefilter("ignore", errors.CaptureWarning)
            reports = _flowgauge.analyze(capture, measure, snapshots=True, **options)
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
    """What is measured: a part, or the stream of a URL."""
    if not isinstance(part, Url):
        yield part
        return
    import fsspec

    try:
        stream = fsspec.open(part.path).open()
    except Exception as error:
        # Each store has exceptions of its own.
        raise errors.CaptureError(f"{part.path}: cannot be read: {error}") from None
    with stream:
        yield Named(part.path, stream)


@dataclasses.dataclass(frozen=True)
class Url:
    """A capture that fsspec opens."""

    path: str


class Named:
    """A stream under the name that problems have."""

    def __init__(self, name, stream):
        self.name = name
        self.read = stream.read


class Partial:
    """What some parts give: snapshots by measurement, and files of which parts are missing."""

    def __init__(self, snapshots, problems=(), open_=None, again=()):
        self.snapshots = snapshots
        self.problems = list(problems)
        # Of a file that was cut: how many of its parts are there, of how many, and what they give.
        self.open = open_ or {}
        # Files to be measured as a whole.
        self.again = set(again)

    def merge(self, other):
        """Adds what other parts give. A file that was cut counts once all its parts are there."""
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
