//! The batcher: from frames to keys to batches, with a lane for each key type.
//!
//! Keys with addresses have a lane for IPv4 and one for IPv6, so that an IPv4 key stays small. Keys
//! without addresses have one lane, since IPv4 and IPv6 have the same protocols and ports.
//!
//! The loop over a burst is compiled for each pair of key types and each instruction set. It reads
//! common headers, extracts keys and writes rows without a function call. Several measurements read
//! headers once, into a block, and each takes its keys from the columns of the block.

mod lane;

use std::ops::Range;

use flowgauge_kernel::{Isa, ReadHeaders, Tuple, WithHeaders};

use crate::any::{BatchMut, Width};
use crate::batch::BATCH_PACKETS;
use crate::block::{Block, ParsedRow, Stretch};
use crate::key::{Elements, Extract, Key8, Key16, Key37, KeySpec};
use crate::packet::common::{V4, V6};
use crate::packet::mixed::{TakeTuples, take_mixed};
use crate::packet::{
    Column, Extras, Frame, Frames, Headers, Ip, KeylessCounts, LinkType, Malformed, NoKey, Ports,
    Tunnels,
};
use crate::services::ServiceCounts;
use crate::summary::Reads;
use crate::terms::Size;

use lane::{Lane, one};

/// Receives the batches of a batcher.
pub trait Take {
    /// Takes a batch of lane 0 or 1. The batcher clears it afterwards.
    fn take(&mut self, lane: usize, batch: BatchMut<'_>);
}

/// Numbers of packets by outcome since the last [`Batcher::forget`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets and bytes with a key, up to the last [`Batcher::flush`].
    pub keyed: Size,
    /// The part of `keyed` that no lane takes.
    pub unmeasured: Size,
    /// Packets counted under two keys, one for each of their ends.
    pub twice: Size,
    /// Packets without a key.
    pub keyless: KeylessCounts,
}

/// The batches of one measurement, in one or two lanes.
///
/// Cost: a virtual call for each burst and each batch. Memory: a batch of 256 rows for each lane.
///
/// ```
/// use flowgauge_core::batcher::{Batcher, BatcherOptions, Take};
/// use flowgauge_core::packet::{Frame, FrameColumns, LinkType};
/// use flowgauge_core::{any::BatchMut, key::KeyKind};
///
/// struct Packets(usize);
/// impl Take for Packets {
///     fn take(&mut self, _lane: usize, batch: BatchMut<'_>) { self.0 += batch.len(); }
/// }
/// let frame = Frame { bytes: &[0x45; 20], wire: 60, link: LinkType::IPV4, time_ns: 0 };
/// let frames: FrameColumns<'_> = [frame; 3].into_iter().collect();
/// let mut batcher = Batcher::new(BatcherOptions::new(KeyKind::SOURCE));
/// let mut packets = Packets(0);
/// batcher.take(&frames.frames(), u64::MAX, &mut packets);
/// batcher.flush(&mut packets);
/// assert_eq!(packets.0, 3);
/// ```
#[derive(Clone)]
pub struct Batcher {
    keys: Keys,
    extras: bool,
    isa: Isa,
    tunnels: Tunnels,
    keyless: KeylessCounts,
    unmeasured: Size,
}

/// The lanes by their key types, named after the shortest key of each type.
#[derive(Clone)]
enum Keys {
    Address(Lane<Key8>, Option<Lane<Key16>>),
    Pair(Lane<Key8>, Option<Lane<Key37>>),
    FiveTuple(Lane<Key16>, Option<Lane<Key37>>),
    Number(Lane<Key8>),
    Wide(Lane<Key16>),
}

