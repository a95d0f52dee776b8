//! Frames to keys to batches, one lane for each key type.
//!
//! Keys with addresses have a lane for IPv4 and one for IPv6, so that an IPv4 key stays small. Keys
//! without addresses share one lane, since IPv4 and IPv6 have the same protocols and ports.
//!
//! The loop over a burst is compiled once for each pair of key types and instruction set: common headers
//! are read, keys cut from them, and rows written, without a call between. Several measurements share a
//! block of headers instead, of whose columns each takes its keys.

use std::ops::Range;

use flowgauge_kernel::{Digester, Isa, ReadHeaders, Tuple, WithHeaders};

use crate::any::{BatchMut, Width};
use crate::batch::Batch;
use crate::block::{Block, Stretch};
use crate::key::{Element, Extract, FlowKey, Key4, Key8, Key16, Key37};
use crate::key::{KeyKind, KeySpec};
use crate::packet::common::{V4, V6, Version};
use crate::packet::{
    Frame, Frames, Headers, Ip, KeylessCounts, LinkType, Malformed, NoKey, Tunnels,
};
use crate::terms::{Size, SpreadOf};

/// Takes the batches of lanes.
pub trait Take {
    /// Takes a batch of lane 0 or 1. The lane clears it afterwards.
    fn take(&mut self, lane: usize, batch: BatchMut<'_>);
}

/// What became of packets since the last [`Lanes::forget`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets and bytes with a key, up to the last [`Lanes::flush`].
    pub keyed: Size,
    /// Those of them that no lane takes.
    pub unmeasured: Size,
    /// Packets without a key.
    pub keyless: KeylessCounts,
}

/// The lanes of one measurement.
///
/// Cost: one virtual call for each burst and each batch. Memory: a batch of 256 rows for each lane.
#[derive(Clone)]
pub struct Lanes {
    keys: Keys,
    isa: Isa,
    tunnels: Tunnels,
    keyless: KeylessCounts,
    unmeasured: Size,
}

/// The lanes by the types of their keys, named after the shortest key of each.
#[derive(Clone)]
enum Keys {
    Address(Lane<Key4>, Option<Lane<Key16>>),
    Pair(Lane<Key8>, Option<Lane<Key37>>),
    FiveTuple(Lane<Key16>, Option<Lane<Key37>>),
    Number(Lane<Key4>),
    Numbers(Lane<Key8>),
}

