//! Samplers: a summary takes a sample of the packets, each with the weight of those that it
//! represents.
//!
//! Packets are sampled by their position in the stream: a random draw gives the number of packets
//! to skip, and skipped packets are neither digested nor read. A row that represents w packets
//! counts as w packets. When its packet number G is sampled at one in n, the w - G packets behind
//! it are added exactly, which makes a weight of n + w - G. This is unbiased, and its error is no
//! larger than if each packet had been drawn ("Weighted Skipper", Ben Basat et al., section VII; by
//! Jensen's inequality each exponential moment is at most that of w draws).

mod answers;
mod levels;
mod rate;
mod skipper;
mod uniform;

pub(super) use self::rate::{MOST, Steps};
use self::rate::{Norm, Rate};
pub use self::skipper::Skipper;
pub use self::uniform::Uniform;
use super::HeaderRate;
use super::headers::{self, Chance};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::sampling::Sampler;
use crate::summary::{
    Ability, Answers, BuildError, Counted, Counter, Incompatible, Ingest, Laws, Options, Reads,
    Sampling, Setting, Summary, sum_and_largest,
};
use crate::terms::Measure;

/// Separates these draws from those of summaries with the same seed.
const SALT: u64 = 0x5a3f_91c8_27d4_e60b;

/// The differences between kinds of samplers.
struct Kind {
    name: &'static str,
    settings: Vec<(&'static str, Setting)>,
    rate: Rate,
    /// The units that are sampled.
    units: Measure,
    /// Probability of an error outside the bounds.
    delta: f64,
    /// Whether the meter samples, before headers are read.
    headers: bool,
}

/// A sampler before a summary.
///
/// It answers sizes only in the measure of the options. `settle` passes on the sampled packets;
/// until then answers lack them. Memory: one batch.
struct Sampled<K> {
    kind: Kind,
    by: Measure,
    draws: Sampler,
    /// The interval: one unit in this number is sampled, up to the unit number `until`.
    one_in: u64,
    until: u64,
    /// Units so far.
    seen: u64,
    /// Weight of all packets, sampled or not.
    total: u64,
    /// The largest weight of a unit.
    largest: u64,
    /// Sum of the maximum weights of a unit in merged samples.
    merged: u64,
    /// Packets skipped by the meter that the total includes.
    skipped: u64,
    /// The sampled packets.
    taken: Taken<K>,
    inner: Box<dyn Summary<K>>,
}

/// Checks that a summary with these laws can take a sample.
fn fits(laws: Laws) -> Result<(), &'static str> {
    match laws {
        Laws { sizes: false, .. } => Err("its answers cannot be estimated from a sample"),
        Laws { aggregatable: false, .. } => {
            Err("it does not accept weighted updates, and a sampled packet represents several")
        }
        _ => Ok(()),
    }
}

/// The abilities that remain of a sample, in the measure of the options. [`Sampling`] cannot
/// describe the error of a sample of a sample.
fn answers(ability: Ability) -> Option<Ability> {
    match ability {
        Ability::Size(Counted::Both) => Some(Ability::Size(Counted::Asked)),
        Ability::Size(_) | Ability::Candidates => Some(ability),
        Ability::Prefixes { sampled: false } => Some(Ability::Prefixes { sampled: true }),
        _ => None,
    }
}

impl<K: FlowKey> Sampled<K> {
    /// Memory of the batch in bytes.
    const BYTES: usize = Taken::<K>::BYTES;

    fn before(
        kind: Kind,
        options: &Options,
        inner: Box<dyn Summary<K>>,
    ) -> Result<Box<dyn Summary<K>>, BuildError> {
        options.memory.take(Self::BYTES)?;
        let draws = Sampler::new(options.digester.seed().draws() ^ SALT, 1.0);
        let (one_in, until, seen, total, largest, merged) = (1, 0, 0, 0, 0, 0);
        let (by, taken) = (options.by, Taken::new(kind.units, inner.reads().bytes));
        let mut sampled = Self {
            kind,
            by,
            draws,
            one_in,
            until,
            seen,
            total,
            largest,
            merged,
            skipped: 0,
            taken,
            inner,
        };
        sampled.clear();
        Ok(Box::new(sampled))
    }

    /// Counts all packets; returns their number of units.
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

