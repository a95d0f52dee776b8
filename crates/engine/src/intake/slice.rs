//! Slices of packets that an intake ingests: frames, or some packets of a block.

use std::ops::Range;

use flowgauge_core::batcher::{Batcher, Take};
use flowgauge_core::block::Block;
use flowgauge_core::packet::{Column, Frames};
use flowgauge_core::timeline::Timeline;

use crate::clock::Clock;

/// A slice of packets on their way to the batcher.
pub(super) trait PacketSlice: Copy {
    fn len(self) -> usize;
    /// The bytes of all packets on the wire.
    fn wire_bytes(self) -> u64;
    fn time_ns(self, place: usize) -> i64;
    fn part(self, places: Range<usize>) -> Self;
    /// Number of packets after the first that are ordinary to the clock. The clock has seen the
    /// first.
    fn run(self, clock: &mut Clock) -> usize;
    /// Passes packets to the batcher, as [`Batcher::take`].
    fn put(self, batcher: &mut Batcher, most: u64, to: &mut dyn Take) -> (usize, u64);
    /// Adds packets to a timeline.
    fn record(self, timeline: &mut Timeline);
}

impl PacketSlice for Frames<'_> {
    #[inline(always)]
    fn len(self) -> usize {
        Self::len(self)
    }
    fn wire_bytes(self) -> u64 {
        self.size().bytes
    }
    #[inline(always)]
    fn time_ns(self, place: usize) -> i64 {
        self.times_ns().at(place)
    }
    #[inline(always)]
    fn part(self, places: Range<usize>) -> Self {
        Self::part(self, places)
    }
    #[inline(always)]
    fn run(self, clock: &mut Clock) -> usize {
        match self.times_ns() {
            Column::Same(time_ns) if clock.flows(time_ns) => self.len() - 1,
            Column::Same(_) => 0,
            Column::Each(times_ns) => clock.run(&times_ns[1..], times_ns.is_sorted()),
        }
    }
    fn put(self, batcher: &mut Batcher, most: u64, to: &mut dyn Take) -> (usize, u64) {
        batcher.take(&self, most, to)
    }
    fn record(self, timeline: &mut Timeline) {
        timeline.add(self);
    }
}

/// Some of the packets of a block.
#[derive(Clone, Copy)]
pub(super) struct BlockSlice<'a> {
    pub(super) block: &'a Block,
    pub(super) first: usize,
    pub(super) end: usize,
}

impl PacketSlice for BlockSlice<'_> {
    #[inline(always)]
    fn len(self) -> usize {
        self.end - self.first
    }
    fn wire_bytes(self) -> u64 {
        self.block.wires()[self.first..self.end].iter().map(|wire| u64::from(*wire)).sum()
    }
    #[inline(always)]
    fn time_ns(self, place: usize) -> i64 {
        self.block.times_ns()[self.first + place]
    }
    #[inline(always)]
    fn part(self, places: Range<usize>) -> Self {
        let first = self.first + places.start;
        Self { first, end: first + places.len(), ..self }
    }
    #[inline(always)]
    fn run(self, clock: &mut Clock) -> usize {
        let times_ns = &self.block.times_ns()[self.first + 1..self.end];
        clock.run(times_ns, self.block.is_ordered())
    }
    fn put(self, batcher: &mut Batcher, most: u64, to: &mut dyn Take) -> (usize, u64) {
        batcher.take_block(self.block, self.first..self.end, most, to)
    }
    fn record(self, timeline: &mut Timeline) {
        let (times_ns, wires) = (self.block.times_ns(), self.block.wires());
        let places = self.first..self.end;
        timeline.add_parsed(&times_ns[places.clone()], &wires[places], |place| {
            self.block.headers(self.first + place)
        });
    }
}