/// Evaluates the first expression with the lanes of IPv4 and IPv6, or the second one with the lane
/// of both, for each key type.
macro_rules! match_keys {
    ($keys:expr, ($v4:ident, $v6:ident) => $two:expr, $lane:ident => $one:expr) => {
        match $keys {
            Keys::Address($v4, $v6) => $two,
            Keys::Pair($v4, $v6) => $two,
            Keys::FiveTuple($v4, $v6) => $two,
            Keys::Number($lane) => $one,
            Keys::Wide($lane) => $one,
        }
    };
}

/// How a batcher fills its batches.
#[derive(Clone, Copy, Debug)]
pub struct BatcherOptions {
    /// The key.
    pub key: KeySpec,
    /// Which packet of a tunnel is measured, and whose bytes it counts.
    pub tunnels: Tunnels,
    /// Rows of a full batch, 1 to 256.
    pub batch_packets: usize,
    /// The columns that the summaries read.
    pub reads: Reads,
    /// What elements are, where the summaries read them.
    pub elements: Option<Elements>,
    /// Whether packets are also counted by protocol and service.
    pub services: bool,
    /// Whether IPv6 has a lane. Without one, its packets are counted as unmeasured.
    pub ipv6: bool,
    /// The instruction set for reading headers.
    pub isa: Isa,
}

impl BatcherOptions {
    /// Full batches of outer packets by `key`, IPv6 included, without elements or services.
    pub fn new(key: impl Into<KeySpec>) -> Self {
        Self {
            key: key.into(),
            tunnels: Tunnels::Outer,
            batch_packets: BATCH_PACKETS,
            reads: Reads { times: true, ..Reads::BYTES },
            elements: None,
            services: false,
            ipv6: true,
            isa: Isa::best(),
        }
    }

    fn wants_extras(&self) -> bool {
        self.key.kind().needs_extras() || matches!(self.elements, Some(Elements::Details))
    }
}

/// Why a packet has no key.
enum Keyless {
    NoKey(NoKey),
    Unread(LinkType),
    Malformed(Malformed),
}

impl Keyless {
    fn count(self, counts: &mut KeylessCounts) {
        match self {
            Self::NoKey(reason) => counts.count_no_key(reason),
            Self::Unread(link) => counts.count_unread(link),
            Self::Malformed(malformed) => counts.count_malformed(malformed),
        }
    }
}

/// A packet's fields besides its IP header.
#[derive(Clone, Copy)]
struct PacketInfo<'a> {
    wire: u32,
    time_ns: i64,
    /// `None` where they are unknown, or not needed.
    extras: Option<&'a Extras>,
}

/// Adds packets to lanes.
trait AddPackets: TakeTuples {
    /// The key of IPv4 packets.
    type Key: Width + Extract<8>;

