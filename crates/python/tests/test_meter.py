"""Meters: frames and columns pushed in, reports out."""

import ipaddress
import pathlib
import struct
import threading

import numpy
import pandas
import pytest

import flowgauge

SECOND = 10**9


def records(path):
    """Frames of a pcap with their times and lengths on the wire."""
    data = pathlib.Path(path).read_bytes()
    frames, times, lengths, at = [], [], [], 24
    while at < len(data):
        seconds, micros, captured, wire = struct.unpack_from("<IIII", data, at)
        frames.append(data[at + 16 : at + 16 + captured])
        times.append(seconds * SECOND + micros * 1000)
        lengths.append(wire)
        at += 16 + captured
    return frames, times, lengths


def answers(reports):
    """Epochs without the fields that differ between runs."""
    return [{key: value for key, value in report.dict().items() if key != "summary"} for report in reports]


def test_frames_count_as_those_of_a_capture(capture):
    options = {"epoch": "10s", "seed": 1, "key": "source", "task": ["top", "entropy"]}
    expected = answers(flowgauge.analyze(capture, **options))
    frames, times, lengths = records(capture)
    for step in (1, 7, 1000):
        with flowgauge.Meter(**options) as meter:
            for first in range(0, len(frames), step):
                part = slice(first, first + step)
                meter.push(frames[part], times[part], lengths[part])
        reports = meter.reports()
        assert answers(reports) == expected
        assert [total.dict()["account"]["read"] for total in reports.totals] == [263]
    assert len(meter.reports()) == 0


def test_one_frame_may_be_any_bytes(capture):
    frame = records(capture)[0][10]
    with flowgauge.Meter(seed=1, task="top") as meter:
        for form in (frame, bytearray(frame)):
            meter.push(form)
            meter.push(form, 5, 99)
    assert meter.reports().totals[0].dict()["account"]["read"] == 4
    with pytest.raises(flowgauge.OptionError, match="the meter is closed"):
        meter.push(frame)
    meter.close()
    with flowgauge.Meter(seed=1) as meter, pytest.raises(ValueError, match="2 frames and 3 times"):
        meter.push([frame, frame], [1, 2, 3])


def test_epochs_end_when_time_passes():
    meter = flowgauge.Meter("key=source task=top", epoch="1s", seed=1)
    meter.push_columns(source=[1, 2, 2], length=100, time_ns=0)
    assert len(meter.reports()) == 0
    meter.advance(5 * SECOND)
    meter.close()
    reports = meter.reports()
    assert [report.epoch for report in reports] == [0]
    assert reports["top"].columns[3] == "source"
    assert [item["key"]["source"] for item in reports[0].dict()["tasks"]["top"]["items"]] == ["0.0.0.2", "0.0.0.1"]


def test_columns_of_any_kind_count_alike():
    random = numpy.random.default_rng(7)
    rows = 20_000
    source = random.integers(0, 2**32, 50, "uint32")[random.integers(0, 50, rows)]
    destination = random.integers(0, 100, rows, "uint32")
    ports = random.integers(0, 50, rows)
    protocol = random.choice(numpy.array([1, 6, 17], "uint8"), rows)
    length = random.integers(60, 1500, rows)
    times = numpy.arange(rows) * 1_000_000

    def pushed(**others):
        with flowgauge.Meter(seed=1, task="top,cardinality,entropy", epoch="5s") as meter:
            columns = {"source": source, "destination": destination, "source_port": ports.astype("uint16")}
            columns |= {"destination_port": 443, "protocol": protocol, "length": length, "time_ns": times}
            columns |= others
            meter.push_columns(**columns)
        return answers(meter.reports())

    expected = pushed()
    assert len(expected) == 4
    packets = sum(report["account"]["keyed"] for report in expected)
    assert packets == rows
    as_bytes = source.astype(">u4").view("uint8").reshape(-1, 4)
    assert pushed(source=as_bytes) == expected
    assert pushed(source=source.astype("int64"), source_port=list(map(int, ports))) == expected
    assert pushed(time_ns=times.view("datetime64[ns]"), length=pandas.Series(length)) == expected
    assert pushed(time_ns=pandas.Series(pandas.to_datetime(times))) == expected
    assert pushed(source=numpy.repeat(source, 2)[::2], protocol=numpy.asfortranarray(protocol)) == expected
    assert pushed(destination_port=numpy.uint16(443)) == expected
    assert pushed(length=length + 1) != expected


def test_addresses_of_version_6():
    both = numpy.array([list(ipaddress.ip_address(f"2001:db8::{last}").packed) for last in (1, 2, 2, 2)], "uint8")
    with flowgauge.Meter("key=pair task=top", seed=1) as meter:
        meter.push_columns(source=both, destination="fe80::1", protocol=6, length=80, time_ns=0)
        meter.push_columns(source="10.0.0.1", destination=ipaddress.ip_address("10.0.0.2"), time_ns=0)
    items = meter.reports()[0].dict()["tasks"]["top"]["items"]
    assert [(item["key"]["source"], item["packets"]["value"]) for item in items] == [
        ("2001:db8::2", 3),
        ("10.0.0.1", 1),
        ("2001:db8::1", 1),
    ]
    assert items[0]["key"]["destination"] == "fe80::1"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"sorce": [1]}, "unknown column 'sorce'; known columns: source, destination, source_port"),
        ({"source": [1, 2], "protocol": [6]}, "different numbers of rows: protocol 1, source 2"),
        ({"protocol": [300]}, "column 'protocol' must be from 0 to 255 (got 300)"),
        ({"source_port": -1}, "column 'source_port' must be from 0 to 65535 (got -1)"),
        ({"length": [1.5]}, "column 'length' must hold whole numbers (got 1 dimensions of float64)"),
        ({"source": numpy.zeros((2, 5), "uint8")}, "4 or 16 bytes of uint8"),
        ({"source": numpy.zeros((2, 16), "uint8"), "destination": [1, 2]}, "push each by itself"),
        ({"source": "10.0.0"}, "column 'source': '10.0.0' does not appear to be"),
    ],
    ids=str,
)
def test_columns_are_refused_with_their_name(columns, words):
    with flowgauge.Meter(seed=1) as meter, pytest.raises(flowgauge.OptionError) as refused:
        meter.push_columns(**columns)
    assert words in str(refused.value)
    assert meter.reports().totals[0].dict()["account"]["read"] == 0


def test_threads_may_share_a_meter():
    meter = flowgauge.Meter("key=source task=top", seed=1)
    push = lambda: [meter.push_columns(source=numpy.full(5000, 9, "uint32"), time_ns=0) for _ in range(20)]
    threads = [threading.Thread(target=push) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    meter.close()
    assert meter.reports().totals[0].dict()["account"]["keyed"] == 400_000


def test_a_limit_ends_a_meter():
    with flowgauge.Meter(count=10, task="top", seed=1) as meter:
        meter.push_columns(source=numpy.arange(100, dtype="uint32"), time_ns=0)
        meter.push_columns(source=numpy.arange(100, dtype="uint32"), time_ns=0)
    assert meter.reports().totals[0].dict()["account"]["read"] == 10