    /// Sets the rate of the unit number `unit`.
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

    /// The interval by the norm of all packets before this unit, and the unit until which the norm
    /// is not read again.
    fn read_norm(&mut self, norm: Norm, unit: u64) -> (u64, u64) {
        self.pass_on();
        let rows = self.inner.rows().filter(|_| norm.is_own());
        let (cells, squared_l2) = rows.map_or((0, 0.0), |rows| (rows.cells(), rows.squared_l2()));
        norm.turn(self.one_in, unit, cells, squared_l2)
    }

    /// Samples single packets by their numbers.
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

    /// Samples rows of any number of units, each at the rate of its last unit.
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

    /// Takes a row with the weight of `units` units.
    #[inline]
    fn take(&mut self, batch: &Batch<K>, row: usize, units: u64) {
        if self.taken.is_full() {
            self.pass_on();
        }
        self.taken.push(batch, row, units);
    }

    /// Passes on the sampled packets.
    fn pass_on(&mut self) {
        self.taken.pass_on(&mut *self.inner);
    }

    /// The maximum weight of a sampled unit; 0 while nothing was skipped.
    fn weight(&self) -> u64 {
        let own = match self.one_in {
            1 => 0,
            one_in if self.kind.units == self.by => one_in,
            one_in => one_in.saturating_mul(self.largest),
        };
        own.saturating_add(self.merged)
    }

    /// The sampling error of a given flow's weight; `None` while nothing was skipped.
    fn sampling(&self) -> Option<Sampling> {
        self.sampling_of(1)
    }

    /// The sampling error that holds for `flows` flows at once.
    fn sampling_of(&self, flows: u64) -> Option<Sampling> {
        Sampling::of_packets(self.weight() as f64, flows, self.kind.delta)
    }

    /// Forgets all packets; the random draws continue.
    fn forget(&mut self) {
        (self.one_in, self.seen, self.total, self.largest, self.merged) = (1, 0, 0, 0, 0);
        self.skipped = 0;
        self.taken.clear();
        self.change(1);
    }
}

impl<K: FlowKey> Ingest<K> for Sampled<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        if self.kind.headers {
            return self.ingest_sampled(batch);
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

    fn reads(&self) -> Reads {
        Reads::sizes(self.by).or(self.inner.reads())
    }
}

impl<K: FlowKey> Summary<K> for Sampled<K> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    /// With the same seed, both sampled the same positions of their streams, so errors add up.
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
        self.meter_rate()
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

/// Sampled packets with their weights, to be passed on to the summary. Memory: one batch.
struct Taken<K> {
    rows: Batch<K>,
    units: Measure,
    /// Whether the summary reads the bytes of packets.
    reads_bytes: bool,
}

impl<K: FlowKey> Taken<K> {
    const BYTES: usize = Batch::<K>::BYTES;

    fn new(units: Measure, reads_bytes: bool) -> Self {
        Self { rows: Batch::new(), units, reads_bytes }
    }

    /// Whether there may be no room for another packet.
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.rows.len() + 2 > BATCH_PACKETS
    }

    /// Takes a row of a batch with the weight of `units` units. A summary of sizes does not read
    /// elements.
    #[inline]
    fn push(&mut self, batch: &Batch<K>, row: usize, units: u64) {
        let (key, time_ns) = (batch.keys()[row], batch.times_ns()[row]);
        // Columns that are not needed stay out of the cache.
        let packets = if batch.is_plain() { 1 } else { batch.packets()[row] };
        let bytes = if self.reads_bytes { batch.bytes()[row] } else { 0 };
        if self.units == Measure::Bytes {
            return self.rows.push_sum(key, packets, units, time_ns, 0);
        }
        let bytes = u128::from(bytes) * u128::from(units) / u128::from(packets.max(1));
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        // Both terms of n + w - G are below 2^32, so two rows can hold them.
        let first = u32::try_from(units).unwrap_or(u32::MAX);
        self.rows.push_sum(key, first, bytes, time_ns, 0);
        if let Ok(rest @ 1..) = u32::try_from(units - u64::from(first)) {
            self.rows.push_sum(key, rest, 0, time_ns, 0);
        }
    }

    /// Passes on the sampled packets.
    fn pass_on(&mut self, to: &mut (impl Ingest<K> + ?Sized)) {
        if !self.rows.is_empty() {
            to.ingest(&mut self.rows);
            self.rows.clear();
        }
    }

    fn clear(&mut self) {
        self.rows.clear();
    }
}

