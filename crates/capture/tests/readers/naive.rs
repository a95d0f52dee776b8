//! An independent second reader: simple arithmetic over the whole file, in several passes.

use crate::support::Packet;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// Offset of the record, and the field named by the message.
    Damaged(u64, &'static str),
    Unreadable,
}

#[derive(Debug)]
pub(crate) struct Walked {
    pub(crate) packets: Vec<Packet>,
    pub(crate) irregular: u64,
    pub(crate) end: End,
    /// Start of each record or block read, and end of the last one.
    pub(crate) edges: Vec<usize>,
    /// Offsets of captured lengths.
    pub(crate) captured_fields: Vec<usize>,
    /// Whether the numbers around the last record are big-endian.
    pub(crate) big: bool,
}

impl Walked {
    fn unreadable() -> Self {
        Self {
            packets: Vec::new(),
            irregular: 0,
            end: End::Unreadable,
            edges: Vec::new(),
            captured_fields: Vec::new(),
            big: false,
        }
    }
}

/// An unsigned number of `size` bytes.
fn number(file: &[u8], at: usize, size: usize, big: bool) -> u64 {
    let digits = &file[at..at + size];
    let fold = |value: u64, digit: &u8| value * 256 + u64::from(*digit);
    if big { digits.iter().fold(0, fold) } else { digits.iter().rev().fold(0, fold) }
}

pub(crate) fn walk(file: &[u8]) -> Walked {
    if file.len() < 4 {
        return Walked::unreadable();
    }
    if number(file, 0, 4, true) == 0x0a0d_0d0a {
        return walk_pcapng(file);
    }
    for big in [true, false] {
        match number(file, 0, 4, big) {
            0xa1b2_c3d4 => return walk_pcap(file, big, 1000, 16),
            0xa1b2_3c4d => return walk_pcap(file, big, 1, 16),
            0xa1b2_cd34 => return walk_pcap(file, big, 1000, 24),
            _ => {}
        }
    }
    Walked::unreadable()
}

fn walk_pcap(file: &[u8], big: bool, unit_ns: u64, header: usize) -> Walked {
    let mut walked = Walked { big, ..Walked::unreadable() };
    if file.len() < 24 {
        return walked;
    }
    let version = (number(file, 4, 2, big), number(file, 6, 2, big));
    let link = number(file, 20, 4, big);
    let known = version == (543, 0) || (version.0 == 2 && version.1 <= 4);
    if !known || (link >> 16) & 0x3ff > 0 {
        return walked;
    }
    let snap = number(file, 16, 4, big);
    let mut at = 24;
    walked.edges.push(at);
    walked.end = loop {
        let left = file.len() - at;
        if left == 0 {
            break End::Whole;
        }
        if left < header {
            break End::Damaged(at as u64, "record header");
        }
        let (first, second) = (number(file, at + 8, 4, big), number(file, at + 12, 4, big));
        let swapped = match version {
            (2, 4) => false,
            (2, 3) => second < first,
            _ => true,
        };
        let (captured, wire) = if swapped { (second, first) } else { (first, second) };
        if captured > 262_144 {
            break End::Damaged(at as u64, "captured length");
        }
        if left - header < captured as usize {
            break End::Damaged(at as u64, "packet");
        }
        if captured > wire || (snap != 0 && captured > snap) {
            walked.irregular += 1;
        }
        walked.captured_fields.push(if swapped { at + 12 } else { at + 8 });
        let time =
            number(file, at, 4, big) * 1_000_000_000 + number(file, at + 4, 4, big) * unit_ns;
        walked.packets.push(Packet {
            time_ns: time.cast_signed(),
            wire: wire as u32,
            link: (link % 65_536) as u16,
            data: file[at + header..at + header + captured as usize].to_vec(),
        });
        at += header + captured as usize;
        walked.edges.push(at);
    };
    walked
}

struct Block<'a> {
    at: usize,
    big: bool,
    kind: u64,
    bytes: &'a [u8],
}

/// All blocks, up to the first one with an invalid length.
fn blocks(file: &[u8]) -> (Vec<Block<'_>>, End) {
    let (mut blocks, mut at, mut big) = (Vec::new(), 0, false);
    while at < file.len() {
        let rest = &file[at..];
        if rest.len() < 12 {
            return (blocks, End::Damaged(at as u64, "block header"));
        }
        if number(rest, 0, 4, true) == 0x0a0d_0d0a {
            match number(rest, 8, 4, true) {
                0x1a2b_3c4d => big = true,
                0x4d3c_2b1a => big = false,
                _ => return (blocks, End::Damaged(at as u64, "byte-order magic")),
            }
        }
        let (kind, length) = (number(rest, 0, 4, big), number(rest, 4, 4, big));
        let (least, most) = match kind {
            0x0a0d_0d0a => (28, 16_777_216),
            1 => (20, 16_777_216),
            3 => (16, 16_777_216),
            2 | 6 => (32, 16_777_216),
            _ => (12, u64::MAX),
        };
        if length < least || length > most || length % 4 != 0 {
            return (blocks, End::Damaged(at as u64, "block length"));
        }
        if length > rest.len() as u64 {
            return (blocks, End::Damaged(at as u64, "block"));
        }
        blocks.push(Block { at, big, kind, bytes: &rest[..length as usize] });
        at += length as usize;
    }
    (blocks, End::Whole)
}

