"""The job of flowgauge.spark.collect over a topic, to its end; its reports are added to FOLDER/spark/rows.jsonl.
With BATCHES, it kills itself and Spark after so many, before the last of them is committed:
streaming.py FOLDER BROKERS TOPIC JARS [BATCHES]"""

import json
import os
import pathlib
import signal
import sys

import flowgauge.spark
import pyspark

folder, brokers, topic, jars = sys.argv[1:5]
batches = int(sys.argv[5]) if len(sys.argv) > 5 else None
folder = pathlib.Path(folder)
(folder / "spark").mkdir(exist_ok=True)
rows = open(folder / "spark/rows.jsonl", "a")
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
session = pyspark.sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
session = session.config("spark.driver.memory", "1g").config("spark.sql.shuffle.partitions", 2)
session = session.config("spark.jars", ",".join(map(str, pathlib.Path(jars).glob("*.jar")))).getOrCreate()
session.sparkContext.setLogLevel("ERROR")

messages = session.readStream.format("kafka").option("kafka.bootstrap.servers", brokers).option("subscribe", topic)
messages = messages.option("includeHeaders", True).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 300)
epochs = flowgauge.spark.collect(
    messages.load(),
    {"flows": {"task": ["top", "entropy"], "top": 20}, "hosts": {"task": "top", "top": 20}},
    agents=["one", "two", "three", "odd"],
    seed_file=folder / "seed",
    delay="4s",
    keep="10m",
)


def write(batch, number):
    """Writes the reports of a batch, and the packets in their tables."""
    batch.persist()
    packets = {}
    for measurement in "flows", "hosts":
        top = flowgauge.spark.tables(batch, measurement).get("top")
        for row in top.collect() if top else []:
            packets.setdefault((measurement, row["start"], row["revision"]), []).append(row["packets"])
    for row in batch.drop("tables", "snapshot").collect():
        line = row.asDict() | {"report": json.loads(row["report"])}
        line["packets"] = packets[row["measurement"], row["start"], row["revision"]]
        rows.write(json.dumps(line, default=str) + "\n")
    rows.flush()
    if number + 1 == batches:
        os.killpg(0, signal.SIGKILL)


query = epochs.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "spark/checkpoint"))
query = query.trigger(availableNow=True).start()
query.awaitTermination()
print(f"ok: the job on Spark ended after batch {query.lastProgress['batchId']}")
