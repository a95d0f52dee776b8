//! Additive arrays of states other than counters: the keys of a column have one state in common.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §4.2. A key is listed when the state of its column is heavy: over the
//! spread, or over the threshold. So no heavy key is missed, but keys that share a column with a
//! superspreader are listed, too. For sizes and forecasts, which are sums, each key of a heavy
//! column also has its own part counted separately, and the parts of others are subtracted. A key
//! that was heavy stays listed while its forecast exceeds half the threshold.

use std::ops::Range;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::{CONFIDENCE, SMALL_BLOCK, least_of, limit, packets_at_once, visit_heavy};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::heavy::OwnPart;
use crate::summary::heavy::{self, HeavyKeys};
use crate::summary::ingest::{Basis, twin};
use crate::summary::state::{self, Distinct, Ewma, Past, State};
use crate::summary::{
    Answers, BuildError, Candidates, Counter, Estimate, Forecast, Forecasts, Incompatible, Ingest,
    Options, Reads, Setting, SizeEstimate, SizeQuery, Spread, Summary,
};
use crate::terms::{Measure, Size, Threshold};

/// Distance in packets between a prefetch and its use: a whole batch of large states would not fit
/// the first-level cache.
const PREFETCH_AHEAD: usize = 32;

/// The state of a column, which the keys of the column have in common.
pub(super) trait AdditiveState: State {
    /// Whether it counts more than `limit`: distinct elements, or packets or bytes as `C` does.
    fn exceeds<C: Counter>(&self, limit: u64) -> bool;
    /// A key's own part of the state.
    type Own: OwnPart;
    /// Adds packets to a key's own part.
    fn add_own(own: &mut Self::Own, packets: u32, bytes: u64);
    /// Begins an epoch of a key's own part, after one with this `past`.
    fn next_own(own: &mut Self::Own, past: &Past);
    /// The state with a key's own part alone.
    fn alone(own: &Self::Own) -> Self;
    /// The state without another key's own part.
    fn without(&self, own: &Self::Own) -> Self;
}

/// A union of elements, which cannot be divided among keys.
impl AdditiveState for Distinct {
    type Own = ();

    #[inline(always)]
    fn exceeds<C: Counter>(&self, limit: u64) -> bool {
        Distinct::exceeds(self, limit)
    }

    #[inline(always)]
    fn add_own((): &mut (), _: u32, _: u64) {}

    fn next_own((): &mut (), _: &Past) {}

    fn alone((): &()) -> Self {
        Self::zeroed()
    }

    fn without(&self, (): &()) -> Self {
        *self
    }
}

/// A sum, which can be divided among keys.
impl AdditiveState for Ewma {
    type Own = Self;

    #[inline(always)]
    fn exceeds<C: Counter>(&self, limit: u64) -> bool {
        self.size().by(C::MEASURE) > limit
    }

    #[inline(always)]
    fn add_own(own: &mut Self, packets: u32, bytes: u64) {
        // It has no more room than the column, which counts the excess.
        let _ = own.add(packets, bytes, 0);
    }

    fn next_own(own: &mut Self, past: &Past) {
        own.next_epoch(past);
    }

    fn alone(own: &Self) -> Self {
        *own
    }

    fn without(&self, own: &Self) -> Self {
        self.minus(own)
    }
}

/// The states of a key.
struct Known<S> {
    column: S,
    /// Its column without the own parts of others.
    most: S,
    /// Counted separately for the key.
    own: S,
}

/// The states of a key, from all columns and the keys with own parts.
fn known<K: FlowKey, S: AdditiveState>(
    states: &[S],
    heavy: &HeavyKeys<K, S::Own>,
    digester: &Digester,
    key: K,
) -> Known<S> {
    let (digest, columns) = (key.digest(digester), states.len());
    let column = states[digest as usize & (columns - 1)];
    let (mut most, mut own) = (column, S::zeroed());
    for (member, part) in heavy.of_column(digest, columns, digester) {
        if member == key {
            own = S::alone(part);
        } else {
            most = most.without(part);
        }
    }
    Known { column, most, own }
}

/// An additive array of states.
///
/// Memory in bytes: `columns × size_of::<S>() + candidates × (3 × member + 8)`, with `member` for
/// `size_of::<K>() + size_of::<S::Own>()`, rounded up to the alignment.
pub(super) struct StateArray<K, S: AdditiveState> {
    digester: Digester,
    states: Zeroed<S>,
    /// The keys of heavy columns, and those with a heavy forecast.
    heavy: HeavyKeys<K, S::Own>,
    by: Measure,
    threshold: Threshold,
    spread: u64,
    past: Past,
    total: Size,
    /// The total weight of the last epoch.
    total_before: u64,
    saturated: Size,
}

