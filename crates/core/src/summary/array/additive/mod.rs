//! An additive array: one array of counters; colliding keys add up.
//!
//! Paper: Alipourfard et al., "A comparison of performance and accuracy of measurement algorithms
//! in software" (SOSR 2018), §3. An estimate is never below the truth; its expected excess is the
//! other keys' weight divided by the number of columns. Heavy keys are kept in a set beside the
//! array. Beyond the paper, each key of a column that became heavy is also counted separately in
//! the set, and what the others of its column have there is subtracted from its estimate.

mod states;

use flowgauge_kernel::{Digester, Zeroed, prefetch};

use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::concurrent::{self, AtomicSums, CELL_BYTES, ConcurrentIngest, Sums};
use crate::summary::describe::form;
use crate::summary::heavy::{self, HeavyKeys, OwnPart};
use crate::summary::ingest::{Basis, twin};
use crate::summary::sketch::{Unsigned, rows::Rows};
use crate::summary::state::{self, ARRAY_STATE, Distinct, Ewma, Kind, States};
use crate::summary::{
    Answers, BuildError, Candidates, Counted, Counter, Describe, Estimate, Incompatible, Info,
    Ingest, Laws, Options, Parameter, Parameters, Reads, Setting, SizeEstimate, SizeQuery, Summary,
};
use crate::terms::{Measure, Size, Threshold};
use states::StateArray;

/// Confidence of lower bounds: by Markov's inequality, a counter's excess is below [`EXCESS`] times
/// its expectation with this chance.
const CONFIDENCE: f64 = 0.95;
const EXCESS: f64 = 20.0;

/// Default number of columns: the other packets in a column are 0.0004 % of all on average, and
/// more than 0.01 % with a chance of at most 4 %.
const COLUMNS: usize = 1 << 18;

/// An additive array of counters, distinct counts or forecasts.
///
/// Cost: one cache line per packet, and two more in the set of heavy keys while its column is
/// heavy. Memory in bytes, with `member` for `size_of::<K>() + size_of::<C>()`, rounded up to the
/// alignment: `columns × size_of::<C>() + candidates × (3 × member + 8)`.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(4 << 20, 1).for_keys(4);
/// let mut array = catalog::build::<Key8>("count-array", &options).unwrap();
/// let key = Key8::from_canonical(&[192, 0, 2, 1]).unwrap();
/// let mut batch = Batch::new();
/// for _ in 0..100 {
///     batch.push(key, 1500, 0);
/// }
/// array.ingest(&mut batch);
/// let size = array.answers().size().unwrap().estimate(&[192, 0, 2, 1]);
/// assert_eq!(size.packets.unwrap().value, 100.0);
/// ```
pub struct CountArray;

impl Describe for CountArray {
    const INFO: Info = Info {
        name: "count-array",
        idea: "one array of counters with one hash; colliding keys add up",
        paper: "Simple (SOSR 2018), section 3",
        parameters: &[
            Parameter {
                name: "columns",
                help: "number of counters, a power of two (default: 262144, or what fits into \
                       the memory; for other states what fits into the memory)",
            },
            Parameter {
                name: "candidates",
                help: "heavy keys counted separately, a power of two, or 0 (default: 16384, or \
                       what a quarter of the memory holds)",
            },
            ARRAY_STATE,
        ],
        memory: "columns x state + candidates x (3 x (key + state) + 8); state: 4 by packets, 8 \
                 by bytes, 28 ewma, 144 distinct (then candidates hold only the key)",
        forms: &[
            form![Size(Counted::Asked), Candidates],
            form![candidates = "0"; Size(Counted::Asked)],
            form![state = "distinct"; Size(Counted::Both), Spread],
            form![state = "distinct", candidates = "0"; Size(Counted::Both)],
            form![state = "ewma"; Size(Counted::Both), Candidates, Forecasts],
            form![state = "ewma", candidates = "0"; Size(Counted::Both)],
        ],
        laws: Laws { commutable: true, aggregatable: true, sizes: true, ..Laws::NONE },
    };

    fn laws(parameters: &Parameters) -> Laws {
        state::laws(Self::INFO.laws, parameters)
    }

    fn fits(options: &Options) -> Result<(), BuildError> {
        Kind::fits(Self::INFO.name, &Kind::OF_ARRAYS, options)
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        let kind = Kind::from_options(Self::INFO.name, &Kind::OF_ARRAYS, options)?;
        Ok(match (kind, options.by) {
            (Kind::Distinct, _) if const { K::DISTINCT } => {
                return StateArray::<K, Distinct>::build(options);
            }
            (Kind::Ewma, _) => return StateArray::<K, Ewma>::build(options),
            (_, Measure::Packets) => Box::new(CounterArray::<K, u32>::from_options(options)?),
            (_, Measure::Bytes) => Box::new(CounterArray::<K, u64>::from_options(options)?),
        })
    }
}