    fn v4(&mut self, ip: &Ip<8>, packet: PacketInfo<'_>) -> Result<(), Keyless>;
    fn v6(&mut self, ip: &Ip<32>, packet: PacketInfo<'_>) -> Result<(), Keyless>;
    /// Whether the key or the elements need extras.
    fn wants_extras(&self) -> bool;
    /// Whether five-tuples are all that it needs of common packets.
    fn takes_tuples(&self) -> bool;
    /// Adds leading common IPv4 frames of these Ethernet frames; returns their number.
    fn common_v4(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize;
    /// Adds leading common IPv6 frames of these Ethernet frames; returns their number.
    fn common_v6(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize;
    /// The lane of the packets in the columns of blocks, and what takes its batches.
    fn of_columns(&mut self) -> (&mut Lane<Self::Key>, &mut dyn Take);

    #[inline(always)]
    fn headers(&mut self, headers: &Headers, packet: PacketInfo<'_>) -> Result<(), Keyless> {
        match headers {
            Headers::V4(ip) => self.v4(ip, packet),
            Headers::V6(ip) => self.v6(ip, packet),
            Headers::NoKey(reason) => Err(Keyless::NoKey(*reason)),
            Headers::Unread(link) => Err(Keyless::Unread(*link)),
            Headers::Malformed(malformed) => Err(Keyless::Malformed(*malformed)),
        }
    }
}

/// One lane for both versions of IP.
struct OneLane<'a, K> {
    lane: &'a mut Lane<K>,
    to: &'a mut dyn Take,
}

impl<K: Width + Extract<8> + Extract<32>> AddPackets for OneLane<'_, K> {
    type Key = K;

    #[inline(always)]
    fn v4(&mut self, ip: &Ip<8>, packet: PacketInfo<'_>) -> Result<(), Keyless> {
        self.lane.take(ip, packet, 0, self.to)
    }
    #[inline(always)]
    fn v6(&mut self, ip: &Ip<32>, packet: PacketInfo<'_>) -> Result<(), Keyless> {
        self.lane.take(ip, packet, 0, self.to)
    }
    fn wants_extras(&self) -> bool {
        self.lane.extras
    }
    fn takes_tuples(&self) -> bool {
        self.lane.takes_tuples()
    }
    #[inline(always)]
    fn common_v4(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize {
        let cut = self.lane.take_cut(&frames, 0, self.to);
        let rest = frames.part(cut..frames.len());
        cut + self.lane.take_common(rest, V4 { headers, inner }, 0, self.to)
    }
    #[inline(always)]
    fn common_v6(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize {
        self.lane.take_common(frames, V6 { headers, inner }, 0, self.to)
    }
    #[inline(always)]
    fn of_columns(&mut self) -> (&mut Lane<Self::Key>, &mut dyn Take) {
        (self.lane, self.to)
    }
}

impl<K: Width + Extract<8> + Extract<32>> TakeTuples for OneLane<'_, K> {
    #[inline(always)]
    fn v4_tuple(&mut self, tuple: &Tuple<8>, wire: u32, time_ns: i64) {
        self.lane.take_tuple(tuple, wire, time_ns, 0, self.to);
    }
    #[inline(always)]
    fn v6_tuple(&mut self, tuple: &Tuple<32>, wire: u32, time_ns: i64) {
        self.lane.take_tuple(tuple, wire, time_ns, 0, self.to);
    }
}

/// A lane for each version of IP, or for IPv4 alone.
struct TwoLanes<'a, A, B> {
    v4: &'a mut Lane<A>,
    v6: Option<&'a mut Lane<B>>,
    unmeasured: &'a mut Size,
    to: &'a mut dyn Take,
}

impl<A: Width + Extract<8>, B: Width + Extract<32>> AddPackets for TwoLanes<'_, A, B> {
    type Key = A;

    #[inline(always)]
    fn v4(&mut self, ip: &Ip<8>, packet: PacketInfo<'_>) -> Result<(), Keyless> {
        self.v4.take(ip, packet, 0, self.to)
    }
    #[inline(always)]
    fn v6(&mut self, ip: &Ip<32>, packet: PacketInfo<'_>) -> Result<(), Keyless> {
        if let Some(v6) = &mut self.v6 {
            return v6.take(ip, packet, 1, self.to);
        }
        B::extract(self.v4.key.kind(), ip).map_err(Keyless::Malformed)?;
        *self.unmeasured += one(packet.wire);
        Ok(())
    }
    fn wants_extras(&self) -> bool {
        self.v4.extras
    }
    fn takes_tuples(&self) -> bool {
        self.v4.takes_tuples()
    }
    #[inline(always)]
    fn common_v4(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize {
        let cut = self.v4.take_cut(&frames, 0, self.to);
        let rest = frames.part(cut..frames.len());
        cut + self.v4.take_common(rest, V4 { headers, inner }, 0, self.to)
    }
    #[inline(always)]
    fn common_v6(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize {
        let Some(v6) = &mut self.v6 else { return 0 };
        v6.take_common(frames, V6 { headers, inner }, 1, self.to)
    }
    #[inline(always)]
    fn of_columns(&mut self) -> (&mut Lane<Self::Key>, &mut dyn Take) {
        (self.v4, self.to)
    }
}

impl<A: Width + Extract<8>, B: Width + Extract<32>> TakeTuples for TwoLanes<'_, A, B> {
    #[inline(always)]
    fn v4_tuple(&mut self, tuple: &Tuple<8>, wire: u32, time_ns: i64) {
        self.v4.take_tuple(tuple, wire, time_ns, 0, self.to);
    }
    #[inline(always)]
    fn v6_tuple(&mut self, tuple: &Tuple<32>, wire: u32, time_ns: i64) {
        match &mut self.v6 {
            Some(v6) => v6.take_tuple(tuple, wire, time_ns, 1, self.to),
            None => *self.unmeasured += one(wire),
        }
    }
}

impl Batcher {
    /// An empty batcher.
    pub fn new(options: BatcherOptions) -> Self {
        let keys = match options.key.lanes() {
            [4, _] => Keys::Address(Lane::new(options, 0), Lane::ipv6(options)),
            [8, _] => Keys::Pair(Lane::new(options, 0), Lane::ipv6(options)),
            [4 | 8] => Keys::Number(Lane::new(options, 0)),
            [_] => Keys::Wide(Lane::new(options, 0)),
            _ => Keys::FiveTuple(Lane::new(options, 0), Lane::ipv6(options)),
        };
        let (keyless, unmeasured) = (KeylessCounts::default(), Size::default());
        let BatcherOptions { isa, tunnels, .. } = options;
        Self { keys, extras: options.wants_extras(), isa, tunnels, keyless, unmeasured }
    }

    /// Takes frames in order until `most` packets had a key, and passes full batches to `to`.
    /// Returns the number of frames taken, and of those with a key.
    // By reference: a copy of the columns in vectors would wait for the stores of each number.
    pub fn take(&mut self, frames: &Frames<'_>, most: u64, to: &mut dyn Take) -> (usize, u64) {
        // Usually all frames are common.
        let mut cut = 0;
        if frames.ethernet() == frames.len() && most >= frames.len() as u64 {
            cut = match_keys!(
                &mut self.keys,
                (v4, _v6) => v4.take_cut(frames, 0, to),
                lane => lane.take_cut(frames, 0, to)
            );
            if cut == frames.len() {
                return (cut, cut as u64);
            }
        }
        let rest = frames.part(cut..frames.len());
        let (taken, keyed) = self.take_any(rest, most - cut as u64, to);
        (cut + taken, cut as u64 + keyed)
    }

    /// As [`Self::take`], for one frame. Returns whether it has a key.
    pub fn take_one(&mut self, frame: &Frame<'_>, to: &mut dyn Take) -> bool {
        let is_cut = frame.link == LinkType::ETHERNET
            && match_keys!(
                &mut self.keys,
                (v4, _v6) => v4.take_one_cut(frame, to),
                lane => lane.take_one_cut(frame, to)
            );
        is_cut || {
            let (bytes, wires) = ([frame.bytes.into()], [frame.wire]);
            let (link, time_ns) = (Column::Same(frame.link), Column::Same(frame.time_ns));
            self.take_any(Frames::new(&bytes, &wires, link, time_ns), 1, to).1 == 1
        }
    }

    /// As [`Self::take`], for frames of any kind.
    #[inline(never)]
    fn take_any(&mut self, frames: Frames<'_>, most: u64, to: &mut dyn Take) -> (usize, u64) {
        let Self { keys, isa, tunnels, keyless, unmeasured, .. } = self;
        let tunnels = *tunnels;
        match_keys!(
            keys,
            (v4, v6) => {
                let lanes = TwoLanes { v4, v6: v6.as_mut(), unmeasured, to };
                isa.with_headers(&mut AddFrames { frames, tunnels, most, keyless, lanes })
            },
            lane => {
                let lanes = OneLane { lane, to };
                isa.with_headers(&mut AddFrames { frames, tunnels, most, keyless, lanes })
            }
        )
    }

    /// As [`Self::take`], for a range of packets of a block.
    pub fn take_block(
        &mut self,
        block: &Block,
        range: Range<usize>,
        most: u64,
        to: &mut dyn Take,
    ) -> (usize, u64) {
        let Self { keys, keyless, unmeasured, .. } = self;
        match_keys!(
            keys,
            (v4, v6) => {
                let lanes = TwoLanes { v4, v6: v6.as_mut(), unmeasured, to };
                take_stretches(block, range, most, keyless, lanes)
            },
            lane => take_stretches(block, range, most, keyless, OneLane { lane, to })
        )
    }

    /// Passes on the batches that are not full yet.
    pub fn flush(&mut self, to: &mut dyn Take) {
        match_keys!(
            &mut self.keys,
            (v4, v6) => {
                v4.flush(0, to);
                if let Some(v6) = v6 {
                    v6.flush(1, to);
                }
            },
            lane => lane.flush(0, to)
        );
    }

    /// Sets the weight in packets of all following packets.
    pub fn weigh(&mut self, packets: u32, to: &mut dyn Take) {
        match_keys!(
            &mut self.keys,
            (v4, v6) => {
                v4.weigh(0, packets, to);
                if let Some(v6) = v6 {
                    v6.weigh(1, packets, to);
                }
            },
            lane => lane.weigh(0, packets, to)
        );
    }

    /// Whether the key or the elements need extras, so that blocks must read them.
    pub fn wants_extras(&self) -> bool {
        self.extras
    }

    /// Whether packets are counted by protocol and service.
    pub fn counts_services(&self) -> bool {
        match_keys!(&self.keys, (v4, _v6) => v4.services.is_some(), lane => lane.services.is_some())
    }

    /// The numbers of packets by outcome.
    pub fn counts(&self) -> Counts {
        let (keyless, unmeasured) = (self.keyless, self.unmeasured);
        let (keyed, twice) = match_keys!(
            &self.keys,
            (v4, v6) => {
                let v6 = v6.as_ref().map_or_else(Default::default, |v6| (v6.keyed, v6.twice));
                (v4.keyed + v6.0, v4.twice + v6.1)
            },
            lane => (lane.keyed, lane.twice)
        );
        Counts { keyed: keyed + unmeasured, unmeasured, twice, keyless }
    }

    /// Packets by protocol and service, where these are counted.
    pub fn services(&mut self) -> Option<ServiceCounts> {
        let (first, second) = match_keys!(
            &mut self.keys,
            (v4, v6) => (&mut v4.services, v6.as_mut().and_then(|v6| v6.services.as_deref_mut())),
            lane => (&mut lane.services, None)
        );
        let all = first.as_deref_mut()?;
        if let Some(second) = second {
            all.merge(second);
            second.clear();
        }
        Some(all.counts())
    }

    /// Resets all counts to 0.
    pub fn forget(&mut self) {
        self.keyless = KeylessCounts::default();
        self.unmeasured = Size::default();
        match_keys!(
            &mut self.keys,
            (v4, v6) => {
                v4.forget();
                if let Some(v6) = v6 {
                    v6.forget();
                }
            },
            lane => lane.forget()
        );
    }
}

/// Adds each frame to its lane, until `most` of them had a key.
struct AddFrames<'a, P> {
    frames: Frames<'a>,
    tunnels: Tunnels,
    most: u64,
    keyless: &'a mut KeylessCounts,
    lanes: P,
}

impl<P: AddPackets> WithHeaders for &mut AddFrames<'_, P> {
    type Output = (usize, u64);

