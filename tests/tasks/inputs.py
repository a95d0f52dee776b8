#!/usr/bin/env python3
"""Writes the small captures of tests/tasks/inputs.

Usage: inputs.py FOLDER

Six hold the packets of tests/captures/var-services-std-ports.pcap: compressed, as pcapng, in two halves, cut
short, and with a damaged record. Three are packets made here: VLAN tags, tunnels, and a second with four times
the usual traffic. Needs editcap and zstd.
"""
import gzip
import socket
import struct
import subprocess
import sys
from pathlib import Path

SERVICES = Path(__file__).parent.parent / "captures" / "var-services-std-ports.pcap"
START_S = 1_700_000_000

folder = Path(sys.argv[1])


def compress(path, data):
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as out:
        out.write(data)


def of_services():
    data = SERVICES.read_bytes()
    compress(folder / "services.pcap.gz", data)
    subprocess.run(["zstd", "-q", "-f", "-19", SERVICES, "-o", folder / "services.pcap.zst"], check=True)
    for name, form, packets in [
        ("services.pcapng", "pcapng", "1-60"),
        ("first-half.pcap", "pcap", "1-130"),
        ("second-half.pcap", "pcap", "131-263"),
    ]:
        subprocess.run(["editcap", "-F", form, "-r", SERVICES, folder / name, packets], check=True)
    # The last packet lacks its last 10 bytes.
    (folder / "cut-short.pcap").write_bytes((folder / "first-half.pcap").read_bytes()[:-10])
    # Packet 100 has an invalid length.
    damaged = bytearray((folder / "first-half.pcap").read_bytes())
    offset = 24
    for _ in range(99):
        offset += 16 + struct.unpack_from("<I", damaged, offset + 8)[0]
    struct.pack_into("<I", damaged, offset + 8, 0xFFFF_FFF0)
    (folder / "damaged.pcap").write_bytes(damaged)


def udp(source_port, destination_port, data):
    return struct.pack(">4H", source_port, destination_port, 8 + len(data), 0) + data


def tcp(source_port, destination_port, flags, data=b""):
    return struct.pack(">HHIIBBHHH", source_port, destination_port, 1, 0, 5 << 4, flags, 512, 0, 0) + data


def ipv4(source, destination, protocol, data):
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(data), 0, 0, 64, protocol, 0)
    header += socket.inet_aton(source) + socket.inet_aton(destination)
    total = sum(struct.unpack(">10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return header[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + header[12:] + data


def ipv6(source, destination, protocol, data):
    addresses = b"".join(socket.inet_pton(socket.AF_INET6, side) for side in (source, destination))
    return struct.pack(">IHBB", 6 << 28, len(data), protocol, 64) + addresses + data


def ethernet(packet, *tags):
    frame = bytes.fromhex("020000000002020000000001")
    for ethertype, vlan in tags:
        frame += struct.pack(">HH", ethertype, vlan)
    return frame + struct.pack(">H", 0x86DD if packet[0] >> 4 == 6 else 0x0800) + packet


def pcap(frames):
    """A classic pcap of (seconds since START_S, frame)."""
    parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1)]
    for time, frame in frames:
        micros = round(time * 1_000_000)
        when = (START_S + micros // 1_000_000, micros % 1_000_000)
        parts += [struct.pack("<4I", *when, len(frame), len(frame)), frame]
    return b"".join(parts)


def tagged():
    """One VLAN tag, two of them, and none; IPv4 and IPv6."""
    frames = []
    for packet in range(30):
        web = ipv4("10.1.0.7", "10.1.0.80", 6, tcp(40_000 + packet % 3, 443, 0x10, bytes(10 * packet)))
        dns = ipv6("2001:db8::7", "2001:db8::53", 17, udp(5_353, 53, bytes(packet)))
        frames.append(ethernet(web, (0x8100, 10)))
        if packet % 2:
            frames.append(ethernet(dns, (0x88A8, 200), (0x8100, 20)))
        if packet % 5 == 0:
            frames.append(ethernet(web))
    return pcap((0.1 * index, frame) for index, frame in enumerate(frames))


def tunnels():
    """VXLAN, GRE, and IPv6 in IPv4 between two gateways, and a packet outside each tenth packet."""
    left, right = "203.0.113.1", "203.0.113.2"
    frames = []
    for packet in range(60):
        inside = ipv4(f"10.9.0.{1 + packet % 3}", "10.9.0.99", 6, tcp(50_000, 5_432, 0x18, bytes(40 + packet)))
        outside = [
            ipv4(left, right, 17, udp(49_152, 4_789, bytes.fromhex("0800000000002a00") + ethernet(inside))),
            ipv4(left, right, 47, struct.pack(">HH", 0, 0x0800) + inside),
            ipv4(left, right, 41, ipv6("2001:db8:9::1", "2001:db8:9::2", 6, tcp(50_001, 22, 0x18, bytes(packet)))),
        ][packet % 3]
        frames.append(ethernet(outside))
        if packet % 10 == 0:
            frames.append(ethernet(ipv4(left, right, 6, tcp(179, 50_002, 0x18, bytes(19)))))
    return pcap((0.05 * index, frame) for index, frame in enumerate(frames))


def rise():
    """20 s of 150 packets a second from 20 clients to a server, and 450 more of one client in second 12."""
    frames = []
    for second in range(20):
        for packet in range(150):
            client = f"192.0.2.{1 + (7 * packet + second) % 20}"
            frames.append((second + packet / 150, client))
        if second == 12:
            frames += [(second + 0.001 + packet / 450, "192.0.2.200") for packet in range(450)]
    return pcap(
        (time, ethernet(ipv4(client, "198.51.100.5", 6, tcp(33_333, 443, 0x18, bytes(100)))))
        for time, client in sorted(frames)
    )


of_services()
(folder / "vlan.pcap").write_bytes(tagged())
(folder / "tunnels.pcap").write_bytes(tunnels())
compress(folder / "rise.pcap.gz", rise())