/// An additive array of counters: `C` is `u32` for packets, `u64` for bytes.
struct CounterArray<K, C> {
    digester: Digester,
    counters: Zeroed<C>,
    heavy: HeavyKeys<K, C>,
    threshold: Threshold,
    total: u64,
    saturated: u64,
}

impl<K: FlowKey, C: Counter> CounterArray<K, C> {
    fn from_options(options: &Options) -> Result<Self, BuildError> {
        let per_candidate = HeavyKeys::<K, C>::memory_bytes(1);
        let candidates = heavy::candidates(options, per_candidate)?;
        let rest = options.memory_bytes.saturating_sub(candidates.saturating_mul(per_candidate));
        let rest = rest.min(COLUMNS * size_of::<C>());
        let columns = options.parameters.power_of_two("columns", rest, size_of::<C>())?;
        Ok(Self {
            digester: options.digester,
            counters: options.memory.zeroed(columns)?,
            heavy: HeavyKeys::new(candidates, options)?,
            threshold: options.threshold,
            total: 0,
            saturated: 0,
        })
    }

    fn basis(&self) -> Basis<'_> {
        Basis { threshold: Some(self.threshold), ..Basis::of(&self.digester) }
    }

    fn count(&self, key: K) -> Count {
        count(&self.counters, &self.heavy, &self.digester, key)
    }

    /// Counts up to `N` packets.
    #[inline(never)]
    fn take<const N: usize>(&mut self, keys: &[K], digests: &[u64], weights: &[C]) {
        let (counters, digester) = (&mut *self.counters, &self.digester);
        let mask = counters.len() - 1;
        for &digest in digests {
            prefetch(counters, digest as usize & mask);
        }
        let before = self.total;
        let low = match self.heavy.most() {
            0 => u64::MAX,
            _ => limit(self.threshold, before),
        };
        let (mut listed, mut counts) = ([0u8; N], [C::zeroed(); N]);
        let (mut heavy, mut saturated) = (0, 0u64);
        let packets = digests.iter().zip(weights).zip(&mut counts);
        for (i, ((&digest, &weight), count)) in packets.enumerate() {
            let counter = &mut counters[digest as usize & mask];
            let excess = counter.add(weight);
            if excess > 0 {
                saturated = saturated.saturating_add(excess);
            }
            listed[heavy % N] = i as u8;
            *count = *counter;
            heavy += usize::from(counter.get() > low);
        }
        self.saturated = self.saturated.saturating_add(saturated);
        let total = before.saturating_add(C::sum(weights));
        self.total = total;
        let counters = &*counters;
        let (all, own) = (self.threshold, &mut self.heavy);
        visit_heavy(
            &listed[..heavy],
            all,
            [before, total],
            weights,
            |i| counts[i].get(),
            |i| {
                if let Some(part) = own.own_part(&keys[i], digests[i]) {
                    // The key's own part has no more room than the counter, which counts the
                    // excess.
                    let _ = part.add(weights[i]);
                    return;
                }
                let member = (keys[i], digests[i], weights[i]);
                own.join(member, all.weight(total), digester, &|heavy, key| {
                    count(counters, heavy, digester, key).most as f64
                });
            },
        );
    }

    /// The bounds of a key. `most` is never below the truth unless the counter is full.
    fn bounds(&self, count: Count) -> Estimate {
        let Count { own, most, column } = count;
        let low = least_of(column as f64, self.total as f64, self.counters.len());
        // If the total is full, the excess of any column is unknown.
        let full = column == C::MOST.get() || self.total == u64::MAX;
        let high = if full { most.saturating_add(self.saturated) } else { most };
        let (own, most) = (own as f64, most as f64);
        Estimate {
            value: most,
            low: low.max(own).min(most),
            high: high as f64,
            confidence: Some(CONFIDENCE),
        }
    }

    /// The bounds of a listed key. A key is listed for its heavy column, which may be heavy because of
    /// another key: only its own part is certain.
    fn listed(&self, count: Count) -> Estimate {
        let bounds = self.bounds(count);
        Estimate { low: count.own as f64, ..bounds }
    }
}

