#!/usr/bin/env python3
"""Runs an agent with all sinks for SECONDS (864: as many epochs of 100 ms as a day has of 10 s) over 100,000
packets a second of ten million flows, while clients of all kinds ask it, and checks that memory, threads and
descriptors stay as they were after the first tenth.

Usage: soak_agent.py FLOWGAUGE SECONDS [FOLDER]"""
import json, os, pathlib, socket, subprocess, sys, tempfile, threading, time, urllib.request

flowgauge, seconds = os.path.realpath(sys.argv[1]), int(sys.argv[2])
folder = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else tempfile.mkdtemp(prefix='flowgauge-soak-'))
folder.mkdir(exist_ok=True)
capture = folder / 'traffic.pcap'
if not capture.exists():
    generate = ['generate', '--packets', '20000000', '--rate', '100000', '--flows', '10000000', '--skew', '0.6']
    subprocess.run([flowgauge, *generate, '-o', capture], check=True)
collector = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
collector.bind(('127.0.0.1', 0))

def forever(step):
    def run():
        while step():
            pass
    threading.Thread(target=run, daemon=True).start()

forever(lambda: collector.recv(65536))
config = folder / 'flowgauge.yaml'
config.write_text(f'''
agent: {{ name: soak, data: {folder}/data, journal: {{ keep: 1h, max-size: 100MiB }} }}
sources: [{{ replay: {capture} }}]
measurements:
  talkers: {{ epoch: 100ms, tasks: [top, heavy-hitters, entropy, cardinality, size-distribution], top: 100, memory: 8MiB }}
  sources: {{ key: source, epoch: 100ms, algorithm: space-saving, tasks: [top], top: 100, memory: 4MiB }}
sinks:
  files: {{ path: "{folder}/reports/%Y%m%d%H%M.jsonl", keep: 2m }}
  parquet: {{ path: {folder}/archive, rotate: 10s, keep: 1d }}
  prometheus: {{ listen: 127.0.0.1:9479 }}
  console: {{ listen: 127.0.0.1:8479 }}
  ipfix: {{ to: "udp://127.0.0.1:{collector.getsockname()[1]}", domain: 1 }}
  # Unreachable brokers fill the queues of this sink, with lists of 100 within the first tenth.
  kafka: {{ brokers: [127.0.0.1:9], topic: flowgauge, what: [report, snapshot] }}
alerts:
  heavy: {{ when: "sources.top.packets.low > 100000" }}
''')
agent = subprocess.Popen([flowgauge, 'run', '-C', config], stderr=open(folder / 'log', 'w'))

def status():
    lines = dict(line.split(':', 1) for line in open(f'/proc/{agent.pid}/status') if ':' in line)
    fds = len(os.listdir(f'/proc/{agent.pid}/fd'))
    return int(lines['VmRSS'].split()[0]), int(lines['Threads']), fds

def ask(path):
    with urllib.request.urlopen('http://127.0.0.1:' + path, timeout=10) as answer:
        return answer.read()

samples, begin = [], time.time()
try:
    time.sleep(2)
    watcher = urllib.request.urlopen('http://127.0.0.1:8479/events', timeout=10)
    forever(watcher.readline)
    while time.time() - begin < seconds:
        size = len(ask('9479/metrics'))
        ask('8479/reports/newest')
        samples.append((time.time() - begin, *status(), size))
        assert agent.poll() is None, 'the agent ended'
        time.sleep(1)
finally:
    agent.terminate()
    code = agent.wait(30)
settled = [sample for sample in samples if sample[0] > seconds / 10]
def spread(column):
    values = [sample[column] for sample in settled]
    half = len(values) // 2
    return values[0], max(values[:half]), max(values[half:])
for name, column in ('RSS in kB', 1), ('threads', 2), ('descriptors', 3), ('bytes of metrics', 4):
    first, early, late = spread(column)
    print(f'{name}: {first} after the first tenth, at most {early} in the first half behind it, {late} in the second')
print((folder / 'log').read_text().strip().splitlines()[-1])
first, early, late = spread(1)
assert code == 0, code
assert late <= 1.01 * early, 'memory grows'
assert spread(2)[2] <= spread(2)[1] and spread(3)[2] <= spread(3)[1] + 1, 'threads or descriptors grow'
assert spread(4)[2] <= 1.05 * spread(4)[1], 'metrics grow'
print('ok')
