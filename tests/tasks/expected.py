#!/usr/bin/env python3
"""Regenerates the expected answers of tasks.txt, with tools that are not part of flowgauge.

Usage: expected.py [--check] FLOWGAUGE

Runs the 'by' lines of each task in bash, with the functions of tools.sh, and writes what they print as the
task's 'is' lines. Answers that are stated have no 'by' line and stay as they are. FLOWGAUGE only generates the
captures that the tasks read, and writes those that have to be the same as those of another tool. --check changes nothing and fails where an answer differs.

Written with tshark 4.0.17, nfdump 1.7.1, tcpdump 4.99.3 and libpcap 1.10.3. Without them it says so and passes.
Tasks on captures that are not in this repository need FLOWGAUGE_CAPTURES, and keep their answers without it.
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS = ["tshark", "capinfos", "editcap", "nfdump", "nfpcapd", "tcpdump"]
WIDTH = 110


def bash(script, environment):
    script = f"set -euo pipefail; . {HERE}/tools.sh\n{script}"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{script}\nfailed: {done.stderr}")
    return done.stdout.split()


def answered(lines, environment):
    """The lines, with the output of 'by' lines as 'is' lines before them."""
    made, script = [], []
    for line in [*lines, "#"]:
        if line.startswith("    by"):
            script.append(line.split(maxsplit=1)[1])
            continue
        if script:
            made = answer(made, script, environment)
        if script or not line.startswith(" "):
            yield from made
            made, script = [], []
        made.append(line)


def answer(made, script, environment):
    by = [f"    by     {line}" for line in script]
    if "$SHARED" in "".join(script) and "SHARED" not in environment:
        return made + by
    made = [line for line in made if line.split()[:1] != ["is"]]
    rows = [""]
    for word in bash("\n".join(script), environment):
        if len(rows[-1]) + len(word) >= WIDTH:
            rows.append("")
        rows[-1] += f" {word}" if rows[-1] else word
    return made + [f"    is     {row}" for row in rows] + by


def main():
    *options, flowgauge = sys.argv[1:]
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        print(f"skipped: there is no {', '.join(missing)}")
        return
    environment = dict(os.environ, LC_ALL="C.UTF-8", TZ="UTC")
    environment["SERVICES"] = str(HERE.parent / "captures" / "var-services-std-ports.pcap")
    environment["INPUTS"] = str(HERE / "inputs")
    environment["FLOWGAUGE"] = str(Path(flowgauge).resolve())
    if folder := environment.get("FLOWGAUGE_CAPTURES"):
        environment["SHARED"] = folder
    before = (HERE / "tasks.txt").read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as generated, tempfile.TemporaryDirectory() as temporary:
        environment["GENERATED"] = generated
        environment["TEMP"] = temporary
        for line in before:
            if line.startswith("    make"):
                command = line.split(maxsplit=1)[1].replace("flowgauge", flowgauge, 1)
                subprocess.run(["bash", "-c", command], env=environment, check=True)
        after = list(answered(before, environment))
    if before == after:
        print("every expected answer is as it was")
    elif "--check" in options:
        sys.exit("\n".join(["expected answers differ:", *(line for line in after if line not in before)]))
    else:
        (HERE / "tasks.txt").write_text("\n".join(after) + "\n", encoding="utf-8")


main()
