//! Packets whose headers were read once, for several measurements to take keys from.

use std::ops::Range;

use flowgauge_kernel::{Isa, ReadHeaders, Tuple, WithHeaders};

use crate::batch::BATCH_PACKETS;
use crate::packet::{Frame, Headers, Ip, Ports, common, parse, parse_inner};

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
/// Cost: 2 ns for a packet with ports. Memory: 256 × 32 bytes, and 80 bytes for each other packet.
pub struct Block {
    isa: Isa,
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
    tuples: [Tuple<8>; BATCH_PACKETS],
    bytes: [u64; BATCH_PACKETS],
    times_ns: [i64; BATCH_PACKETS],
}

/// What the columns hold where a packet is none of theirs.
const NONE: Tuple<8> = Tuple { addresses: [0; 8], rest: 0 };

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
    /// An empty block, whose frames are read on this instruction set.
    pub fn new(isa: Isa) -> Self {
        let columns = Columns {
            tuples: [NONE; BATCH_PACKETS],
            bytes: [0; BATCH_PACKETS],
            times_ns: [0; BATCH_PACKETS],
        };
        let (columns, others) = (Box::new(columns), Vec::with_capacity(BATCH_PACKETS));
        Self { isa, len: 0, ordered: true, last_ns: i64::MIN, columns, others }
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
        self.isa.with_headers(Read { block: self, frames: &frames[..taken], inner });
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
            let tuple = Tuple::new(addresses, ports.to_be_bytes(), protocol);
            self.put(tuple, row.wire, row.time_ns);
        } else {
            self.others.push(Other { place: self.len, row: *row });
            self.put(NONE, row.wire, row.time_ns);
        }
    }

    #[inline(always)]
    fn put(&mut self, tuple: Tuple<8>, wire: u32, time_ns: i64) {
        self.extend(std::iter::once((tuple, wire, time_ns)));
    }

    /// Adds packets of the columns, as far as there is room; returns how many.
    #[inline(always)]
    fn extend(&mut self, rows: impl Iterator<Item = (Tuple<8>, u32, i64)>) -> usize {
        let Columns { tuples, bytes, times_ns } = &mut *self.columns;
        let columns = tuples[self.len..].iter_mut().zip(&mut bytes[self.len..]);
        let columns = columns.zip(&mut times_ns[self.len..]);
        let (mut added, mut ordered, mut last_ns) = (0, self.ordered, self.last_ns);
        for (((tuple, bytes), time_ns), row) in columns.zip(rows) {
            (*tuple, *bytes, *time_ns) = (row.0, u64::from(row.1), row.2);
            ordered &= last_ns <= row.2;
            last_ns = row.2;
            added += 1;
        }
        (self.ordered, self.last_ns) = (ordered, last_ns);
        self.len += added;
        added
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
    pub(crate) fn tuples(&self, places: Range<usize>) -> &[Tuple<8>] {
        &self.columns.tuples[places]
    }

    /// Bytes on the wire of all packets.
    pub fn bytes(&self) -> &[u64] {
        &self.columns.bytes[..self.len]
    }
}

/// Reads frames into a block that has room for them.
struct Read<'a> {
    block: &'a mut Block,
    frames: &'a [Frame<'a>],
    inner: bool,
}

impl WithHeaders for Read<'_> {
    type Output = ();

    #[inline(always)]
    fn run<H: ReadHeaders>(self, headers: H) {
        let Self { block, mut frames, inner } = self;
        loop {
            let row = |frame: &Frame<'_>| {
                Some((
                    common::v4(headers, frame.link, frame.bytes, inner)?,
                    frame.wire,
                    frame.time_ns,
                ))
            };
            let read = block.extend(frames.iter().map_while(row));
            let Some((frame, rest)) = frames[read..].split_first() else { return };
            match common::v6(headers, frame.link, frame.bytes, inner) {
                Some(tuple) => block.take_row(&ParsedRow {
                    headers: Headers::V6(tuple.into()),
                    wire: frame.wire,
                    time_ns: frame.time_ns,
                }),
                None => block.read_uncommon(frame, inner),
            }
            frames = rest;
        }
    }
}
