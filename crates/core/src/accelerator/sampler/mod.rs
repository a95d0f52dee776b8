//! Samplers: a summary takes few of the packets, each with the weight of those that it stands for.
//!
//! Which packets are taken is drawn by their place in the stream, whatever they are: a draw says how
//! many to pass over, and these are neither digested nor read. A row that stands for w packets is w
//! packets in a row. When its packet number G is taken, with the weight n of one in n, then the w - G
//! behind it are taken as they are: n + w - G in all, which is right on average, and off no further
//! than if each of them had been drawn ("Weighted Skipper", Ben Basat et al., section VII; by Jensen's
//! inequality each exponential moment is at most that of w draws).

mod answers;
mod drawn;
mod levels;
mod norm;
mod rate;
mod skipper;
mod taken;
mod uniform;

use self::norm::Norm;
use self::rate::Rate;
pub(super) use self::rate::{MOST, Steps};
pub use self::skipper::Skipper;
use self::taken::Taken;
pub use self::uniform::Uniform;
use super::{HeaderRate, headers};
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::counter::Sampler;
use crate::summary::{
    Ability, Answers, BuildError, Counted, Counter, Incompatible, Ingest, Laws, Options, Sampling,
    Setting, Summary, sum_and_largest,
};
use crate::terms::Measure;

/// Summaries have draws of their own from the same seed.
const SALT: u64 = 0x5a3f_91c8_27d4_e60b;

/// What kinds of samplers differ in.
struct Kind {
    name: &'static str,
    settings: Vec<(&'static str, Setting)>,
    rate: Rate,
    /// What one in so many of is taken.
    units: Measure,
    /// Chance of a larger error than the bounds allow.
    delta: f64,
    /// Whether the meter draws, before headers are read.
    headers: bool,
}

/// A sample of the packets on its way to a summary.
///
/// It measures what the options name alone: of the other measure it gives no size. `settle` passes
/// on what was taken: until then answers are without it. Memory: one batch.
struct Sampled<K> {
    kind: Kind,
    by: Measure,
    /// Whether anybody reads the bytes of what was taken.
    reads_bytes: bool,
    draws: Sampler,
    /// One unit in so many is taken, up to the unit number `until`.
    one_in: u64,
    until: u64,
    /// Units so far.
    seen: u64,
    /// Weight of all packets, taken or not.
    total: u64,
    /// The largest weight of a unit.
    largest: u64,
    /// Weights that a unit taken elsewhere, and merged, may have stood for.
    merged: u64,
    /// Packets that the meter passed over, of those in the total.
    noted: u64,
    /// What was taken.
    taken: Taken<K>,
    inner: Box<dyn Summary<K>>,
}

/// Whether samples are all that a summary with these laws needs.
fn fits(laws: Laws) -> Result<(), &'static str> {
    match laws {
        Laws { sizes: false, .. } => Err("its answers cannot be estimated from a sample"),
        Laws { aggregatable: false, .. } => {
            Err("it does not accept weighted updates, and a sampled packet represents several")
        }
        _ => Ok(()),
    }
}

/// What a sample tells, in the measure that was asked for. Of a sample of a sample the error is none that [`Sampling`] could tell.
fn answers(ability: Ability) -> Option<Ability> {
    match ability {
        Ability::Size(Counted::Both) => Some(Ability::Size(Counted::Asked)),
        Ability::Size(_) | Ability::Candidates => Some(ability),
        Ability::Prefixes { sampled: false } => Some(Ability::Prefixes { sampled: true }),
        _ => None,
    }
}

impl<K: FlowKey> Sampled<K> {
    /// Bytes of the batch.
    const BYTES: usize = Taken::<K>::BYTES;

