#!/usr/bin/env python3
"""Prints what tshark (4.0) counts in captures, as tests/captures/tshark.tsv holds it.

Usage: tshark.py FOLDER CORPUS/FILE ... > tshark.tsv

For each capture: packets by source and destination address of the outer packet with the bytes of the
frames; the same of the inner packet; and those of the inner packet without the bytes from the outer IP
header to the inner one.

tshark takes the last four bytes of a FabricPath frame for a checksum, which the one capture of it lacks:
there it reads a copy with four bytes more in each frame.
"""
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from xml.etree import ElementTree

CHECKSUM = 4

SETTINGS = ["ip.defragment:FALSE", "ipv6.defragment:FALSE", "wlan.defragment:FALSE"]


def with_checksums(path, copy):
    """Copies a little-endian pcap with four bytes more in each frame."""
    with open(path, "rb") as capture:
        copy.write(capture.read(24))
        while header := capture.read(16):
            seconds, fraction, captured, wire = struct.unpack("<4I", header)
            copy.write(struct.pack("<4I", seconds, fraction, captured + CHECKSUM, wire + CHECKSUM))
            copy.write(capture.read(captured) + bytes(CHECKSUM))
    copy.flush()


def packets(path):
    """Of each frame: its length, and (source, destination, offset) of its IP headers, outermost first."""
    command = ["tshark", "-n", "-r", path, "-T", "pdml"]
    command += [word for setting in SETTINGS for word in ("-o", setting)]
    pages = subprocess.run(command, capture_output=True, check=False).stdout
    for packet in ElementTree.fromstring(pages).iter("packet"):
        headers = []
        for layer in packet.iter("proto"):
            name = layer.get("name")
            # What follows is the packet that an error is about.
            if name in ("icmp", "icmpv6"):
                break
            if name in ("ip", "ipv6"):
                sides = [layer.find(f"field[@name='{name}.{side}']") for side in ("src", "dst")]
                headers.append((*(side.get("show") for side in sides), int(layer.get("pos"))))
        length = packet.find("proto[@name='frame']/field[@name='frame.len']")
        yield int(length.get("show")), headers


def counted(path):
    if not path.endswith("fabric-path.pcap"):
        yield from packets(path)
        return
    with tempfile.NamedTemporaryFile() as copy:
        with_checksums(path, copy)
        for length, headers in packets(copy.name):
            yield length - CHECKSUM, headers


folder, *names = sys.argv[1:]
print("capture", "tunnels", "source", "destination", "packets", "bytes", sep="\t")
for name in names:
    counts = {"outer": Counter(), "inner": Counter(), "inner-bytes": Counter()}
    for length, headers in counted(f"{folder}/{name}"):
        if not headers:
            continue
        (*outer, first), (*inner, last) = headers[0], headers[-1]
        for way, pair, size in [
            ("outer", outer, length),
            ("inner", inner, length),
            ("inner-bytes", inner, length - (last - first)),
        ]:
            counts[way][*pair, "packets"] += 1
            counts[way][*pair, "bytes"] += size
    for way, count in counts.items():
        pairs = sorted({key[:2] for key in count})
        for pair in pairs or [("-", "-")]:
            print(name, way, *pair, count[*pair, "packets"], count[*pair, "bytes"], sep="\t")
