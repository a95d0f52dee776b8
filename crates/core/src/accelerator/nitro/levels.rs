//! NitroSketch before a sketch with levels: a sampling interval for each level.
//!
//! Deep levels get few packets a second and converge late. They count every packet, so that sums
//! over all flows remain accurate.

use super::interval::{Config, Interval};
use super::sampled::Taken;
use super::{NitroSketch, SALT};
use crate::accelerator::Accelerate;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::remix::remix;
use crate::summary::sampling::Sampler;
use crate::summary::{
    Answers, FIRST_WHOLE, Incompatible, Ingest, LevelSample, MOST_LEVELS, Options, Reads, Setting,
    Summary,
};
use crate::terms::Measure;

/// A level counts every packet while its interval is below this: drawing and copying one slot costs
/// as much as counting two packets.
const LEAST: u64 = 8;

/// The sampling of one level.
struct Level {
    interval: Interval,
    draws: Sampler,
    /// The number of the packet after which the interval may change.
    until: u64,
    /// The largest interval so far.
    fewest: u64,
    /// Weight of all packets, now and at the last change of the interval.
    weight: u64,
    since: u64,
    /// Variance that the packets until then added, for packets of weight 1.
    spread: u64,
    /// Units of the merged samples, and the weight of all of their packets.
    merged: u64,
    merged_weight: u64,
    whole: bool,
}

impl Level {
    /// A level with `whole` always takes all packets.
    fn new(config: Config, cells: usize, seed: u64, whole: bool) -> Self {
        let (interval, draws) = (Interval::new(config, cells), Sampler::new(seed, 1.0));
        let (fewest, weight, since, spread, merged, merged_weight) = (1, 0, 0, 0, 0, 0);
        let mut level = Self {
            interval,
            draws,
            until: 0,
            fewest,
            weight,
            since,
            spread,
            merged,
            merged_weight,
            whole,
        };
        level.look_ahead();
        level
    }

    /// Computes the end of the window.
    fn look_ahead(&mut self) {
        self.until = if self.whole { u64::MAX } else { self.interval.until() };
    }

    fn spread_since(&self) -> u64 {
        (self.interval.one_in - 1).saturating_mul(self.weight - self.since)
    }

    /// Changes the interval.
    fn change(&mut self, one_in: u64) {
        self.spread = self.spread.saturating_add(self.spread_since());
        (self.since, self.interval.one_in) = (self.weight, one_in);
        self.fewest = self.fewest.max(one_in);
        self.draws.change(1.0 / one_in as f64);
    }

    /// Upper bound of the variance of a flow's weight in a row, divided by that weight, where no
    /// packet weighs more than `largest`; 0 while all packets were taken.
    fn unit(&self, largest: u64) -> u64 {
        (self.fewest - 1).saturating_mul(largest).saturating_add(self.merged)
    }

    fn all(&self) -> u64 {
        self.weight.saturating_add(self.merged_weight)
    }

    fn sample(&self, largest: u64) -> LevelSample {
        let spread = self.spread.saturating_add(self.spread_since()) as f64 * largest as f64;
        LevelSample { most: self.unit(largest), mean: spread / self.all().max(1) as f64 }
    }

    /// Forgets all packets.
    fn forget(&mut self) {
        (self.weight, self.since, self.spread, self.merged, self.merged_weight) = (0, 0, 0, 0, 0);
        self.fewest = self.interval.one_in;
        self.look_ahead();
        self.draws.change(1.0 / self.interval.one_in as f64);
    }
}

/// NitroSketch before a sketch with levels, which holds sampled slots for the rows of the sketch.
///
/// `settle` passes on the sampled slots and sets the sampling rates of the levels in the sketch;
/// until then answers lack them. Memory: two batches, and a byte for each row of one.
pub(super) struct Leveled<K> {
    by: Measure,
    config: Config,
    levels: Box<[Level]>,
    /// Rows of the sketch.
    rows: u32,
    /// Largest weight of a packet.
    largest: u64,
    taken: Taken<K>,
    /// Packets of levels that take all packets.
    whole: Batch<K>,
    inner: Box<dyn Summary<K>>,
}

