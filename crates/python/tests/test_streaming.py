"""The merge of 'flowgauge collect' on Spark: what comes late, twice or from strangers, and a restart."""

import json

import pytest

pyspark = pytest.importorskip("pyspark")

import pyarrow
import pyarrow.parquet

import flowgauge
import flowgauge.spark
from flowgauge._network import GROUPS, Epoch
from test_spark import capture

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning")

BEGIN = 1_700_000_000
HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
SCHEMA = pyarrow.schema([("value", pyarrow.binary()), ("headers", HEADERS)])
MEASUREMENTS = {"flows": {"task": ["top", "entropy"], "top": 5}, "hosts": {"task": "top", "top": 5}}
AGENTS = ["one", "three", "two"]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    for name in ("seed", "other"):
        (folder / name).write_bytes(name.encode() * 16)
        (folder / name).chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def sent(tmp_path_factory, seeds):
    """The messages of agents, by agent, measurement and second of the epoch: five epochs of ten seconds."""
    folder, messages = tmp_path_factory.mktemp("agents"), {}
    measure = {"flows": {"key": "pair"}, "hosts": {"key": "source", "algorithm": "count-min", "memory": "64KiB"}}
    for number, agent in enumerate([*AGENTS, "odd", "stranger"]):
        path = capture(folder / f"{agent}.pcap", 6_000 - number)
        seed = seeds / ("other" if agent == "odd" else "seed")
        for snapshot in flowgauge.analyze(path, measure, epoch="10s", seed_file=seed, snapshots=True).snapshots:
            start_ns = snapshot.coverage[0]["start_ns"]
            messages[agent, snapshot.measurement, start_ns // 10**9 - BEGIN] = message(agent, snapshot)
    return messages


def message(agent, snapshot, **others):
    covered = snapshot.coverage[0]
    headers = {
        "id": f"snapshot/{snapshot.measurement}/{covered['run']:016x}/{covered['epoch']}",
        "type": "snapshot",
        "agent": agent,
        "measurement": snapshot.measurement,
        "start": covered["start_ns"],
        "end": covered["end_ns"],
    } | others
    return bytes(snapshot), headers


class Topic:
    """A folder of messages; Spark reads one file per batch."""

    def __init__(self, spark, folder):
        self.spark, self.folder, self.files, self.rows = spark, folder, 0, []
        (folder / "topic").mkdir()

    def send(self, *messages):
        rows = [{"value": value, "headers": [{"key": key, "value": of if isinstance(of, bytes) else str(of).encode()} for key, of in headers.items()]} for value, headers in messages]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, SCHEMA), self.folder / f"{self.files}.parquet")
        (self.folder / f"{self.files}.parquet").rename(self.folder / "topic" / f"{self.files}.parquet")
        self.files += 1

    def collect(self, measurements=MEASUREMENTS, **options):
        """Reads from the checkpoint on, and returns the new rows with their tables."""
        schema = self.spark.createDataFrame(pyarrow.Table.from_pylist([], SCHEMA)).schema
        messages = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder / "topic"))
        epochs = flowgauge.spark.collect(messages, measurements, **options)
        rows = []

        def keep(batch, _):
            batch.persist()
            tables = {name: {table: frame.collect() for table, frame in flowgauge.spark.tables(batch, name).items()} for name in measurements}
            for row in batch.collect():
                rows.append(row.asDict() | {"second": int(row["start"].timestamp()) - BEGIN, "frames": tables[row["measurement"]]})

        query = epochs.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        return sorted(rows, key=lambda row: (row["measurement"], row["second"]))


def union(sent, agents, measurement, second, seed):
    """The tasks of the merged snapshots of agents."""
    whole, *others = (flowgauge.Snapshot.load(sent[agent, measurement, second][0], seed_file=seed) for agent in agents)
    return whole.merge(*others).query(**MEASUREMENTS[measurement]).dict()["tasks"]