/// The counts of a key.
#[derive(Clone, Copy, Default)]
struct Count {
    /// Counted separately for the key.
    own: u64,
    /// Its column without the own parts of others.
    most: u64,
    column: u64,
}

fn count<K: FlowKey, C: Counter>(
    counters: &[C],
    heavy: &HeavyKeys<K, C>,
    digester: &Digester,
    key: K,
) -> Count {
    let (digest, columns) = (key.digest(digester), counters.len());
    let (mut own, mut others) = (0, 0u64);
    for (member, part) in heavy.of_column(digest, columns, digester) {
        if member == key {
            own = part.get();
        } else {
            others = others.saturating_add(part.get());
        }
    }
    let column = counters[digest as usize & (columns - 1)].get();
    Count { own, most: column.saturating_sub(others).max(own), column }
}

/// Lower bound, with [`CONFIDENCE`], of a key with `count` in its column, if all `columns` hold
/// `total`. The other keys weigh f′ = total − f. They add f′ ÷ columns to its column on average,
/// and at most [`EXCESS`] times that with the chance [`CONFIDENCE`]. So f ≥ (columns × count − 20
/// total) ÷ (columns − 20).
fn least_of(count: f64, total: f64, columns: usize) -> f64 {
    let columns = columns as f64;
    if columns <= EXCESS {
        return 0.0;
    }
    let least = (columns * count - EXCESS * total) / (columns - EXCESS);
    least.clamp(0.0, count).floor()
}

impl<K: FlowKey, C: Counter> Ingest<K> for CounterArray<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(&self.digester);
        let (keys, digests, weights) = (batch.keys(), batch.digests(), C::column(batch));
        let mut from = 0;
        while from < keys.len() {
            let threshold =
                || self.threshold.weight(self.total.saturating_add(C::sum(&weights[from..])));
            let upto = from + packets_at_once(keys.len() - from, &self.heavy, threshold);
            let (keys, digests) = (&keys[from..upto], &digests[from..upto]);
            let weights = &weights[from..upto];
            if keys.len() > SMALL_BLOCK {
                self.take::<BATCH_PACKETS>(keys, digests, weights);
            } else {
                self.take::<SMALL_BLOCK>(keys, digests, weights);
            }
            from = upto;
        }
    }

    fn reads(&self) -> Reads {
        Reads::sizes(C::MEASURE)
    }
}

impl<K: FlowKey, C: Counter> Summary<K> for CounterArray<K, C> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, Self::basis)?;
        self.heavy.note_parts(self.threshold, [self.total, other.total]);
        for (counter, other) in self.counters.iter_mut().zip(other.counters.iter()) {
            self.saturated = self.saturated.saturating_add(counter.add(*other));
        }
        self.saturated = self.saturated.saturating_add(other.saturated);
        self.total = self.total.saturating_add(other.total);
        let threshold = self.threshold.weight(self.total);
        let (counters, digester) = (&self.counters, &self.digester);
        self.heavy.merge(&other.heavy, threshold, digester, &|heavy, key| {
            count(counters, heavy, digester, key).most as f64
        });
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.total);
        out.number(self.saturated);
        out.numbers(&self.counters);
        self.heavy.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.number("total")?;
        self.saturated = from.number("saturated")?;
        from.numbers("counters", &mut self.counters)?;
        self.heavy.load(from, &self.digester)
    }

    fn clear(&mut self) {
        self.counters.fill(C::zeroed());
        self.heavy.clear();
        self.total = 0;
        self.saturated = 0;
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![
            ("columns", Setting::Integer(self.counters.len() as u64)),
            ("candidates", Setting::Integer(self.heavy.most() as u64)),
        ]
    }

    fn memory_bytes(&self) -> usize {
        self.counters.memory_bytes() + HeavyKeys::<K, C>::memory_bytes(self.heavy.most())
    }
}

/// One row, whose column is the low bits of the digest.
impl<K: FlowKey, C: Unsigned> Sums<K> for CounterArray<K, C> {
    type Weight = C;
    const SIGNED: bool = false;

    fn shape(&self) -> Rows {
        Rows::new(1, self.counters.len())
    }

    fn replace(&mut self, total: u64, lost: u64, sums: impl Iterator<Item = u64>) {
        self.clear();
        (self.total, self.saturated) = (total, lost);
        for (counter, sum) in self.counters.iter_mut().zip(sums) {
            let (cut, over) = C::of_sum(sum);
            *counter = cut;
            self.saturated = self.saturated.saturating_add(over);
        }
    }
}

