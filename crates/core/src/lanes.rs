//! Frames to keys to batches, one lane for each key type.
//!
//! Keys with addresses have a lane for IPv4 and one for IPv6, so that an IPv4 key stays small. Keys
//! without addresses share one lane, since IPv4 and IPv6 have the same protocols and ports.
//!
//! The loop over a burst is compiled once for each pair of key types: parsing, extraction and the push
//! into a batch are inlined into it.

use flowgauge_kernel::Digester;

use crate::any::{BatchMut, Width};
use crate::batch::Batch;
use crate::key::{Element, Extract, FlowKey, Key4, Key8, Key16, Key32, Key37};
use crate::key::{KeyKind, KeySpec};
use crate::packet::{
    Frame, Headers, Ip, KeylessCounts, Malformed, NoKey, parse, parse_common, parse_inner,
};
use crate::terms::{Size, SpreadOf};

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
    inner: bool,
    keyless: KeylessCounts,
    unmeasured: Size,
}

/// The lanes by the types of their keys.
#[derive(Clone)]
enum Keys {
    Address(Lane<Key4>, Option<Lane<Key16>>),
    Pair(Lane<Key8>, Option<Lane<Key32>>),
    FiveTuple(Lane<Key16>, Option<Lane<Key37>>),
    Number(Lane<Key4>),
}

/// How lanes fill their batches.
#[derive(Clone, Copy, Debug)]
pub struct LaneOptions {
    /// The key.
    pub key: KeySpec,
    /// Whether tunnels are followed to the packet inside.
    pub inner: bool,
    /// Rows of a full batch, 1 to 256.
    pub batch_packets: usize,
    /// How elements are digested, where the summaries want them.
    pub elements: Option<(SpreadOf, Digester)>,
    /// Whether IPv6 has a lane; without one its packets are counted as unmeasured.
    pub ipv6: bool,
}

/// Why a packet has no key.
enum Keyless {
    NoKey(NoKey),
    Malformed(Malformed),
}

/// A packet on its way into a lane.
trait Packet {
    fn wire(&self) -> u32;
    fn time_ns(&self) -> i64;
    /// The packet, if one look tells that it is a common one of IPv4.
    fn common(&self, inner: bool) -> Option<Ip<8>>;
    /// What its headers say, whatever it is.
    fn headers(&self, inner: bool) -> Headers;
}

impl Packet for Frame<'_> {
    #[inline(always)]
    fn wire(&self) -> u32 {
        self.wire
    }
    #[inline(always)]
    fn time_ns(&self) -> i64 {
        self.time_ns
    }
    #[inline(always)]
    fn common(&self, inner: bool) -> Option<Ip<8>> {
        parse_common(self.link, self.bytes, inner)
    }
    fn headers(&self, inner: bool) -> Headers {
        let parse = if inner { parse_inner } else { parse };
        parse(self.link, self.bytes)
    }
}

impl Packet for ParsedRow {
    #[inline(always)]
    fn wire(&self) -> u32 {
        self.wire
    }
    #[inline(always)]
    fn time_ns(&self) -> i64 {
        self.time_ns
    }
    #[inline(always)]
    fn common(&self, _: bool) -> Option<Ip<8>> {
        match self.headers {
            Headers::V4(ip) => Some(ip),
            _ => None,
        }
    }
    fn headers(&self, _: bool) -> Headers {
        self.headers
    }
}

/// Puts packets into lanes.
trait Put {
    fn v4(&mut self, ip: &Ip<8>, packet: &impl Packet) -> Result<(), Keyless>;
    fn v6(&mut self, ip: &Ip<32>, packet: &impl Packet) -> Result<(), Keyless>;
}

/// The lane of both versions.
struct One<'a> {
    lane: &'a mut Lane<Key4>,
    to: &'a mut dyn Take,
}

impl Put for One<'_> {
    #[inline(always)]
    fn v4(&mut self, ip: &Ip<8>, packet: &impl Packet) -> Result<(), Keyless> {
        self.lane.take(ip, packet, 0, self.to)
    }
    #[inline(always)]
    fn v6(&mut self, ip: &Ip<32>, packet: &impl Packet) -> Result<(), Keyless> {
        self.lane.take(ip, packet, 0, self.to)
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
    fn v4(&mut self, ip: &Ip<8>, packet: &impl Packet) -> Result<(), Keyless> {
        self.v4.take(ip, packet, 0, self.to)
    }
    #[inline(always)]
    fn v6(&mut self, ip: &Ip<32>, packet: &impl Packet) -> Result<(), Keyless> {
        if let Some(v6) = &mut self.v6 {
            return v6.take(ip, packet, 1, self.to);
        }
        B::extract(self.v4.key.kind, ip).map_err(Keyless::Malformed)?;
        *self.unmeasured += Size { packets: 1, bytes: u64::from(packet.wire()) };
        Ok(())
    }
}

impl Lanes {
    /// Empty lanes.
    pub fn new(options: LaneOptions) -> Self {
        let keys = match options.key.kind {
            KeyKind::Source | KeyKind::Destination => {
                Keys::Address(Lane::new(options, 0), Lane::ipv6(options))
            }
            KeyKind::Pair => Keys::Pair(Lane::new(options, 0), Lane::ipv6(options)),
            KeyKind::FiveTuple => Keys::FiveTuple(Lane::new(options, 0), Lane::ipv6(options)),
            KeyKind::Protocol | KeyKind::DestinationPort => Keys::Number(Lane::new(options, 0)),
        };
        let (keyless, unmeasured) = (KeylessCounts::default(), Size::default());
        Self { keys, inner: options.inner, keyless, unmeasured }
    }

