//! A capture that repeats the same packets, second by second, and is never in memory as a whole.

use std::io::{self, Read};

use flowgauge_synthetic::{self as synthetic, Packet, Profile, Traffic};

/// Packets of a cycle, which are a second apart in all: one every 500 µs.
pub(crate) const PACKETS: u64 = 2_000;

/// The formats that captures come in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    Pcap,
    Pcapng,
}

/// A stream of `cycles` times the same packets. Reading from it does not allocate.
pub(crate) struct Cycle {
    format: Format,
    head: Vec<u8>,
    /// The records of a cycle, and where their timestamps lie.
    records: Vec<u8>,
    stamps: Vec<usize>,
    /// Microseconds since the UNIX epoch at which the cycle begins.
    start_us: u64,
    cycles: u64,
    head_at: usize,
    at: usize,
}

impl Cycle {
    pub(crate) fn new(format: Format, cycles: u64) -> Self {
        let start_us = synthetic::Config::START_NS.cast_unsigned() / 1_000;
        let (records, head) = (Vec::new(), head(format));
        let (stamps, at) = (Vec::new(), 0);
        let mut cycle = Self { format, head, records, stamps, start_us, cycles, head_at: 0, at };
        for frame in frames() {
            cycle.push(&frame);
        }
        cycle.stamp();
        cycle
    }

    fn push(&mut self, frame: &[u8]) {
        let (records, length) = (&mut self.records, frame.len() as u32);
        match self.format {
            Format::Pcap => {
                self.stamps.push(records.len());
                records.extend([0; 8]);
                records.extend([length.to_le_bytes(); 2].concat());
                records.extend(frame);
            }
            Format::Pcapng => {
                let padded = frame.len().next_multiple_of(4);
                let block = (padded as u32 + 32).to_le_bytes();
                records.extend([6_u32.to_le_bytes(), block, [0; 4]].concat());
                self.stamps.push(records.len());
                records.extend([0; 8]);
                records.extend([length.to_le_bytes(); 2].concat());
                records.extend(frame);
                records.extend(&[0; 4][..padded - frame.len()]);
                records.extend(block);
            }
        }
    }

    /// Writes the times of the cycle that begins.
    fn stamp(&mut self) {
        for (number, &at) in self.stamps.iter().enumerate() {
            let time_us = self.start_us + number as u64 * 1_000_000 / PACKETS;
            let (first, second) = match self.format {
                Format::Pcap => (time_us / 1_000_000, time_us % 1_000_000),
                Format::Pcapng => (time_us >> 32, time_us & 0xffff_ffff),
            };
            self.records[at..at + 4].copy_from_slice(&(first as u32).to_le_bytes());
            self.records[at + 4..at + 8].copy_from_slice(&(second as u32).to_le_bytes());
        }
    }
}

impl Read for Cycle {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut head = &self.head[self.head_at..];
        if !head.is_empty() {
            let read = head.read(out)?;
            self.head_at += read;
            return Ok(read);
        }
        if self.cycles == 0 {
            return Ok(0);
        }
        let read = (&self.records[self.at..]).read(out)?;
        self.at += read;
        if self.at == self.records.len() {
            self.at = 0;
            self.cycles -= 1;
            self.start_us += 1_000_000;
            self.stamp();
        }
        Ok(read)
    }
}

fn head(format: Format) -> Vec<u8> {
    let words: &[u32] = match format {
        Format::Pcap => &[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1],
        Format::Pcapng => {
            &[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28, 1, 20, 1, 262_144, 20]
        }
    };
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The frames of a cycle: IPv4 and IPv6, some in a VXLAN tunnel, ARP, and cut ones.
fn frames() -> Vec<Vec<u8>> {
    let config = synthetic::Config {
        profile: Profile::Zipf { flows: 500, skew: 1.0 },
        packets: PACKETS,
        size: "imix".parse().unwrap(),
        ipv6: 0.3,
        ..synthetic::Config::default()
    };
    println!("seed {}", config.seed);
    let mut bytes = vec![0; Packet::MAX_WIRE];
    let frames = Traffic::new(config).unwrap().enumerate().map(|(number, packet)| {
        let frame = packet.frame(&mut bytes);
        let frame = &bytes[..frame];
        match number % 50 {
            0 => [&[0xff; 12], &[8, 6][..], &[0; 46]].concat(),
            1 => frame[..30].to_vec(),
            tunnelled if tunnelled % 3 == 0 => vxlan(frame),
            _ => frame.to_vec(),
        }
    });
    frames.collect()
}

/// The frame in a tunnel between two hosts.
fn vxlan(frame: &[u8]) -> Vec<u8> {
    let length = |headers: usize| ((frame.len() + headers) as u16).to_be_bytes();
    let mut outer = vec![2; 12];
    outer.extend([8, 0, 0x45, 0]);
    outer.extend(length(36));
    outer.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 0, 0x12, 0xb5]);
    outer.extend(length(16));
    outer.extend([0, 0, 8, 0, 0, 0, 0, 0, 7, 0]);
    outer.extend(frame);
    outer
}