    fn before(
        kind: Kind,
        options: &Options,
        inner: Box<dyn Summary<K>>,
    ) -> Result<Box<dyn Summary<K>>, BuildError> {
        options.memory.take(Self::BYTES)?;
        let draws = Sampler::new(options.digester.seed().draws() ^ SALT, 1.0);
        let (one_in, until, seen, total, largest, merged) = (1, 0, 0, 0, 0, 0);
        let reads_bytes = inner.wants_bytes();
        let (by, taken) = (options.by, Taken::new(kind.units, reads_bytes));
        let mut sampled = Self {
            kind,
            by,
            reads_bytes,
            draws,
            one_in,
            until,
            seen,
            total,
            largest,
            merged,
            noted: 0,
            taken,
            inner,
        };
        sampled.clear();
        Ok(Box::new(sampled))
    }

    /// Counts all packets; returns how many units they are.
    #[inline(always)]
    fn count(&mut self, batch: &Batch<K>) -> u64 {
        let units = match self.kind.units {
            Measure::Packets if batch.is_plain() => batch.len() as u64,
            Measure::Packets => u32::sum(batch.packets()),
            Measure::Bytes => u64::sum(batch.bytes()),
        };
        let mut weight = units;
        if self.kind.units != self.by {
            (weight, self.largest) = sum_and_largest(self.largest, batch.bytes());
        }
        self.total = self.total.saturating_add(weight);
        units
    }

    /// Takes from here on as the rate at the unit number `unit` says.
    fn change(&mut self, unit: u64) {
        if self.kind.headers {
            (self.one_in, self.until) = (1, u64::MAX);
            return;
        }
        (self.one_in, self.until) = match self.kind.rate {
            Rate::Steps(steps) => steps.at(unit),
            Rate::Norm(norm) => self.read_norm(norm, unit),
        };
        self.draws.change(1.0 / self.one_in as f64);
    }

    /// The rate by the norm of all packets before this unit, and until when it is not read again.
    fn read_norm(&mut self, norm: Norm, unit: u64) -> (u64, u64) {
        self.pass_on();
        let rows = self.inner.rows().filter(|_| norm.is_own());
        let (cells, squared_l2) = rows.map_or((0, 0.0), |rows| (rows.cells(), rows.squared_l2()));
        norm.turn(self.one_in, unit, cells, squared_l2)
    }

    /// Draws among packets that come one by one, by their numbers.
    fn draw_packets(&mut self, batch: &Batch<K>, end: u64) {
        let mut at = self.seen;
        while at < end {
            if at == self.until {
                self.change(at + 1);
            }
            let stretch = end.min(self.until);
            let mut left = stretch - at;
            while self.draws.choose(&mut left) {
                let row = (stretch - left - 1 - self.seen) as usize;
                self.take(batch, row, self.one_in);
            }
            at = stretch;
        }
        self.seen = end;
    }

    /// Draws among rows of any number of units; all of a row are drawn at the rate of its last one.
    fn draw_rows(&mut self, batch: &Batch<K>) {
        for row in 0..batch.len() {
            let mut left = match self.kind.units {
                Measure::Packets => u64::from(batch.packets()[row]),
                Measure::Bytes => batch.bytes()[row],
            };
            self.seen = self.seen.saturating_add(left);
            if self.seen > self.until {
                self.change(self.seen);
            }
            if self.draws.choose(&mut left) {
                self.take(batch, row, self.one_in.saturating_add(left));
            }
        }
    }

    /// Takes a row, which stands for so many units.
    #[inline]
    fn take(&mut self, batch: &Batch<K>, row: usize, units: u64) {
        if self.taken.is_full() {
            self.pass_on();
        }
        self.taken.push(batch, row, units);
    }

    /// Passes on what was taken.
    fn pass_on(&mut self) {
        self.taken.pass_on(&mut *self.inner);
    }

    /// The most that a unit taken may have stood for; 0 while nothing was passed over.
    fn weight(&self) -> u64 {
        let own = match self.one_in {
            1 => 0,
            one_in if self.kind.units == self.by => one_in,
            one_in => one_in.saturating_mul(self.largest),
        };
        own.saturating_add(self.merged)
    }

    /// How weights of given flows err; `None` while nothing was passed over.
    fn sampling(&self) -> Option<Sampling> {
        self.sampling_of(1)
    }