/// The weight above which a key is heavy now, and the forecast above which it stays listed.
#[derive(Clone, Copy)]
struct Limits {
    now: f64,
    forecast: f64,
}

impl<K: FlowKey, S: AdditiveState> StateArray<K, S> {
    pub(super) fn build(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        let per_candidate = HeavyKeys::<K, S::Own>::memory_bytes(1);
        let candidates = heavy::candidates(options, per_candidate)?;
        let rest = options.memory_bytes.saturating_sub(candidates.saturating_mul(per_candidate));
        let columns = options.parameters.power_of_two("columns", rest, size_of::<S>())?;
        Ok(Box::new(Self {
            digester: options.digester,
            states: options.memory.zeroed(columns)?,
            heavy: HeavyKeys::new(candidates, options)?,
            by: options.by,
            threshold: options.threshold,
            spread: options.spread,
            past: Past::new(options.by),
            total: Size::default(),
            total_before: 0,
            saturated: Size::default(),
        }))
    }

    fn basis(&self) -> Basis<'_> {
        if S::ELEMENTS {
            return Basis { spread: Some(self.spread), ..Basis::of(&self.digester) };
        }
        let (by, threshold) = (Some(self.by), Some(self.threshold));
        Basis { by, threshold, ..Basis::of(&self.digester) }
    }

    fn known(&self, key: K) -> Known<S> {
        known(&self.states, &self.heavy, &self.digester, key)
    }

    /// Forecasts are compared with the last epoch's weight.
    fn limits(&self) -> Limits {
        let now = self.threshold_after(0);
        if S::ELEMENTS {
            return Limits { now, forecast: f64::INFINITY };
        }
        let before = self.total.by(self.by).max(self.total_before);
        Limits { now, forecast: self.threshold.weight(before) / 2.0 }
    }

    /// Counts up to `N` packets, weighed as `C` does.
    #[inline(never)]
    fn take<C: Counter, const N: usize>(&mut self, batch: &Batch<K>, rows: Range<usize>) {
        let (keys, digests) = (&batch.keys()[rows.clone()], &batch.digests()[rows.clone()]);
        let (packets, bytes) = (&batch.packets()[rows.clone()], &batch.bytes()[rows.clone()]);
        let (elements, weights) = (&batch.elements()[rows.clone()], &C::column(batch)[rows]);
        let states = &mut *self.states;
        let mask = states.len() - 1;
        for &digest in digests.iter().take(PREFETCH_AHEAD) {
            prefetch(states, digest as usize & mask);
        }
        let (before, names) = (self.total.by(C::MEASURE), self.heavy.most() > 0);
        let low = if S::ELEMENTS { self.spread } else { limit(self.threshold, before) };
        let (mut listed, mut counts) = ([0u8; N], [0u64; N]);
        let (mut heavy, mut saturated) = (0, Size::default());
        for i in 0..keys.len() {
            if let Some(&digest) = digests.get(i + PREFETCH_AHEAD) {
                prefetch(states, digest as usize & mask);
            }
            let state = &mut states[digests[i] as usize & mask];
            let excess = state.add(packets[i], bytes[i], elements[i]);
            if excess != Size::default() {
                saturated += excess;
            }
            listed[heavy % N] = i as u8;
            if !S::ELEMENTS {
                counts[i % N] = state.size().by(C::MEASURE);
            }
            heavy += usize::from(names && state.exceeds::<C>(low));
        }
        self.saturated += saturated;
        self.total += Size { packets: u32::sum(packets), bytes: u64::sum(bytes) };
        let (listed, threshold, after) =
            (&listed[..heavy], self.threshold, self.total.by(C::MEASURE));
        let mut count_own = |i: usize| self.count_own(keys[i], digests[i], packets[i], bytes[i]);
        if S::ELEMENTS {
            for &i in listed {
                count_own(usize::from(i));
            }
        } else {
            visit_heavy(listed, threshold, [before, after], weights, |i| counts[i], count_own);
        }
    }

    /// Adds packets of a key with a heavy column to its own part.
    #[inline(always)]
    fn count_own(&mut self, key: K, digest: u64, packets: u32, bytes: u64) {
        match self.heavy.own_part(&key, digest) {
            Some(own) => S::add_own(own, packets, bytes),
            None => self.join(key, digest, packets, bytes),
        }
    }

    /// Gives a key with a heavy column its own part.
    #[cold]
    #[inline(never)]
    fn join(&mut self, key: K, digest: u64, packets: u32, bytes: u64) {
        let mut own = S::Own::zeroed();
        S::add_own(&mut own, packets, bytes);
        let (limits, by) = (self.limits(), self.by);
        let (states, digester) = (&self.states, &self.digester);
        self.heavy.join((key, digest, own), limits.now, digester, &|heavy, key| {
            rank(&known(states, heavy, digester, key).most, by, limits)
        });
    }

    /// The weight above which a full set keeps keys, after `weight` more.
    fn threshold_after(&self, weight: u64) -> f64 {
        if S::ELEMENTS {
            return self.spread as f64;
        }
        self.threshold.weight(self.total.by(self.by).saturating_add(weight))
    }

    fn ingest_by<C: Counter>(&mut self, batch: &Batch<K>) {
        let mut from = 0;
        while from < batch.len() {
            let threshold = || self.threshold_after(C::sum(&C::column(batch)[from..]));
            let upto = from + packets_at_once(batch.len() - from, &self.heavy, threshold);
            if upto - from > SMALL_BLOCK {
                self.take::<C, BATCH_PACKETS>(batch, from..upto);
            } else {
                self.take::<C, SMALL_BLOCK>(batch, from..upto);
            }
            from = upto;
        }
    }

    /// Lowers the lower bound of `most`, by Markov's inequality from the expected weight of other
    /// keys in a column, with `total` over all columns; but not below the key's own part. The upper
    /// bound stays.
    fn lowered(&self, most: Estimate, column: f64, own: f64, total: f64) -> Estimate {
        let low = least_of(column, total, self.states.len()).max(own).min(most.low);
        let confidence = most.confidence.unwrap_or(1.0) - (1.0 - CONFIDENCE);
        Estimate { low, confidence: Some(confidence), ..most }
    }

    /// The bounds of a key; `low` gives each upper bound its lower one.
    fn bounds(
        &self,
        known: &Known<S>,
        low: impl Fn(Estimate, Measure) -> Estimate,
    ) -> SizeEstimate {
        let [column, most] = [&known.column, &known.most].map(State::size);
        let full = column.packets >= u64::from(u32::MAX);
        let high = if full { most + self.saturated } else { most };
        let estimate = SizeEstimate::between(most, most, high);
        let of = |by: Measure| estimate.by(by).map(|most| low(most, by));
        SizeEstimate { packets: of(Measure::Packets), bytes: of(Measure::Bytes) }
    }

    fn forget_epoch(&mut self) {
        self.total = Size::default();
        self.saturated = Size::default();
    }
}

