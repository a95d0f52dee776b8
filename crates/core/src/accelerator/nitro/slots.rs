//! The slots of the packets, of which few are taken.
//!
//! A row of a batch that stands for w packets is w packets in a row, as it is to samplers: for each
//! row of the sketch its w slots follow one another, and when slot number G is taken, the w - G behind
//! it are taken as they are, 1/p + w - G in all.

use std::ops::Range;

use super::sampled::Nitro;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::{Counter, RowIngest, Summary, sum_and_largest};
use crate::terms::Measure;

impl<K: FlowKey> Nitro<K> {
    /// Takes a stretch of a batch, of which the pace is the same.
    pub(super) fn take(&mut self, batch: &mut Batch<K>, rows: Range<usize>) {
        if rows.is_empty() {
            return;
        }
        let (packets, count) = (packets_of(batch, &rows), rows.len() as u64);
        let mut weight = packets;
        if self.by == Measure::Bytes {
            weight = self.weigh(batch, &rows);
        }
        if self.pace.one_in > 1 {
            if !self.draws.pass(packets.saturating_mul(self.rows.into())) {
                if batch.is_plain() {
                    self.draw_packets(batch, &rows);
                } else {
                    self.draw_rows(batch, &rows);
                }
            }
        } else if rows.len() == batch.len() {
            self.inner.ingest(batch);
        } else {
            self.taken.pass_whole(batch, rows, &mut *self.inner);
        }
        self.pace.seen += count;
        self.total = self.total.saturating_add(weight);
    }

    /// The bytes of packets; takes note of the largest packet, of sums the mean one.
    fn weigh(&mut self, batch: &Batch<K>, rows: &Range<usize>) -> u64 {
        let bytes = &batch.bytes()[rows.clone()];
        if batch.is_plain() {
            let (sum, largest) = sum_and_largest(self.largest, bytes);
            self.largest = largest;
            return sum;
        }
        for (&bytes, &packets) in bytes.iter().zip(&batch.packets()[rows.clone()]) {
            self.largest = self.largest.max(bytes.div_ceil(u64::from(packets.max(1))));
        }
        u64::sum(bytes)
    }

    /// Draws among packets that come one by one: the slots of one follow those of the one before.
    fn draw_packets(&mut self, batch: &Batch<K>, rows: &Range<usize>) {
        let slots = rows.len() as u32 * self.rows;
        // A division by the number of rows, exact for as few slots as there are.
        let a_row = (1u64 << 32).div_ceil(self.rows.into());
        let mut left = u64::from(slots);
        while self.draws.choose(&mut left) {
            let slot = slots - left as u32 - 1;
            let at = ((u64::from(slot) * a_row) >> 32) as u32;
            let of = slot - at * self.rows;
            self.push(batch, rows, rows.start + at as usize, of, self.pace.one_in);
        }
    }

    /// Draws among rows of any number of packets.
    fn draw_rows(&mut self, batch: &Batch<K>, rows: &Range<usize>) {
        for at in rows.clone() {
            for of in 0..self.rows {
                let mut left = u64::from(batch.packets()[at]);
                if self.draws.choose(&mut left) {
                    self.push(batch, rows, at, of, self.pace.one_in + left);
                }
            }
        }
    }

    /// Puts so many packets' weight for one row aside, as those of the batch's row `at`, and passes
    /// it all on where there is no room for more.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        batch: &Batch<K>,
        rows: &Range<usize>,
        at: usize,
        of: u32,
        packets: u64,
    ) {
        self.taken.push(batch, at, of, packets);
        if self.taken.is_full() {
            // As of this packet, wherever its batch ends.
            let so_far = rows.start..at + 1;
            let weight = match self.by {
                Measure::Packets => packets_of(batch, &so_far),
                Measure::Bytes => u64::sum(&batch.bytes()[so_far]),
            };
            self.pass_on(self.total.saturating_add(weight));
        }
    }
}

/// Slots that were taken, on their way to the sketch. Memory: one batch, and a byte for each of its rows.
pub(super) struct Taken<K> {
    by: Measure,
    packets: Batch<K>,
    /// The row that each packet is for.
    of: Box<[u8; BATCH_PACKETS]>,
}

impl<K: FlowKey> Taken<K> {
    pub(super) const BYTES: usize = Batch::<K>::BYTES + BATCH_PACKETS;

    pub(super) fn new(by: Measure) -> Self {
        Self { by, packets: Batch::new(), of: Box::new([0; BATCH_PACKETS]) }
    }

    /// Whether there may be no room for another slot.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.packets.len() + 2 > BATCH_PACKETS
    }

    /// Takes so many packets' weight for one row of the sketch, as those of the batch's row `at`.
    #[inline(always)]
    pub(super) fn push(&mut self, batch: &Batch<K>, at: usize, of: u32, packets: u64) {
        let key = batch.keys()[at];
        // Both terms of 1/p + w - G are below 2^32, and so two rows hold them.
        let first = u32::try_from(packets).unwrap_or(u32::MAX);
        let bytes = match self.by {
            Measure::Packets => 0,
            Measure::Bytes if batch.is_plain() => batch.bytes()[at].saturating_mul(packets),
            Measure::Bytes => {
                let bytes = u128::from(batch.bytes()[at]) * u128::from(packets);
                let bytes = bytes / u128::from(batch.packets()[at].max(1));
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        };
        self.of[self.packets.len()] = of as u8;
        self.packets.push_sum(key, first, bytes, 0, 0);
        if let Ok(rest @ 1..) = u32::try_from(packets - u64::from(first)) {
            self.of[self.packets.len()] = of as u8;
            self.packets.push_sum(key, rest, 0, 0, 0);
        }
    }

    /// Passes on what was taken.
    pub(super) fn pass_on(&mut self, to: &mut dyn RowIngest<K>) {
        let of = &self.of[..self.packets.len()];
        to.ingest_rows(&mut self.packets, of);
        self.packets.clear();
    }

    /// Passes rows of a batch on, for all rows of the sketch; nothing else was taken.
    fn pass_whole(&mut self, batch: &Batch<K>, rows: Range<usize>, to: &mut dyn Summary<K>) {
        for row in rows {
            let (packets, bytes) = (batch.packets()[row], batch.bytes()[row]);
            self.packets.push_sum(batch.keys()[row], packets, bytes, batch.times_ns()[row], 0);
        }
        to.ingest(&mut self.packets);
        self.packets.clear();
    }

    pub(super) fn clear(&mut self) {
        self.packets.clear();
    }
}

/// How many packets these rows of a batch stand for.
#[inline(always)]
fn packets_of<K: FlowKey>(batch: &Batch<K>, rows: &Range<usize>) -> u64 {
    if batch.is_plain() { rows.len() as u64 } else { u32::sum(&batch.packets()[rows.clone()]) }
}
