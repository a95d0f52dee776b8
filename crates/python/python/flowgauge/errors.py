"""Exceptions and warnings. Their texts are those that the command prints."""


class FlowgaugeError(Exception):
    """Something failed, such as a thread or an allocation. The others derive from it."""


class OptionError(FlowgaugeError, ValueError):
    """An option, or options together, make no sense."""


class CaptureError(FlowgaugeError, OSError):
    """No capture could be read, or another file cannot be."""


class SnapshotError(FlowgaugeError, ValueError):
    """A snapshot is damaged, or does not add up with another one."""


class CaptureWarning(UserWarning):
    """A capture is damaged, cut short or cannot be read. The rest is measured."""
