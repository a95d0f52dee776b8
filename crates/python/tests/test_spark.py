"""Archives on Spark: the answers of one run over all captures, whatever fails on the way."""

import gzip
import os
import pathlib
import signal
import struct
import sys
import threading
import time

import pytest

pyspark = pytest.importorskip("pyspark")

import flowgauge
import flowgauge.spark
from cluster import builder, cluster, executors

# PySpark leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning")

OPTIONS = {"key": "source", "task": ["top", "cardinality", "entropy"], "seed": 1}


def capture(path, packets, first=0):
    """A capture of UDP packets of 50 sources, from the tenth second of a day on."""
    begin = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    records = []
    for packet in range(first, first + packets):
        ip = struct.pack(">BBHHHBBHII", 0x45, 0, 100, 0, 0, 64, 17, 0, 0x0A000000 + packet * packet % 47, 0x0A000001)
        frame = bytes(12) + b"\x08\x00" + ip + struct.pack(">HHHH", 1000, 53, 80, 0) + bytes(72)
        records.append(struct.pack("<IIII", 1_700_000_000 + packet // 100, packet % 100, len(frame), len(frame)) + frame)
    path.write_bytes(begin + b"".join(records))
    return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Two captures that are cut, a compressed one, and a small one in a separate folder."""
    folder = tmp_path_factory.mktemp("archive")
    capture(folder / "a.pcap", 40_000)
    capture(folder / "b.pcap", 30_000, 40_000)
    small = capture(folder / "c.pcap", 5_000, 70_000)
    (folder / "c.pcap.gz").write_bytes(gzip.compress(small.read_bytes()))
    small.unlink()
    (folder / "below").mkdir()
    capture(folder / "below" / "d.pcap", 3_000, 75_000)
    (folder / "notes.txt").write_text("no capture")
    return folder


def captures(archive):
    return [archive / "a.pcap", archive / "b.pcap", archive / "c.pcap.gz", archive / "below" / "d.pcap"]


@pytest.mark.parametrize(
    "others",
    [{}, {"algorithm": "count-min", "memory": "64KiB", "task": "top"}, {"key": "five-tuple", "by": "bytes", "top": 3}],
    ids=str,
)
def test_answers_are_those_of_one_run(spark, archive, others):
    options = OPTIONS | others
    summary = flowgauge.spark.summarize(spark, archive, part_bytes=1 << 18, **options)
    whole = flowgauge.analyze(captures(archive), **options)[0].dict()
    report = summary.report().dict()
    assert report["tasks"] == whole["tasks"]
    assert report["account"]["keyed"] == whole["account"]["keyed"] == 78_000
    assert summary.problems.count() == 0
    # Two captures are cut, and two tasks share each. The others share a run.
    assert len(summary.snapshots["main"].coverage) == 2 + 2 + 1
    rows = summary["top"].collect()
    items = whole["tasks"]["top"]["items"]
    assert [row["packets"] for row in rows] == [item["packets"]["value"] for item in items]
    assert (rows[0]["epoch"], rows[0]["source"]) == (0, items[0]["key"]["source"])


def test_several_measurements_have_tables_each(spark, archive):
    measure = {"web": {"key": "source", "task": "top", "top": 2}, "pairs": {"key": "pair", "task": ["flow-size"]}}
    flow = "source=10.0.0.1,destination=10.0.0.1"
    measure["pairs"]["flow"] = [flow]
    summary = flowgauge.spark.summarize(spark, str(archive / "*.pcap"), measure)
    assert sorted(summary.snapshots) == ["pairs", "web"]
    whole = {r.measurement: r.dict() for r in flowgauge.analyze(captures(archive)[:2], measure, seed=1)}
    for name in measure:
        assert summary.report(name).dict()["tasks"] == whole[name]["tasks"]
    assert summary.table("top", "web").count() == 2
    with pytest.raises(flowgauge.OptionError, match="name one of the measurements web, pairs"):
        summary["top"]


def test_damaged_captures_are_named_and_the_rest_is_answered(spark, tmp_path):
    good = capture(tmp_path / "good.pcap", 20_000)
    cut = capture(tmp_path / "cut.pcap", 20_000, 20_000)
    cut.write_bytes(cut.read_bytes()[:-7])
    broken = capture(tmp_path / "broken.pcap", 20_000, 40_000)
    bytes_ = bytearray(broken.read_bytes())
    length = (len(bytes_) - 24) // 20_000
    # A misleading length within the first part: the parts after it prove nothing.
    bytes_[24 + 100 * length + 8 : 24 + 100 * length + 12] = (length + 900).to_bytes(4, "little")
    broken.write_bytes(bytes_)
    (tmp_path / "odd.pcap").write_text("no capture")
    paths = [good, cut, broken, tmp_path / "odd.pcap", tmp_path / "missing.pcap"]
    with pytest.warns(flowgauge.CaptureWarning):
        whole = flowgauge.analyze(paths, **OPTIONS)
    summary = flowgauge.spark.summarize(spark, paths, part_bytes=1 << 18, **OPTIONS)
    problems = summary.problems.collect()
    assert sorted(row["problem"] for row in problems) == sorted(whole.problems)
    assert {pathlib.Path(row["path"]).name for row in problems} == {"cut.pcap", "broken.pcap", "odd.pcap", "missing.pcap"}
    assert summary.report().dict()["tasks"] == whole[0].dict()["tasks"]
    assert summary.report().dict()["account"]["keyed"] == whole[0].dict()["account"]["keyed"]
    with pytest.raises(OSError, match=r"missing\.pcap: cannot be read"):
        flowgauge.spark.summarize(spark, tmp_path / "missing.pcap")


def test_captures_behind_urls_are_streams(spark, archive):
    urls = [path.as_uri() for path in captures(archive)] + ["file:///nothing.pcap"]
    summary = flowgauge.spark.summarize(spark, urls, **OPTIONS)
    assert summary.report().dict()["tasks"] == flowgauge.analyze(captures(archive), **OPTIONS)[0].dict()["tasks"]
    [problem] = summary.problems.collect()
    assert problem["path"] == "file:///nothing.pcap" and "cannot be read" in problem["problem"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "findings"}, "findings: it needs the times of packets"),
        ({"task": "changes"}, "changes: it compares epochs"),
        ({"epoch": "10s"}, "leave out epoch"),
        ({"key": "sorce"}, "did you mean 'source'"),
        ({"task": "topp"}, "did you mean 'top'"),
        ({"algorithm": "auto"}, "name an algorithm"),
    ],
    ids=str,
)
def test_options_are_refused_before_anything_runs(options, words):
    with pytest.raises(flowgauge.OptionError) as refused:
        flowgauge.spark.summarize(None, "capture.pcap", **options)
    assert words in str(refused.value)
    with pytest.raises(flowgauge.OptionError, match="no capture given"):
        flowgauge.spark.found([])


@pytest.mark.parametrize(("part_bytes", "tasks"), [(50, [3, 3, 2, 2]), (400, [5, 5]), (2000, [10]), (1, [1] * 10)])
def test_parts_share_tasks_of_about_the_same_size(part_bytes, tasks):
    parts = [flowgauge.Part(f"{number}.pcap", 24, 100) for number in range(10)]
    bundles = flowgauge.spark.bundled(parts, part_bytes, 2)
    assert sorted((len(bundle) for bundle in bundles), reverse=True) == tasks
    assert {part for bundle in bundles for part in bundle} == set(parts)


def test_parts_of_a_file_are_joined_in_a_task():
    parts = [flowgauge.Part(path, 24 + 100 * number, 100) for path in ("a.pcap", "b.pcap", "c.pcap") for number in range(4)]
    whole = flowgauge.Part("d.pcap", 24, 200)
    bundles = flowgauge.spark.bundled([*parts, whole], 100, 2)
    assert bundles == [
        [flowgauge.Part("a.pcap", 24, 400), flowgauge.Part("b.pcap", 24, 300)],
        [flowgauge.Part("b.pcap", 324, 100), flowgauge.Part("c.pcap", 24, 400), whole],
    ]


class FailingOnce(dict):
    """Measurements that fail in the first task that reads them."""

    def items(self):
        if pyspark.TaskContext.get() is not None and not os.path.exists(self.mark):
            pathlib.Path(self.mark).touch()
            raise RuntimeError("once")
        return super().items()


def test_a_task_that_fails_once_changes_nothing(spark, archive, tmp_path):
    spark.stop()
    session = builder("local[2,4]").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    measure = FailingOnce(main={"key": "source", "task": OPTIONS["task"]})
    measure.mark = str(tmp_path / "failed")
    summary = flowgauge.spark.summarize(session, archive, measure, part_bytes=1 << 18, seed=1)
    session.stop()
    assert os.path.exists(measure.mark)
    assert summary.report().dict()["tasks"] == flowgauge.analyze(captures(archive), **OPTIONS)[0].dict()["tasks"]


def test_a_cluster_of_two_workers_answers_alike_when_an_executor_is_killed(archive, tmp_path):
    with cluster(tmp_path) as session:
        expected = flowgauge.analyze(captures(archive), **OPTIONS)[0].dict()["tasks"]
        summary = flowgauge.spark.summarize(session, archive, part_bytes=1 << 18, **OPTIONS)
        assert summary.report().dict()["tasks"] == expected
        assert len(executors(tmp_path)) == 2
        killed = []

        def kill():
            time.sleep(0.5)
            killed.extend(executors(tmp_path)[:1])
            os.kill(killed[0], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        for _ in range(5):
            summary = flowgauge.spark.summarize(session, archive, part_bytes=1 << 18, **OPTIONS)
            assert summary.report().dict()["tasks"] == expected
        killer.join()
        assert killed and killed[0] not in executors(tmp_path)
