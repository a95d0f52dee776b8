//! Packets that were read since a row takes them: the meter drew which, before headers were read.
//!
//! It drew with the chance that any of the rows takes a packet. Which of them do is drawn here, given
//! that one does: both together are distributed as draws of each row.

use super::sampled::Nitro;
use crate::accelerator::HeaderRate;
use crate::accelerator::headers::{Chance, any_of};
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::Sampling;
use crate::summary::counter::Sampler;

/// The next row behind `row` that takes the packet.
#[inline(always)]
fn next_row(draws: &mut Sampler, row: u32, rows: u32) -> Option<u32> {
    let mut left = u64::from(rows - row - 1);
    draws.choose(&mut left).then(|| rows - left as u32 - 1)
}

/// Chance that the total is not within its bounds.
const DELTA: f64 = 0.01;

impl<K: FlowKey> Nitro<K> {
    /// How the meter draws, where it does.
    pub(super) fn drawn_at(&self) -> Option<HeaderRate> {
        let (one_in, rows) = (self.pace.one_in, self.rows);
        let rate = HeaderRate { chance: Chance::Rows { one_in, rows }, delta: DELTA };
        self.pace.asked().headers.then_some(rate)
    }

    /// Ingests packets, each of which at least one row takes.
    pub(super) fn ingest_drawn(&mut self, batch: &mut Batch<K>) {
        let all = 0..batch.len();
        self.pace.seen = self.pace.seen.saturating_add(batch.len() as u64);
        self.total = self.represented() as u64;
        if self.pace.asked().takes_all() {
            self.inner.ingest(batch);
            return;
        }
        for at in all.clone() {
            let mut of = self.draws.first_of(self.rows);
            self.push(batch, &all, at, of, self.pace.one_in);
            while let Some(next) = next_row(&mut self.draws, of, self.rows) {
                of = next;
                self.push(batch, &all, at, of, self.pace.one_in);
            }
        }
    }

    /// Counts packets of the epoch that were not read: any of them may have been ours. The
    /// total is the most that these and the packets that were read make likely.
    pub(super) fn pass_over(&mut self, packets: u64) {
        if self.pace.asked().headers {
            let unit = 2.0 * self.weight() * (2.0 / DELTA).ln();
            let represented = self.represented();
            let error = Sampling { unit, confidence: 1.0 - DELTA }.error(represented);
            let most = self.pace.seen.saturating_add(packets);
            self.total = most.min((represented + error) as u64);
        }
    }

    /// Packets that one that was read stands for.
    fn weight(&self) -> f64 {
        1.0 / any_of(self.pace.one_in, self.rows)
    }

    /// Packets that all that were read stand for.
    fn represented(&self) -> f64 {
        self.pace.seen as f64 * self.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accelerator::HeaderSampler;

    /// Which rows take a packet has the chance of independent draws, p for each row, whether or not the
    /// packet was read: χ² of 8 sets of rows is above 40.5 one time in 10⁶.
    #[test]
    fn rows_that_are_drawn_in_two_steps_are_independent() {
        const ROWS: u32 = 3;
        const PACKETS: u64 = 1_000_000;
        println!("seeds 5 and 6");
        let one_in = 4;
        let chance = Chance::Rows { one_in, rows: ROWS };
        let mut sampler = HeaderSampler::new(HeaderRate { chance, delta: DELTA }, 5);
        let mut draws = Sampler::new(6, 1.0 / one_in as f64);
        let (mut sets, mut left) = ([0u64; 1 << ROWS], PACKETS);
        while sampler.ahead() < left {
            left -= sampler.ahead() + 1;
            assert!(sampler.pass(sampler.ahead()));
            sampler.take();
            let mut of = draws.first_of(ROWS);
            let mut set = 1 << of;
            while let Some(next) = next_row(&mut draws, of, ROWS) {
                of = next;
                set |= 1 << of;
            }
            sets[set] += 1;
        }
        sets[0] = PACKETS - sets.iter().sum::<u64>();
        let p = 1.0 / one_in as f64;
        let terms = (0u32..).zip(sets).map(|(set, found)| {
            let taken = set.count_ones().cast_signed();
            let chance = p.powi(taken) * (1.0 - p).powi(ROWS.cast_signed() - taken);
            let expected = PACKETS as f64 * chance;
            (found as f64 - expected).powi(2) / expected
        });
        let statistic: f64 = terms.sum();
        assert!(statistic < 40.5, "{statistic}: {sets:?}");
    }
}
