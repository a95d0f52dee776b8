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
use crate::block::{Block, ParsedRow, Stretch};
use crate::key::{
    Detail, Element, Elements, Extract, FlowKey, Key4, Key8, Key16, Key37, KeyKind, KeySpec, Whole,
};
use crate::packet::common::{V4, V6, Version};
use crate::packet::{
    Extras, Frame, Frames, Headers, Ip, KeylessCounts, LinkType, Malformed, NoKey, Ports, Tunnels,
    tcp_flags,
};
use crate::services::Services;
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
    /// Packets counted for both of their ends, under two keys.
    pub twice: Size,
    /// Packets without a key.
    pub keyless: KeylessCounts,
}

/// The lanes of one measurement.
///
/// Cost: one virtual call for each burst and each batch. Memory: a batch of 256 rows for each lane.
#[derive(Clone)]
pub struct Lanes {
    keys: Keys,
    extras: bool,
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
    Wide(Lane<Key16>),
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
    /// What elements are, where the summaries want them.
    pub elements: Option<Elements>,
    /// Whether packets are counted by protocol and service, too.
    pub services: bool,
    /// Whether IPv6 has a lane; without one its packets are counted as unmeasured.
    pub ipv6: bool,
    /// The instruction set that headers are read on.
    pub isa: Isa,
}

impl LaneOptions {
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

/// What is known of a packet beside its IP header.
#[derive(Clone, Copy)]
struct Beside<'a> {
    wire: u32,
    time_ns: i64,
    /// `None` where it is unknown, or not asked for.
    extras: Option<&'a Extras>,
}