    /// Takes frames in their order until `most` packets had a key; `to` gets each batch that is full.
    /// Returns the frames taken, and how many of them had a key.
    pub fn take(&mut self, frames: &[Frame<'_>], most: u64, to: &mut dyn Take) -> (usize, u64) {
        self.take_packets(frames, most, to)
    }

    /// As [`Self::take`], of packets whose headers were read already.
    pub fn take_rows(&mut self, rows: &[ParsedRow], most: u64, to: &mut dyn Take) -> (usize, u64) {
        self.take_packets(rows, most, to)
    }

    #[inline]
    fn take_packets(
        &mut self,
        packets: &[impl Packet],
        most: u64,
        to: &mut dyn Take,
    ) -> (usize, u64) {
        let Self { keys, inner, keyless, unmeasured } = self;
        match keys {
            Keys::Address(v4, v6) => {
                let lanes = Two { v4, v6: v6.as_mut(), unmeasured, to };
                take_each(packets, *inner, most, keyless, lanes)
            }
            Keys::Pair(v4, v6) => {
                let lanes = Two { v4, v6: v6.as_mut(), unmeasured, to };
                take_each(packets, *inner, most, keyless, lanes)
            }
            Keys::FiveTuple(v4, v6) => {
                let lanes = Two { v4, v6: v6.as_mut(), unmeasured, to };
                take_each(packets, *inner, most, keyless, lanes)
            }
            Keys::Number(lane) => take_each(packets, *inner, most, keyless, One { lane, to }),
        }
    }

    /// Passes on the batches that are not full.
    pub fn flush(&mut self, to: &mut dyn Take) {
        match &mut self.keys {
            Keys::Address(v4, v6) => flush_two(v4, v6.as_mut(), to),
            Keys::Pair(v4, v6) => flush_two(v4, v6.as_mut(), to),
            Keys::FiveTuple(v4, v6) => flush_two(v4, v6.as_mut(), to),
            Keys::Number(lane) => lane.flush(0, to),
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

/// Puts each packet into its lane, until `most` of them had a key.
#[inline(always)]
fn take_each<P: Packet>(
    packets: &[P],
    inner: bool,
    most: u64,
    keyless: &mut KeylessCounts,
    mut lanes: impl Put,
) -> (usize, u64) {
    let mut left = most;
    for (number, packet) in packets.iter().enumerate() {
        let put = match packet.common(inner) {
            Some(ip) => lanes.v4(&ip, packet),
            None => put_uncommon(packet, inner, &mut lanes),
        };
        match put {
            Ok(()) => {
                left -= 1;
                if left == 0 {
                    return (number + 1, most);
                }
            }
            Err(Keyless::NoKey(reason)) => keyless.count_no_key(reason),
            Err(Keyless::Malformed(malformed)) => keyless.count_malformed(malformed),
        }
    }
    (packets.len(), most - left)
}

/// Puts a packet that [`Packet::common`] does not know into its lane.
#[inline(never)]
fn put_uncommon(packet: &impl Packet, inner: bool, lanes: &mut impl Put) -> Result<(), Keyless> {
    match packet.headers(inner) {
        Headers::V4(ip) => lanes.v4(&ip, packet),
        Headers::V6(ip) => lanes.v6(&ip, packet),
        Headers::NoKey(reason) => Err(Keyless::NoKey(reason)),
        Headers::Malformed(malformed) => Err(Keyless::Malformed(malformed)),
    }
}

/// One key type on its way: a batch that fills.
struct Lane<K> {
    key: KeySpec,
    mask: K,
    batch: Batch<K>,
    batch_packets: usize,
    elements: Option<(SpreadOf, Digester)>,
    keyed: Size,
}

impl<K: Width> Lane<K> {
    fn new(options: LaneOptions, lane: usize) -> Self {
        let LaneOptions { key, batch_packets, elements, .. } = options;
        let (mask, batch) = (key.mask(key.lanes()[lane]), Batch::new());
        Self { key, mask, batch, batch_packets, elements, keyed: Size::default() }
    }

    fn ipv6(options: LaneOptions) -> Option<Self> {
        options.ipv6.then(|| Self::new(options, 1))
    }

    /// Takes a packet with an IP header; `to` gets the batch when it is full.
    #[inline(always)]
    fn take<const N: usize>(
        &mut self,
        ip: &Ip<N>,
        packet: &impl Packet,
        lane: usize,
        to: &mut dyn Take,
    ) -> Result<(), Keyless>
    where
        K: Extract<N>,
        Ip<N>: Element,
    {
        let (wire, time_ns) = (packet.wire(), packet.time_ns());
        let key = K::extract(self.key.kind, ip).map_err(Keyless::Malformed)?;
        match &self.elements {
            None => self.batch.push(key.masked(self.mask), wire, time_ns),
            Some((of, digester)) => {
                let element = ip.element(self.key.kind, *of, digester);
                let element = element.map_err(Keyless::Malformed)?;
                self.batch.push_with_element(key.masked(self.mask), wire, time_ns, element);
            }
        }
        if self.batch.len() == self.batch_packets {
            self.flush(lane, to);
        }
        Ok(())
    }

    fn flush(&mut self, lane: usize, to: &mut dyn Take) {
        if !self.batch.is_empty() {
            self.keyed += K::any(&mut self.batch).size();
            to.take(lane, K::any(&mut self.batch));
            self.batch.clear();
        }
    }
}

impl<K: FlowKey> Clone for Lane<K> {
    /// An empty lane like this one.
    fn clone(&self) -> Self {
        let &Self { key, mask, batch_packets, elements, .. } = self;
        Self { key, mask, batch: Batch::new(), batch_packets, elements, keyed: Size::default() }
    }
}
