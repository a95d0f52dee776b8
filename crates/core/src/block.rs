//! Blocks of packets with parsed headers, from which several measurements take their keys.

use std::ops::Range;

use flowgauge_kernel::{Isa, ReadHeaders, Tuple, WithHeaders};

use crate::batch::BATCH_PACKETS;
use crate::packet::common::{V4, Version};
use crate::packet::mixed::{TakeTuples, take_mixed};
use crate::packet::{Column, Extras, Frame, Frames, Headers, Ip, Ports, Tunnels, has_ports};
use crate::services::Services;

/// A packet with parsed headers.
#[derive(Clone, Copy, Debug)]
pub struct ParsedRow {
    /// Its headers.
    pub headers: Headers,
    /// Bytes that it counts: its length on the wire, or less under [`Tunnels::InnerBytes`].
    pub wire: u32,
    /// Nanoseconds since the UNIX epoch.
    pub time_ns: i64,
}

/// IPv4 packets with parsed headers, in columns of equal length.
#[derive(Clone, Copy, Debug)]
pub struct ParsedColumns<'a> {
    /// Source addresses, as numbers.
    pub sources: &'a [u32],
    /// Destination addresses.
    pub destinations: &'a [u32],
    /// Source ports. Ignored, and taken as 0, for protocols without ports.
    pub source_ports: &'a [u16],
    /// Destination ports, likewise.
    pub destination_ports: &'a [u16],
    /// Protocols.
    pub protocols: &'a [u8],
    /// Bytes on the wire.
    pub wires: &'a [u32],
    /// Nanoseconds since the UNIX epoch.
    pub times_ns: &'a [i64],
}

impl ParsedColumns<'_> {
    /// The packet at an index.
    fn row(&self, index: usize) -> ParsedRow {
        let protocol = self.protocols[index];
        let ports =
            u32::from(self.source_ports[index]) << 16 | u32::from(self.destination_ports[index]);
        let ports = if has_ports(protocol) { Ports::Found(ports) } else { Ports::Absent };
        let addresses = u64::from(self.sources[index]) << 32 | u64::from(self.destinations[index]);
        let headers = Headers::V4(Ip { addresses: addresses.to_be_bytes(), protocol, ports });
        ParsedRow { headers, wire: self.wires[index], time_ns: self.times_ns[index] }
    }
}

/// Packets with parsed headers, in rows or in columns.
pub trait Parsed: Copy {
    /// The number of packets.
    fn len(self) -> usize;

    /// Whether there is no packet.
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The packets in a range.
    #[must_use]
    fn part(self, range: Range<usize>) -> Self;

    /// Adds packets to a block until it is full; returns the number added.
    fn put(self, block: &mut Block) -> usize;
}

impl Parsed for &[ParsedRow] {
    fn len(self) -> usize {
        <[_]>::len(self)
    }

    fn part(self, range: Range<usize>) -> Self {
        &self[range]
    }

    fn put(self, block: &mut Block) -> usize {
        block.take(self)
    }
}

impl Parsed for ParsedColumns<'_> {
    fn len(self) -> usize {
        self.times_ns.len()
    }

    fn part(self, range: Range<usize>) -> Self {
        Self {
            sources: &self.sources[range.clone()],
            destinations: &self.destinations[range.clone()],
            source_ports: &self.source_ports[range.clone()],
            destination_ports: &self.destination_ports[range.clone()],
            protocols: &self.protocols[range.clone()],
            wires: &self.wires[range.clone()],
            times_ns: &self.times_ns[range],
        }
    }

    fn put(self, block: &mut Block) -> usize {
        block.take_columns(self)
    }
}

/// Up to [`BATCH_PACKETS`] packets with their headers, in columns.
///
/// The columns hold IPv4 packets with ports, which are most packets. The headers of all others are
/// kept in a separate list, in order of their index.
///
/// Cost: 2 ns for a packet with ports, plus that of [`Extras::read`] where extras are read. Memory:
/// 256 × 28 bytes (44 with extras), 80 bytes for each packet outside the columns, and 64 KiB where
/// services are counted.
///
/// ```
/// use flowgauge_core::block::{Block, ParsedRow};
/// use flowgauge_core::packet::{Headers, Ip, Ports};
/// use flowgauge_kernel::Isa;
///
/// let ip = Ip { addresses: [10, 0, 0, 1, 10, 0, 0, 2], protocol: 17, ports: Ports::Found(53) };
/// let row = ParsedRow { headers: Headers::V4(ip), wire: 64, time_ns: 0 };
/// let mut block = Block::new(Isa::best(), false);
/// assert_eq!(block.take(&[row, row]), 2);
/// assert_eq!(block.wires(), [64, 64]);
/// assert_eq!(block.headers(1), row.headers);
/// ```
pub struct Block {
    isa: Isa,
    len: usize,
    /// Whether no packet is older than the one before it.
    ordered: bool,
    /// Time of the last packet; the minimum while the block is empty.
    last_ns: i64,
    columns: Box<Columns>,
    others: Vec<Other>,
    /// Extras of the frames, where a measurement needs them; `None` for headers without a frame.
    extras: Option<Box<[Option<Extras>; BATCH_PACKETS]>>,
    /// The packets in the columns by service, and the number of packets when they were counted.
    services: Option<(Services, usize)>,
}