/// Puts packets into lanes.
trait Put {
    fn v4(&mut self, ip: &Ip<8>, packet: Beside<'_>) -> Result<(), Keyless>;
    fn v6(&mut self, ip: &Ip<32>, packet: Beside<'_>) -> Result<(), Keyless>;
    /// Whether more of frames is read than headers.
    fn wants_extras(&self) -> bool;
    /// Puts the first of these frames of Ethernet, as far as they are common ones of IPv4; returns how
    /// many.
    fn common_v4(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize;
    /// The same of IPv6.
    fn common_v6(&mut self, headers: impl ReadHeaders, frames: Frames<'_>, inner: bool) -> usize;
    /// Puts packets of the columns of a block; returns how many of them have a key.
    fn columns(&mut self, block: &Block, places: Range<usize>, keyless: &mut KeylessCounts) -> u64;

    #[inline(always)]
    fn headers(&mut self, headers: &Headers, packet: Beside<'_>) -> Result<(), Keyless> {
        match headers {
            Headers::V4(ip) => self.v4(ip, packet),
            Headers::V6(ip) => self.v6(ip, packet),
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
    fn v4(&mut self, ip: &Ip<8>, packet: Beside<'_>) -> Result<(), Keyless> {
        self.lane.take(ip, packet, 0, self.to)
    }
    #[inline(always)]
    fn v6(&mut self, ip: &Ip<32>, packet: Beside<'_>) -> Result<(), Keyless> {
        self.lane.take(ip, packet, 0, self.to)
    }
    fn wants_extras(&self) -> bool {
        self.lane.extras
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
    fn columns(&mut self, block: &Block, places: Range<usize>, keyless: &mut KeylessCounts) -> u64 {
        self.lane.take_columns(block, places, keyless, self.to)
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
    fn v4(&mut self, ip: &Ip<8>, packet: Beside<'_>) -> Result<(), Keyless> {
        self.v4.take(ip, packet, 0, self.to)
    }
    #[inline(always)]
    fn v6(&mut self, ip: &Ip<32>, packet: Beside<'_>) -> Result<(), Keyless> {
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
    fn columns(&mut self, block: &Block, places: Range<usize>, keyless: &mut KeylessCounts) -> u64 {
        self.v4.take_columns(block, places, keyless, self.to)
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
            [_] => Keys::Wide(Lane::new(options, 0)),
            _ => Keys::FiveTuple(Lane::new(options, 0), Lane::ipv6(options)),
        };
        let (keyless, unmeasured) = (KeylessCounts::default(), Size::default());
        let LaneOptions { isa, tunnels, .. } = options;
        Self { keys, extras: options.wants_extras(), isa, tunnels, keyless, unmeasured }
    }

    /// Takes frames in their order until `most` packets had a key; `to` gets each batch that is full.
    /// Returns the frames taken, and how many of them had a key.
    pub fn take(&mut self, frames: Frames<'_>, most: u64, to: &mut dyn Take) -> (usize, u64) {
        let Self { keys, isa, tunnels, keyless, unmeasured, .. } = self;
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
            Keys::Wide(lane) => {
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
            Keys::Wide(lane) => take_stretches(block, places, most, keyless, One { lane, to }),
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
            Keys::Wide(lane) => lane.flush(0, to),
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
            Keys::Wide(lane) => lane.weigh(0, packets, to),
        }
    }

    /// Whether more of frames is read than headers: blocks need the extras then.
    pub fn wants_extras(&self) -> bool {
        self.extras
    }

    /// What became of the packets.
    pub fn counts(&self) -> Counts {
        let (keyless, unmeasured) = (self.keyless, self.unmeasured);
        let (keyed, twice) = match &self.keys {
            Keys::Address(v4, v6) => counted(v4, v6.as_ref()),
            Keys::Pair(v4, v6) => counted(v4, v6.as_ref()),
            Keys::FiveTuple(v4, v6) => counted(v4, v6.as_ref()),
            Keys::Number(lane) => (lane.keyed, lane.twice),
            Keys::Numbers(lane) => (lane.keyed, lane.twice),
            Keys::Wide(lane) => (lane.keyed, lane.twice),
        };
        Counts { keyed: keyed + unmeasured, unmeasured, twice, keyless }
    }

    /// Packets by protocol and service, where that is asked for.
    pub fn services(&self) -> Option<Box<Services>> {
        let (first, second) = match &self.keys {
            Keys::Address(v4, v6) => services(v4, v6.as_ref()),
            Keys::Pair(v4, v6) => services(v4, v6.as_ref()),
            Keys::FiveTuple(v4, v6) => services(v4, v6.as_ref()),
            Keys::Number(lane) => (&lane.services, None),
            Keys::Numbers(lane) => (&lane.services, None),
            Keys::Wide(lane) => (&lane.services, None),
        };
        let mut all = first.clone()?;
        if let Some(second) = second {
            all.merge(second);
        }
        Some(all)
    }

    /// Counts from 0 again.
    pub fn forget(&mut self) {
        self.keyless = KeylessCounts::default();
        self.unmeasured = Size::default();
        match &mut self.keys {
            Keys::Address(v4, v6) => forget_two(v4, v6.as_mut()),
            Keys::Pair(v4, v6) => forget_two(v4, v6.as_mut()),
            Keys::FiveTuple(v4, v6) => forget_two(v4, v6.as_mut()),
            Keys::Number(lane) => lane.forget(),
            Keys::Numbers(lane) => lane.forget(),
            Keys::Wide(lane) => lane.forget(),
        }
    }
}

/// One packet of `wire` bytes.
fn one(wire: u32) -> Size {
    Size { packets: 1, bytes: u64::from(wire) }
}

fn counted<A, B>(v4: &Lane<A>, v6: Option<&Lane<B>>) -> (Size, Size) {
    let (keyed, twice) = v6.map_or_else(Default::default, |v6| (v6.keyed, v6.twice));
    (v4.keyed + keyed, v4.twice + twice)
}

fn services<'a, A, B>(
    v4: &'a Lane<A>,
    v6: Option<&'a Lane<B>>,
) -> (&'a Option<Box<Services>>, Option<&'a Services>) {
    (&v4.services, v6.and_then(|v6| v6.services.as_deref()))
}

fn forget_two<A: Width, B: Width>(v4: &mut Lane<A>, v6: Option<&mut Lane<B>>) {
    v4.forget();
    if let Some(v6) = v6 {
        v6.forget();
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
    let (headers, wire) = tunnels.read(frame);
    let extras = lanes.wants_extras().then(|| Extras::read(frame, tunnels));
    lanes.headers(&headers, Beside { wire, time_ns: frame.time_ns, extras: extras.as_ref() })
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
                left -= lanes.columns(block, columns.start..end, keyless);
                end
            }
            Stretch::Other(place, row) => {
                let &ParsedRow { wire, time_ns, .. } = row;
                let packet = Beside { wire, time_ns, extras: block.extras(place) };
                match lanes.headers(&row.headers, packet) {
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
    /// Whether more of frames is read than headers.
    extras: bool,
    batch: Batch<K>,
    batch_packets: usize,
    elements: Option<Elements>,
    services: Option<Box<Services>>,
    /// Packets passed on, and those of them that were passed on for both ends.
    keyed: Size,
    twice: Size,
    /// Packets that each row stands for.
    weight: u32,
}

impl<K: Width> Lane<K> {
    fn new(options: LaneOptions, lane: usize) -> Self {
        let LaneOptions { key, batch_packets, elements, services, .. } = options;
        let services = services.then(Box::default);
        let (mask, usual) = (key.mask(key.lanes()[lane]), key.kind().is_usual());
        Self {
            key,
            mask,
            usual,
            extras: options.wants_extras(),
            batch: Batch::new(),
            batch_packets,
            elements,
            services,
            keyed: Size::default(),
            twice: Size::default(),
            weight: 1,
        }
    }

    fn ipv6(options: LaneOptions) -> Option<Self> {
        options.ipv6.then(|| Self::new(options, 1))
    }

    /// Whether each packet is taken by itself: no loop cuts such keys from columns.
    fn takes_singly(&self) -> bool {
        self.key.kind().is_either() || self.key.kind().needs_extras()
    }

    /// Takes a packet with an IP header; `to` gets the batch when it is full.
    #[inline(always)]
    fn take<const N: usize>(
        &mut self,
        ip: &Ip<N>,
        packet: Beside<'_>,
        lane: usize,
        to: &mut dyn Take,
    ) -> Result<(), Keyless>
    where
        K: Extract<N>,
        Ip<N>: Element,
    {
        if self.takes_singly() {
            return self.take_singly(ip, packet, lane, to);
        }
        let (kind, none) = (self.key.kind(), Extras::default());
        let key = K::extract_bits(kind, ip, &none, self.mask).map_err(Keyless::Malformed)?;
        let element = self.element_of(ip, packet.extras.unwrap_or(&none))?;
        self.count_service(ip, packet.wire);
        self.push(key, packet, element, lane, to);
        Ok(())
    }

    /// As [`Self::take`], of a key that reads more than a five-tuple, or that is either end of the packet.
    #[inline(never)]
    fn take_singly<const N: usize>(
        &mut self,
        ip: &Ip<N>,
        packet: Beside<'_>,
        lane: usize,
        to: &mut dyn Take,
    ) -> Result<(), Keyless>
    where
        K: Extract<N>,
        Ip<N>: Element,
    {
        let (kind, none) = (self.key.kind(), Extras::default());
        let extras = match packet.extras {
            Some(extras) => extras,
            None if kind.needs_extras() => return Err(Keyless::NoKey(NoKey::NoFrame)),
            None => &none,
        };
        let key = K::extract_bits(kind, ip, extras, self.mask).map_err(Keyless::Malformed)?;
        let element = self.element_of(ip, extras)?;
        self.count_service(ip, packet.wire);
        if kind.is_either() {
            self.keyed += one(packet.wire);
            let other = K::extract_bits(kind, &ip.reversed(), &extras.reversed(), self.mask);
            let other = other.map_err(Keyless::Malformed)?;
            if other != key {
                self.twice += one(packet.wire);
                let element = match self.elements {
                    Some(Elements::Details) => {
                        Detail { back: true, ..Detail::from(element) }.into()
                    }
                    _ => self.element_of(&ip.reversed(), extras)?,
                };
                self.push(other, packet, element, lane, to);
            }
        }
        self.push(key, packet, element, lane, to);
        Ok(())
    }

    /// The element of a packet; 0 where no summary wants it.
    #[inline(always)]
    fn element_of<const N: usize>(&self, ip: &Ip<N>, extras: &Extras) -> Result<u64, Keyless>
    where
        K: Extract<N>,
        Ip<N>: Element,
    {
        match &self.elements {
            None => Ok(0),
            Some(Elements::Peers(of, digester)) => {
                ip.element(self.key.kind(), *of, digester).map_err(Keyless::Malformed)
            }
            Some(Elements::Details) => {
                let ports = ip.ports.bytes().unwrap_or([0; 4]);
                let tuple = Tuple::new(ip.addresses, ports, ip.protocol);
                Ok(self.detail(&tuple, extras.tcp_flags))
            }
        }
    }

    /// The element of [`Elements::Details`].
    #[inline(always)]
    fn detail<const N: usize>(&self, tuple: &Tuple<N>, tcp_flags: u8) -> u64
    where
        K: Extract<N>,
    {
        let back = self.key.kind().is_in_order() && K::is_answer(tuple, self.mask);
        Detail { tcp_flags, back }.into()
    }

    /// Counts a packet by its protocol and service, where that is asked for.
    #[inline(always)]
    fn count_service<const N: usize>(&mut self, ip: &Ip<N>, wire: u32) {
        let Some(services) = &mut self.services else { return };
        match ip.ports {
            Ports::Found(ports) => services.add(ip.protocol, ports.to_be_bytes(), wire),
            Ports::Absent | Ports::Malformed(_) => services.add_protocol(ip.protocol, wire),
            Ports::Unreached(_) => {}
        }
    }

    /// Adds a row; `to` gets the batch when it is full.
    #[inline(always)]
    fn push(&mut self, key: K, packet: Beside<'_>, element: u64, lane: usize, to: &mut dyn Take) {
        if self.elements.is_some() {
            self.batch.push_with_element(key, packet.wire, packet.time_ns, element);
        } else {
            self.batch.push(key, packet.wire, packet.time_ns);
        }
        if self.batch.len() == self.batch_packets {
            self.flush(lane, to);
        }
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
        if self.takes_singly() {
            return 0;
        }
        if self.elements.is_some() || self.services.is_some() {
            return self.take_tuples_of(frames, version, lane, to);
        }
        let (kind, mask, usual) = (self.key.kind(), self.mask, self.usual);
        let key = |tuple: &Tuple<N>| K::from_tuple(kind, tuple).masked(mask);
        let extras = &Extras::default();
        let combined = |tuple: &Tuple<N>| K::combined(kind, &Whole { tuple, extras }, mask);
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
            if self.batch.len() == self.batch_packets {
                self.flush(lane, to);
            }
            taken += rows;
            if rows < room.len() || taken == frames.len() {
                return taken;
            }
        }
    }

    /// As [`Self::take_common`], where more than a key is made of each packet: five-tuples are read some at
    /// a time.
    #[inline(always)]
    fn take_tuples_of<const N: usize>(
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
        const SOME: usize = 32;
        let mut tuples = [Tuple::new([0; N], [0; 4], 0); SOME];
        let mut taken = 0;
        loop {
            let room = frames.part(taken..frames.len().min(taken + SOME));
            let rows = version.read_all(room.bytes(), &mut tuples, |tuple| *tuple);
            let part = room.part(0..rows);
            // A common frame is no tunnel that is followed.
            let flags = |row| tcp_flags(&part.at(row), Tunnels::Outer);
            self.take_tuples(&tuples[..rows], (part.wires(), part.times_ns()), flags, lane, to);
            taken += rows;
            if rows < room.len() || taken == frames.len() {
                return taken;
            }
        }
    }

    /// Takes packets of these five-tuples, bytes on the wire and times, and with the TCP flags that `flags`
    /// says of their places.
    #[inline(always)]
    fn take_tuples<const N: usize>(
        &mut self,
        tuples: &[Tuple<N>],
        (wires, times_ns): (&[u32], &[i64]),
        flags: impl Fn(usize) -> u8,
        lane: usize,
        to: &mut dyn Take,
    ) where
        K: Extract<N>,
        Ip<N>: Element,
    {
        let (kind, mask) = (self.key.kind(), self.mask);
        let mut at = 0;
        while at < tuples.len() {
            let first = self.batch.len();
            let end = tuples.len().min(at + self.batch_packets - first);
            let (tuples, wires) = (&tuples[at..end], &wires[at..end]);
            let free = self.batch.free_keys();
            // A loop for each kind of address, which is a constant there, copies by vectors.
            match kind {
                KeyKind::SOURCE => cut(tuples, KeyKind::SOURCE, mask, free),
                KeyKind::DESTINATION => cut(tuples, KeyKind::DESTINATION, mask, free),
                kind if self.usual => cut(tuples, kind, mask, free),
                kind => {
                    let extras = &Extras::default();
                    for (to, tuple) in free.iter_mut().zip(tuples) {
                        *to = K::combined(kind, &Whole { tuple, extras }, mask);
                    }
                }
            }
            self.batch.extend(wires, &times_ns[at..end]);
            if let Some(services) = &mut self.services {
                for (tuple, wire) in tuples.iter().zip(wires) {
                    services.add(tuple.protocol(), tuple.ports(), *wire);
                }
            }
            match self.elements {
                None => {}
                Some(Elements::Peers(of, digester)) => {
                    let element = |tuple| peer(tuple, kind, of, &digester);
                    self.batch.set_elements(first, tuples.iter().copied().map(element));
                }
                Some(Elements::Details) => {
                    for (row, tuple) in tuples.iter().enumerate() {
                        let detail = self.detail(tuple, flags(at + row));
                        self.batch.set_elements(first + row, std::iter::once(detail));
                    }
                }
            }
            if self.batch.len() == self.batch_packets {
                self.flush(lane, to);
            }
            at = end;
        }
    }

    /// Takes packets of the columns of a block; returns how many have a key.
    #[inline(always)]
    fn take_columns(
        &mut self,
        block: &Block,
        places: Range<usize>,
        keyless: &mut KeylessCounts,
        to: &mut dyn Take,
    ) -> u64
    where
        K: Extract<8>,
    {
        let lane = 0;
        if self.takes_singly() {
            let mut keyed = 0;
            for place in places {
                let (wire, time_ns) = (block.wires()[place], block.times_ns()[place]);
                let packet = Beside { wire, time_ns, extras: block.extras(place) };
                let [tuple] = block.tuples(place..place + 1) else { unreachable!("one place") };
                match self.take_singly(&(*tuple).into(), packet, lane, to) {
                    Ok(()) => keyed += 1,
                    Err(reason) => reason.count(keyless),
                }
            }
            return keyed;
        }
        let columns = (&block.wires()[places.clone()], &block.times_ns()[places.clone()]);
        let flags = |at| block.extras(places.start + at).map_or(0, |extras| extras.tcp_flags);
        self.take_tuples(block.tuples(places.clone()), columns, flags, lane, to);
        places.len() as u64
    }

    fn forget(&mut self) {
        (self.keyed, self.twice) = Default::default();
        if let Some(services) = &mut self.services {
            services.clear();
        }
    }

    fn weigh(&mut self, lane: usize, packets: u32, to: &mut dyn Take) {
        if packets != self.weight {
            self.flush(lane, to);
            self.weight = packets;
        }
    }

    fn flush(&mut self, lane: usize, to: &mut dyn Take) {
        if !self.batch.is_empty() {
            if !self.key.kind().is_either() {
                self.keyed += K::any(&mut self.batch).size();
            }
            self.batch.weigh(self.weight);
            to.take(lane, K::any(&mut self.batch));
            self.batch.clear();
        }
    }
}

/// The digest of whom the packet of a five-tuple speaks with.
#[inline(always)]
fn peer<const N: usize>(tuple: Tuple<N>, kind: KeyKind, of: SpreadOf, digester: &Digester) -> u64
where
    Ip<N>: Element,
{
    match Ip::from(tuple).element(kind, of, digester) {
        Ok(element) => element,
        Err(_) => unreachable!("a five-tuple has ports"),
    }
}

impl<K: FlowKey> Clone for Lane<K> {
    /// An empty lane like this one.
    fn clone(&self) -> Self {
        let services = self.services.as_ref().map(|_| Box::default());
        let (keyed, twice) = Default::default();
        Self { batch: Batch::new(), services, keyed, twice, ..*self }
    }
}