/// How lanes fill their batches.
#[derive(Clone, Copy, Debug)]
pub struct LaneOptions {
    /// The key.
    pub key: KeySpec,
    /// Which packet of a tunnel is measured, and whose bytes it counts.
    pub tunnels: Tunnels,
    /// Rows of a full batch, 1 to 256.
    pub batch_packets: usize,
    /// How elements are digested, where the summaries want them.
    pub elements: Option<(SpreadOf, Digester)>,
    /// Whether IPv6 has a lane; without one its packets are counted as unmeasured.
    pub ipv6: bool,
    /// The instruction set that headers are read on.
    pub isa: Isa,
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

/// Puts packets into lanes.
trait Put {
    fn v4(&mut self, ip: &Ip<8>, wire: u32, time_ns: i64) -> Result<(), Keyless>;
    fn v6(&mut self, ip: &Ip<32>, wire: u32, time_ns: i64) -> Result<(), Keyless>;
    /// Puts the first of these frames of Ethernet, as far as they are common ones of IPv4; returns how
    /// many.
    fn common_v4(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize;
    /// The same of IPv6.
    fn common_v6(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize;
    /// Puts packets of the columns of a block.
    fn columns(&mut self, block: &Block, places: Range<usize>);

    #[inline(always)]
    fn headers(&mut self, headers: &Headers, wire: u32, time_ns: i64) -> Result<(), Keyless> {
        match headers {
            Headers::V4(ip) => self.v4(ip, wire, time_ns),
            Headers::V6(ip) => self.v6(ip, wire, time_ns),
            Headers::NoKey(reason) => Err(Keyless::NoKey(*reason)),
            Headers::Unread(link) => Err(Keyless::Unread(*link)),
            Headers::Malformed(malformed) => Err(Keyless::Malformed(*malformed)),
        }
    }
}

/// The lane of both versions.
struct One<'a, K> {
    lane: &'a mut Lane<K>,
    to: &'a mut dyn Take,
}

impl<K: Width + Extract<8> + Extract<32>> Put for One<'_, K> {
    #[inline(always)]
    fn v4(&mut self, ip: &Ip<8>, wire: u32, time_ns: i64) -> Result<(), Keyless> {
        self.lane.take(ip, wire, time_ns, 0, self.to)
    }
    #[inline(always)]
    fn v6(&mut self, ip: &Ip<32>, wire: u32, time_ns: i64) -> Result<(), Keyless> {
        self.lane.take(ip, wire, time_ns, 0, self.to)
    }
    #[inline(always)]
    fn common_v4(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize {
        self.lane.take_common(frames, V4 { headers, inner }, 0, self.to)
    }
    #[inline(always)]
    fn common_v6(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize {
        self.lane.take_common(frames, V6 { headers, inner }, 0, self.to)
    }
    #[inline(always)]
    fn columns(&mut self, block: &Block, places: Range<usize>) {
        self.lane.take_columns(block, places, 0, self.to);
    }
}

/// A lane for each version, or for IPv4 alone.
struct Two<'a, A, B> {
    v4: &'a mut Lane<A>,
    v6: Option<&'a mut Lane<B>>,
    unmeasured: &'a mut Size,
    to: &'a mut dyn Take,
}

impl<A: Width + Extract<8>, B: Width + Extract<32>> Put for Two<'_, A, B> {
    #[inline(always)]
    fn v4(&mut self, ip: &Ip<8>, wire: u32, time_ns: i64) -> Result<(), Keyless> {
        self.v4.take(ip, wire, time_ns, 0, self.to)
    }
    #[inline(always)]
    fn v6(&mut self, ip: &Ip<32>, wire: u32, time_ns: i64) -> Result<(), Keyless> {
        if let Some(v6) = &mut self.v6 {
            return v6.take(ip, wire, time_ns, 1, self.to);
        }
        B::extract(self.v4.key.kind(), ip).map_err(Keyless::Malformed)?;
        *self.unmeasured += Size { packets: 1, bytes: u64::from(wire) };
        Ok(())
    }
    #[inline(always)]
    fn common_v4(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize {
        self.v4.take_common(frames, V4 { headers, inner }, 0, self.to)
    }
    #[inline(always)]
    fn common_v6(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize {
        let Some(v6) = &mut self.v6 else { return 0 };
        v6.take_common(frames, V6 { headers, inner }, 1, self.to)
    }
    #[inline(always)]
    fn columns(&mut self, block: &Block, places: Range<usize>) {
        self.v4.take_columns(block, places, 0, self.to);
    }
}

impl Lanes {
    /// Empty lanes.
    pub fn new(options: LaneOptions) -> Self {
        let keys = match options.key.lanes() {
            [4, _] => Keys::Address(Lane::new(options, 0), Lane::ipv6(options)),
            [8, _] => Keys::Pair(Lane::new(options, 0), Lane::ipv6(options)),
            [4] => Keys::Number(Lane::new(options, 0)),
            [8] => Keys::Numbers(Lane::new(options, 0)),
            _ => Keys::FiveTuple(Lane::new(options, 0), Lane::ipv6(options)),
        };
        let (keyless, unmeasured) = (KeylessCounts::default(), Size::default());
        Self { keys, isa: options.isa, tunnels: options.tunnels, keyless, unmeasured }
    }

    /// Takes frames in their order until `most` packets had a key; `to` gets each batch that is full.
    /// Returns the frames taken, and how many of them had a key.
    pub fn take(&mut self, frames: Frames<'_>, most: u64, to: &mut dyn Take) -> (usize, u64) {
        let Self { keys, isa, tunnels, keyless, unmeasured } = self;
        match keys {
            Keys::Address(v4, v6) => {
                let lanes = Two { v4, v6: v6.as_mut(), unmeasured, to };
                isa.with_headers(&mut Each { frames, tunnels: *tunnels, most, keyless, lanes })
            }
            Keys::Pair(v4, v6) => {
                let lanes = Two { v4, v6: v6.as_mut(), unmeasured, to };
                isa.with_headers(&mut Each { frames, tunnels: *tunnels, most, keyless, lanes })
            }
            Keys::FiveTuple(v4, v6) => {
                let lanes = Two { v4, v6: v6.as_mut(), unmeasured, to };
                isa.with_headers(&mut Each { frames, tunnels: *tunnels, most, keyless, lanes })
            }
            Keys::Number(lane) => {
                let lanes = One { lane, to };
                isa.with_headers(&mut Each { frames, tunnels: *tunnels, most, keyless, lanes })
            }
            Keys::Numbers(lane) => {
                let lanes = One { lane, to };
                isa.with_headers(&mut Each { frames, tunnels: *tunnels, most, keyless, lanes })
            }
        }
    }

    /// As [`Self::take`], of the packets at these places of a block.
    pub fn take_block(
        &mut self,
        block: &Block,
        places: Range<usize>,
        most: u64,
        to: &mut dyn Take,
    ) -> (usize, u64) {
        let Self { keys, keyless, unmeasured, .. } = self;
        match keys {
            Keys::Address(v4, v6) => {
                let lanes = Two { v4, v6: v6.as_mut(), unmeasured, to };
                take_stretches(block, places, most, keyless, lanes)
            }
            Keys::Pair(v4, v6) => {
                let lanes = Two { v4, v6: v6.as_mut(), unmeasured, to };
                take_stretches(block, places, most, keyless, lanes)
            }
            Keys::FiveTuple(v4, v6) => {
                let lanes = Two { v4, v6: v6.as_mut(), unmeasured, to };
                take_stretches(block, places, most, keyless, lanes)
            }
            Keys::Number(lane) => take_stretches(block, places, most, keyless, One { lane, to }),
            Keys::Numbers(lane) => take_stretches(block, places, most, keyless, One { lane, to }),
        }
    }

    /// Passes on the batches that are not full.
    pub fn flush(&mut self, to: &mut dyn Take) {
        match &mut self.keys {
            Keys::Address(v4, v6) => flush_two(v4, v6.as_mut(), to),
            Keys::Pair(v4, v6) => flush_two(v4, v6.as_mut(), to),
            Keys::FiveTuple(v4, v6) => flush_two(v4, v6.as_mut(), to),
            Keys::Number(lane) => lane.flush(0, to),
            Keys::Numbers(lane) => lane.flush(0, to),
        }
    }

    /// Lets each packet from here on stand for so many.
    pub fn weigh(&mut self, packets: u32, to: &mut dyn Take) {
        match &mut self.keys {
            Keys::Address(v4, v6) => weigh_two(v4, v6.as_mut(), packets, to),
            Keys::Pair(v4, v6) => weigh_two(v4, v6.as_mut(), packets, to),
            Keys::FiveTuple(v4, v6) => weigh_two(v4, v6.as_mut(), packets, to),
            Keys::Number(lane) => lane.weigh(0, packets, to),
            Keys::Numbers(lane) => lane.weigh(0, packets, to),
        }
    }

    /// What became of the packets.
    pub fn counts(&self) -> Counts {
        let (keyless, unmeasured) = (self.keyless, self.unmeasured);
        let keyed = match &self.keys {
            Keys::Address(v4, v6) => keyed(v4, v6.as_ref()),
            Keys::Pair(v4, v6) => keyed(v4, v6.as_ref()),
            Keys::FiveTuple(v4, v6) => keyed(v4, v6.as_ref()),
            Keys::Number(lane) => lane.keyed,
            Keys::Numbers(lane) => lane.keyed,
        };
        Counts { keyed: keyed + unmeasured, unmeasured, keyless }
    }

    /// Counts from 0 again.
    pub fn forget(&mut self) {
        self.keyless = KeylessCounts::default();
        self.unmeasured = Size::default();
        match &mut self.keys {
            Keys::Address(v4, v6) => forget_two(v4, v6.as_mut()),
            Keys::Pair(v4, v6) => forget_two(v4, v6.as_mut()),
            Keys::FiveTuple(v4, v6) => forget_two(v4, v6.as_mut()),
            Keys::Number(lane) => lane.keyed = Size::default(),
            Keys::Numbers(lane) => lane.keyed = Size::default(),
        }
    }
}

fn keyed<A, B>(v4: &Lane<A>, v6: Option<&Lane<B>>) -> Size {
    v4.keyed + v6.map_or(Size::default(), |v6| v6.keyed)
}

fn forget_two<A, B>(v4: &mut Lane<A>, v6: Option<&mut Lane<B>>) {
    v4.keyed = Size::default();
    if let Some(v6) = v6 {
        v6.keyed = Size::default();
    }
}

fn flush_two<A: Width, B: Width>(v4: &mut Lane<A>, v6: Option<&mut Lane<B>>, to: &mut dyn Take) {
    v4.flush(0, to);
    if let Some(v6) = v6 {
        v6.flush(1, to);
    }
}

fn weigh_two<A: Width, B: Width>(
    v4: &mut Lane<A>,
    v6: Option<&mut Lane<B>>,
    packets: u32,
    to: &mut dyn Take,
) {
    v4.weigh(0, packets, to);
    if let Some(v6) = v6 {
        v6.weigh(1, packets, to);
    }
}

/// Puts each frame into its lane, until `most` of them had a key.
struct Each<'a, P> {
    frames: Frames<'a>,
    tunnels: Tunnels,
    most: u64,
    keyless: &'a mut KeylessCounts,
    lanes: P,
}

impl<P: Put> WithHeaders for &mut Each<'_, P> {
    type Output = (usize, u64);