impl<K: FlowKey> Sampled<K> {
    /// The meter's sampling rate, if it samples before headers.
    fn meter_rate(&self) -> Option<HeaderRate> {
        match self.kind.rate {
            Rate::Steps(steps) if self.kind.headers => {
                Some(HeaderRate { chance: Chance::Steps(steps), delta: self.kind.delta })
            }
            _ => None,
        }
    }

    /// Takes packets that the meter sampled, with their weights.
    fn ingest_sampled(&mut self, batch: &mut Batch<K>) {
        let rows = batch.len() as u64;
        self.seen = self.seen.saturating_add(rows);
        self.total = self.total.saturating_add(rows);
        self.inner.ingest(batch);
    }

    /// Counts packets of the epoch that were not read and may belong to this lane.
    fn pass_over(&mut self, packets: u64, one_in: u64) {
        if self.kind.headers {
            self.total = (self.total - self.skipped).saturating_add(packets);
            self.skipped = packets;
            self.one_in = self.one_in.max(one_in);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::SALT;
    use crate::accelerator::{Accelerate, HeaderSampler, Skipper, Uniform};
    use crate::batch::{BATCH_PACKETS, Batch};
    use crate::key::{FlowKey, Key8};
    use crate::summary::table::LinearTable;
    use crate::summary::{Describe, Options, Summary};

    const PACKETS: u32 = 300_000;

    /// An exact table behind an accelerator, and the seed of its draws.
    fn exact<A: Accelerate>(parameters: &str, before: &str) -> (Box<dyn Summary<Key8>>, u64) {
        let options = |bytes| Options::new(bytes, 3).digesting::<Key8>();
        let table = LinearTable::build(&options(32 << 20)).unwrap();
        let pairs = parameters.split(',').filter_map(|pair| pair.split_once('='));
        let options = options(1 << 20).with(pairs.chain([("before", before)]));
        (A::build(&options, table).unwrap(), options.digester.seed().draws() ^ SALT)
    }

    /// The weight of each packet; each packet is its own flow.
    fn weights(summary: &dyn Summary<Key8>) -> Vec<u64> {
        let sizes = summary.answers().size().unwrap();
        let weight = |packet: u32| {
            let key = key(packet);
            sizes.estimate(key.canonical(Key8::BYTES)).packets.unwrap().value as u64
        };
        (0..PACKETS).map(weight).collect()
    }

    fn key(packet: u32) -> Key8 {
        bytemuck::cast(u64::from(packet).to_be_bytes())
    }

    /// With the same random numbers, both sample the same packets with the same weights.
    #[test]
    fn before_headers_and_behind_them_the_same_packets_are_drawn() {
        println!("seed 3");
        assert_draws_the_same::<Uniform>("sample=100");
        assert_draws_the_same::<Uniform>("sample=1");
        assert_draws_the_same::<Skipper>("epsilon=0.05,delta=0.1");
    }

    fn assert_draws_the_same<A: Accelerate>(parameters: &str) {
        let (mut behind, seed) = exact::<A>(parameters, "summary");
        let keys: Vec<_> = (0..PACKETS).map(key).collect();
        let mut batch = Batch::new();
        for keys in keys.chunks(BATCH_PACKETS) {
            batch.fill(keys, 64);
            behind.ingest(&mut batch);
        }
        behind.settle();
        let (mut before, _) = exact::<A>(parameters, "headers");
        let mut sampler = HeaderSampler::new(before.header_rate().unwrap(), seed);
        let (mut at, mut read) = (0, 0);
        while at + sampler.ahead() < PACKETS.into() {
            at += sampler.ahead();
            assert!(sampler.pass(sampler.ahead()));
            let mut batch = Batch::new();
            batch.push(key(at as u32), 64, 0);
            batch.weigh(sampler.weight() as u32);
            before.ingest(&mut batch);
            (at, read) = (at + 1, read + 1);
            sampler.take();
        }
        before.passed_over(u64::from(PACKETS) - read, sampler.weight());
        before.settle();
        assert_eq!(weights(&*behind), weights(&*before), "{} {parameters}", A::INFO.name);
    }
}
