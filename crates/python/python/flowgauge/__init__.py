"""Measure network traffic in fixed memory.

>>> import flowgauge
>>> reports = flowgauge.analyze("capture.pcap", key="source", task="top", seed=1)
>>> reports.table("top").columns[:5]
['measurement', 'epoch', 'start', 'source', 'packets']
"""

from ._flowgauge import Meter, Part, Report, Reports, Snapshot, Table, __version__, analyze, cut
from .errors import CaptureError, CaptureWarning, FlowgaugeError, OptionError, SnapshotError

__all__ = [
    "CaptureError",
    "CaptureWarning",
    "FlowgaugeError",
    "Meter",
    "OptionError",
    "Part",
    "Report",
    "Reports",
    "Snapshot",
    "SnapshotError",
    "Table",
    "__version__",
    "analyze",
    "cut",
]