    #[inline(always)]
    fn run<H: ReadHeaders>(self, headers: H) -> (usize, u64) {
        let Each { frames, tunnels, most, keyless, lanes } = self;
        let (frames, tunnels, most) = (*frames, *tunnels, *most);
        let inner = tunnels.are_followed();
        let (mut taken, mut left) = (0, most);
        // Where the next frame begins that is not of Ethernet.
        let mut other = 0;
        while left > 0 && taken < frames.len() {
            if other <= taken {
                other = taken + frames.part(taken..frames.len()).ethernet();
            }
            let end = other.min(taken.saturating_add(usize::try_from(left).unwrap_or(usize::MAX)));
            let v4 = lanes.common_v4(headers, frames.part(taken..end), inner);
            let v6 = lanes.common_v6(headers, frames.part(taken + v4..end), inner);
            (taken, left) = (taken + v4 + v6, left - (v4 + v6) as u64);
            // Behind packets of IPv6 stands any other; else one that is no common one.
            if v6 == 0 && (v4 == 0 || taken < end) {
                match put_uncommon(&frames.at(taken), tunnels, lanes) {
                    Ok(()) => left -= 1,
                    Err(reason) => reason.count(keyless),
                }
                taken += 1;
            }
        }
        (taken, most - left)
    }
}

/// Puts a frame that is no common one into its lane.
#[inline(never)]
fn put_uncommon(frame: &Frame<'_>, tunnels: Tunnels, lanes: &mut impl Put) -> Result<(), Keyless> {
    let (headers, bytes) = tunnels.read(frame);
    lanes.headers(&headers, bytes, frame.time_ns)
}

/// Puts the packets of a block into their lanes, until `most` of them had a key.
#[inline(always)]
fn take_stretches(
    block: &Block,
    places: Range<usize>,
    most: u64,
    keyless: &mut KeylessCounts,
    mut lanes: impl Put,
) -> (usize, u64) {
    let mut left = most;
    for stretch in block.stretches(places.clone()) {
        let end = match stretch {
            Stretch::Columns(columns) => {
                let packets = columns.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let end = columns.start + packets;
                lanes.columns(block, columns.start..end);
                left -= packets as u64;
                end
            }
            Stretch::Other(place, row) => {
                match lanes.headers(&row.headers, row.wire, row.time_ns) {
                    Ok(()) => left -= 1,
                    Err(reason) => reason.count(keyless),
                }
                place + 1
            }
        };
        if left == 0 {
            return (end - places.start, most);
        }
    }
    (places.len(), most - left)
}

/// Cuts keys from five-tuples.
#[inline(always)]
fn cut<const N: usize, K>(tuples: &[Tuple<N>], kind: KeyKind, mask: K, to: &mut [K])
where
    K: FlowKey + Extract<N>,
{
    for (to, tuple) in to.iter_mut().zip(tuples) {
        *to = K::from_tuple(kind, tuple).masked(mask);
    }
}

/// One key type on its way: a batch that fills.
struct Lane<K> {
    key: KeySpec,
    mask: K,
    /// Whether it is a key that is made by code of its own.
    usual: bool,
    batch: Batch<K>,
    batch_packets: usize,
    elements: Option<(SpreadOf, Digester)>,
    keyed: Size,
    /// Packets that each row stands for.
    weight: u32,
}

impl<K: Width> Lane<K> {
    fn new(options: LaneOptions, lane: usize) -> Self {
        let LaneOptions { key, batch_packets, elements, .. } = options;
        let (mask, usual) = (key.mask(key.lanes()[lane]), key.kind().is_usual());
        let (batch, keyed) = (Batch::new(), Size::default());
        Self { key, mask, usual, batch, batch_packets, elements, keyed, weight: 1 }
    }

