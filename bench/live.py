#!/usr/bin/env python3
"""Packets per second that `flowgauge live` receives from a veth pair, by AF_PACKET and by AF_XDP in turns.

    bench/live.py BINARY [SECONDS [ROUNDS]]

Needs root and iproute2. The kernel sends one frame again and again (BPF_PROG_TEST_RUN with live frames),
on one core; `live` runs on the other. Prints, for each way, the median over all rounds of received packets a
second, with what was lost.
"""

import ctypes
import fcntl
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import time

SYS_BPF = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
PROG_LOAD, PROG_TEST_RUN, XDP, LIVE_FRAMES, REDIRECT = 5, 10, 6, 1 << 1, 23
NETWORK = f"flowgauge-bench-{os.getpid()}"
WAYS = {
    "af-packet": [],
    "af-xdp": ["--engine", "af-xdp", "--takes-traffic"],
    "af-xdp, busy poll": ["--engine", "af-xdp", "--takes-traffic", "--busy-poll"],
}

libc = ctypes.CDLL(None, use_errno=True)


def bpf(command, attributes):
    room = ctypes.create_string_buffer(attributes, max(len(attributes), 120))
    result = libc.syscall(SYS_BPF, command, room, len(room))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def instruction(code, to=0, source=0, constant=0):
    return struct.pack("<BBhi", code, to | source << 4, 0, constant)


def sender(interface):
    """A program that sends each packet through this interface: return redirect(interface, 0)."""
    code = b"".join([
        instruction(0xB7, 1, 0, interface),
        instruction(0xB7, 2, 0, 0),
        instruction(0x85, 0, 0, REDIRECT),
        instruction(0x95),
    ])
    code = ctypes.create_string_buffer(code, len(code))
    license = ctypes.create_string_buffer(b"Apache-2.0")
    addresses = ctypes.addressof(code), ctypes.addressof(license)
    return bpf(PROG_LOAD, struct.pack("<IIQQ", XDP, len(code) // 8, *addresses))


def frame():
    """60 bytes of Ethernet: UDP from 10.0.0.1 to 10.0.0.2."""
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 46, 0, 0, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    return bytes([2] * 12) + b"\x08\x00" + ip + struct.pack("!HHHH", 4000, 80, 26, 0) + bytes(18)


def send(program, seconds):
    """Sends frames for this many seconds; returns their number."""
    data = ctypes.create_string_buffer(frame(), len(frame()))
    sent, repeat, end = 0, 1 << 14, time.monotonic() + seconds
    while time.monotonic() < end:
        attributes = struct.pack(
            "<IIIIQQIIIIQQIII",
            program, 0, len(data), 0, ctypes.addressof(data), 0, repeat, 0, 0, 0, 0, 0, LIVE_FRAMES, 0, 64,
        )
        bpf(PROG_TEST_RUN, attributes)
        sent += repeat
    return sent


def receive_offload(interface):
    """Lets the interface receive redirected frames although it has no XDP program."""
    SIOCETHTOOL, SET = 0x8946, 0x2C
    value = ctypes.create_string_buffer(struct.pack("<II", SET, 1))
    request = struct.pack("16sQ", interface.encode(), ctypes.addressof(value))
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request + bytes(16))


def measure(binary, arguments, program, seconds):
    command = ["taskset", "-c", "1", binary, "live", "-i", "here", "--epoch", "whole", "--format", "json",
               "--task", "top", "--key", "source", "--seed", "0"]
    live = subprocess.Popen(command + arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1)
    begun = time.monotonic()
    sent = send(program, seconds)
    took = time.monotonic() - begun
    time.sleep(0.3)
    live.send_signal(2)
    out, said = live.communicate()
    if live.returncode != 0:
        sys.exit(said.decode())
    account = json.loads(out.splitlines()[-1])["account"]
    return account["read"] / took / 1e6, sent / took / 1e6, 1 - account["read"] / sent


def inside(binary, seconds, rounds):
    subprocess.run(["sh", "-c", """
        echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
        ip link add here type veth peer name there && ip link set here up && ip link set there up
    """], check=True)
    receive_offload("here")
    os.sched_setaffinity(0, {0})
    program = sender(socket.if_nametoindex("there"))
    found = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, arguments in WAYS.items():
            found[way].append(measure(binary, arguments, program, seconds))
    base = statistics.median(received for received, _, _ in found["af-packet"])
    print(f"{'':20} received      sent    lost   of af-packet")
    for way, rows in found.items():
        received, sent, lost = (statistics.median(column) for column in zip(*rows))
        print(f"{way:20} {received:5.2f} Mpps {sent:5.2f} Mpps {lost:6.2%} {received / base:7.2f}")


def main():
    binary, seconds, rounds = (sys.argv[1:] + ["2", "5"][len(sys.argv) - 2:])[:3]
    if os.environ.get("NETWORK") is None:
        subprocess.run(["ip", "netns", "add", NETWORK], check=True)
        try:
            os.environ["NETWORK"] = NETWORK
            command = ["ip", "netns", "exec", NETWORK, sys.executable, __file__, binary, seconds, rounds]
            sys.exit(subprocess.run(command).returncode)
        finally:
            subprocess.run(["ip", "netns", "del", NETWORK])
    inside(binary, float(seconds), int(rounds))


if __name__ == "__main__":
    main()
