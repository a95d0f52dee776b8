//! Packets whose headers were read once, for several measurements to take keys from.

use std::ops::Range;

use crate::batch::BATCH_PACKETS;
use crate::packet::{Frame, Headers, Ip, Ports, parse, parse_common, parse_inner};

/// A packet whose headers were read already.
#[derive(Clone, Copy, Debug)]
pub struct ParsedRow {
    /// Its headers.
    pub headers: Headers,
    /// Bytes on the wire.
    pub wire: u32,
    /// Nanoseconds since the UNIX epoch.
    pub time_ns: i64,
}

/// Up to [`BATCH_PACKETS`] packets with their headers, in columns.
///
/// The columns hold IPv4 packets with ports, which are most packets; the headers of all others stand
/// beside them, in the order of their places.
///
/// Cost: 2 ns for a packet with ports. Memory: 256 × 29 bytes, and 80 bytes for each other packet.
pub struct Block {
    len: usize,
    /// Whether no packet is older than the one before it.
    ordered: bool,
    /// Time of the last packet; the least before there is one.
    last_ns: i64,
    columns: Box<Columns>,
    others: Vec<Other>,
}

/// In one piece, since a packet is written to each of them.
struct Columns {
    addresses: [[u8; 8]; BATCH_PACKETS],
    ports: [u32; BATCH_PACKETS],
    protocols: [u8; BATCH_PACKETS],
    bytes: [u64; BATCH_PACKETS],
    times_ns: [i64; BATCH_PACKETS],
}

/// A packet that the columns cannot hold.
struct Other {
    place: usize,
    row: ParsedRow,
}

/// Packets of a block that follow each other.
pub(crate) enum Stretch<'a> {
    /// IPv4 packets with ports, at these places of the columns.
    Columns(Range<usize>),
    /// One packet of any other kind, and its place.
    Other(usize, &'a ParsedRow),
}

impl Block {
    /// An empty block.
    pub fn new() -> Self {
        let columns = Columns {
            addresses: [[0; 8]; BATCH_PACKETS],
            ports: [0; BATCH_PACKETS],
            protocols: [0; BATCH_PACKETS],
            bytes: [0; BATCH_PACKETS],
            times_ns: [0; BATCH_PACKETS],
        };
        let (columns, others) = (Box::new(columns), Vec::with_capacity(BATCH_PACKETS));
        Self { len: 0, ordered: true, last_ns: i64::MIN, columns, others }
    }

    /// Packets in the block.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is no room for one more.
    pub fn is_full(&self) -> bool {
        self.len == BATCH_PACKETS
    }

    /// Empties the block.
    pub fn clear(&mut self) {
        self.len = 0;
        self.ordered = true;
        self.last_ns = i64::MIN;
        self.others.clear();
    }

    /// Packet times in nanoseconds since the UNIX epoch.
    pub fn times_ns(&self) -> &[i64] {
        &self.columns.times_ns[..self.len]
    }

    /// Whether no packet is older than the one before it.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Reads the headers of frames, through tunnels where `inner` is set, until the block is full;
    /// returns how many frames it took.
    pub fn read(&mut self, frames: &[Frame<'_>], inner: bool) -> usize {
        let taken = frames.len().min(BATCH_PACKETS - self.len);
        for frame in &frames[..taken] {
            match parse_common(frame.link, frame.bytes, inner) {
                Some(Ip { addresses, protocol, ports: Ports::Found(ports) }) => {
                    self.put(addresses, ports, protocol, frame.wire, frame.time_ns);
                }
                _ => self.read_uncommon(frame, inner),
            }
        }
        taken
    }

    /// Takes packets whose headers were read already until the block is full; returns how many.
    pub fn take(&mut self, rows: &[ParsedRow]) -> usize {
        let taken = rows.len().min(BATCH_PACKETS - self.len);
        rows[..taken].iter().for_each(|row| self.take_row(row));
        taken
    }

    #[inline(never)]
    fn read_uncommon(&mut self, frame: &Frame<'_>, inner: bool) {
        let parse = if inner { parse_inner } else { parse };
        let headers = parse(frame.link, frame.bytes);
        self.take_row(&ParsedRow { headers, wire: frame.wire, time_ns: frame.time_ns });
    }

    #[inline(always)]
    fn take_row(&mut self, row: &ParsedRow) {
        if let Headers::V4(Ip { addresses, protocol, ports: Ports::Found(ports) }) = row.headers {
            self.put(addresses, ports, protocol, row.wire, row.time_ns);
        } else {
            self.others.push(Other { place: self.len, row: *row });
            self.put([0; 8], 0, 0, row.wire, row.time_ns);
        }
    }

    #[inline(always)]
    fn put(&mut self, addresses: [u8; 8], ports: u32, protocol: u8, wire: u32, time_ns: i64) {
        // A block that is full takes no packet; the remainder spares a check of each column.
        let (at, columns) = (self.len % BATCH_PACKETS, &mut *self.columns);
        columns.addresses[at] = addresses;
        columns.ports[at] = ports;
        columns.protocols[at] = protocol;
        columns.bytes[at] = u64::from(wire);
        columns.times_ns[at] = time_ns;
        self.ordered &= self.last_ns <= time_ns;
        self.last_ns = time_ns;
        self.len += 1;
    }

    /// The packets at these places, in their order.
    pub(crate) fn stretches(&self, places: Range<usize>) -> impl Iterator<Item = Stretch<'_>> {
        let first = self.others.partition_point(|other| other.place < places.start);
        let mut others = self.others[first..].iter().peekable();
        let mut at = places.start;
        std::iter::from_fn(move || {
            if at >= places.end {
                return None;
            }
            let next = others.peek().map_or(places.end, |other| other.place.min(places.end));
            if at < next {
                return Some(Stretch::Columns(std::mem::replace(&mut at, next)..next));
            }
            at += 1;
            others.next().map(|other| Stretch::Other(other.place, &other.row))
        })
    }

    /// The IPv4 packets at these places of the columns.
    #[inline(always)]
    pub(crate) fn ips(&self, places: Range<usize>) -> impl Iterator<Item = Ip<8>> {
        let columns = self.columns.addresses[places.clone()].iter();
        let columns =
            columns.zip(&self.columns.ports[places.clone()]).zip(&self.columns.protocols[places]);
        columns.map(|((addresses, ports), protocol)| Ip {
            addresses: *addresses,
            protocol: *protocol,
            ports: Ports::Found(*ports),
        })
    }

    /// Bytes on the wire of all packets.
    pub fn bytes(&self) -> &[u64] {
        &self.columns.bytes[..self.len]
    }
}

impl Default for Block {
    fn default() -> Self {
        Self::new()
    }
}
