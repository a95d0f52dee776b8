"""`analyze` beside the command: the same reports, words and problems."""

import gzip
import io
import json
import pathlib
import signal
import subprocess
import threading
import time

import pytest

import flowgauge


def lines(command, *arguments):
    """The command's reports, as dictionaries."""
    ran = subprocess.run([command, "analyze", *map(str, arguments), "--format", "json"], capture_output=True, text=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


OPTIONS = [
    {},
    {"key": "source", "task": ["top", "entropy"]},
    {"algorithm": "count-min", "memory": "64KiB", "epoch": "10s"},
    {"algorithm": "count-min:columns=64", "audit": "1/4", "task": ["top"]},
    {"filter": "tcp port 22", "by": "bytes", "top": 3},
    {"accelerator": "uniform:sample=2", "algorithm": "count-sketch", "workers": 2},
    {"key": "source", "task": "flow-size", "flow": ["source=172.16.238.1", "source=172.16.238.131"]},
    {"count": 100, "preset": "flows"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_reports_are_those_of_the_command(capture, command, options):
    flags = []
    for name, value in options.items():
        name = {"count": "-c"}.get(name, f"--{name.replace('_', '-')}")
        joined = [",".join(value)] if name == "--task" and isinstance(value, list) else value
        for one in joined if isinstance(joined, list) else [joined]:
            flags += [name, str(one)]
    expected = lines(command, capture, "--seed", "1", *flags)
    reports = flowgauge.analyze(capture, seed=1, **options)
    assert [report.dict() for report in [*reports, *reports.totals]] == expected


def test_measurements_are_texts_or_options_by_name(capture):
    as_text = flowgauge.analyze(capture, ["web: key=source filter='tcp port 80'", "all: task=top"], seed=1)
    options = {"web": {"key": "source", "filter": "tcp port 80"}, "all": {"task": ["top"]}}
    by_name = flowgauge.analyze(capture, options, seed=1)
    assert [r.json() for r in as_text] == [r.json() for r in by_name]
    assert [report.measurement for report in by_name] == ["web", "all"]
    named = flowgauge.analyze(capture, "key=source", task="top", seed=1)
    assert (named[0].measurement, named[0].dict()["key"]) == ("main", "source")
    quoted = flowgauge.analyze(capture, {"odd": {"filter": 'ip and (tcp or udp) and not host "10.0.0.1"'.replace('"', "")}})
    assert quoted[0].measurement == "odd"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algoritm": "x"}, "unknown option 'algoritm'; did you mean 'algorithm'?"),
        ({"algorithm": "count_min"}, "unknown algorithm 'count_min'; did you mean 'count-min'?"),
        ({"key": "sorce"}, "invalid value 'sorce' for '--key <KEY>': unknown key 'sorce'; did you mean 'source'?"),
        ({"workers": 0}, "invalid value '0' for '--workers <N>': 0 is not from 1 to 256"),
        ({"filter": "tcp porto 80"}, "porto"),
        ({"shared": True}, "need several workers"),
        ({"error": "1%"}, "--error and --rate need --algorithm auto"),
        ({"measure": "a: kye=source"}, "unknown option 'kye' in 'a'; did you mean 'key'?"),
    ],
    ids=str,
)
def test_options_are_refused_in_the_words_of_the_command(capture, options, words):
    with pytest.raises(flowgauge.OptionError) as refused:
        flowgauge.analyze(capture, **options)
    assert words in str(refused.value)
    assert isinstance(refused.value, ValueError)


def test_an_algorithm_is_chosen_by_trials(capture):
    options = {"key": "source", "task": "top", "seed": 1, "algorithm": "auto", "error": "0.1%"}
    exact = flowgauge.analyze(capture, key="source", task="top", seed=1)[0].dict()["tasks"]["top"]["items"]
    reports = flowgauge.analyze(capture, snapshots=True, **options)
    assert reports.snapshots[0].algorithm != "auto"
    first = reports[0].dict()["tasks"]["top"]["items"][0]
    assert first["key"] == exact[0]["key"] and first["packets"]["low"] <= 116 <= first["packets"]["high"]
    with pytest.raises(flowgauge.OptionError, match="which a meter does not have at its start; name an algorithm"):
        flowgauge.Meter(**options)


def test_what_cannot_be_read_is_an_error_or_a_warning(capture, tmp_path):
    with pytest.raises(OSError, match=r"nothing\.pcap: cannot be read: No such file"):
        flowgauge.analyze("nothing.pcap")
    cut = tmp_path / "cut.pcap"
    with open(capture, "rb") as whole:
        cut.write_bytes(whole.read()[:-1])
    with pytest.warns(flowgauge.CaptureWarning) as warned:
        reports = flowgauge.analyze([cut, "nothing.pcap"], seed=1)
    assert len(warned) == 2 and "cut.pcap" in str(warned[0].message)
    assert reports.problems == [str(one.message) for one in warned]
    assert reports.totals[0].dict()["account"]["read"] == 262
    with pytest.raises(ValueError, match="no capture given"):
        flowgauge.analyze([])


def test_several_captures_are_read_in_the_order_of_their_packets(capture, tmp_path):
    with open(capture, "rb") as whole:
        data = bytearray(whole.read())
    later = tmp_path / "a-later.pcap"
    at = 24
    while at < len(data):
        seconds = int.from_bytes(data[at : at + 4], "little") + 100
        data[at : at + 4] = seconds.to_bytes(4, "little")
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    later.write_bytes(data)
    sorted_ = flowgauge.analyze([later, capture], seed=1, task="top")
    assert [name.split("/")[-1] for name in sorted_.totals[0].dict()["files"]] == ["capture.pcap", "a-later.pcap"]
    as_given = flowgauge.analyze([later, capture], seed=1, task="top", as_given=True)
    assert [name.split("/")[-1] for name in as_given.totals[0].dict()["files"]] == ["a-later.pcap", "capture.pcap"]


def test_open_files_are_read_as_streams(capture):
    data = pathlib.Path(capture).read_bytes()
    expected = flowgauge.analyze(capture, seed=1, task="top")[0].dict()["tasks"]
    packed = io.BytesIO(gzip.compress(data))
    packed.name = "packed"
    with open(capture, "rb") as file:
        for stream in (file, packed, io.BytesIO(data)):
            reports = flowgauge.analyze(stream, seed=1, task="top", workers=2)
            assert reports[0].dict()["tasks"] == expected
            assert reports.totals[0].dict()["files"] == [str(getattr(stream, "name", "stream"))]
    both = flowgauge.analyze([io.BytesIO(data), io.BytesIO(data)], seed=1, task="top")
    assert both.totals[0].dict()["account"]["read"] == 2 * 263

    class Broken(io.RawIOBase):
        name = "broken"

        def read(self, size):
            raise RuntimeError("the store is gone")

    with pytest.raises(flowgauge.CaptureError, match="broken: .*the store is gone"):
        flowgauge.analyze(Broken())
    with pytest.raises(flowgauge.OptionError, match="paths and open files cannot be mixed"):
        flowgauge.analyze([capture, io.BytesIO(data)])


def test_other_threads_run_meanwhile(tmp_path, command):
    big = tmp_path / "big.pcap"
    subprocess.run([command, "generate", "--packets", "2000000", "-o", big], check=True)
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.wait(0.001):
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.perf_counter()
    flowgauge.analyze(big, task="top", seed=1)
    end = time.perf_counter()
    stop.set()
    thread.join()
    during = sum(begin < at < end for at in ticks)
    assert during > 3, f"{during} ticks in {end - begin} s"


@pytest.fixture
def interrupts():
    """Interrupts raise an exception, even if a shell started the tests in the background and ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_the_work(tmp_path, command, interrupts):
    big = tmp_path / "big.pcap"
    subprocess.run([command, "generate", "--packets", "1000000", "-o", big], check=True)
    timer = threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        flowgauge.analyze([big] * 400, task="top", seed=1, as_given=True)
    assert time.monotonic() - begin < 10
