//! The additive array with other states than counters: colliding keys share a state.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §4.2. A key is listed when the state of its column says that it is
//! heavy: spread, or over the threshold. So nothing heavy is missed, and whoever shares a column
//! with a heavy key is listed, too. Forecasts are of columns: a key that was heavy stays listed while
//! its forecast is over half the threshold.

use std::any::Any;

use flowgauge_kernel::{Digester, Zeroed, prefetch};

use super::super::basis::{Basis, twin};
use super::super::codec::{DecodeError, Reader, Writer};
use super::super::heavy::HeavyKeys;
use super::super::state::{self, Ewma, Past, State};
use super::super::{
    Answers, BuildError, Candidates, Estimate, Forecast, Forecasts, Incompatible, Ingest, Measure,
    Options, Setting, Size, SizeEstimate, SizeQuery, Spread,
};
use super::additive::{CONFIDENCE, MOST_CANDIDATES, PREFETCH_AHEAD, least_of};
use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};
use crate::task::Threshold;

/// One array of states. Memory in bytes: `columns × size_of::<S>() + candidates × (3 ×
/// size_of::<K>() + 8)`, twice the latter where states outlive the epoch.
pub(super) struct SharedArray<K, S> {
    digester: Digester,
    states: Zeroed<S>,
    /// Keys that are heavy in this epoch.
    heavy: HeavyKeys<K>,
    /// Keys that were, where states outlive the epoch.
    heavy_before: Option<HeavyKeys<K>>,
    candidates: usize,
    by: Measure,
    threshold: Threshold,
    spread: u64,
    past: Past,
    total: Size,
    saturated: Size,
}

impl<K: FlowKey, S: State> SharedArray<K, S> {
    fn bytes_per_candidate() -> usize {
        HeavyKeys::<K>::memory_bytes(if S::LASTING { 2 } else { 1 })
    }

    pub(super) fn build(options: &Options) -> Result<Box<dyn Ingest<K>>, BuildError> {
        let per_candidate = Self::bytes_per_candidate();
        let for_candidates = (options.memory_bytes / 4).min(MOST_CANDIDATES * per_candidate);
        let parameters = &options.parameters;
        let candidates = parameters.power_of_two("candidates", for_candidates, per_candidate)?;
        let rest = options.memory_bytes.saturating_sub(candidates * per_candidate);
        let columns = parameters.power_of_two("columns", rest, size_of::<S>())?;
        let keys = || HeavyKeys::new(candidates, &options.memory);
        Ok(Box::new(Self {
            digester: options.digester,
            states: options.memory.zeroed(columns)?,
            heavy: keys()?,
            heavy_before: if S::LASTING { Some(keys()?) } else { None },
            candidates,
            by: options.by,
            threshold: options.threshold,
            spread: options.spread,
            past: Past::new(options.by),
            total: Size::default(),
            saturated: Size::default(),
        }))
    }

    fn basis(&self) -> Basis {
        if S::ELEMENTS {
            return Basis { spread: Some(self.spread), ..Basis::of(&self.digester) };
        }
        let (by, threshold) = (Some(self.by), Some(self.threshold));
        Basis { by, threshold, ..Basis::of(&self.digester) }
    }

    fn state(&self, key: K) -> &S {
        &self.states[key.digest(&self.digester) as usize & (self.states.len() - 1)]
    }

    /// What a heavy column passes.
    #[inline(always)]
    fn limit(&self) -> f64 {
        if S::ELEMENTS { self.spread as f64 } else { self.threshold.weight(self.total.by(self.by)) }
    }

    #[inline(never)]
    fn join(&mut self, key: K, digest: u64) {
        if !self.heavy.has(&key, digest) {
            let (limit, by) = (self.limit(), self.by);
            let (states, digester) = (&self.states, &self.digester);
            self.heavy.join(key, digest, limit, digester, |key| {
                weight(&states[key.digest(digester) as usize & (states.len() - 1)], by)
            });
        }
    }