impl concurrent::Concurrent for CountArray {
    fn build_concurrent<K: FlowKey>(
        options: &Options,
    ) -> Result<Box<dyn ConcurrentIngest<K>>, BuildError> {
        let counters = &Kind::OF_ARRAYS[..1];
        Kind::from_options(Self::INFO.name, counters, options)?;
        let options = concurrent::without_candidates(options)?;
        match options.by {
            Measure::Packets => CounterArray::<K, u32>::concurrent(&options),
            Measure::Bytes => CounterArray::<K, u64>::concurrent(&options),
        }
    }
}

impl<K: FlowKey, C: Unsigned> CounterArray<K, C> {
    fn concurrent(options: &Options) -> Result<Box<dyn ConcurrentIngest<K>>, BuildError> {
        // The counters get their part of a column's bytes in both arrays.
        let memory_bytes = options.memory_bytes / (size_of::<C>() + CELL_BYTES) * size_of::<C>();
        let options = Options { memory_bytes, ..options.clone() };
        AtomicSums::build(&options, Self::from_options(&options)?)
    }
}

impl<K: FlowKey, C: Counter> Answers for CounterArray<K, C> {
    fn saturated(&self) -> Size {
        Size::of(C::MEASURE, self.saturated)
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        (self.heavy.most() > 0).then_some(self as &dyn Candidates)
    }
}

impl<K: FlowKey, C: Counter> SizeQuery for CounterArray<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let count =
            K::matching(key, &self.digester).map_or_else(Count::default, |key| self.count(key));
        SizeEstimate::of(C::MEASURE, self.bounds(count))
    }
}

impl<K: FlowKey, C: Counter> Candidates for CounterArray<K, C> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for key in self.heavy.iter() {
            visit(
                key.to_canonical(&self.digester),
                SizeEstimate::of(C::MEASURE, self.listed(self.count(key))),
            );
        }
    }

    fn overflow(&self) -> u64 {
        self.heavy.overflow()
    }

    /// A key over the threshold is in the set unless it found no room.
    fn unnamed(&self, by: Measure) -> Option<f64> {
        let is_whole = by == C::MEASURE && self.heavy.overflow() == 0 && self.total < u64::MAX;
        is_whole.then(|| self.threshold.weight(self.total) + self.saturated as f64)
    }
}

/// A column is heavy from this fraction of the threshold on, so that part of the weight of a key
/// that finally exceeds the threshold is counted separately.
const PART: f64 = 0.5;

/// Size of a small block, which has a shorter list of heavy packets to initialize.
const SMALL_BLOCK: usize = 16;

/// The count that a heavy column exceeds after `total` weight, rounded down.
#[inline(always)]
fn limit(threshold: Threshold, total: u64) -> u64 {
    (PART * threshold.weight(total)) as u64
}

/// The number of packets to count at once, with `threshold` as it is after all of them: no more
/// than the set of heavy keys has room for, unless it drops nothing. A full set drops keys by all
/// columns, and must see the same for batches of any size.
#[inline(always)]
fn packets_at_once<K: FlowKey, S: OwnPart>(
    packets: usize,
    heavy: &HeavyKeys<K, S>,
    threshold: impl Fn() -> f64,
) -> usize {
    let room = heavy.room();
    if room >= packets || heavy.most() == 0 || heavy.drops_nothing(threshold()) {
        return packets;
    }
    room.max(1)
}

/// Visits the listed packets whose column exceeds the limit of the weight so far, their own
/// included, so that the size of batches makes no difference. `before` and `after` are the total
/// weights before and after the batch, `weights` those of its packets, and `count` the column of a
/// packet right after it.
///
/// A batch is counted first. Packets that may find a heavy column are listed by an integer
/// comparison without a branch, since they cannot be predicted. This is the second look at those
/// listed.
#[inline(always)]
fn visit_heavy<C: Counter>(
    listed: &[u8],
    threshold: Threshold,
    [before, after]: [u64; 2],
    weights: &[C],
    count: impl Fn(usize) -> u64,
    mut visit: impl FnMut(usize),
) {
    // The threshold only grows: what exceeds it after the batch exceeded it within the batch.
    let high = limit(threshold, after);
    let (mut so_far, mut summed) = (before, 0);
    for &i in listed {
        let i = usize::from(i);
        let count = count(i);
        if count <= high {
            let more = weights[summed..=i].iter().map(|weight| weight.get());
            so_far = more.fold(so_far, u64::saturating_add);
            summed = i + 1;
            if count <= limit(threshold, so_far) {
                continue;
            }
        }
        visit(i);
    }
}