    /// How the weight of the luckiest of so many flows errs.
    fn sampling_of(&self, flows: u64) -> Option<Sampling> {
        Sampling::of_packets(self.weight() as f64, flows, self.kind.delta)
    }

    /// Forgets the packets, and goes on drawing.
    fn forget(&mut self) {
        (self.one_in, self.seen, self.total, self.largest, self.merged) = (1, 0, 0, 0, 0);
        self.noted = 0;
        self.taken.clear();
        self.change(1);
    }
}

impl<K: FlowKey> Ingest<K> for Sampled<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        if self.kind.headers {
            return self.ingest_drawn(batch);
        }
        let units = self.count(batch);
        let end = self.seen.saturating_add(units);
        if self.one_in == 1 && end <= self.until {
            self.seen = end;
            self.pass_on();
            if !batch.is_empty() {
                self.inner.ingest(batch);
            }
        } else if end <= self.until && self.draws.pass(units) {
            self.seen = end;
        } else if self.kind.units == Measure::Packets && batch.is_plain() {
            self.draw_packets(batch, end);
        } else {
            self.draw_rows(batch);
        }
    }

    fn settle(&mut self) {
        self.pass_on();
        self.inner.settle();
    }

    fn wants_bytes(&self) -> bool {
        self.by == Measure::Bytes || self.reads_bytes
    }
}

impl<K: FlowKey> Summary<K> for Sampled<K> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    /// Both took the same places of their streams, if these were of one seed: errors add up.
    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = other.downcast_ref::<Self>().ok_or(Incompatible("types differ"))?;
        if self.kind.name != other.kind.name {
            return Err(Incompatible("types differ"));
        }
        if self.by != other.by {
            return Err(Incompatible("measures differ"));
        }
        let differ = self.kind.headers != other.kind.headers;
        if differ || self.kind.settings != other.kind.settings {
            return Err(Incompatible("parameters differ"));
        }
        self.settle();
        self.inner.merge(&*other.inner)?;
        self.total = self.total.saturating_add(other.total);
        self.merged = self.merged.saturating_add(other.weight());
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.numbers(&[self.seen, self.total, self.largest, self.merged, self.one_in, self.until]);
        self.draws.save(out);
        self.inner.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        let mut numbers = [0; 6];
        from.numbers("sample", &mut numbers)?;
        [self.seen, self.total, self.largest, self.merged, self.one_in, self.until] = numbers;
        let possible = match self.kind.rate {
            _ if self.kind.headers => (1..=MOST).contains(&self.one_in) && self.until == u64::MAX,
            Rate::Steps(steps) => steps.at(self.seen.max(1)) == (self.one_in, self.until),
            Rate::Norm(norm) => (1..=norm.most()).contains(&self.one_in) && self.until >= self.seen,
        };
        if !possible {
            return Err(from.invalid("sample", 48, "the rates differ"));
        }
        self.draws.change(1.0 / self.one_in as f64);
        self.draws.load(from)?;
        self.inner.load(from)
    }

    fn clear(&mut self) {
        self.draws.rewind();
        self.inner.clear();
        self.forget();
    }

    fn next_epoch(&mut self) {
        self.settle();
        self.inner.next_epoch();
        self.forget();
    }

    fn header_rate(&self) -> Option<HeaderRate> {
        self.drawn_at()
    }

    fn passed_over(&mut self, packets: u64, one_in: u64) {
        self.pass_over(packets, one_in);
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        self.inner.parameters()
    }

    fn accelerators(&self) -> Vec<(&'static str, Vec<(&'static str, Setting)>)> {
        let mut settings = self.kind.settings.clone();
        settings.extend(self.kind.headers.then(headers::setting));
        let mut all = vec![(self.kind.name, settings)];
        all.extend(self.inner.accelerators());
        all
    }

    fn memory_bytes(&self) -> usize {
        Self::BYTES + self.inner.memory_bytes()
    }
}