/// The bounds of a listed key. It is listed for its heavy column, which may be heavy because of
/// another key: only its own part is certain.
fn listed(most: Estimate, own: f64) -> Estimate {
    Estimate { low: own.min(most.low), ..most }
}

/// The weight by which a full set of heavy keys ranks a key.
fn rank<S: State>(state: &S, by: Measure, limits: Limits) -> f64 {
    if forecast(state) > limits.forecast { f64::INFINITY } else { weight(state, by) }
}

/// The weight of a column.
#[inline(always)]
fn weight<S: State>(state: &S, by: Measure) -> f64 {
    match state.distinct() {
        Some(distinct) => distinct.elements(),
        None => state.size().by(by) as f64,
    }
}

impl<K: FlowKey, S: AdditiveState> Ingest<K> for StateArray<K, S> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        match self.by {
            Measure::Packets => self.ingest_by::<u32>(batch),
            Measure::Bytes => self.ingest_by::<u64>(batch),
        }
    }

    fn reads(&self) -> Reads {
        Reads { elements: S::ELEMENTS, ..Reads::BYTES }
    }
}

impl<K: FlowKey, S: AdditiveState> Summary<K> for StateArray<K, S> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, Self::basis)?;
        let totals = [self.total, other.total];
        if S::ELEMENTS {
            let spread = Threshold::Weight(self.spread);
            self.heavy.note_parts(spread, totals.map(|total| total.packets));
        } else {
            self.heavy.note_parts(self.threshold, totals.map(|total| total.by(self.by)));
        }
        for (state, other) in self.states.iter_mut().zip(other.states.iter()) {
            self.saturated += state.merge(other);
        }
        self.past.merge(&other.past);
        self.total += other.total;
        self.total_before = self.total_before.saturating_add(other.total_before);
        self.saturated += other.saturated;
        let (limits, by) = (self.limits(), self.by);
        let (states, digester) = (&self.states, &self.digester);
        self.heavy.merge(&other.heavy, limits.now, digester, &|heavy, key| {
            rank(&known(states, heavy, digester, key).most, by, limits)
        });
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.size(self.total);
        out.size(self.saturated);
        if S::LASTING {
            self.past.save(out);
            out.number(self.total_before);
        }
        out.number(self.states.iter().filter(|state| !state.is_nothing()).count() as u64);
        for (column, state) in (0u64..).zip(self.states.iter()) {
            if !state.is_nothing() {
                out.number(column);
                state.save(out);
            }
        }
        self.heavy.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.size("total")?;
        self.saturated = from.size("saturated")?;
        if S::LASTING {
            self.past.load(from)?;
            self.total_before = from.number("total before")?;
        }
        let columns = self.states.len();
        let mut next = 0;
        for _ in 0..from.count("number of states", columns)? {
            let column = from.count("column", columns - 1)?;
            if column < next {
                return Err(from.invalid("column", size_of::<u64>(), "columns are out of order"));
            }
            next = column + 1;
            self.states[column] = S::load(from)?;
        }
        self.heavy.load(from, &self.digester)
    }

    fn clear(&mut self) {
        self.states.fill(S::zeroed());
        self.heavy.clear();
        self.past = self.past.forgotten();
        self.total_before = 0;
        self.forget_epoch();
    }

    fn next_epoch(&mut self) {
        if !S::LASTING {
            return self.clear();
        }
        for state in self.states.iter_mut() {
            state.next_epoch(&self.past);
        }
        for own in self.heavy.own_parts_mut() {
            S::next_own(own, &self.past);
        }
        self.past.next_epoch(self.saturated, true);
        self.total_before = self.total.by(self.by);
        self.forget_epoch();
        let (states, digester, limits) = (&self.states, &self.digester, self.limits());
        self.heavy.next_epoch(digester, &|heavy, key| {
            forecast(&known(states, heavy, digester, key).most) > limits.forecast
        });
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let sizes = [
            ("columns", Setting::Integer(self.states.len() as u64)),
            ("candidates", Setting::Integer(self.heavy.most() as u64)),
        ];
        sizes.into_iter().chain(state::parameters::<S>()).collect()
    }

    fn memory_bytes(&self) -> usize {
        self.states.memory_bytes() + HeavyKeys::<K, S::Own>::memory_bytes(self.heavy.most())
    }
}