    #[inline(always)]
    fn run<H: ReadHeaders>(self, headers: H) -> (usize, u64) {
        let AddFrames { frames, tunnels, most, keyless, lanes } = self;
        let (frames, tunnels, most) = (*frames, *tunnels, *most);
        let inner = tunnels.are_followed();
        let (mut taken, mut left) = (0, most);
        // The index of the next frame that is not Ethernet.
        let mut other = 0;
        while left > 0 && taken < frames.len() {
            if other <= taken {
                other = taken + frames.part(taken..frames.len()).ethernet();
            }
            let end = other.min(taken.saturating_add(usize::try_from(left).unwrap_or(usize::MAX)));
            let v4 = lanes.common_v4(headers, frames.part(taken..end), inner);
            let v6 = lanes.common_v6(headers, frames.part(taken + v4..end), inner);
            (taken, left) = (taken + v4 + v6, left - (v4 + v6) as u64);
            if v6 > 0 {
                // The next frame may be common IPv4.
                let mixed = add_mixed(frames.part(taken..end), inner, lanes);
                (taken, left) = (taken + mixed, left - mixed as u64);
            } else if v4 == 0 || taken < end {
                match add_uncommon(&frames.at(taken), tunnels, lanes) {
                    Ok(()) => left -= 1,
                    Err(reason) => reason.count(keyless),
                }
                taken += 1;
            }
        }
        (taken, most - left)
    }
}