    fn ipv6(options: LaneOptions) -> Option<Self> {
        options.ipv6.then(|| Self::new(options, 1))
    }

    /// Takes a packet with an IP header; `to` gets the batch when it is full.
    #[inline(always)]
    fn take<const N: usize>(
        &mut self,
        ip: &Ip<N>,
        wire: u32,
        time_ns: i64,
        lane: usize,
        to: &mut dyn Take,
    ) -> Result<(), Keyless>
    where
        K: Extract<N>,
        Ip<N>: Element,
    {
        let key = K::extract_bits(self.key.kind(), ip, self.mask).map_err(Keyless::Malformed)?;
        match &self.elements {
            None => self.batch.push(key, wire, time_ns),
            Some((of, digester)) => {
                let element = ip.element(self.key.kind(), *of, digester);
                let element = element.map_err(Keyless::Malformed)?;
                self.batch.push_with_element(key, wire, time_ns, element);
            }
        }
        if self.batch.len() == self.batch_packets {
            self.flush(lane, to);
        }
        Ok(())
    }

    /// Takes the first frames, as far as they are common ones of a version of IP; returns how many.
    #[inline(always)]
    fn take_common<const N: usize>(
        &mut self,
        frames: Frames<'_>,
        version: impl Version<N>,
        lane: usize,
        to: &mut dyn Take,
    ) -> usize
    where
        K: Extract<N>,
        Ip<N>: Element,
    {
        let (kind, mask, usual) = (self.key.kind(), self.mask, self.usual);
        let key = |tuple: &Tuple<N>| K::from_tuple(kind, tuple).masked(mask);
        let combined = |tuple: &Tuple<N>| K::combined(kind, tuple, mask);
        let mut taken = 0;
        loop {
            let first = self.batch.len();
            let room = frames.part(taken..frames.len().min(taken + self.batch_packets - first));
            let free = self.batch.free_keys();
            // A loop each, so that the usual keys do not pay for the others.
            let rows = if usual {
                version.read_all(room.bytes(), free, key)
            } else {
                version.read_all(room.bytes(), free, combined)
            };
            self.batch.extend(&room.wires()[..rows], &room.times_ns()[..rows]);
            if let Some(element) = self.element() {
                let tuples = room.bytes()[..rows].iter().filter_map(|bytes| version.read(bytes));
                self.batch.set_elements(first, tuples.map(element));
            }
            if self.batch.len() == self.batch_packets {
                self.flush(lane, to);
            }
            taken += rows;
            if rows < room.len() || taken == frames.len() {
                return taken;
            }
        }
    }

