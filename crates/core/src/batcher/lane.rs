//! A lane: the packets of one key type, from headers to batches.

use std::ops::Range;

use flowgauge_kernel::{Captured, Cut, Digester, Isa, Tuple};

use super::{BatcherOptions, Keyless, PacketInfo, Take};
use crate::any::Width;
use crate::batch::Batch;
use crate::block::Block;
use crate::key::{Detail, Element, Elements, Extract, FlowKey, KeyKind, KeySpec, Whole};
use crate::packet::common::Version;
use crate::packet::{
    Column, Extras, Frame, Frames, Ip, KeylessCounts, NoKey, Ports, Tunnels, tcp_flags,
};
use crate::services::Services;
use crate::summary::Reads;
use crate::terms::{Size, SpreadOf};

/// One packet of `wire` bytes.
pub(super) fn one(wire: u32) -> Size {
    Size { packets: 1, bytes: u64::from(wire) }
}

/// Extracts keys from five-tuples.
#[inline(always)]
fn extract<const N: usize, K>(tuples: &[Tuple<N>], kind: KeyKind, mask: K, to: &mut [K])
where
    K: FlowKey + Extract<N>,
{
    for (to, tuple) in to.iter_mut().zip(tuples) {
        *to = K::from_tuple(kind, tuple).masked(mask);
    }
}

/// How an IPv4 key of a usual kind is cut from a five-tuple, masked by `mask`: the same as
/// [`Extract::from_tuple`].
fn cut(kind: KeyKind, mask: &impl FlowKey) -> Option<Cut> {
    // The bytes in the key, and the place of the first one in the five-tuple.
    let (bytes, first) = match kind {
        KeyKind::SOURCE => (0..4, 0),
        KeyKind::DESTINATION => (0..4, 4),
        KeyKind::PAIR => (0..8, 0),
        KeyKind::FIVE_TUPLE => (0..13, 0),
        KeyKind::DESTINATION_PORT => (2..4, 10),
        KeyKind::PROTOCOL => (3..4, 12),
        _ => return None,
    };
    let mut kept = [0; 16];
    kept[bytes.clone()].copy_from_slice(&bytemuck::bytes_of(mask)[bytes.clone()]);
    Some(Cut::new(first - bytes.start as u8, kept))
}

/// Packets for which loops over columns do not pay.
const FEW: usize = 8;

/// One lane: extracts keys of type `K` and collects them in a batch.
pub(super) struct Lane<K> {
    pub(super) key: KeySpec,
    mask: K,
    /// How an IPv4 key is cut from a common frame, if the key is a usual one and nothing else is read.
    cut: Option<Cut>,
    isa: Isa,
    /// Whether the key or the elements need extras.
    pub(super) extras: bool,
    batch: Batch<K>,
    batch_packets: usize,
    reads: Reads,
    elements: Option<Elements>,
    pub(super) services: Option<Box<Services>>,
    /// Packets passed on, and the part of them that was passed on for both ends.
    pub(super) keyed: Size,
    pub(super) twice: Size,
    /// Number of packets that each row represents.
    weight: u32,
}

impl<K: Width> Lane<K> {
    pub(super) fn new(options: BatcherOptions, lane: usize) -> Self {
        let BatcherOptions { key, tunnels, batch_packets, reads, elements, isa, .. } = options;
        let cuts = !tunnels.are_followed() && elements.is_none() && !options.services;
        let services = options.services.then(Box::default);
        let mask = key.mask(key.lanes()[lane]);
        Self {
            key,
            mask,
            cut: cut(key.kind(), &mask).filter(|_| cuts),
            isa,
            extras: options.wants_extras(),
            batch: Batch::new(),
            batch_packets,
            reads,
            elements,
            services,
            keyed: Size::default(),
            twice: Size::default(),
            weight: 1,
        }
    }

    pub(super) fn ipv6(options: BatcherOptions) -> Option<Self> {
        options.ipv6.then(|| Self::new(options, 1))
    }

    /// Whether packets are taken one by one: no loop extracts such keys from columns.
    fn takes_singly(&self) -> bool {
        self.key.kind().is_either() || self.key.kind().needs_extras()
    }

    /// Whether keys come from five-tuples, and nothing else is read but services.
    pub(super) fn takes_tuples(&self) -> bool {
        self.key.kind().is_usual() && self.elements.is_none()
    }

    /// Takes a common packet, where [`Self::takes_tuples`].
    #[inline(always)]
    pub(super) fn take_tuple<const N: usize>(
        &mut self,
        tuple: &Tuple<N>,
        wire: u32,
        time_ns: i64,
        lane: usize,
        to: &mut dyn Take,
    ) where
        K: Extract<N>,
    {
        if let Some(services) = &mut self.services {
            services.add(tuple.protocol(), tuple.ports(), wire);
        }
        let key = K::from_tuple(self.key.kind(), tuple).masked(self.mask);
        self.push(key, PacketInfo { wire, time_ns, extras: None }, 0, lane, to);
    }

