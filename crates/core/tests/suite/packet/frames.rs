//! Handmade frames, from the inside out: each function prepends a header to a payload.

use flowgauge_core::packet::{Headers, Ip, Ports};

pub(crate) const V4: [u8; 8] = [10, 0, 0, 1, 192, 168, 3, 4];
pub(crate) const V6: [u8; 32] = [
    0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x20, 1, 0xd, 0xb8, 9, 9, 9, 9, 0, 0,
    0, 0, 0, 0, 0, 2,
];
/// The ports of [`tcp`] and of [`udp`] to port 53.
pub(crate) const PORTS: Ports = Ports::Found(0x1234_0035);

pub(crate) fn put(header: &[u8], payload: &[u8]) -> Vec<u8> {
    [header, payload].concat()
}

pub(crate) fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    put(&[2; 12], &put(&ether_type.to_be_bytes(), payload))
}

/// The bytes behind the `EtherType` of a VLAN tag.
pub(crate) fn tag(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    put(&[0x20, 7], &put(&ether_type.to_be_bytes(), payload))
}

pub(crate) fn label(bottom: bool, payload: &[u8]) -> Vec<u8> {
    put(&[0, 1, 0x40 | u8::from(bottom), 64], payload)
}

pub(crate) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (20 + payload.len() as u16).to_be_bytes();
    let header = [0x45, 0, high, low, 0, 9, 0x40, 0, 64, protocol, 0, 0];
    put(&put(&header, &V4), payload)
}

pub(crate) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    put(&put(&[0x60, 0, 0, 0, high, low, next, 64], &V6), payload)
}

/// Hop-by-hop options, destination options or a routing header of `8 × (words + 1)` bytes.
pub(crate) fn extension(next: u8, words: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 8 * (usize::from(words) + 1)];
    header[..2].copy_from_slice(&[next, words]);
    put(&header, payload)
}

/// A fragment header; `offset` counts eight bytes.
pub(crate) fn fragment(next: u8, offset: u16, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (offset << 3 | 1).to_be_bytes();
    put(&[next, 0, high, low, 0, 0, 0, 1], payload)
}

pub(crate) fn udp(destination: u16, payload: &[u8]) -> Vec<u8> {
    let [high, low] = destination.to_be_bytes();
    let [length_high, length_low] = (8 + payload.len() as u16).to_be_bytes();
    put(&[0x12, 0x34, high, low, length_high, length_low, 0, 0], payload)
}

pub(crate) fn tcp() -> Vec<u8> {
    put(&[0x12, 0x34, 0, 53, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0], &[0; 4])
}

/// LLC with SNAP.
pub(crate) fn snap(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    put(&[0xaa, 0xaa, 3, 0, 0, 0], &put(&ether_type.to_be_bytes(), payload))
}

/// The bytes behind the `EtherType` of a `PPPoE` session.
pub(crate) fn pppoe(payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    put(&[0x11, 0, 0, 7, high, low], payload)
}

/// An 802.11 frame with this frame control, and with the fourth address, QoS control and HT control
/// that it announces.
pub(crate) fn wifi(control: [u8; 2], qos: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut header = [&control[..], &[2; 20], &[0x10, 0x32]].concat();
    if control[1] & 3 == 3 {
        header.extend([4; 6]);
    }
    put(&put(&header, qos), payload)
}

/// A radiotap header with presence words, and padding to skip.
pub(crate) fn radiotap(present: &[u32], fields: &[u8], padding: usize) -> Vec<u8> {
    let words: Vec<u8> = present.iter().flat_map(|word| word.to_le_bytes()).collect();
    let rest = [&words[..], fields, &vec![0; padding]].concat();
    let [low, high] = (4 + rest.len() as u16).to_le_bytes();
    put(&[0, 0, low, high], &rest)
}

/// A packet of an address family logged by netfilter, with numbers in this byte order.
pub(crate) fn nflog(order: fn(u16) -> [u8; 2], family: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let attribute = |(kind, value): &(u16, &[u8])| {
        let length = 4 + value.len();
        let mut attribute = [&order(length as u16)[..], &order(*kind), value].concat();
        attribute.resize(length.next_multiple_of(4), 0);
        attribute
    };
    put(&[family, 0, 0, 9], &attributes.iter().flat_map(attribute).collect::<Vec<_>>())
}

pub(crate) fn packet_v4(protocol: u8, ports: Ports) -> Headers {
    Headers::V4(Ip { addresses: V4, protocol, ports })
}

pub(crate) fn packet_v6(protocol: u8, ports: Ports) -> Headers {
    Headers::V6(Ip { addresses: V6, protocol, ports })
}

/// A reproducible random number generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        ((mixed ^ (mixed >> 32)) % bound as u64) as usize
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }
}