def test_epochs_are_merged_once_and_corrected_over_a_restart(spark, sent, seeds, tmp_path):
    topic = Topic(spark, tmp_path)
    seed = seeds / "seed"
    options = {"seed_file": seed, "agents": AGENTS, "delay": "10s", "keep": "20s"}

    def of(agents, *seconds):
        return [sent[agent, measurement, second] for agent in agents for measurement in MEASUREMENTS for second in seconds]

    first = of(AGENTS, 0, 10)
    topic.send(*first, *first, *of(["odd", "stranger"], 0))
    topic.send(*of(["one", "two"], 20), *first)
    topic.send(*of(AGENTS, 30, 40))
    rows = topic.collect(**options)
    assert [(row["measurement"], row["second"]) for row in rows] == [(name, second) for name in MEASUREMENTS for second in (0, 10, 20, 30, 40)]
    for row in rows:
        agents = ["one", "two"] if row["second"] == 20 else AGENTS
        assert (row["revision"], row["reported"]) == (len(agents), len(agents))
        assert row["missing"] == [agent for agent in AGENTS if agent not in agents]
        report = json.loads(row["report"])
        assert report["tasks"] == union(sent, agents, row["measurement"], row["second"], seed)
        assert report["epoch"] == (BEGIN + row["second"]) // 10
        snapshot = flowgauge.Snapshot.load(bytes(row["snapshot"]), seed_file=seed)
        assert snapshot.query(**MEASUREMENTS[row["measurement"]]).dict()["tasks"] == report["tasks"]
        top = [one for one in row["frames"]["top"] if one["start"] == row["start"]]
        assert [one["packets"] for one in top] == [item["packets"]["value"] for item in report["tasks"]["top"]["items"]]
        assert {(one["epoch"], one["revision"]) for one in top} == {(report["epoch"], row["revision"])}
        if row["second"] == 0:
            assert row["agents"] == 5 and row["left_out"].keys() == {"odd", "stranger"}
        else:
            assert row["agents"] == 3 and not row["left_out"]
    # After a restart, copies change nothing; a late snapshot corrects its epoch, and one of long ago is too late.
    topic.send(*first, *of(["three"], 20), *of(["one"], 30))
    rows = topic.collect(**options)
    assert [(row["measurement"], row["second"], row["revision"], row["missing"]) for row in rows] == [("flows", 20, 3, []), ("hosts", 20, 3, [])]
    for row in rows:
        assert json.loads(row["report"])["tasks"] == union(sent, AGENTS, row["measurement"], 20, seed)
    renamed = [(value, headers | {"id": "again"}) for value, headers in of(["one"], 0)]
    topic.send(*renamed)
    assert topic.collect(**options) == []