impl<K: FlowKey> Leveled<K> {
    /// Builds it before a sketch with levels, or returns the sketch. The memory is already
    /// reserved.
    pub(super) fn before(
        config: Config,
        options: &Options,
        mut inner: Box<dyn Summary<K>>,
    ) -> Result<Self, Box<dyn Summary<K>>> {
        let Some(rows) = inner.rows().map(|rows| rows.rows() as u32) else { return Err(inner) };
        let Some(of) = inner.levels() else { return Err(inner) };
        let seed = options.digester.seed().draws() ^ SALT;
        // Each level has its own draws.
        let level = |level| {
            let seed = remix(seed, level as u64);
            Level::new(config, of.level_cells(level), seed, level >= FIRST_WHOLE)
        };
        let levels = (0..of.levels()).map(level).collect();
        let (by, taken, whole) = (options.by, Taken::new(options.by), Batch::new());
        Ok(Self { by, config, levels, rows, largest: 0, taken, whole, inner })
    }

    /// Ends the window of a level at this time, and changes its interval if needed.
    #[cold]
    fn turn(&mut self, level: usize, time_ns: i64) {
        self.pass_on();
        let largest = self.largest();
        let of = self.inner.levels();
        let squared_l2 = || of.map_or(0.0, |of| of.level_squared_l2(level));
        let level = &mut self.levels[level];
        let one_in = level.interval.turn(time_ns, squared_l2, largest);
        let one_in = if one_in < LEAST { 1 } else { one_in };
        if one_in != level.interval.one_in {
            level.change(one_in);
        }
        level.look_ahead();
    }

    /// Largest weight of a packet.
    fn largest(&self) -> u64 {
        if self.by == Measure::Packets { 1 } else { self.largest.max(1) }
    }

    /// Whether all levels take all packets, and no window begins or ends within the next `rows`
    /// rows.
    fn takes_all(&self, rows: u64) -> bool {
        let takes = |level: &Level| {
            let left = level.until - level.interval.seen;
            level.interval.one_in == 1 && level.interval.seen > 0 && left > rows
        };
        self.levels.iter().all(takes)
    }

    /// Counts a row of a batch, and returns the number of packets that it represents.
    #[inline(always)]
    fn count(&mut self, batch: &Batch<K>, row: usize, level: usize) -> u64 {
        let packets = if batch.is_plain() { 1 } else { u64::from(batch.packets()[row]) };
        let mut weight = packets;
        if self.by == Measure::Bytes {
            weight = batch.bytes()[row];
            self.largest = self.largest.max(weight.div_ceil(packets.max(1)));
        }
        let of = &mut self.levels[level];
        of.interval.seen += 1;
        of.weight = of.weight.saturating_add(weight);
        packets
    }

    /// Counts a row of a batch, and samples its slots.
    #[inline(always)]
    fn take(&mut self, batch: &Batch<K>, row: usize, level: usize) {
        let packets = self.count(batch, row, level);
        let of = &mut self.levels[level];
        if of.interval.one_in == 1 {
            let (key, bytes) = (batch.keys()[row], batch.bytes()[row]);
            self.whole.push_sum(key, packets as u32, bytes, batch.times_ns()[row], 0);
        } else if !of.draws.pass(packets.saturating_mul(self.rows.into())) {
            self.draw(batch, row, level, packets);
        }
    }

    /// Samples the slots of a row of a batch.
    fn draw(&mut self, batch: &Batch<K>, row: usize, level: usize, packets: u64) {
        for slot in 0..self.rows {
            let (mut left, of) = (packets, &mut self.levels[level]);
            if of.draws.choose(&mut left) {
                let stands_for = of.interval.one_in + left;
                self.taken.push(batch, row, slot, stands_for);
                if self.taken.is_full() {
                    self.pass_on();
                }
            }
        }
    }

    /// Passes on the sampled slots.
    fn pass_on(&mut self) {
        if let Some(rows) = self.inner.rows() {
            self.taken.pass_on(rows);
        }
        if !self.whole.is_empty() {
            self.inner.ingest(&mut self.whole);
            self.whole.clear();
        }
    }

    /// Sets the sampling rates of the levels in the sketch.
    fn set_level_samples(&mut self) {
        let largest = self.largest();
        let mut samples = [LevelSample::default(); MOST_LEVELS];
        for (sample, level) in samples.iter_mut().zip(&self.levels) {
            *sample = level.sample(largest);
        }
        let total = self.levels.iter().map(Level::all).fold(0, u64::saturating_add);
        if let Some(of) = self.inner.levels() {
            of.levels_sampled_from(total, &samples[..self.levels.len()], None);
        }
    }

