"""Compares network-wide reports with what 'flowgauge query' answers from the journals of all agents:
network.py FLOWGAUGE FOLDER"""

import json
import pathlib
import subprocess
import sys

flowgauge, folder = sys.argv[1], pathlib.Path(sys.argv[2])
agents = ["one", "two", "three"]
lengths = {"flows": 1_000_000_000, "hosts": 2_000_000_000}
lines = [json.loads(line) for line in (folder / "collect/reports.jsonl").read_text().splitlines()]


def plain(line):
    """A report without what copies may differ in."""
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
    for field in "start", "end", "coverage", "key", "by", "seed", "account", "summary", "tasks", "breakdown":
        assert report[field] == answer[field], (key, field, report[field], answer[field])
    whole += len(reported) == 3
    noisy += ("noise", "agent") in left_out
assert whole > 15 and noisy > 5, (whole, noisy)
print(f"ok: {len(last)} epochs are reported as the journals of all agents have them, {whole} of all three agents")
print(f"ok: {len(lines)} reports have {len(by_id)} ids, whose copies are equal")
print(f"ok: {noisy} epochs name the agent that sends garbage")
