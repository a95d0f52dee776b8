"""Compares the records of a topic with the agent's folder: reports with the lines of its
files (WHAT is all), and snapshots with its journal (all, snapshots): compare.py FLOWGAUGE RECORDS FOLDER WHAT"""

import base64
import json
import pathlib
import subprocess
import sys

flowgauge, records, folder, what = sys.argv[1:]
folder = pathlib.Path(folder)
by_id, by_key, copies, partitions, order = {}, {}, 0, set(), []
for line in open(records):
    partition, key, headers, value = line.rstrip("\n").split("\t")
    headers = dict(header.split("=", 1) for header in headers.split(" "))
    value = base64.b64decode(value)
    assert headers["agent"] == folder.name, headers
    if headers["type"] == "snapshot":
        # Those of one epoch are in one partition, whatever the agent.
        assert key == f"{headers['measurement']}/{headers['start']}", key
        assert by_key.setdefault(key, partition) == partition, key
    else:
        assert key == folder.name, key
        partitions.add(partition)
    before = by_id.setdefault(headers["id"], (headers, value))
    if before[1] is value:
        order.append(headers["id"])
    else:
        assert before[1] == value, f"two records of the id {headers['id']} differ"
        copies += 1
assert len(partitions) == 1, partitions
assert len(set(by_key.values())) > 1, "all epochs are in one partition"

lines = (folder / "reports.jsonl").read_text().splitlines()
reports = [value.decode() for headers, value in map(by_id.get, order) if headers["type"] != "snapshot"]
for headers, value in by_id.values():
    if headers["type"] != "snapshot":
        assert headers["content-type"] == "application/json"
        assert headers["configuration"] == json.loads(value)["configuration"]
if what == "all":
    # Shows which of the two sinks missed lines: neither may.
    missing, more = set(lines) - set(reports), set(reports) - set(lines)
    assert not missing and not more, (len(missing), len(more), sorted(missing)[:1], sorted(more)[:1])
    assert reports == lines, "the order differs"
    print(f"ok: the {len(lines)} lines of the report files are in the topic, in their order")

kept = {}
for path in (folder / "data/journal").glob("*/*/*.fgs"):
    run, epoch = path.stem.rsplit("-", 2)[1:]
    kept[f"snapshot/{path.parent.parent.name}/{run}/{epoch}"] = path
sent = {id: value for id, (headers, value) in by_id.items() if headers["type"] == "snapshot"}
assert sent.keys() == kept.keys(), (sorted(kept.keys() - sent.keys()), sorted(sent.keys() - kept.keys()))
for id, path in kept.items():
    assert sent[id] == path.read_bytes(), f"{id} differs from {path}"
runs = {id.split("/")[2] for id in sent}
print(f"ok: the {len(sent)} epochs of the journal are in the topic ({len(runs)} runs of measurements)")

for measurement in "flows", "hosts":
    (folder / measurement).mkdir()
    files = []
    for number, (id, value) in enumerate(sent.items()):
        if id.split("/")[1] == measurement:
            files.append(folder / measurement / f"{number}.fgs")
            files[-1].write_bytes(value)
    query = [flowgauge, "query", "--seed-file", folder / "data/seed", "--format", "json", *files]
    answer = json.loads(subprocess.run(query, check=True, capture_output=True).stdout.splitlines()[0])
    reported = (json.loads(line) for line in lines)
    packets = sum(
        report["account"]["keyed"]
        for report in reported
        if report["type"] == "epoch" and report["measurement"] == measurement
    )
    keyed = answer["account"]["keyed"]
    # The agent may be killed between writing the journal and the files.
    assert keyed == packets if what == "all" else abs(keyed - packets) <= 10000, (keyed, packets)
    assert answer["tasks"]["top"]["items"], "no flow"
    print(f"ok: flowgauge query answers from the records of '{measurement}': {keyed} packets")
print(f"{copies} records were copies of others")