    /// Forgets all packets.
    fn forget(&mut self) {
        self.largest = 0;
        self.taken.clear();
        self.whole.clear();
        self.levels.iter_mut().for_each(Level::forget);
    }
}

impl<K: FlowKey> Ingest<K> for Leveled<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        let mut of = [0; BATCH_PACKETS];
        if let Some(levels) = self.inner.levels() {
            levels.levels_of(batch, &mut of);
        }
        if self.takes_all(batch.len() as u64) {
            self.pass_on();
            for (row, level) in of[..batch.len()].iter().enumerate() {
                self.count(batch, row, usize::from(*level));
            }
            return self.inner.ingest(batch);
        }
        for (row, level) in of[..batch.len()].iter().map(|level| usize::from(*level)).enumerate() {
            if self.levels[level].interval.seen == 0 {
                self.levels[level].interval.begin(batch.times_ns()[row]);
            }
            self.take(batch, row, level);
            if self.whole.len() == BATCH_PACKETS {
                self.pass_on();
            }
            if self.levels[level].interval.seen == self.levels[level].until {
                self.turn(level, batch.times_ns()[row]);
            }
        }
    }

    fn settle(&mut self) {
        self.pass_on();
        self.inner.settle();
        self.set_level_samples();
    }

    fn reads(&self) -> Reads {
        Reads { times: true, ..self.inner.reads() }
    }
}

impl<K: FlowKey> Summary<K> for Leveled<K> {
    /// The sketch knows its sampling rates.
    fn answers(&self) -> &dyn Answers {
        self.inner.answers()
    }

    /// With the same seed, both sampled the same positions of their streams, so errors add up.
    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = other.downcast_ref::<Self>().ok_or(Incompatible("types differ"))?;
        if self.by != other.by {
            return Err(Incompatible("measures differ"));
        }
        if self.config.settings() != other.config.settings() {
            return Err(Incompatible("parameters differ"));
        }
        self.settle();
        self.inner.merge(&*other.inner)?;
        self.largest = self.largest.max(other.largest);
        let largest = other.largest();
        for (own, other) in self.levels.iter_mut().zip(&other.levels) {
            let spread = other.spread.saturating_add(other.spread_since());
            own.spread = own.spread.saturating_add(spread);
            own.merged = own.merged.saturating_add(other.unit(largest));
            own.merged_weight = own.merged_weight.saturating_add(other.all());
        }
        self.set_level_samples();
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.largest);
        for level in &self.levels {
            let Level { fewest, weight, since, spread, merged, merged_weight, .. } = *level;
            level.interval.save(out);
            out.numbers(&[fewest, weight, since, spread, merged, merged_weight]);
            level.draws.save(out);
        }
        self.inner.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.largest = from.number("largest packet")?;
        for level in &mut self.levels {
            level.interval.load(from)?;
            let mut numbers = [0u64; 6];
            from.numbers("sample", &mut numbers)?;
            let [fewest, weight, since, spread, merged, merged_weight] = numbers;
            let most = if level.whole { 1 } else { self.config.most };
            if !(level.interval.one_in..=most).contains(&fewest) || since > weight {
                return Err(from.invalid("sample", 48, "it is too few packets for its rows"));
            }
            (level.fewest, level.weight, level.since) = (fewest, weight, since);
            (level.spread, level.merged, level.merged_weight) = (spread, merged, merged_weight);
            level.look_ahead();
            level.draws.change(1.0 / level.interval.one_in as f64);
            level.draws.load(from)?;
        }
        self.inner.load(from)?;
        self.set_level_samples();
        Ok(())
    }

    fn clear(&mut self) {
        for level in &mut self.levels {
            level.draws.rewind();
            level.interval.clear();
        }
        self.forget();
        self.inner.clear();
    }

    fn next_epoch(&mut self) {
        self.settle();
        self.levels.iter_mut().for_each(|level| level.interval.next_epoch());
        self.forget();
        self.inner.next_epoch();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        self.inner.parameters()
    }

    fn accelerators(&self) -> Vec<(&'static str, Vec<(&'static str, Setting)>)> {
        let mut all = vec![(NitroSketch::INFO.name, self.config.settings())];
        all.extend(self.inner.accelerators());
        all
    }

    fn memory_bytes(&self) -> usize {
        Taken::<K>::BYTES + Batch::<K>::BYTES + self.inner.memory_bytes()
    }
}