    /// By Markov's inequality from what the other keys add to a column on average: `total` is that
    /// of all columns. The upper bound stays.
    fn lowered(&self, estimate: Estimate, total: f64) -> Estimate {
        let low = least_of(estimate.low, total, self.states.len());
        let confidence = estimate.confidence.unwrap_or(1.0) - (1.0 - CONFIDENCE);
        Estimate { low, confidence: Some(confidence), ..estimate }
    }

    fn bounds(&self, size: Size) -> SizeEstimate {
        let column = SizeEstimate::counted(size, self.saturated);
        let of = |measure: Measure| {
            let total = self.total.by(measure) as f64;
            column.by(measure).map(|estimate| self.lowered(estimate, total))
        };
        SizeEstimate { packets: of(Measure::Packets), bytes: of(Measure::Bytes) }
    }

    fn forget_epoch(&mut self) {
        self.heavy.clear();
        self.total = Size::default();
        self.saturated = Size::default();
    }
}

/// What makes a column heavy.
#[inline(always)]
fn weight<S: State>(state: &S, by: Measure) -> f64 {
    match state.distinct() {
        Some(distinct) => distinct.elements(),
        None => state.size().by(by) as f64,
    }
}

impl<K: FlowKey, S: State> Ingest<K> for SharedArray<K, S> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (keys, digests) = (batch.keys(), batch.digests());
        let (packets, bytes, elements) = (batch.packets(), batch.bytes(), batch.elements());
        let mask = self.states.len() - 1;
        for &digest in digests.iter().take(PREFETCH_AHEAD) {
            prefetch(&self.states, digest as usize & mask);
        }
        for i in 0..keys.len() {
            if let Some(&digest) = digests.get(i + PREFETCH_AHEAD) {
                prefetch(&self.states, digest as usize & mask);
            }
            let state = &mut self.states[digests[i] as usize & mask];
            let excess = state.add(packets[i], bytes[i], elements[i]);
            self.total += Size { packets: packets[i].into(), bytes: bytes[i] };
            if excess != Size::default() {
                self.saturated += excess;
            }
            // Against the weight so far, this packet's included: batches of any size agree.
            let heavy = if S::ELEMENTS {
                state.distinct_above(self.spread).is_some()
            } else {
                let limit = self.threshold.weight(self.total.by(self.by));
                state.size().by(self.by) as f64 > limit
            };
            if heavy {
                self.join(keys[i], digests[i]);
            }
        }
    }

    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Ingest<K>) -> Result<(), Incompatible> {
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
        self.saturated += other.saturated;
        let limit = self.limit();
        let (states, digester, by) = (&self.states, &self.digester, self.by);
        let state = |key: K| &states[key.digest(digester) as usize & (states.len() - 1)];
        self.heavy.merge(&other.heavy, limit, digester, |key| weight(state(key), by));
        if let (Some(own), Some(other)) = (&mut self.heavy_before, &other.heavy_before) {
            own.merge(other, limit / 2.0, digester, |key| forecast(state(key)));
        }
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.size(self.total);
        out.size(self.saturated);
        if S::LASTING {
            self.past.save(out);
        }
        out.number(self.states.iter().filter(|state| !state.is_nothing()).count() as u64);
        for (column, state) in (0u64..).zip(self.states.iter()) {
            if !state.is_nothing() {
                out.number(column);
                state.save(out);
            }
        }
        self.heavy.save(out);
        if let Some(keys) = &self.heavy_before {
            keys.save(out);
        }
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.size("total")?;
        self.saturated = from.size("saturated")?;
        if S::LASTING {
            self.past.load(from)?;
        }
        let columns = self.states.len();
        let mut next = 0;
        for _ in 0..from.count("number of states", columns)? {
            let column = from.count("column", columns - 1)?;
            if column < next {
                return Err(from.invalid("column", size_of::<u64>(), "columns are in order"));
            }
            next = column + 1;
            self.states[column] = S::load(from)?;
        }
        self.heavy.load(from, &self.digester)?;
        match &mut self.heavy_before {
            Some(keys) => keys.load(from, &self.digester),
            None => Ok(()),
        }
    }

    fn clear(&mut self) {
        self.states.fill(S::zeroed());
        if let Some(keys) = &mut self.heavy_before {
            keys.clear();
        }
        self.past = self.past.forgotten();
        self.forget_epoch();
    }

    fn next_epoch(&mut self) {
        let limit = self.limit() / 2.0;
        let Some(before) = &mut self.heavy_before else { return self.clear() };
        for state in self.states.iter_mut() {
            state.next_epoch(&self.past);
        }
        self.past.next_epoch(self.saturated, true);
        let (states, digester) = (&self.states, &self.digester);
        let forecast =
            |key: K| forecast(&states[key.digest(digester) as usize & (states.len() - 1)]);
        for key in before.iter().filter(|key| forecast(*key) > limit) {
            let digest = key.digest(digester);
            if !self.heavy.has(&key, digest) {
                self.heavy.join(key, digest, limit, digester, forecast);
            }
        }
        std::mem::swap(before, &mut self.heavy);
        self.forget_epoch();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let sizes = [
            ("columns", Setting::Integer(self.states.len() as u64)),
            ("candidates", Setting::Integer(self.candidates as u64)),
        ];
        sizes.into_iter().chain(state::parameters::<S>()).collect()
    }

    fn wants_elements(&self) -> bool {
        S::ELEMENTS
    }

    fn memory_bytes(&self) -> usize {
        self.states.memory_bytes() + self.candidates * Self::bytes_per_candidate()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The forecast of a column.
fn forecast<S: State>(state: &S) -> f64 {
    state.ewma().map_or(0.0, Ewma::forecast)
}

impl<K: FlowKey, S: State> Answers for SharedArray<K, S> {
    fn saturated(&self) -> Size {
        self.saturated
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        // Spread keys are not the heavy ones.
        (!S::ELEMENTS).then_some(self as &dyn Candidates)
    }
    fn spread(&self) -> Option<&dyn Spread> {
        S::ELEMENTS.then_some(self as &dyn Spread)
    }
    fn forecasts(&self) -> Option<&dyn Forecasts> {
        S::LASTING.then_some(self as &dyn Forecasts)
    }
}

impl<K: FlowKey, S: State> SizeQuery for SharedArray<K, S> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let size = K::from_canonical(key).map_or(Size::default(), |key| self.state(key).size());
        self.bounds(size)
    }
}

