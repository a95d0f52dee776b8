"""Datagrams of flow records, from exporters to collectors:
records.py record PORT FILE SECONDS   keeps what comes to a port until nothing comes for so long
records.py sflow CAPTURE FILE RATE    samples a capture of Ethernet, one in RATE, as sFlow
records.py send FILE PORT...          sends the datagrams to ports, and their times apart
records.py compare REPORTS FLOWS      compares flows that a collector prints with those of an agent's reports
"""

import ipaddress
import json
import socket
import struct
import sys
import time
from collections import Counter

PROTOCOLS = {"TCP": 6, "UDP": 17, "ICMP": 1, "ICMP6": 58, "IPV6-ICMP": 58}


def record(port, path, seconds):
    receiver = socket.socket(type=socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    receiver.bind(("127.0.0.1", int(port)))
    # The exporter takes a while to start.
    receiver.settimeout(20)
    with open(path, "wb") as file:
        while True:
            try:
                datagram = receiver.recv(65536)
            except TimeoutError:
                return
            file.write(struct.pack(">H", len(datagram)) + datagram)
            receiver.settimeout(float(seconds))


def packets(path):
    """The frames of a pcap, with their lengths."""
    with open(path, "rb") as file:
        magic = file.read(24)[:4]
        order = "<" if magic[0] in (0xD4, 0x4D) else ">"
        while header := file.read(16):
            _, _, captured, wire = struct.unpack(order + "IIII", header)
            yield file.read(captured), wire


def sflow(capture, path, rate):
    rate = int(rate)
    samples, sequence, pool = [], 0, 0
    with open(path, "wb") as file:

        def flush():
            nonlocal sequence
            sequence += 1
            head = struct.pack(">II4sIIII", 5, 1, bytes([127, 0, 0, 1]), 0, sequence, 1000, len(samples))
            datagram = head + b"".join(samples)
            file.write(struct.pack(">H", len(datagram)) + datagram)
            samples.clear()

        for number, (frame, wire) in enumerate(packets(capture)):
            pool += 1
            if number % rate:
                continue
            frame = frame[:128]
            raw = struct.pack(">IIII", 1, wire, 0, len(frame)) + frame + bytes(-len(frame) % 4)
            raw = struct.pack(">II", 1, len(raw)) + raw
            expanded = number // rate % 2
            interfaces = (0, 1, 0, 2) if expanded else (1, 2)
            source = (0, 1) if expanded else (1,)
            sample = struct.pack(f">I{len(source)}I", number // rate + 1, *source)
            sample += struct.pack(f">III{len(interfaces)}II", rate, pool, 0, *interfaces, 1) + raw
            samples.append(struct.pack(">II", 3 if expanded else 1, len(sample)) + sample)
            if len(samples) == 7:
                flush()
        flush()


def datagrams(path):
    with open(path, "rb") as file:
        while length := file.read(2):
            yield file.read(struct.unpack(">H", length)[0])


def send(path, *ports):
    sender = socket.socket(type=socket.SOCK_DGRAM)
    for datagram in datagrams(path):
        for port in ports:
            sender.sendto(datagram, ("127.0.0.1", int(port)))
        time.sleep(0.001)


def add(sums, key, packets, octets):
    sums[0][key] += packets
    sums[1][key] += octets


def compare(reports, flows):
    ours, theirs = (Counter(), Counter()), (Counter(), Counter())
    with open(reports) as lines:
        for report in map(json.loads, lines):
            if report["type"] != "epoch":
                continue
            for flow in report["tasks"]["top"]["items"]:
                key = flow["key"]
                ends = [ipaddress.ip_address(key[end]) for end in ("source", "destination")]
                # Some collectors put the ICMP type in place of a port.
                is_icmp = key["protocol"] in (1, 58)
                ports = (0, 0) if is_icmp else (key["source_port"], key["destination_port"])
                sizes = (round(flow[size]["value"]) for size in ("packets", "bytes"))
                add(ours, (key["protocol"], *ends, *ports), *sizes)
    with open(flows) as lines:
        for line in lines:
            protocol, source, destination, *numbers = (cell.strip() for cell in line.split(","))
            *ports, packets, octets = numbers
            protocol = PROTOCOLS.get(protocol.upper()) or int(protocol)
            ends = map(ipaddress.ip_address, (source, destination))
            ports = (0, 0) if protocol in (1, 58) else (int(port) for port in ports)
            add(theirs, (protocol, *ends, *ports), int(packets), int(octets))
    assert len(ours[0]) > 100, len(ours[0])
    for name, one, other in zip(("packets", "bytes"), ours, theirs):
        differ = [key for key in one | other if one[key] != other[key]]
        assert not differ, (name, len(differ), [(key, one[key], other[key]) for key in differ[:5]])
    packets, octets = (sum(sums.values()) for sums in ours)
    versions = sorted({key[1].version for key in ours[0]})
    print(f"the same {len(ours[0])} flows of IPv{versions} with {packets} packets and {octets} bytes")


{"record": record, "sflow": sflow, "send": send, "compare": compare}[sys.argv[1]](*sys.argv[2:])
