"""Parts of captures: cut at records, measured separately, and merged to the result of the whole file."""

import json
import pickle
import struct
import subprocess

import pytest

import flowgauge

OPTIONS = {"key": "source", "task": "top", "seed": 1}


@pytest.fixture
def large(tmp_path):
    """A capture of 5 MB with 40,000 packets of 50 sources."""
    path = tmp_path / "large.pcap"
    begin = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    records = []
    for packet in range(40_000):
        ip = struct.pack(">BBHHHBBHII", 0x45, 0, 100, 0, 0, 64, 17, 0, 0x0A000000 + packet * packet % 50, 0x0A000001)
        frame = bytes(12) + b"\x08\x00" + ip + struct.pack(">HHHH", 1000, 53, 80, 0) + bytes(72)
        records.append(struct.pack("<IIII", 1_700_000_000 + packet // 100, packet % 100, len(frame), len(frame)) + frame)
    path.write_bytes(begin + b"".join(records))
    return path


def test_parts_merge_to_what_the_whole_file_gives(large, command):
    parts = flowgauge.cut(large, 4)
    assert len(parts) == 4 and all(part.path == large for part in parts)
    run = subprocess.run([command, "cut", "--parts", "4", "--format", "json", large], capture_output=True, check=True)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert [(part.offset, part.length) for part in parts] == [(line["offset"], line["length"]) for line in lines]
    runs = [flowgauge.analyze(pickle.loads(pickle.dumps(part)), snapshots=True, **OPTIONS) for part in parts]
    assert all(8_000 < run.totals[0].dict()["account"]["read"] < 12_000 for run in runs)
    merged = runs[0].snapshots[0].merge(*(run.snapshots[0] for run in runs[1:])).query("top").dict()
    whole = flowgauge.analyze(large, **OPTIONS)[0].dict()
    assert merged["tasks"] == whole["tasks"] and merged["account"]["read"] == 40_000
    together = flowgauge.analyze(parts, **OPTIONS)[0].dict()
    assert (together["tasks"], together["account"]) == (whole["tasks"], whole["account"])
    side_by_side = flowgauge.analyze(parts, workers=2, **OPTIONS)[0].dict()
    assert side_by_side["tasks"] == whole["tasks"]


def test_what_is_no_part_is_refused(large, tmp_path):
    size = large.stat().st_size
    with pytest.raises(OSError, match=f"it has records in bytes 24 to {size}, and the part is bytes 100 to "):
        flowgauge.analyze(flowgauge.Part(large, 100, size))
    with pytest.raises(OSError, match="nothing.pcap"):
        flowgauge.analyze(flowgauge.Part("nothing.pcap", 24, 100))
    with pytest.raises(flowgauge.OptionError, match="give the length of the part"):
        flowgauge.Part(large, 24)
    with pytest.raises(OSError, match="cannot cut .*not a regular file"):
        flowgauge.cut(tmp_path, 2)
    with pytest.warns(flowgauge.CaptureWarning, match="byte 25: captured length"):
        reports = flowgauge.analyze(flowgauge.Part(large, 25, 1_000_000), **OPTIONS)
    assert reports.totals[0].dict()["account"]["read"] == 0


def test_what_cannot_be_cut_is_one_part(capture):
    assert flowgauge.cut(capture, 9) == [flowgauge.Part(capture)]
    assert len({flowgauge.Part(capture), flowgauge.Part(capture), flowgauge.Part(capture, 24, 9)}) == 2
