"""Snapshots: stored, merged, asked, and sent to other processes."""

import functools
import json
import operator
import os
import pickle
import subprocess
import threading

import pyarrow
import pytest

import flowgauge

OPTIONS = {"key": "source", "algorithm": "count-min", "memory": "64KiB", "seed": 1}


def test_snapshots_merge_to_what_one_run_counts(capture):
    parts = flowgauge.analyze(capture, epoch="100p", snapshots=True, **OPTIONS)
    first, *others = parts.snapshots
    assert (len(parts), len(others)) == (3, 2)
    merged = first.merge(*others)
    assert merged is first and len(first.coverage) == 3
    whole = flowgauge.analyze(capture, task="top", **OPTIONS)[0].dict()
    answer = first.query("top").dict()
    assert answer["tasks"] == whole["tasks"]
    assert answer["account"]["keyed"] == 259
    assert (first.measurement, first.key, first.algorithm) == ("main", "source", "count-min")
    assert [one["epoch"] for one in first.coverage] == [0, 1, 2]


def test_files_are_those_of_the_command(capture, command, tmp_path):
    stored = tmp_path / "epoch.fgs"
    flags = [flag for name, value in OPTIONS.items() for flag in (f"--{name}", str(value))]
    subprocess.run([command, "analyze", capture, *flags, "--save", stored, "--task", "top", "-q"], check=True, capture_output=True)
    snapshot = flowgauge.Snapshot.load(stored)
    assert bytes(snapshot) == stored.read_bytes()
    query = subprocess.run([command, "query", "--task", "top", "--top", "3", "--format", "json", stored], check=True, capture_output=True)
    assert snapshot.query("top", top=3).dict() == json.loads(query.stdout.splitlines()[0])
    assert bytes(flowgauge.Snapshot.load(bytes(snapshot))) == bytes(snapshot)


def test_a_query_may_ask_by_a_coarser_key_and_for_flows(capture):
    snapshot = flowgauge.analyze(capture, key="pair", seed=1, snapshots=True).snapshots[0]
    by_source = snapshot.query(["top", "cardinality"], key="source").dict()
    assert by_source["key"] == "source" and by_source["tasks"]["top"]["items"][0]["packets"]["value"] == 116
    flow = "source=172.16.238.1,destination=172.16.238.131"
    asked = snapshot.query("flow-size", flow=[flow]).dict()
    assert asked["tasks"]["flow-size"]["items"][0]["packets"]["value"] == 71
    with pytest.raises(flowgauge.OptionError, match="needs --flow"):
        snapshot.query("flow-size")
    with pytest.raises(flowgauge.OptionError, match="did you mean 'top'"):
        snapshot.query("topp")


def test_what_does_not_add_up_is_refused_by_field(capture):
    def of(**others):
        return flowgauge.analyze(capture, snapshots=True, **(OPTIONS | others)).snapshots[0]

    for others, words in [
        ({"seed": 2}, "differ in seed"),
        ({"key": "destination"}, "differ in key: source and destination"),
        ({"by": "bytes"}, "differ in by: packets and bytes"),
        ({"memory": "256KiB"}, "differ in"),
    ]:
        with pytest.raises(flowgauge.SnapshotError, match=words):
            of().merge(of(**others))
    own = of()
    with pytest.raises(flowgauge.SnapshotError, match="cannot be merged with itself"):
        own.merge(own)
    with pytest.raises(flowgauge.SnapshotError, match="both snapshots cover epoch 0"):
        own.merge(flowgauge.Snapshot.load(bytes(own)))


def test_bytes_that_are_no_snapshot_are_refused(capture, tmp_path):
    whole = bytes(flowgauge.analyze(capture, snapshots=True, **OPTIONS).snapshots[0])
    for damaged in (b"", b"no snapshot at all", whole[:-1], whole[:50]):
        with pytest.raises(flowgauge.SnapshotError):
            flowgauge.Snapshot.load(damaged)
    (tmp_path / "bad.fgs").write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"bad\.fgs: "):
        flowgauge.Snapshot.load("bad.fgs")
    with pytest.raises(OSError, match=r"none\.fgs: cannot be read"):
        flowgauge.Snapshot.load("none.fgs")
    with pytest.raises(flowgauge.SnapshotError):
        flowgauge.Snapshot.load(whole, memory="1KiB")
    with pytest.raises(flowgauge.OptionError, match="invalid value '1Q' for memory"):
        flowgauge.Snapshot.load(whole, memory="1Q")


def test_snapshots_are_pickled_with_their_seed_file(capture, tmp_path):
    seed = tmp_path / "seed"
    seed.write_bytes(os.urandom(32))
    seed.chmod(0o600)
    options = {"key": "source", "algorithm": "count-min", "seed_file": seed}
    made = flowgauge.analyze(capture, snapshots=True, **options).snapshots[0]
    with pytest.raises(flowgauge.SnapshotError):
        flowgauge.Snapshot.load(bytes(made))
    read = flowgauge.Snapshot.load(bytes(made), seed_file=seed)
    for snapshot in (read, made):
        copy = pickle.loads(pickle.dumps(snapshot))
        assert copy.query("top").json() == made.query("top").json()
    # A copy is not read before something is asked of it.
    copy = pickle.loads(pickle.dumps(made))
    seed.unlink()
    assert bytes(copy) == bytes(made) and copy.measurement == "main"
    with pytest.raises(flowgauge.OptionError, match=str(seed)):
        copy.query("top")


def test_threads_that_merge_crosswise_end(capture):
    parts = flowgauge.analyze(capture, epoch="50p", snapshots=True, **OPTIONS).snapshots
    one, other = parts[:2]
    third, fourth = parts[2:4]

    def crosswise(own, other):
        for _ in range(200):
            try:
                own.merge(other)
            except flowgauge.SnapshotError:
                pass

    threads = [threading.Thread(target=crosswise, args=pair) for pair in [(one, other), (other, one), (third, fourth), (fourth, third)]]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("algorithm", ["hyperloglog:registers=16", "hyperloglog:registers=1024", "fm:bitmaps=64", "linear-counting:bits=256"])
@pytest.mark.parametrize("epoch", ["5p", "50p", "200p"])
def test_registers_of_epochs_merge_to_those_of_all_packets(capture, algorithm, epoch):
    def registers(snapshot):
        rows = pyarrow.table(snapshot.registers()).to_pylist()
        return {row["key_bytes"]: row["registers"] for row in rows}

    options = {"key": "five-tuple", "algorithm": algorithm, "task": "cardinality", "snapshots": True, "seed": 1}
    parts = [registers(snapshot) for snapshot in flowgauge.analyze(capture, epoch=epoch, **options).snapshots]
    whole = registers(flowgauge.analyze(capture, **options).snapshots[0])
    both = max if algorithm.startswith("hyper") else operator.or_
    assert whole.keys() == {13, 37} and len(parts) > 1
    for key_bytes, expected in whole.items():
        assert [functools.reduce(both, each) for each in zip(*(part[key_bytes] for part in parts), strict=True)] == expected
    assert any(whole[13]) and any(whole[37])


def test_what_has_no_registers_is_refused(capture):
    snapshot = flowgauge.analyze(capture, snapshots=True, **OPTIONS).snapshots[0]
    with pytest.raises(flowgauge.SnapshotError, match="registers are those of hyperloglog, fm and linear-counting; this is"):
        snapshot.registers()
