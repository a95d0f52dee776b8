//! Sampling before a summary with levels, each at its own rate.
//!
//! Paper: Ben Basat et al., "Skipper", section VII, which puts an accelerated Count Sketch into
//! each level of UnivMon. Deep levels get few packets. All of them are taken until there are enough
//! for a sample, so that sums over all flows remain accurate.

use super::rate::Rate;
use super::{Kind, SALT, Taken};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::remix::remix;
use crate::summary::sampling::Sampler;
use crate::summary::{
    Answers, BuildError, FIRST_WHOLE, Incompatible, Ingest, LevelSample, MOST_LEVELS, Options,
    Reads, Setting, Summary,
};
use crate::terms::Measure;

/// By the norm, a level takes every packet while its interval is below this: sampling more often
/// costs more to draw and copy than it saves.
const LEAST: u64 = 4;

/// The sample of one level.
struct Level {
    draws: Sampler,
    /// The interval: one unit in this number is sampled, up to the unit number `until`.
    one_in: u64,
    until: u64,
    /// Units so far, and at the last change of the rate.
    seen: u64,
    since: u64,
    /// Variance that the units until then added: interval minus 1 for each.
    spread: u64,
    /// The largest weight of a unit of merged samples, and their number of units.
    merged: u64,
    merged_units: u64,
}

impl Level {
    fn new(seed: u64) -> Self {
        let draws = Sampler::new(seed, 1.0);
        let (one_in, until, seen, since, spread, merged, merged_units) = (1, 0, 0, 0, 0, 0, 0);
        Self { draws, one_in, until, seen, since, spread, merged, merged_units }
    }

    /// Variance that the units since the last change of the rate added.
    fn spread_since(&self) -> u64 {
        (self.one_in - 1).saturating_mul(self.seen - self.since)
    }

    /// Changes the rate from the next unit on.
    fn change(&mut self, one_in: u64, until: u64) {
        self.spread = self.spread.saturating_add(self.spread_since());
        (self.one_in, self.until, self.since) = (one_in, until, self.seen);
        self.draws.change(1.0 / one_in as f64);
    }

    /// The maximum weight of a sampled unit; 0 while nothing was skipped.
    fn weight(&self) -> u64 {
        let own = if self.one_in > 1 { self.one_in } else { 0 };
        own.saturating_add(self.merged)
    }

    /// Whether the rate stays the same for the next `units` units.
    #[inline(always)]
    fn lasts(&self, units: u64) -> bool {
        self.until.saturating_sub(self.seen) >= units
    }

    fn units(&self) -> u64 {
        self.seen.saturating_add(self.merged_units)
    }

    fn sample(&self) -> LevelSample {
        let spread = self.spread.saturating_add(self.spread_since());
        LevelSample { most: self.weight(), mean: spread as f64 / self.units().max(1) as f64 }
    }

    /// Forgets all packets.
    fn forget(&mut self) {
        (self.one_in, self.seen, self.since, self.spread) = (1, 0, 0, 0);
        (self.merged, self.merged_units) = (0, 0);
    }
}

/// A sampler before a summary with levels.
///
/// It measures in the units that it samples. `settle` passes on the sampled packets and sets the
/// sampling rates of the levels in the summary; until then answers lack them. Cost: the digest of
/// each packet, which gives its level, and a subtraction. Memory: one batch.
pub(super) struct Leveled<K> {
    kind: Kind,
    levels: [Level; MOST_LEVELS],
    count: usize,
    taken: Taken<K>,
    inner: Box<dyn Summary<K>>,
}

impl<K: FlowKey> Leveled<K> {
    /// Builds it before a summary of `count` levels with the same units.
    pub(super) fn before(
        kind: Kind,
        count: usize,
        options: &Options,
        inner: Box<dyn Summary<K>>,
    ) -> Result<Box<dyn Summary<K>>, BuildError> {
        options.memory.take(Taken::<K>::BYTES)?;
        let seed = options.digester.seed().draws() ^ SALT;
        let taken = Taken::new(kind.units, inner.reads().bytes);
        // Each level has its own draws.
        let levels = std::array::from_fn(|level| Level::new(remix(seed, level as u64)));
        let mut sampled = Self { kind, levels, count, taken, inner };
        sampled.clear();
        Ok(Box::new(sampled))
    }

    /// Updates the rate of a level from its next unit on.
    #[cold]
    fn change(&mut self, level: usize) {
        let Level { one_in, seen, .. } = self.levels[level];
        let unit = seen.saturating_add(1);
        let (one_in, until) = match self.kind.rate {
            _ if level >= FIRST_WHOLE => (1, u64::MAX),
            Rate::Steps(steps) => steps.at(unit),
            Rate::Norm(norm) => {
                self.taken.pass_on(&mut *self.inner);
                let levels = self.inner.levels().filter(|_| norm.is_own());
                let (cells, squared_l2) = levels.map_or((0, 0.0), |levels| {
                    (levels.level_cells(level), levels.level_squared_l2(level))
                });
                let (one_in, until) = norm.turn(one_in, unit, cells, squared_l2);
                (if one_in < LEAST { 1 } else { one_in }, until)
            }
        };
        self.levels[level].change(one_in, until);
    }

    /// Samples a row of `units` units of a level, at the rate of its first unit.
    #[inline]
    fn draw(&mut self, batch: &Batch<K>, row: usize, level: usize, units: u64) {
        if self.levels[level].seen >= self.levels[level].until {
            self.change(level);
        }
        let of = &mut self.levels[level];
        of.seen = of.seen.saturating_add(units);
        let mut left = units;
        if of.draws.choose(&mut left) {
            let stands_for = of.one_in.saturating_add(left);
            if self.taken.is_full() {
                self.taken.pass_on(&mut *self.inner);
            }
            self.taken.push(batch, row, stands_for);
        }
    }

