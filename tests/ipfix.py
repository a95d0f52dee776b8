"""Compares flows that a collector prints with those of an agent's reports: ipfix.py REPORTS FLOWS"""

import ipaddress
import json
import sys
from collections import Counter

PROTOCOLS = {"TCP": 6, "UDP": 17, "ICMP": 1, "ICMP6": 58}


def add(sums, key, packets, octets):
    sums[0][key] += packets
    sums[1][key] += octets


reported, exported = (Counter(), Counter()), (Counter(), Counter())
with open(sys.argv[1]) as lines:
    for report in map(json.loads, lines):
        if report["type"] != "epoch" or report["measurement"] != "flows":
            continue
        for flow in report["tasks"]["top"]["items"]:
            key = flow["key"]
            ends = [ipaddress.ip_address(key[end]) for end in ("source", "destination")]
            key = (key["protocol"], *ends, key["source_port"], key["destination_port"])
            add(reported, key, *(round(flow[size]["value"]) for size in ("packets", "bytes")))
with open(sys.argv[2]) as lines:
    for line in lines:
        protocol, source, destination, *numbers = (cell.strip() for cell in line.split(","))
        *ports, packets, octets = numbers
        # Records of distinct peers have no packets.
        if int(packets) > 0:
            ends = map(ipaddress.ip_address, (source, destination))
            key = (PROTOCOLS.get(protocol.upper()) or int(protocol), *ends, *(int(port) for port in ports))
            add(exported, key, int(packets), int(octets))
flows = len(reported[0])
packets, octets = (sum(sums.values()) for sums in reported)
assert flows > 100 and packets == 20000, (flows, packets)
versions = {key[1].version for key in reported[0]}
assert versions == {4, 6}, versions
for name, ours, theirs in zip(("packets", "bytes"), reported, exported):
    differ = [key for key in ours | theirs if ours[key] != theirs[key]]
    assert not differ, (name, len(differ), [(key, ours[key], theirs[key]) for key in differ[:5]])
print(f"the same {flows} flows with {packets} packets and {octets} bytes")