struct Columns {
    tuples: [Tuple<8>; BATCH_PACKETS],
    wires: [u32; BATCH_PACKETS],
    times_ns: [i64; BATCH_PACKETS],
}

/// The columns' placeholder for a packet outside them.
const NONE: Tuple<8> = Tuple { addresses: [0; 8], rest: 0 };

/// A packet outside the columns.
struct Other {
    index: usize,
    row: ParsedRow,
}

/// Consecutive packets of a block.
pub(crate) enum Stretch<'a> {
    /// IPv4 packets with ports: a range of the columns.
    Columns(Range<usize>),
    /// The index and headers of one packet outside the columns.
    Other(usize, &'a ParsedRow),
}

impl Block {
    /// An empty block that reads headers with this instruction set, and extras if `extras` is set.
    pub fn new(isa: Isa, extras: bool) -> Self {
        let columns = Columns {
            tuples: [NONE; BATCH_PACKETS],
            wires: [0; BATCH_PACKETS],
            times_ns: [0; BATCH_PACKETS],
        };
        let (columns, others) = (Box::new(columns), Vec::with_capacity(BATCH_PACKETS));
        let extras = extras.then(|| Box::new([None; BATCH_PACKETS]));
        let (len, ordered, last_ns, services) = (0, true, i64::MIN, None);
        Self { isa, len, ordered, last_ns, columns, others, extras, services }
    }

    /// The number of packets in the block.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no packet.
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
        if let Some((services, counted)) = &mut self.services {
            services.clear();
            *counted = 0;
        }
    }

    /// Counts the packets by protocol and service, once for all measurements that do.
    pub fn count_services(&mut self) {
        let (mut services, _) = self.services.take().unwrap_or_default();
        services.clear();
        for stretch in self.stretches(0..self.len) {
            if let Stretch::Columns(range) = stretch {
                services.add_all(self.tuples(range.clone()), &self.columns.wires[range]);
            }
        }
        self.services = Some((services, self.len));
    }

    /// The packets of the columns by protocol and service, if all of them were counted.
    pub(crate) fn services(&self) -> Option<&Services> {
        let (services, counted) = self.services.as_ref()?;
        (*counted == self.len).then_some(services)
    }

    /// Packet times in nanoseconds since the UNIX epoch.
    pub fn times_ns(&self) -> &[i64] {
        &self.columns.times_ns[..self.len]
    }

    /// Whether no packet is older than the one before it.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Reads the headers of frames until the block is full; returns the number of frames taken.
    pub fn read(&mut self, frames: Frames<'_>, tunnels: Tunnels) -> usize {
        let taken = frames.len().min(BATCH_PACKETS - self.len);
        if let Some(extras) = &mut self.extras {
            for (to, frame) in extras[self.len..].iter_mut().zip(frames.part(0..taken).iter()) {
                *to = Some(Extras::read(&frame, tunnels));
            }
        }
        self.isa.with_headers(Read { block: self, frames: frames.part(0..taken), tunnels });
        taken
    }

    /// Takes packets with parsed headers until the block is full; returns the number taken.
    pub fn take(&mut self, rows: &[ParsedRow]) -> usize {
        let taken = rows.len().min(BATCH_PACKETS - self.len);
        if let Some(extras) = &mut self.extras {
            extras[self.len..self.len + taken].fill(None);
        }
        rows[..taken].iter().for_each(|row| self.take_row(row));
        taken
    }

    /// Takes packets with parsed headers from columns until the block is full; returns the number
    /// taken.
    pub fn take_columns(&mut self, columns: ParsedColumns<'_>) -> usize {
        let taken = columns.len().min(BATCH_PACKETS - self.len);
        let columns = columns.part(0..taken);
        let free = &mut self.columns.tuples[self.len..self.len + taken];
        let addresses = columns.sources.iter().zip(columns.destinations);
        let ports = columns.source_ports.iter().zip(columns.destination_ports);
        let tuples = addresses.zip(ports).zip(columns.protocols);
        let mut all_ports = true;
        for (to, (((source, destination), (source_port, destination_port)), protocol)) in
            free.iter_mut().zip(tuples)
        {
            let addresses = (u64::from(*source) << 32 | u64::from(*destination)).to_be_bytes();
            let ports =
                (u32::from(*source_port) << 16 | u32::from(*destination_port)).to_be_bytes();
            *to = Tuple::new(addresses, ports, *protocol);
            all_ports &= has_ports(*protocol);
        }
        if all_ports {
            if let Some(extras) = &mut self.extras {
                extras[self.len..self.len + taken].fill(None);
            }
            self.extend(columns.wires, Column::Each(columns.times_ns));
            return taken;
        }
        (0..taken).map(|index| self.take(&[columns.row(index)])).sum()
    }

    /// Reads leading common frames of both versions of IP, one by one; returns their number.
    #[inline(never)]
    fn read_mixed(&mut self, frames: Frames<'_>, inner: bool) -> usize {
        take_mixed(frames, inner, self)
    }

    #[inline(never)]
    fn read_uncommon(&mut self, frame: &Frame<'_>, tunnels: Tunnels) {
        let (headers, wire) = tunnels.read(frame);
        self.take_row(&ParsedRow { headers, wire, time_ns: frame.time_ns });
    }

    #[inline(always)]
    fn take_row(&mut self, row: &ParsedRow) {
        if let Headers::V4(Ip { addresses, protocol, ports: Ports::Found(ports) }) = row.headers {
            let tuple = Tuple::new(addresses, ports.to_be_bytes(), protocol);
            self.put(tuple, row.wire, row.time_ns);
        } else {
            self.others.push(Other { index: self.len, row: *row });
            self.put(NONE, row.wire, row.time_ns);
        }
    }

    #[inline(always)]
    fn put(&mut self, tuple: Tuple<8>, wire: u32, time_ns: i64) {
        let at = self.len;
        self.columns.tuples[at] = tuple;
        self.columns.wires[at] = wire;
        self.columns.times_ns[at] = time_ns;
        self.pass(time_ns);
        self.len += 1;
    }

    /// Adds the packets whose five-tuples were written to the first free places of the columns.
    #[inline(always)]
    fn extend(&mut self, wires: &[u32], times_ns: Column<'_, i64>) {
        let range = self.len..self.len + wires.len();
        self.columns.wires[range.clone()].copy_from_slice(wires);
        times_ns.copy_to(&mut self.columns.times_ns[range.clone()]);
        for place in range.clone() {
            self.pass(self.columns.times_ns[place]);
        }
        self.len = range.end;
    }

    /// Notes whether the time of the next packet is in order.
    #[inline(always)]
    fn pass(&mut self, time_ns: i64) {
        self.ordered &= self.last_ns <= time_ns;
        self.last_ns = time_ns;
    }

    /// The packets of a range, in order.
    pub(crate) fn stretches(&self, range: Range<usize>) -> impl Iterator<Item = Stretch<'_>> {
        let first = self.others.partition_point(|other| other.index < range.start);
        let mut others = self.others[first..].iter().peekable();
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let next = others.peek().map_or(range.end, |other| other.index.min(range.end));
            if at < next {
                return Some(Stretch::Columns(std::mem::replace(&mut at, next)..next));
            }
            at += 1;
            others.next().map(|other| Stretch::Other(other.index, &other.row))
        })
    }

    /// The five-tuples of a range of the columns.
    #[inline(always)]
    pub(crate) fn tuples(&self, range: Range<usize>) -> &[Tuple<8>] {
        &self.columns.tuples[range]
    }

    /// The extras of the frame at an index; `None` where they are unknown.
    #[inline]
    pub(crate) fn extras(&self, index: usize) -> Option<&Extras> {
        self.extras.as_ref()?[index].as_ref()
    }

    /// The headers of the packet at an index.
    ///
    /// # Panics
    /// When there is no such packet.
    pub fn headers(&self, index: usize) -> Headers {
        if let Ok(at) = self.others.binary_search_by_key(&index, |other| other.index) {
            return self.others[at].row.headers;
        }
        Headers::V4(self.columns.tuples[..self.len][index].into())
    }

    /// The length of each packet on the wire, in bytes.
    pub fn wires(&self) -> &[u32] {
        &self.columns.wires[..self.len]
    }
}