impl<K: FlowKey, S: State> Candidates for SharedArray<K, S> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for key in self.heavy.iter() {
            visit(CanonicalKey::new(key.canonical()), self.bounds(self.state(key).size()));
        }
    }

    fn overflow(&self) -> u64 {
        self.heavy.overflow()
    }
}

impl<K: FlowKey, S: State> Spread for SharedArray<K, S> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Estimate)) {
        let all = self.states.iter().map(|state| weight(state, self.by)).sum();
        for key in self.heavy.iter() {
            if let Some(distinct) = self.state(key).distinct_above(self.spread) {
                let estimate = distinct.estimate(0, self.saturated.packets);
                visit(CanonicalKey::new(key.canonical()), self.lowered(estimate, all));
            }
        }
    }

    fn overflow(&self) -> u64 {
        self.heavy.overflow()
    }
}

impl<K: FlowKey, S: State> Forecasts for SharedArray<K, S> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, Forecast)) {
        let of = |state: &S| state.ewma().map(|ewma| self.past.of(ewma, self.saturated));
        let (mut before, mut forecasts, mut now) = (0.0, 0.0, 0.0);
        for forecast in self.states.iter().filter_map(of) {
            before += forecast.before.value;
            forecasts += forecast.forecast.map_or(0.0, |forecast| forecast.value);
            now += forecast.now.value;
        }
        let past = self.heavy_before.iter().flat_map(HeavyKeys::iter);
        let past = past.filter(|key| !self.heavy.has(key, key.digest(&self.digester)));
        for key in self.heavy.iter().chain(past) {
            if let Some(forecast) = of(self.state(key)) {
                let forecast = Forecast {
                    before: self.lowered(forecast.before, before),
                    forecast: forecast.forecast.map(|f| self.lowered(f, forecasts)),
                    now: self.lowered(forecast.now, now),
                };
                visit(CanonicalKey::new(key.canonical()), forecast);
            }
        }
    }
}
