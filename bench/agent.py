#!/usr/bin/env python3
"""Cost of an agent with all sinks compared with reading only, at the rate at which the kernel delivers packets.

    bench/agent.py BINARY [SECONDS]

Needs root and iproute2. The kernel sends one frame again and again over a veth pair, on one core; the agent
measures it by AF_PACKET on the other, with a console client that reads every report. Prints packets a second,
losses, the CPU time of each thread and memory over time.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import live

CLOCK = os.sysconf("SC_CLK_TCK")


def configuration(folder, collector):
    return f"""
agent: {{ name: bench, data: {folder}/data, journal: {{ keep: 1h, max-size: 1GiB }} }}
sources: [{{ interface: here, queues: 1 }}]
measurements:
  talkers: {{ epoch: 1s, tasks: [top, heavy-hitters, entropy, cardinality, size-distribution], memory: 64MiB }}
  victims: {{ key: pair, epoch: 1s, tasks: [victims, top], memory: 32MiB }}
sinks:
  files: {{ path: "{folder}/reports/%Y%m%d.jsonl", keep: 1d }}
  parquet: {{ path: {folder}/archive, rotate: 10s }}
  prometheus: {{ listen: 127.0.0.1:9469 }}
  console: {{ listen: 127.0.0.1:8469 }}
  ipfix: {{ to: "udp://127.0.0.1:{collector.getsockname()[1]}" }}
alerts:
  flood: {{ when: "victims.victims.distinct.low > 1000" }}
"""


def threads(pid):
    """Seconds of CPU time by the names of threads."""
    times = {}
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        name = (thread / "comm").read_text().strip()
        fields = (thread / "stat").read_text().rsplit(")", 1)[1].split()
        times[name] = times.get(name, 0) + (int(fields[11]) + int(fields[12])) / CLOCK
    return times


def memory(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def forever(step):
    def run():
        while step():
            pass
    threading.Thread(target=run, daemon=True).start()


def inside(binary, seconds):
    subprocess.run(["sh", "-c", """
        echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
        ip link set lo up
        ip link add here type veth peer name there && ip link set here up && ip link set there up
    """], check=True)
    live.receive_offload("here")
    os.sched_setaffinity(0, {0})
    collector = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    collector.bind(("127.0.0.1", 0))
    forever(lambda: collector.recv(65536))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "agent.yaml"
        file.write_text(configuration(folder, collector))
        log = open(pathlib.Path(folder) / "log", "w+")
        agent = subprocess.Popen(["taskset", "-c", "1", binary, "run", "-C", file], stderr=log)
        time.sleep(2)
        watcher = urllib.request.urlopen("http://127.0.0.1:8469/events", timeout=10)
        forever(watcher.readline)
        program = live.sender(socket.if_nametoindex("there"))
        live.send(program, 2)
        before, begun, sizes, sent = threads(agent.pid), time.monotonic(), [memory(agent.pid)], 0
        for _ in range(12):
            sent += live.send(program, seconds / 12)
            sizes.append(memory(agent.pid))
        took, behind = time.monotonic() - begun, threads(agent.pid)
        time.sleep(1.5)
        agent.send_signal(signal.SIGTERM)
        if agent.wait() != 0:
            log.seek(0)
            sys.exit(log.read())
        lines = [json.loads(line) for path in pathlib.Path(folder, "reports").iterdir() for line in open(path)]
    accounts = [line["account"] for line in lines if line["measurement"] == "talkers" and line["type"] == "epoch"]
    read, lost, dropped = (sum(account[name] for account in accounts) for name in ["read", "lost", "dropped"])
    undelivered = sum(line.get("undelivered", 0) for line in lines)
    used = {name: (behind[name] - before.get(name, 0)) / took for name in behind}
    readers = {name for name in used if name.startswith("queue ")}
    print(f"{sent / took / 1e6:.2f} Mpps sent for {took:.0f} s; {read:,} packets read, {lost:,} lost in the kernel, "
          f"{dropped:,} dropped by the agent, {undelivered} reports undelivered")
    others = sum(cpu for name, cpu in used.items() if name not in readers)
    print(f"reader: {sum(used[name] for name in readers):.1%} of a core; all other threads: {others:.1%}")
    for cpu, name in sorted((cpu, name) for name, cpu in used.items() if name not in readers and cpu >= 0.001):
        print(f"  {name:16} {cpu:.1%}")
    print(f"memory: {sizes[0]:,} kB at the beginning, {sizes[1]:,} kB after a twelfth of the time, "
          f"{max(sizes[1:]):,} kB at most from then on, {sizes[-1]:,} kB at the end")


def main():
    binary, seconds = (sys.argv[1:] + ["20"])[:2]
    if os.environ.get("NETWORK") is None:
        subprocess.run(["ip", "netns", "add", live.NETWORK], check=True)
        try:
            os.environ["NETWORK"] = live.NETWORK
            command = ["ip", "netns", "exec", live.NETWORK, sys.executable, __file__, binary, seconds]
            sys.exit(subprocess.run(command).returncode)
        finally:
            subprocess.run(["ip", "netns", "del", live.NETWORK])
    inside(binary, float(seconds))


if __name__ == "__main__":
    main()