impl TakeTuples for Block {
    #[inline(always)]
    fn v4_tuple(&mut self, tuple: &Tuple<8>, wire: u32, time_ns: i64) {
        self.put(*tuple, wire, time_ns);
    }
    #[inline(always)]
    fn v6_tuple(&mut self, tuple: &Tuple<32>, wire: u32, time_ns: i64) {
        self.take_row(&ParsedRow { headers: Headers::V6((*tuple).into()), wire, time_ns });
    }
}

/// Reads frames into a block with room for them.
struct Read<'a> {
    block: &'a mut Block,
    frames: Frames<'a>,
    tunnels: Tunnels,
}

impl WithHeaders for Read<'_> {
    type Output = ();

    #[inline(always)]
    fn run<H: ReadHeaders>(self, headers: H) {
        let Self { block, frames, tunnels } = self;
        let inner = tunnels.are_followed();
        // The index of the next frame that is not Ethernet.
        let (mut taken, mut other) = (0, 0);
        while taken < frames.len() {
            if other <= taken {
                other = taken + frames.part(taken..frames.len()).ethernet();
            }
            let common = frames.part(taken..other);
            let free = &mut block.columns.tuples[block.len..];
            let v4 = V4 { headers, inner }.read_tuples(block.isa, common.bytes(), free);
            block.extend(&common.wires()[..v4], common.times_ns().part(0..v4));
            taken += v4;
            if taken == other && v4 > 0 {
                continue;
            }
            let mixed = block.read_mixed(frames.part(taken..other), inner);
            taken += mixed;
            if mixed == 0 {
                block.read_uncommon(&frames.at(taken), tunnels);
                taken += 1;
            }
        }
    }
}
