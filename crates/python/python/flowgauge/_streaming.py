"""The merge of 'flowgauge collect' as a job of Spark Structured Streaming."""

import functools
import json
import pickle

import pandas
import pyarrow
from pyspark.sql import functions as F

from . import _flowgauge, errors
from ._network import Epoch

# Maximum number of characters of a header text.
LONGEST = 255

# Options of a measurement.
ASKED = ("task", "top", "key", "flow")

ROW = {
    "measurement": "string",
    "start_ns": "bigint",
    "end_ns": "bigint",
    "revision": "bigint",
    "agents": "int",
    "reported": "int",
    "missing": "array<string>",
    "left_out": "map<string, string>",
    "problem": "string",
    "report": "string",
    "tables": "map<string, binary>",
    "snapshot": "binary",
}


def collect(messages, measurements, *, seed_file, agents=None, delay="30s", keep="5m"):
    """Merges the snapshots that agents send to Kafka, by measurement and epoch.

    `messages` is a streaming DataFrame of the topic, as Spark's source `kafka` gives it with the option
    `includeHeaders`. `measurements` says what each is asked, such as
    `{"talkers": {"task": ["top", "entropy"], "top": 20}}`; others are passed over. `seed_file` is the file
    with the seed of all agents, under the same path on all executors. Of `agents`, where they are given,
    all others are left out.

    Returns a streaming DataFrame with a row for each report of an epoch. An epoch is reported as soon as all
    `agents` have sent its end, or when an epoch that ends `delay` later has come. Snapshots that come
    after that correct it by another row, until an epoch that ends `delay` and `keep` later has come.
    """
    if not measurements:
        raise errors.OptionError("measurements is empty; name one that agents have")
    for name, asked in measurements.items():
        for option in asked.keys() - set(ASKED):
            raise errors.OptionError(f"unknown option '{option}' of measurement '{name}'; available: {', '.join(ASKED)}")
        _flowgauge._check_collected(asked.get("task", []))
    delay_ms, keep_ms = (_flowgauge._time_ns(time) // 1_000_000 for time in (delay, keep))
    agents = None if agents is None else frozenset(agents)
    load = functools.partial(_flowgauge.Snapshot.load, seed_file=seed_file)

    def step(key, batches, state):
        """Adds new snapshots of an epoch, and reports it when due."""
        name, start_ns = key[0], int(key[1])
        epoch = pickle.loads(state.get[0]) if state.exists else Epoch(start_ns)
        for batch in batches:
            for part in batch.itertuples():
                if agents is None or part.agent in agents:
                    epoch.add(part, load)
                else:
                    epoch.leave_out(part.agent, "it is not in the list of agents")
        # The watermark is behind the latest end of an epoch by both times.
        watermark_ms, drop_ms = state.getCurrentWatermarkMs(), epoch.end_ns // 1_000_000
        close_ms = drop_ms - keep_ms
        is_due = watermark_ms > close_ms or epoch.is_complete(agents)
        rows = []
        if epoch.is_changed and is_due and epoch.chosen():
            rows.append(reported(epoch, name, agents or (), measurements[name]))
            epoch.is_changed = False
        if watermark_ms > drop_ms:
            state.remove()
        else:
            state.update((pickle.dumps(epoch),))
            state.setTimeoutTimestamp(close_ms if close_ms > watermark_ms else drop_ms)
        yield pandas.DataFrame(rows, columns=list(ROW))

    parts = snapshots(messages, list(measurements), delay_ms).withWatermark("end", f"{delay_ms + keep_ms} milliseconds")
    schema = ", ".join(f"{name} {kind}" for name, kind in ROW.items())
    epochs = parts.groupBy("measurement", "start_ns").applyInPandasWithState(step, schema, "epoch binary", "append", "EventTimeTimeout")
    times = {name: time(f"{name}_ns").alias(name) for name in ("start", "end")}
    return epochs.select("measurement", times["start"], times["end"], *list(ROW)[3:])


def snapshots(messages, measurements, ahead_ms):
    """The snapshots among messages, by what their headers say: those of these measurements, whose epochs end
    at most this long after now."""
    parts = messages.select(
        "value",
        *(header(name).alias(name) for name in ("type", "measurement", "agent", "id")),
        *(header(name).try_cast("bigint").alias(f"{name}_ns") for name in ("start", "end")),
    )
    now_ns = F.unix_micros(F.current_timestamp()) * 1000
    is_wanted = (F.col("type") == "snapshot") & F.col("measurement").isin(measurements) & F.col("agent").isNotNull() & F.col("id").isNotNull()
    is_timed = (F.col("end_ns") > F.col("start_ns")) & (F.col("end_ns") <= now_ns + ahead_ms * 1_000_000)
    parts = parts.where(is_wanted & is_timed & F.col("value").isNotNull())
    return parts.drop("type").withColumn("end", time("end_ns"))


def header(name):
    """The first header of this name, as text; null without one, or where it is no text."""
    found = F.try_element_at(F.filter("headers", lambda one: one["key"] == name), F.lit(1))
    return F.substring(F.try_validate_utf8(found["value"].cast("string")), 1, LONGEST)


def time(column):
    """A timestamp of nanoseconds."""
    return F.expr(f"timestamp_micros({column} div 1000)")


def reported(epoch, measurement, agents, asked):
    """The row of a report."""
    chosen = epoch.chosen()
    row = dict.fromkeys(ROW) | epoch.completeness(agents)
    row |= {"measurement": measurement, "start_ns": epoch.start_ns, "end_ns": epoch.end_ns, "revision": len(chosen.parts)}
    row["tables"], row["snapshot"] = {}, bytes(chosen.sum)
    try:
        report = chosen.sum.query(**asked)
    except errors.FlowgaugeError as error:
        # Whether the summaries can answer depends on what the agents sent.
        return row | {"problem": str(error)}
    number = epoch.start_ns // (epoch.end_ns - epoch.start_ns)
    row["report"] = json.dumps(report.dict() | {"epoch": number})
    for name in report.tables:
        row["tables"][name] = packed(numbered(pyarrow.table(report[name]), number))
    return row


def numbered(table, number):
    """A table of an epoch, with the epoch's number over all agents."""
    at = table.schema.get_field_index("epoch")
    return table.set_column(at, table.field(at), pyarrow.array([number] * len(table), table.field(at).type))


def packed(table):
    """A table as bytes."""
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def tables(epochs, measurement):
    """The tables of a measurement in a batch of `collect`, by name, each with the revision of its report: in
    the function that `foreachBatch` takes. Those that no epoch of the batch has are left out."""
    found = {}
    rows = epochs.where(F.col("measurement") == measurement).select("revision", "tables").collect()
    for row in rows:
        for name, bytes_ in row["tables"].items():
            with pyarrow.ipc.open_stream(bytes_) as stream:
                table = stream.read_all()
            revision = pyarrow.array([row["revision"]] * len(table), pyarrow.int64())
            found.setdefault(name, []).append(table.append_column("revision", revision))
    return {name: frame(epochs.sparkSession, pyarrow.concat_tables(some)) for name, some in found.items()}


def frame(spark, table):
    """A table as a DataFrame. Spark has neither unsigned integers nor nanoseconds."""
    types = {pyarrow.uint64(): pyarrow.int64(), pyarrow.timestamp("ns", "UTC"): pyarrow.timestamp("us", "UTC")}
    fields = [pyarrow.field(field.name, types.get(field.type, field.type)) for field in table.schema]
    return spark.createDataFrame(table.cast(pyarrow.schema(fields), safe=False))