    /// Takes a packet with an IP header, and passes the batch to `to` when it is full.
    #[inline(always)]
    pub(super) fn take<const N: usize>(
        &mut self,
        ip: &Ip<N>,
        packet: PacketInfo<'_>,
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

    /// As [`Self::take`], for a key that needs extras, or that is either end of the packet.
    #[inline(never)]
    fn take_singly<const N: usize>(
        &mut self,
        ip: &Ip<N>,
        packet: PacketInfo<'_>,
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

    /// The element of a packet; 0 where no summary reads it.
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

    /// Counts a packet by its protocol and service, where these are counted.
    #[inline(always)]
    fn count_service<const N: usize>(&mut self, ip: &Ip<N>, wire: u32) {
        let Some(services) = &mut self.services else { return };
        match ip.ports {
            Ports::Found(ports) => services.add(ip.protocol, ports.to_be_bytes(), wire),
            Ports::Absent | Ports::Malformed(_) => services.add_protocol(ip.protocol, wire),
            Ports::Unreached(_) => {}
        }
    }

    /// Adds a row, and passes the batch to `to` when it is full.
    #[inline(always)]
    fn push(
        &mut self,
        key: K,
        packet: PacketInfo<'_>,
        element: u64,
        lane: usize,
        to: &mut dyn Take,
    ) {
        if self.elements.is_some() {
            self.batch.push_with_element(key, packet.wire, packet.time_ns, element);
        } else {
            self.batch.push(key, packet.wire, packet.time_ns);
        }
        if self.batch.len() == self.batch_packets {
            self.flush(lane, to);
        }
    }

    /// Takes the leading common IPv4 frames if their keys can be cut; returns their number.
    pub(super) fn take_cut(
        &mut self,
        frames: &Frames<'_>,
        lane: usize,
        to: &mut dyn Take,
    ) -> usize {
        if self.cut.is_none() {
            return 0;
        }
        self.fill(*frames, lane, to, |lane, frames| match &lane.cut {
            Some(cut) => cut.keys(lane.isa, frames, lane.batch.free_keys()),
            None => 0,
        })
    }

    /// As [`Self::take_cut`], for one frame; returns whether its key was cut.
    #[inline(always)]
    pub(super) fn take_one_cut(&mut self, frame: &Frame<'_>, to: &mut dyn Take) -> bool {
        let Some(key) = self.cut.as_ref().and_then(|cut| cut.key(frame.bytes)) else {
            return false;
        };
        let packet = PacketInfo { wire: frame.wire, time_ns: frame.time_ns, extras: None };
        self.push(key, packet, 0, 0, to);
        true
    }

    /// Takes leading common frames of one version of IP; returns their number.
    #[inline(always)]
    pub(super) fn take_common<const N: usize>(
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
        let kind = self.key.kind();
        if self.takes_singly() {
            return 0;
        }
        if !self.takes_tuples() || self.services.is_some() {
            return self.take_tuples_of(frames, version, lane, to);
        }
        self.fill(frames, lane, to, |lane, frames| {
            let key = |tuple: &Tuple<N>| K::from_tuple(kind, tuple).masked(lane.mask);
            version.read_singly(frames, lane.batch.free_keys(), key)
        })
    }

    /// Fills batches with leading frames whose keys `read` writes to free places, until it writes
    /// fewer than there are frames and places. Returns the number of frames.
    #[inline(always)]
    fn fill(
        &mut self,
        frames: Frames<'_>,
        lane: usize,
        to: &mut dyn Take,
        mut read: impl FnMut(&mut Self, &[Captured<'_>]) -> usize,
    ) -> usize {
        let mut rest = frames;
        loop {
            // A driver's bursts usually fit.
            let some = rest.first(self.batch_packets - self.batch.len());
            let rows = read(self, some.bytes());
            self.extend(&some.wires()[..rows], some.times_ns());
            if self.batch.len() == self.batch_packets {
                self.flush(lane, to);
            }
            if rows < some.len() || rows == rest.len() {
                return frames.len() - rest.len() + rows;
            }
            rest = rest.part(rows..rest.len());
        }
    }

    /// Adds packets whose keys were written to free places, with the columns that are read but for
    /// elements.
    // Once per burst; inlined, it would be compiled into the loop of every key.
    #[inline(never)]
    fn extend(&mut self, wires: &[u32], times_ns: Column<'_, i64>) {
        let first = self.batch.len();
        self.batch.extend(wires);
        if self.reads.bytes {
            self.batch.set_bytes(first, wires);
        }
        if self.reads.times {
            self.batch.set_times(first, times_ns.part(0..wires.len()));
        }
    }

    /// As [`Self::take_common`], for unusual keys, or where elements or services are needed too:
    /// reads five-tuples in chunks.
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
            let rows = version.read_tuples(self.isa, room.bytes(), &mut tuples);
            let part = room.part(0..rows);
            // A common frame is never a tunnel that is followed.
            let flags = |row| tcp_flags(&part.at(row), Tunnels::Outer);
            if let Some(services) = &mut self.services {
                services.add_all(&tuples[..rows], part.wires());
            }
            self.take_tuples(&tuples[..rows], (part.wires(), part.times_ns()), flags, lane, to);
            taken += rows;
            if rows < room.len() || taken == frames.len() {
                return taken;
            }
        }
    }

    /// Takes packets from columns of five-tuples, lengths on the wire and times. `flags` returns
    /// the TCP flags of the packet at an index.
    #[inline(always)]
    fn take_tuples<const N: usize>(
        &mut self,
        tuples: &[Tuple<N>],
        (wires, times_ns): (&[u32], Column<'_, i64>),
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
            // With a constant address kind, the loop is vectorized.
            match kind {
                KeyKind::SOURCE => extract(tuples, KeyKind::SOURCE, mask, free),
                KeyKind::DESTINATION => extract(tuples, KeyKind::DESTINATION, mask, free),
                kind if kind.is_usual() => extract(tuples, kind, mask, free),
                kind => {
                    let extras = &Extras::default();
                    for (to, tuple) in free.iter_mut().zip(tuples) {
                        *to = K::combined(kind, &Whole { tuple, extras }, mask);
                    }
                }
            }
            self.extend(wires, times_ns.part(at..end));
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

    /// Adds the services that were counted for the columns of a whole block. Returns whether there
    /// was anything to add.
    pub(super) fn add_services(&mut self, block: &Block) -> bool {
        if self.takes_singly() {
            return false;
        }
        let (Some(services), Some(counted)) = (&mut self.services, block.services()) else {
            return false;
        };
        services.merge(counted);
        true
    }

    /// Takes a range of packets from the columns of a block; returns how many have a key. Where
    /// `counted` is set, their services are counted already.
    #[inline(always)]
    pub(super) fn take_columns(
        &mut self,
        block: &Block,
        range: Range<usize>,
        counted: bool,
        keyless: &mut KeylessCounts,
        to: &mut dyn Take,
    ) -> u64
    where
        K: Extract<8>,
    {
        let lane = 0;
        if self.takes_singly() {
            let mut keyed = 0;
            for index in range {
                let (wire, time_ns) = (block.wires()[index], block.times_ns()[index]);
                let packet = PacketInfo { wire, time_ns, extras: block.extras(index) };
                let [tuple] = block.tuples(index..index + 1) else { unreachable!("one index") };
                match self.take_singly(&(*tuple).into(), packet, lane, to) {
                    Ok(()) => keyed += 1,
                    Err(reason) => reason.count(keyless),
                }
            }
            return keyed;
        }
        let (tuples, wires) = (block.tuples(range.clone()), &block.wires()[range.clone()]);
        if let Some(services) = self.services.as_mut().filter(|_| !counted) {
            services.add_all(tuples, wires);
        }
        if tuples.len() < FEW && self.takes_tuples() {
            let times_ns = &block.times_ns()[range];
            for ((tuple, &wire), &time_ns) in tuples.iter().zip(wires).zip(times_ns) {
                let key = K::from_tuple(self.key.kind(), tuple).masked(self.mask);
                self.push(key, PacketInfo { wire, time_ns, extras: None }, 0, lane, to);
            }
            return tuples.len() as u64;
        }
        let flags = |at| block.extras(range.start + at).map_or(0, |extras| extras.tcp_flags);
        let times_ns = Column::Each(&block.times_ns()[range.clone()]);
        self.take_tuples(tuples, (wires, times_ns), flags, lane, to);
        range.len() as u64
    }

    pub(super) fn forget(&mut self) {
        (self.keyed, self.twice) = Default::default();
        if let Some(services) = &mut self.services {
            services.clear();
        }
    }

    pub(super) fn weigh(&mut self, lane: usize, packets: u32, to: &mut dyn Take) {
        if packets != self.weight {
            self.flush(lane, to);
            self.weight = packets;
        }
    }

    pub(super) fn flush(&mut self, lane: usize, to: &mut dyn Take) {
        if !self.batch.is_empty() {
            if !self.key.kind().is_either() {
                self.keyed += self.batch.size();
            }
            self.batch.weigh(self.weight);
            to.take(lane, K::any(&mut self.batch));
            self.batch.clear();
        }
    }
}

/// The digest of the peer in a five-tuple.
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
    /// An empty lane with the same options.
    fn clone(&self) -> Self {
        let services = self.services.as_ref().map(|_| Box::default());
        let (keyed, twice) = Default::default();
        Self { batch: Batch::new(), services, keyed, twice, ..*self }
    }
}