/// Link type, snap length, resolution byte, offset in seconds.
type Interface = (u16, u64, u8, i64);

/// Options as codes and values, and whether they all lie within `bytes`.
fn options(bytes: &[u8], big: bool) -> (Vec<(u64, &[u8])>, bool) {
    let (mut options, mut at) = (Vec::new(), 0);
    while at + 4 <= bytes.len() {
        let (code, length) = (number(bytes, at, 2, big), number(bytes, at + 2, 2, big) as usize);
        if code == 0 {
            break;
        }
        if at + 4 + length > bytes.len() {
            return (options, false);
        }
        options.push((code, &bytes[at + 4..at + 4 + length]));
        at += 4 + length.div_ceil(4) * 4;
    }
    (options, true)
}

fn interface(block: &Block) -> (Interface, bool) {
    let Block { big, bytes, .. } = *block;
    let (options, sound) = options(&bytes[16..bytes.len() - 4], big);
    let last = |wanted, length| {
        let fits = |(code, value): &&(u64, &[u8])| *code == wanted && value.len() == length;
        options.iter().rev().find(fits).map(|(_, value)| number(value, 0, length, big))
    };
    let resolution = last(9, 1).unwrap_or(6) as u8;
    let offset = last(14, 8).unwrap_or(0).cast_signed();
    let misfit = |(code, value): &(u64, &[u8])| matches!((code, value.len()), (9, 0 | 2..) | (14, 0..=7 | 9..));
    let link = number(bytes, 8, 2, big) as u16;
    let odd = !sound || options.iter().any(misfit);
    ((link, number(bytes, 12, 4, big), resolution, offset), odd)
}

fn time_ns(ticks: u64, (_, _, resolution, offset): Interface) -> i64 {
    let ticks = i128::from(ticks);
    let ns = if resolution >= 128 {
        ticks * 1_000_000_000 / (1_i128 << (resolution - 128))
    } else {
        // 10^38 is the largest power that fits; beyond 10^29 the quotient is 0 anyway.
        ticks * 1_000_000_000 / 10_i128.pow(u32::from(resolution).min(38))
    };
    let time = ns + i128::from(offset) * 1_000_000_000;
    i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX })
}

fn walk_pcapng(file: &[u8]) -> Walked {
    let mut walked = Walked::unreadable();
    let magic = |big| file.len() >= 16 && number(file, 8, 4, big) == 0x1a2b_3c4d;
    let big = magic(true);
    if !big && !magic(false) {
        return walked;
    }
    if ![(1, 0), (1, 2)].contains(&(number(file, 12, 2, big), number(file, 14, 2, big))) {
        return walked;
    }
    let (blocks, end) = blocks(file);
    walked.end = if end == End::Damaged(0, "block") { End::Unreadable } else { end };
    let mut interfaces: Vec<Interface> = Vec::new();
    for block in &blocks {
        let &Block { at, big, kind, bytes } = block;
        let field = |at| number(bytes, at, 4, big);
        let mut odd = field(bytes.len() - 4) != field(4);
        walked.edges.push(at);
        walked.big = big;
        let mut damage = None;
        match kind {
            0x0a0d_0d0a => {
                interfaces.clear();
                let version = (number(bytes, 12, 2, big), number(bytes, 14, 2, big));
                if version != (1, 0) && version != (1, 2) {
                    damage = Some("section version");
                }
            }
            1 => {
                let (described, irregular) = interface(block);
                interfaces.push(described);
                odd |= irregular;
            }
            2 | 3 | 6 => {
                let interface = match kind {
                    2 => number(bytes, 8, 2, big),
                    3 => 0,
                    _ => field(8),
                };
                let described = interfaces.get(interface as usize).copied();
                let snap = match described {
                    Some((_, snap, ..)) if snap > 0 => snap,
                    _ => u64::MAX,
                };
                let (captured, wire, before) = match kind {
                    3 => (field(8).min(snap), field(8), 12),
                    _ => (field(20), field(24), 28),
                };
                let room = bytes.len() - 4 - before;
                if captured > 262_144 || captured as usize > room {
                    damage = Some("captured length");
                } else if let Some(described) = described {
                    odd |= captured > wire || captured > snap;
                    let ticks = (field(12) << 32) + if kind == 3 { 0 } else { field(16) };
                    walked.captured_fields.push(at + if kind == 3 { 8 } else { 20 });
                    walked.packets.push(Packet {
                        time_ns: if kind == 3 { 0 } else { time_ns(ticks, described) },
                        wire: wire as u32,
                        link: described.0,
                        data: bytes[before..before + captured as usize].to_vec(),
                    });
                } else {
                    damage = Some("interface");
                }
            }
            _ => {}
        }
        if let Some(field) = damage {
            walked.end = End::Damaged(at as u64, field);
            return walked;
        }
        walked.irregular += u64::from(odd);
    }
    walked.edges.push(blocks.last().map_or(0, |last| last.at + last.bytes.len()));
    walked
}
