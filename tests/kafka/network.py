"""Compares network-wide reports with what 'flowgauge query' answers from the journals of all agents, and those
of the job on Spark, where it ran, with both: network.py FLOWGAUGE FOLDER"""

import json
import pathlib
import subprocess
import sys

flowgauge, folder = sys.argv[1], pathlib.Path(sys.argv[2])
agents = ["one", "two", "three"]
lengths = {"flows": 1_000_000_000, "hosts": 2_000_000_000}
lines = [json.loads(line) for line in (folder / "collect/reports.jsonl").read_text().splitlines()]


def plain(line):
    """A report without the fields in which copies may differ."""
    return {**line, "network": {**line["network"], "late": {}}, "undelivered": 0, "notes": []}


by_id, last = {}, {}
for line in lines:
    network = line["network"]
    before = by_id.setdefault(network["id"], line)
    assert plain(before) == plain(line), f"two reports of the id {network['id']} differ"
    key = line["measurement"], line["epoch"]
    if key not in last or last[key]["network"]["revision"] <= network["revision"]:
        last[key] = line

journals = {}
for agent in agents:
    for path in (folder / agent / "data/journal").glob("*/*/*.fgs"):
        measurement = path.parent.parent.name
        epoch = int(path.name.split("-")[0]) // lengths[measurement]
        journals.setdefault((measurement, epoch), []).append(path)
assert last.keys() == journals.keys(), (last.keys() ^ journals.keys())

whole = noisy = 0
answers = {}
for key, paths in journals.items():
    report, network = last[key], last[key]["network"]
    reported = {path.relative_to(folder).parts[0] for path in paths}
    assert (network["reported"], network["revision"]) == (len(reported), len(paths)), (network, paths)
    left_out = {(one["agent"], one["field"]) for one in network["left_out"]}
    assert left_out <= {("odd", "seed"), ("noise", "agent")}, left_out
    unheard = {*agents, "odd"} - reported - {agent for agent, _ in left_out}
    assert set(network["missing"]) == unheard, (network, unheard)
    query = [flowgauge, "query", "--seed-file", folder / "seed", "--format", "json", "--top", "20"]
    query += ["--task", ",".join(report["tasks"]), *sorted(paths)]
    answer = json.loads(subprocess.run(query, check=True, capture_output=True).stdout.splitlines()[0])
    answers[key] = answer
    for field in "start", "end", "coverage", "key", "by", "seed", "account", "summary", "tasks", "breakdown":
        assert report[field] == answer[field], (key, field, report[field], answer[field])
    whole += len(reported) == 3
    noisy += ("noise", "agent") in left_out
assert whole > 15 and noisy > 5, (whole, noisy)
print(f"ok: {len(last)} epochs are reported as the journals of all agents have them, {whole} of all three agents")
print(f"ok: {len(lines)} reports have {len(by_id)} ids, whose copies are equal")
print(f"ok: {noisy} epochs name the agent that sends garbage")

path = folder / "spark/rows.jsonl"
if path.exists():
    rows, first = {}, {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        key = line["measurement"], line["report"]["epoch"]
        # The job was killed before it committed a batch: the next one writes the same rows again.
        assert first.setdefault((*key, line["revision"], *line["left_out"]), line) == line, line
        if key not in rows or rows[key]["revision"] <= line["revision"]:
            rows[key] = line
    assert len(first) < len(lines), "no batch was written again"
    ends = {key: (key[1] + 1) * lengths[key[0]] for key in journals}
    # Epochs at the end of the stream are open, unless all agents sent their ends.
    open_ = {key for key in journals.keys() - rows.keys() if ends[key] >= max(ends.values()) - 4_000_000_000}
    assert rows.keys() == journals.keys() - open_, (rows.keys() ^ journals.keys(), open_)
    for key, row in rows.items():
        network = last[key]["network"]
        for field in "revision", "agents", "reported", "missing":
            assert row[field] == network[field], (key, row, network)
        assert row["left_out"].keys() == {one["agent"] for one in network["left_out"]}, (key, row, network)
        assert row["report"]["tasks"] == answers[key]["tasks"] and row["problem"] is None, (key, row)
        assert row["packets"] == [item["packets"]["value"] for item in answers[key]["tasks"]["top"]["items"]], (key, row)
    print(f"ok: the job on Spark reports {len(rows)} epochs as the collector, and leaves {len(open_)} open")