/// The forecast of a column.
fn forecast<S: State>(state: &S) -> f64 {
    state.ewma().map_or(0.0, Ewma::forecast)
}

impl<K: FlowKey, S: AdditiveState> Answers for StateArray<K, S> {
    fn saturated(&self) -> Size {
        self.saturated
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        // Superspreaders are not heavy hitters.
        (!S::ELEMENTS && self.heavy.most() > 0).then_some(self as &dyn Candidates)
    }
    fn spread(&self) -> Option<&dyn Spread> {
        (S::ELEMENTS && self.heavy.most() > 0).then_some(self as &dyn Spread)
    }
    fn forecasts(&self) -> Option<&dyn Forecasts> {
        (S::LASTING && self.heavy.most() > 0).then_some(self as &dyn Forecasts)
    }
}

impl<K: FlowKey, S: AdditiveState> SizeQuery for StateArray<K, S> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let Some(key) = K::matching(key, &self.digester) else {
            return SizeEstimate::exact(Size::default());
        };
        let known = self.known(key);
        let sizes = [known.column.size(), known.own.size(), self.total];
        self.bounds(&known, |most, by| {
            let [column, own, total] = sizes.map(|size| size.by(by) as f64);
            self.lowered(most, column, own, total)
        })
    }
}

impl<K: FlowKey, S: AdditiveState> Candidates for StateArray<K, S> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for key in self.heavy.iter() {
            let known = self.known(key);
            if !known.most.is_silent() {
                let own = known.own.size();
                let bounds = self.bounds(&known, |most, by| listed(most, own.by(by) as f64));
                visit(key.to_canonical(&self.digester), bounds);
            }
        }
    }

    fn overflow(&self) -> u64 {
        self.heavy.overflow()
    }
}

impl<K: FlowKey, S: AdditiveState> Spread for StateArray<K, S> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        for key in self.heavy.iter() {
            if let Some(distinct) = self.known(key).column.distinct_above(self.spread) {
                // A listed address has been seen, with one peer or more.
                let estimate = listed(distinct.estimate(0, self.saturated.packets), 1.0);
                visit(key.to_canonical(&self.digester), estimate);
            }
        }
    }

    fn overflow(&self) -> u64 {
        self.heavy.overflow()
    }
}

impl<K: FlowKey, S: AdditiveState> Forecasts for StateArray<K, S> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Forecast)) {
        let parts = |forecast: &Forecast| {
            let expected = forecast.forecast.map_or(0.0, |forecast| forecast.value);
            [forecast.before.value, expected, forecast.now.value]
        };
        let of = |state: &S| state.ewma().map(|ewma| self.past.of(ewma, self.saturated));
        for key in self.heavy.iter() {
            let Known { most, own, .. } = self.known(key);
            let (Some(most), Some(own)) = (of(&most), of(&own)) else { continue };
            let [before, expected, now] = parts(&own);
            let forecast = Forecast {
                before: listed(most.before, before),
                forecast: most.forecast.map(|most| listed(most, expected)),
                now: listed(most.now, now),
            };
            visit(key.to_canonical(&self.digester), forecast);
        }
    }
}