/// Adds leading common frames of both versions of IP, one by one. Returns their number, which may
/// be 0.
#[inline(never)]
fn add_mixed(frames: Frames<'_>, inner: bool, lanes: &mut impl AddPackets) -> usize {
    if !lanes.takes_tuples() {
        return 0;
    }
    take_mixed(frames, inner, lanes)
}

/// Adds an uncommon frame to its lane.
#[inline(never)]
fn add_uncommon(
    frame: &Frame<'_>,
    tunnels: Tunnels,
    lanes: &mut impl AddPackets,
) -> Result<(), Keyless> {
    let (headers, wire) = tunnels.read(frame);
    let extras = lanes.wants_extras().then(|| Extras::read(frame, tunnels));
    lanes.headers(&headers, PacketInfo { wire, time_ns: frame.time_ns, extras: extras.as_ref() })
}

/// Adds the packets of a block to their lanes, until `most` of them had a key.
#[inline(always)]
fn take_stretches(
    block: &Block,
    range: Range<usize>,
    most: u64,
    keyless: &mut KeylessCounts,
    mut lanes: impl AddPackets,
) -> (usize, u64) {
    let is_whole = range == (0..block.len()) && most >= block.len() as u64;
    let counted = is_whole && lanes.of_columns().0.add_services(block);
    let mut left = most;
    for stretch in block.stretches(range.clone()) {
        let end = match stretch {
            Stretch::Columns(columns) => {
                let mut at = columns.start;
                // Packets without a key leave room for others.
                while at < columns.end && left > 0 {
                    let most = usize::try_from(left).unwrap_or(usize::MAX);
                    let end = columns.end.min(at.saturating_add(most));
                    let (lane, to) = lanes.of_columns();
                    left -= lane.take_columns(block, at..end, counted, keyless, to);
                    at = end;
                }
                at
            }
            Stretch::Other(index, row) => {
                let &ParsedRow { wire, time_ns, .. } = row;
                match row.headers {
                    Headers::V6(Ip { addresses, protocol, ports: Ports::Found(ports) })
                        if lanes.takes_tuples() =>
                    {
                        let tuple = Tuple::new(addresses, ports.to_be_bytes(), protocol);
                        lanes.v6_tuple(&tuple, wire, time_ns);
                        left -= 1;
                    }
                    _ => {
                        let packet = PacketInfo { wire, time_ns, extras: block.extras(index) };
                        match lanes.headers(&row.headers, packet) {
                            Ok(()) => left -= 1,
                            Err(reason) => reason.count(keyless),
                        }
                    }
                }
                index + 1
            }
        };
        if left == 0 {
            return (end - range.start, most);
        }
    }
    (range.len(), most - left)
}