    /// Takes packets of the columns of a block, all of which have a key.
    #[inline(always)]
    fn take_columns(&mut self, block: &Block, places: Range<usize>, lane: usize, to: &mut dyn Take)
    where
        K: Extract<8>,
    {
        let (kind, mask) = (self.key.kind(), self.mask);
        let mut at = places.start;
        while at < places.end {
            let first = self.batch.len();
            let end = places.end.min(at + self.batch_packets - first);
            let (wires, times_ns) = (&block.wires()[at..end], &block.times_ns()[at..end]);
            let tuples = block.tuples(at..end);
            let free = self.batch.free_keys();
            // A loop for each kind of address, which is a constant there, copies by vectors.
            match kind {
                KeyKind::SOURCE => cut(tuples, KeyKind::SOURCE, mask, free),
                KeyKind::DESTINATION => cut(tuples, KeyKind::DESTINATION, mask, free),
                kind if self.usual => cut(tuples, kind, mask, free),
                kind => {
                    for (to, tuple) in free.iter_mut().zip(tuples) {
                        *to = K::combined(kind, tuple, mask);
                    }
                }
            }
            self.batch.extend(wires, times_ns);
            if let Some(element) = self.element() {
                self.batch.set_elements(first, tuples.iter().copied().map(element));
            }
            if self.batch.len() == self.batch_packets {
                self.flush(lane, to);
            }
            at = end;
        }
    }

    /// How the elements of packets with ports are digested, where the summaries want them.
    #[inline(always)]
    fn element<const N: usize>(&self) -> Option<impl Fn(Tuple<N>) -> u64 + use<N, K>>
    where
        Ip<N>: Element,
    {
        let (kind, (of, digester)) = (self.key.kind(), self.elements?);
        Some(move |tuple| match Ip::from(tuple).element(kind, of, &digester) {
            Ok(element) => element,
            Err(_) => unreachable!("a five-tuple has ports"),
        })
    }

    fn weigh(&mut self, lane: usize, packets: u32, to: &mut dyn Take) {
        if packets != self.weight {
            self.flush(lane, to);
            self.weight = packets;
        }
    }

    fn flush(&mut self, lane: usize, to: &mut dyn Take) {
        if !self.batch.is_empty() {
            self.keyed += K::any(&mut self.batch).size();
            self.batch.weigh(self.weight);
            to.take(lane, K::any(&mut self.batch));
            self.batch.clear();
        }
    }
}

impl<K: FlowKey> Clone for Lane<K> {
    /// An empty lane like this one.
    fn clone(&self) -> Self {
        let &Self { key, mask, usual, batch_packets, elements, weight, .. } = self;
        let (batch, keyed) = (Batch::new(), Size::default());
        Self { key, mask, usual, batch, batch_packets, elements, keyed, weight }
    }
}