def test_messages_that_are_wrong_are_named_or_passed_over(spark, sent, seeds, tmp_path):
    topic = Topic(spark, tmp_path)
    value, headers = sent["one", "flows", 0]
    damaged = bytearray(value)
    damaged[len(damaged) // 2] ^= 1
    year_ns = 365 * 86_400 * 10**9
    topic.send(
        (value, headers),
        (bytes(damaged), headers | {"agent": "noise"}),
        (sent["two", "flows", 10][0], headers | {"agent": "elsewhen"}),
        (sent["two", "hosts", 0][0], headers | {"agent": "elsewhat"}),
        (bytes(damaged), headers),
        (b"no snapshot", {}),
        (b"", {"type": "snapshot"}),
        (value, headers | {"agent": b"\xff"}),
        (value, headers | {"start": "soon", "agent": "unreadable"}),
        (value, headers | {"start": str(10**40), "agent": "unreadable"}),
        (value, headers | {"end": int(headers["end"]) + 100 * year_ns, "agent": "ahead"}),
        (value, headers | {"measurement": "others"}),
        (b"{}", headers | {"type": "epoch"}),
    )
    (row,) = topic.collect(seed_file=seeds / "seed", agents=["one", "noise", "elsewhen", "elsewhat"])
    assert (row["revision"], row["reported"], row["agents"], row["missing"]) == (1, 1, 4, [])
    assert row["left_out"].keys() == {"one", "noise", "elsewhen", "elsewhat"}
    assert "came again with other bytes" in row["left_out"]["one"]
    assert row["left_out"]["elsewhen"] == row["left_out"]["elsewhat"] == "it is not of the epoch that its headers name"


def test_a_summary_that_cannot_answer_is_a_problem_of_its_row(spark, sent, seeds, tmp_path):
    topic = Topic(spark, tmp_path)
    topic.send(sent["one", "hosts", 0])
    (row,) = topic.collect({"hosts": {"task": "size-distribution"}}, seed_file=seeds / "seed", agents=["one"])
    assert row["report"] is None and row["tables"] == {} and "size-distribution" in row["problem"]


class Part:
    """A message in the form of the job."""

    def __init__(self, sent):
        self.value, headers = sent
        self.measurement, self.agent, self.id = headers["measurement"], headers["agent"], headers["id"]
        self.end_ns = headers["end"]


def test_an_epoch_is_complete_when_each_agent_has_sent_its_end(sent, seeds):
    def epoch(second, agents):
        made = Epoch((BEGIN + second) * 10**9)
        for agent in agents:
            made.add(Part(sent[agent, "flows", second]), lambda bytes_: flowgauge.Snapshot.load(bytes_, seed_file=seeds / "seed"))
        return made

    assert epoch(0, AGENTS).is_complete(set(AGENTS))
    assert not epoch(0, AGENTS[:2]).is_complete(set(AGENTS))
    assert not epoch(0, AGENTS).is_complete(None)
    # Snapshots that never merge are not waited for.
    assert epoch(0, [*AGENTS, "odd"]).is_complete({*AGENTS, "odd"})
    # The captures end before the last epoch does.
    last = epoch(50, AGENTS)
    assert not last.is_complete(set(AGENTS)) and last.completeness(AGENTS)["reported"] == 3


def test_the_group_with_most_agents_is_reported(sent, seeds):
    epoch = Epoch(BEGIN * 10**9)
    seeds_of = {"odd": "other"}
    for agent in ["odd", *AGENTS]:
        seed = seeds / seeds_of.get(agent, "seed")
        epoch.add(Part(sent[agent, "flows", 0]), lambda bytes_, seed=seed: flowgauge.Snapshot.load(bytes_, seed_file=seed))
    said = epoch.completeness([*AGENTS, "odd", "silent"])
    assert (said["agents"], said["reported"], said["missing"]) == (5, 3, ["silent"])
    assert said["left_out"].keys() == {"odd"} and "seed" in said["left_out"]["odd"]


def test_an_epoch_that_comes_again_under_another_id_is_left_out(sent, seeds):
    epoch = Epoch(BEGIN * 10**9)
    value, headers = sent["one", "flows", 0]
    for id_ in (headers["id"], "again"):
        epoch.add(Part((value, headers | {"id": id_})), lambda bytes_: flowgauge.Snapshot.load(bytes_, seed_file=seeds / "seed"))
    assert len(epoch.groups) == 1
    said = epoch.completeness([])
    assert (said["agents"], said["reported"], said["left_out"].keys()) == (1, 1, {"one"})
    assert "merge each epoch once" in said["left_out"]["one"]


def test_agents_that_all_differ_take_bounded_memory(sent, seeds, tmp_path):
    epoch = Epoch(BEGIN * 10**9)
    for number in range(GROUPS + 3):
        path = capture(tmp_path / "one.pcap", 1_500)
        snapshot = flowgauge.analyze(path, "flows: key=pair", epoch="10s", seed=number, snapshots=True).snapshots[0]
        epoch.add(Part(message(f"agent-{number}", snapshot)), flowgauge.Snapshot.load)
    assert len(epoch.groups) == GROUPS
    reasons = epoch.completeness([])["left_out"]
    assert len(reasons) == GROUPS + 2
    assert sum("agents before it differ" in reason for reason in reasons.values()) == 3


@pytest.mark.parametrize(
    ("measurements", "others", "words"),
    [
        ({}, {}, "measurements is empty"),
        ({"a": {"tasks": "top"}}, {}, "unknown option 'tasks' of measurement 'a'"),
        ({"a": {"task": "tpo"}}, {}, "did you mean 'top'"),
        ({"a": {"task": ["top", "findings"]}}, {}, "'findings' needs the times of packets"),
        ({"a": {"task": "changes"}}, {}, "'changes' compares"),
        ({"a": {}}, {"delay": "soon"}, "invalid time 'soon'"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(measurements, others, words):
    with pytest.raises(flowgauge.OptionError) as refused:
        flowgauge.spark.collect(None, measurements, seed_file="seed", **others)
    assert words in str(refused.value)
