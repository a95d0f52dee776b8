//! Time of parsing frames to five-tuples, a packet: this crate's parser against etherparse.
#![allow(missing_docs, reason = "the macros of criterion write undocumented functions")]
#![expect(clippy::unwrap_used, reason = "frames are made once, before anything is measured")]

use std::hint::black_box;

use bytemuck::Zeroable;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use flowgauge_core::key::{Extract, Key16, Key37, KeyKind};
use flowgauge_core::packet::{Headers, LinkType, parse, parse_inner};

/// Too many frames for a branch predictor to learn, few enough to fit into the cache.
const FRAMES: u32 = 4096;

/// Frames of one kind, contiguous as in a capture.
struct Traffic {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Traffic {
    fn new(mut write: impl FnMut(u32, &mut Vec<u8>)) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for i in 0..FRAMES {
            let start = bytes.len();
            write(i.wrapping_mul(2_654_435_761), &mut bytes);
            ends.push((start, bytes.len()));
        }
        Self { bytes, ends }
    }

    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().map(|&(start, end)| &self.bytes[start..end])
    }
}

fn v4(i: u32, vlan: bool, out: &mut Vec<u8>) {
    let link = PacketBuilder::ethernet2([1; 6], [2; 6]);
    let (source, destination) = (i.to_be_bytes(), (!i).to_be_bytes());
    let ip = if vlan {
        link.single_vlan(7.try_into().unwrap()).ipv4(source, destination, 64)
    } else {
        link.ipv4(source, destination, 64)
    };
    let port = (i >> 16) as u16;
    if i & 1 == 0 {
        ip.udp(port, 53).write(out, &[0; 18]).unwrap();
    } else {
        ip.tcp(port, 443, i, 1000).write(out, &[0; 6]).unwrap();
    }
}

fn v6(i: u32, out: &mut Vec<u8>) {
    let (mut source, destination) = ([0; 16], [7; 16]);
    source[..4].copy_from_slice(&i.to_be_bytes());
    let ip = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv6(source, destination, 64);
    ip.udp((i >> 16) as u16, 53).write(out, &[0; 18]).unwrap();
}

fn vxlan(i: u32, out: &mut Vec<u8>) {
    let mut payload = vec![8, 0, 0, 0, 0, 0, 1, 0];
    v4(i, false, &mut payload);
    let ip = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    ip.udp((i >> 16) as u16, 4789).write(out, &payload).unwrap();
}

/// Writes the keys of the frames to batches; returns their number.
fn keys(traffic: &Traffic, parse: impl Fn(LinkType, &[u8]) -> Headers) -> u64 {
    let mut batch = [Key16::zeroed(); 256];
    let mut batch6 = [Key37::zeroed(); 256];
    let mut keyed = 0;
    for frame in traffic.frames() {
        match parse(LinkType::ETHERNET, frame) {
            Headers::V4(ip) => {
                if let Ok(key) = Key16::extract(KeyKind::FIVE_TUPLE, &ip) {
                    batch[keyed % 256] = key;
                    keyed += 1;
                }
            }
            Headers::V6(ip) => {
                if let Ok(key) = Key37::extract(KeyKind::FIVE_TUPLE, &ip) {
                    batch6[keyed % 256] = key;
                    keyed += 1;
                }
            }
            Headers::NoKey(_) | Headers::Unread(_) | Headers::Malformed(_) => {}
        }
    }
    black_box((&batch, &batch6));
    keyed as u64
}

/// The same through etherparse.
fn etherparse_keys(traffic: &Traffic) -> u64 {
    let mut batch = [([0_u8; 32], [0_u16; 2], 0_u8); 256];
    let mut keyed = 0;
    for frame in traffic.frames() {
        let Ok(packet) = SlicedPacket::from_ethernet(frame) else { continue };
        let (protocol, ports) = match packet.transport {
            Some(TransportSlice::Udp(udp)) => (17, [udp.source_port(), udp.destination_port()]),
            Some(TransportSlice::Tcp(tcp)) => (6, [tcp.source_port(), tcp.destination_port()]),
            _ => continue,
        };
        let mut addresses = [0; 32];
        match packet.net {
            Some(NetSlice::Ipv4(ip)) => {
                addresses[..4].copy_from_slice(&ip.header().source());
                addresses[4..8].copy_from_slice(&ip.header().destination());
            }
            Some(NetSlice::Ipv6(ip)) => {
                addresses[..16].copy_from_slice(&ip.header().source());
                addresses[16..].copy_from_slice(&ip.header().destination());
            }
            _ => continue,
        }
        batch[keyed % 256] = (addresses, ports, protocol);
        keyed += 1;
    }
    black_box(&batch);
    keyed as u64
}

fn headers(criterion: &mut Criterion) {
    for (name, traffic) in [
        ("ipv4", Traffic::new(|i, out| v4(i, false, out))),
        ("vlan-ipv4", Traffic::new(|i, out| v4(i, true, out))),
        ("ipv6", Traffic::new(v6)),
        ("vxlan", Traffic::new(vxlan)),
    ] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(u64::from(FRAMES)));
        assert_eq!(keys(&traffic, parse), u64::from(FRAMES));
        assert_eq!(keys(&traffic, parse_inner), u64::from(FRAMES));
        assert_eq!(etherparse_keys(&traffic), u64::from(FRAMES));
        group.bench_function("parse", |b| b.iter(|| keys(black_box(&traffic), parse)));
        group.bench_function("parse_inner", |b| b.iter(|| keys(black_box(&traffic), parse_inner)));
        group.bench_function("etherparse", |b| b.iter(|| etherparse_keys(black_box(&traffic))));
    }
}

criterion_group!(benches, headers);
criterion_main!(benches);
