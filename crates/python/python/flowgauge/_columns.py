"""Columns in the engine's form: contiguous arrays of one type, or one number for all rows."""

import ipaddress
import time

from .errors import OptionError

NUMBERS = {
    "source_port": "uint16",
    "destination_port": "uint16",
    "protocol": "uint8",
    "length": "uint32",
    "time_ns": "int64",
}


def made(*, source=0, destination=0, time_ns=None, **others):
    """The columns of a push by name, with the number of rows and whether addresses are IPv6."""
    columns = {name: number(name, others.pop(name, 0)) for name in NUMBERS if name != "time_ns"}
    if others:
        raise OptionError(f"unknown column '{next(iter(others))}'; known columns: source, destination, {', '.join(NUMBERS)}")
    columns["time_ns"] = number("time_ns", time.time_ns() if time_ns is None else time_ns)
    columns["source"] = addresses("source", source)
    columns["destination"] = addresses("destination", destination)
    rows = {name: len(column) for name, column in columns.items() if not isinstance(column, int | bytes)}
    counts = sorted(set(rows.values()))
    if len(counts) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in rows.items())
        raise OptionError(f"the columns have different numbers of rows: {listed}")
    columns["rows"] = counts[0] if counts else 1
    sides = [columns["source"], columns["destination"]]
    columns["is_v6"] = any(isinstance(side, bytes) or getattr(side, "ndim", 0) == 2 for side in sides)
    if columns["is_v6"]:
        for name in ("source", "destination"):
            columns[name] = repeated(name, columns[name], columns["rows"])
    return columns


def number(name, column, dtype=None):
    """An integer, or a contiguous array of the column's type."""
    dtype = dtype or NUMBERS[name]
    if isinstance(column, int):
        return checked(name, column, dtype)
    import numpy

    array = numpy.asarray(column)
    if array.dtype.kind == "M":
        array = array.astype("datetime64[ns]").view("int64")
    if array.ndim == 0 and array.dtype.kind in "ui":
        return checked(name, int(array), dtype)
    if array.ndim != 1 or array.dtype.kind not in "ui" and len(array) > 0:
        raise OptionError(f"column '{name}' must hold whole numbers (got {array.ndim} dimensions of {array.dtype})")
    if len(array) > 0 and not numpy.can_cast(array.dtype, dtype):
        checked(name, int(array.min()), dtype)
        checked(name, int(array.max()), dtype)
    return numpy.ascontiguousarray(array, dtype)


def checked(name, value, dtype):
    """The number, if the type of the column can hold it."""
    bits = int(dtype.lstrip("uint"))
    low, high = (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if not low <= value <= high:
        raise OptionError(f"column '{name}' must be from {low} to {high} (got {value})")
    return value


def addresses(name, column):
    """IPv4 addresses as numbers, IPv6 addresses as 16 bytes each."""
    if isinstance(column, str | ipaddress.IPv4Address | ipaddress.IPv6Address):
        try:
            address = ipaddress.ip_address(column)
        except ValueError as error:
            raise OptionError(f"column '{name}': {error}") from None
        return int(address) if address.version == 4 else address.packed
    if isinstance(column, int):
        return checked(name, column, "uint32")
    import numpy

    array = numpy.asarray(column)
    if array.ndim != 2:
        return number(name, array, "uint32")
    if array.dtype != numpy.uint8 or array.shape[1] not in (4, 16):
        raise OptionError(f"column '{name}' must hold numbers, or 4 or 16 bytes of uint8 for each packet")
    array = numpy.ascontiguousarray(array)
    return array if array.shape[1] == 16 else array.view(">u4").ravel().astype("uint32")


def repeated(name, column, rows):
    """IPv6 addresses, one per row."""
    import numpy

    if isinstance(column, bytes):
        return numpy.tile(numpy.frombuffer(column, "uint8"), (rows, 1))
    if isinstance(column, int) and column == 0:
        return numpy.zeros((rows, 16), "uint8")
    if getattr(column, "ndim", 0) != 2:
        raise OptionError(f"column '{name}' holds addresses of IPv4, and the other one of IPv6; push each by itself")
    return column