    /// Whether all levels take every packet within the next `units` units.
    fn takes_all(&self, units: u64) -> bool {
        let takes = |level: &Level| level.one_in == 1 && level.lasts(units);
        self.levels[..self.count].iter().all(takes)
    }

    /// Sets the sampling rates of the levels in the summary.
    fn set_level_samples(&mut self) {
        let samples: [_; MOST_LEVELS] = std::array::from_fn(|level| self.levels[level].sample());
        let levels = &self.levels[..self.count];
        let total = levels.iter().map(Level::units).fold(0, u64::saturating_add);
        if let Some(of) = self.inner.levels() {
            of.levels_sampled_from(total, &samples[..self.count], Some(self.kind.delta));
        }
    }

    /// Forgets all packets; the random draws continue.
    fn forget(&mut self) {
        self.taken.clear();
        for level in 0..self.count {
            self.levels[level].forget();
            self.change(level);
        }
        self.set_level_samples();
    }
}

impl<K: FlowKey> Ingest<K> for Leveled<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        let mut of = [0; BATCH_PACKETS];
        if let Some(levels) = self.inner.levels() {
            levels.levels_of(batch, &mut of);
        }
        let by = self.kind.units;
        let units_of = |batch: &Batch<K>, row: usize| match by {
            Measure::Bytes => batch.bytes()[row],
            Measure::Packets if batch.is_plain() => 1,
            Measure::Packets => u64::from(batch.packets()[row]),
        };
        let units: u64 =
            (0..batch.len()).map(|row| units_of(batch, row)).fold(0, u64::saturating_add);
        if self.takes_all(units) {
            for (row, level) in of[..batch.len()].iter().enumerate() {
                self.levels[usize::from(*level) % MOST_LEVELS].seen += units_of(batch, row);
            }
            self.taken.pass_on(&mut *self.inner);
            return self.inner.ingest(batch);
        }
        for (row, level) in of[..batch.len()].iter().enumerate() {
            let (level, units) = (usize::from(*level) % MOST_LEVELS, units_of(batch, row));
            let sample = &mut self.levels[level];
            if sample.lasts(units) && sample.draws.pass(units) {
                sample.seen += units;
            } else {
                self.draw(batch, row, level, units);
            }
        }
    }

    fn settle(&mut self) {
        self.taken.pass_on(&mut *self.inner);
        self.inner.settle();
        self.set_level_samples();
    }

    fn reads(&self) -> Reads {
        Reads::sizes(self.kind.units).or(self.inner.reads())
    }
}

impl<K: FlowKey> Summary<K> for Leveled<K> {
    /// The summary knows its sampling rates.
    fn answers(&self) -> &dyn Answers {
        self.inner.answers()
    }

    /// With the same seed, both sampled the same positions of their streams, so errors add up.
    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = other.downcast_ref::<Self>().ok_or(Incompatible("types differ"))?;
        if self.kind.units != other.kind.units {
            return Err(Incompatible("measures differ"));
        }
        if self.kind.name != other.kind.name || self.kind.settings != other.kind.settings {
            return Err(Incompatible("parameters differ"));
        }
        self.settle();
        self.inner.merge(&*other.inner)?;
        for (own, other) in self.levels.iter_mut().zip(&other.levels) {
            let spread = other.spread.saturating_add(other.spread_since());
            own.spread = own.spread.saturating_add(spread);
            own.merged = own.merged.saturating_add(other.weight());
            own.merged_units = own.merged_units.saturating_add(other.units());
        }
        self.set_level_samples();
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        for level in &self.levels[..self.count] {
            let Level { one_in, until, seen, since, spread, merged, merged_units, .. } = *level;
            out.numbers(&[seen, since, one_in, until, spread, merged, merged_units]);
            level.draws.save(out);
        }
        self.inner.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        for (number, level) in self.levels[..self.count].iter_mut().enumerate() {
            let mut numbers = [0u64; 7];
            from.numbers("sample", &mut numbers)?;
            let [seen, since, one_in, until, spread, merged, merged_units] = numbers;
            let possible = match self.kind.rate {
                _ if number >= FIRST_WHOLE => (one_in, until) == (1, u64::MAX),
                Rate::Steps(steps) => steps.at(since.saturating_add(1)) == (one_in, until),
                Rate::Norm(norm) => (1..=norm.most()).contains(&one_in) && until >= since,
            };
            if !possible || since > seen {
                return Err(from.invalid("sample", 56, "the rates differ"));
            }
            let draws = &mut level.draws;
            draws.change(1.0 / one_in as f64);
            draws.load(from)?;
            (level.seen, level.since, level.one_in, level.until) = (seen, since, one_in, until);
            (level.spread, level.merged, level.merged_units) = (spread, merged, merged_units);
        }
        self.inner.load(from)?;
        self.set_level_samples();
        Ok(())
    }

    fn clear(&mut self) {
        self.levels.iter_mut().for_each(|level| level.draws.rewind());
        self.inner.clear();
        self.forget();
    }

    fn next_epoch(&mut self) {
        self.settle();
        self.inner.next_epoch();
        self.forget();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        self.inner.parameters()
    }

    fn accelerators(&self) -> Vec<(&'static str, Vec<(&'static str, Setting)>)> {
        let mut all = vec![(self.kind.name, self.kind.settings.clone())];
        all.extend(self.inner.accelerators());
        all
    }

    fn memory_bytes(&self) -> usize {
        Taken::<K>::BYTES + self.inner.memory_bytes()
    }
}
