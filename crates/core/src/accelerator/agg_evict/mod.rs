//! Agg-Evict: packets of a flow that arrive close together reach the summary as one row.
//!
//! Paper: Zhou et al., "Accelerating network measurement in software" (CCR 2018), section 3. A
//! table has rows of 16 pairs of flow and sum, and compares the 16 tags of a row at once. A new
//! flow evicts a pair of its row, whose sum goes to the summary. Row and tag are parts of the
//! seeded digest. The paper's are `tag=xor,bits=32,index=modulo`: crafted or regular keys then crowd
//! into few rows, and both directions of a flow have the same tag. Rows store and compare whole
//! flows in all forms, so tags affect the speed but never a count.

mod auto;
mod flow;
mod pairs;
mod policy;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed, cycles};

use self::auto::Auto;
use self::flow::{ChosenTag, Flow, Keyed, OfDigest, Spoken, Tag};
use self::pairs::{Add, Bytes, Evicted, LEAVING, MOST_ROWS, Row, Sum};
use self::policy::{Chosen, MOST_ROW_BYTES, NAMES, Policy, RoundRobin, row_bytes};
use super::{Accelerate, AcceleratorInfo};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::sketch::recovers;
use crate::summary::{
    Answers, BuildError, BuildErrorKind, Incompatible, Ingest, Laws, Options, Parameter,
    Parameters, Reads, Setting, Summary,
};

/// Default memory of all rows in bytes: that of the paper's 2,000 rows of 4-byte keys.
const DEFAULT_BYTES: u64 = 258 << 10;

/// Maximum memory of all rows in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// An aggregator before a summary: sums of flows that the summary has not taken yet.
///
/// `settle` passes on all sums; until then neither answers nor stored bytes include them.
/// Afterwards a [linear](crate::summary::Merge::Equal) summary has the same contents as without the
/// accelerator; other summaries keep their bounds.
///
/// Cost: one row a packet, and the summary's cost for each eviction. Memory in bytes: `rows × 16 ×
/// (2 + 2 + size_of::<K>())`, 4 more for each pair where the summary reads bytes and 8 where it
/// reads elements, 8 for each row under `policy=lru`, rounded up to cache lines; with a
/// [`ChosenTag`] bytes are always held, and 2 more for each pair; plus [`staged`], and
/// [`Auto::BYTES`] with `auto`.
///
/// With `auto`, batches pass by the table while that takes less time. Each then empties a few rows,
/// until no sums are left.
struct Aggregator<K, F, B: Bytes, T: Tag, P> {
    digester: Digester,
    rows: Zeroed<Row<T::Row, F, B::Held>>,
    tagging: T,
    policy: P,
    leaving: Leaving<K, F, B>,
    /// Whether any pair may be occupied.
    holds: bool,
    /// Rows emptied since the aggregator was last used.
    emptied: usize,
    auto: Option<Box<Auto>>,
}

/// Rows emptied with each batch that passes by the aggregator.
const EMPTIED: usize = 4;

/// The summary, and the sums evicted but not passed on yet.
struct Leaving<K, F, B> {
    inner: Box<dyn Summary<K>>,
    evicted: Evicted<F, B>,
    /// Evicted sums, as a batch for the summary.
    sums: Batch<K>,
    /// Digests of a batch's flows, where a flow is more than its key.
    digests: Box<[u64; BATCH_PACKETS]>,
    /// Time of the latest packet.
    time_ns: i64,
}

/// The Agg-Evict accelerator.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog::build_accelerated;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::{Options, Parameters};
///
/// let chain = [("agg-evict".to_owned(), Parameters::default())];
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut summary = build_accelerated::<Key8>(&chain, "count-min", &options).unwrap();
/// let (key, mut batch) = (Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), Batch::new());
/// batch.fill(&[key; 100], 60);
/// summary.ingest(&mut batch);
/// summary.settle();
/// let size = summary.answers().size().unwrap().estimate(key.canonical(4));
/// assert_eq!(size.packets.unwrap().value, 100.0);
/// ```
pub struct AggEvict;

impl Accelerate for AggEvict {
    const INFO: AcceleratorInfo = AcceleratorInfo {
        name: "agg-evict",
        idea: "sums the packets of a flow that arrive close together",
        paper: "Agg-Evict (CCR 2018), section 3",
        parameters: &[
            Parameter {
                name: "rows",
                help: "number of rows of 16 pairs, up to 65536, with index=digest a power of two \
                       (default: what fits into memory)",
            },
            Parameter { name: "memory", help: "bytes of all rows (default: 264192)" },
            Parameter {
                name: "policy",
                help: "which pair of a row to evict: round-robin (the default), lru (least \
                       recently seen) or random",
            },
            Parameter {
                name: "tag",
                help: "tag of a flow: digest (the default), bits of its digest; or xor, as in the \
                       paper, the XOR of its key's words: both directions of a flow then have the \
                       same tag and, in the same row, evict each other",
            },
            Parameter {
                name: "bits",
                help: "bits of a tag: 16 (the default); or 32, as in the paper, in which fewer \
                       flows collide",
            },
            Parameter {
                name: "index",
                help: "row of a flow: digest (the default), other bits of its digest; or modulo, \
                       the remainder of its digest or, with tag=xor, of the XOR, as in the paper; \
                       with tag=xor,index=modulo, a sender who chooses keys can make them share \
                       a row",
            },
            Parameter {
                name: auto::NAME,
                help: "yes, or auto without a value: sum only while that is faster than the \
                       algorithm alone; trials of up to 94,208 packets decide, at the start and \
                       when the traffic changes; no (the default): always sum",
            },
        ],
        memory: "rows x 16 x (4 + key); for each pair 4 more by bytes and 8 more for distinct \
                 peers; for each row 8 more with policy=lru; rounded up to \
                 64; up to 256 x (3 x key + 60) for evicted pairs, and 6144 more by bytes and for \
                 distinct peers; unless tag, bits and index are the defaults, bytes are always \
                 held, and tags of 16 and 32 bits alike take 2 bytes more for each pair; with auto, \
                 8336 more",
        samples: false,
    };

    fn fits(_: &Parameters, laws: &Laws) -> Result<(), &'static str> {
        match laws {
            Laws { commutable: false, .. } => Err("it depends on the order of packets"),
            Laws { aggregatable: false, .. } => Err("it does not accept weighted updates"),
            _ => Ok(()),
        }
    }

    fn memory_bytes<K: FlowKey>(options: &Options) -> Result<usize, BuildError> {
        Ok(match table_size(options)? {
            TableSize::Rows(rows) => {
                rows * (size_of::<Row<<ChosenTag as Tag>::Row, Spoken<K>, u32>>() + MOST_ROW_BYTES)
            }
            TableSize::Bytes(bytes) => bytes,
        } + staged::<K, Spoken<K>, u64>()
            + Auto::bytes(&options.parameters)?)
    }

    fn build<K: FlowKey>(
        options: &Options,
        inner: Box<dyn Summary<K>>,
    ) -> Result<Box<dyn Summary<K>>, BuildError> {
        let Reads { elements, bytes, .. } = inner.reads();
        match (elements, bytes) {
            (false, false) => of::<K, Keyed<K>, ()>(options, inner),
            (false, true) => of::<K, Keyed<K>, u64>(options, inner),
            // TwoLevel alone reads elements and takes sums.
            (true, false) if const { recovers::<K>() } => of::<K, Spoken<K>, ()>(options, inner),
            (true, true) if const { recovers::<K>() } => of::<K, Spoken<K>, u64>(options, inner),
            (true, _) => unreachable!("nothing that reads elements of such keys takes sums"),
        }
    }
}

/// Memory of evicted sums in bytes.
const fn staged<K: FlowKey, F, B>() -> usize {
    Batch::<K>::BYTES + Evicted::<F, B>::BYTES + BATCH_PACKETS * size_of::<u64>()
}

/// The given size of the table: a number of rows or of bytes.
enum TableSize {
    Rows(usize),
    Bytes(usize),
}

fn table_size(options: &Options) -> Result<TableSize, BuildError> {
    let parameters = &options.parameters;
    parameters.exclusive("rows", &["memory"])?;
    let tag = ChosenTag::new(parameters)?;
    if let Some(rows) = parameters.integer("rows", 1..=MOST_ROWS as u64)? {
        let refused = || {
            BuildErrorKind::OutOfRange {
                name: "rows",
                value: rows.to_string(),
                range: format!("a power of two up to {MOST_ROWS} (index=modulo takes any number)"),
            }
            .into()
        };
        let rows = rows as usize;
        let fits = tag.rows(rows) == rows;
        return fits.then_some(TableSize::Rows(rows)).ok_or_else(refused);
    }
    let bytes = parameters.integer("memory", 1024..=MOST_BYTES)?;
    // At most a quarter of the memory, for small runs.
    let default = || DEFAULT_BYTES.min(options.memory_bytes as u64 / 4);
    Ok(TableSize::Bytes(bytes.unwrap_or_else(default) as usize))
}

/// The number of rows of `row_bytes` bytes each.
#[inline(never)]
fn rows(options: &Options, row_bytes: usize) -> Result<usize, BuildError> {
    Ok(match table_size(options)? {
        TableSize::Rows(rows) => rows,
        TableSize::Bytes(bytes) => {
            ChosenTag::new(&options.parameters)?.rows((bytes / row_bytes).clamp(1, MOST_ROWS))
        }
    })
}

/// The policy that chooses the pair to evict.
fn policy(options: &Options) -> Result<&'static str, BuildError> {
    options.parameters.word("policy", &NAMES)
}

fn of<K: FlowKey, F: Flow<K>, B: Bytes>(
    options: &Options,
    inner: Box<dyn Summary<K>>,
) -> Result<Box<dyn Summary<K>>, BuildError> {
    Ok(match (ChosenTag::new(&options.parameters)?, policy(options)?) {
        (ChosenTag::DEFAULT, RoundRobin::NAME) => {
            Box::new(Aggregator::<K, F, B, _, RoundRobin>::new(options, OfDigest, inner)?)
        }
        (ChosenTag::DEFAULT, _) => {
            Box::new(Aggregator::<K, F, B, _, Chosen>::new(options, OfDigest, inner)?)
        }
        // Only one type, since other tags are for comparisons: it also sums bytes that no summary
        // reads.
        (tag, _) => Box::new(Aggregator::<K, F, u64, _, Chosen>::new(options, tag, inner)?),
    })
}

impl<K: FlowKey, F: Flow<K>, B: Bytes, T: Tag, P: Policy> Aggregator<K, F, B, T, P> {
    #[inline(never)]
    fn new(options: &Options, tagging: T, inner: Box<dyn Summary<K>>) -> Result<Self, BuildError> {
        let policy = policy(options)?;
        let rows = rows(options, size_of::<Row<T::Row, F, B::Held>>() + row_bytes(policy))?;
        let leaving = Leaving::new(options, inner)?;
        let auto = Auto::new(options)?;
        let mut rows: Zeroed<Row<_, _, _>> = options.memory.zeroed(rows)?;
        if auto.is_some() {
            // The first touch of memory would take longer than what a trial times.
            rows.fill(Row::zeroed());
        }
        Ok(Self {
            digester: options.digester,
            policy: P::new(policy, rows.len(), options)?,
            rows,
            tagging,
            leaving,
            holds: false,
            emptied: 0,
            auto,
        })
    }

    /// Passes on all sums.
    fn empty(&mut self) {
        self.emptied = 0;
        self.empty_rows(self.rows.len());
    }

    /// Passes on the sums of the next rows, at most this many.
    #[inline(never)]
    fn empty_rows(&mut self, most: usize) {
        if !self.holds {
            return;
        }
        let rows = self.emptied..self.rows.len().min(self.emptied + most);
        self.emptied = rows.end;
        for row in &mut self.rows[rows] {
            row.empty(&mut self.leaving.evicted);
            self.leaving.pass_on(LEAVING);
        }
        if self.emptied == self.rows.len() {
            self.leaving.pass_on(1);
            self.holds = false;
        }
    }

    /// Passes a batch on as it is, and some sums that are left from before.
    fn pass_by(&mut self, batch: &mut Batch<K>) {
        self.leaving.inner.ingest(batch);
        self.empty_rows(EMPTIED);
    }

    /// Sends a batch the way that the trials chose, or times it in a trial.
    #[inline(never)]
    fn ingest_by_trial(&mut self, batch: &mut Batch<K>) {
        let Some(auto) = &mut self.auto else { return };
        let (is_behind, is_trial) = (auto.is_behind(), auto.is_trial());
        if !is_trial {
            if auto.is_sample() {
                batch.digest(&self.digester);
                auto.watch(batch.digests());
            }
            return if is_behind { self.sum(batch) } else { self.pass_by(batch) };
        }
        batch.digest(&self.digester);
        let start = cycles();
        if is_behind {
            self.sum(batch);
        } else {
            self.leaving.inner.ingest(batch);
        }
        let (ticks, rows) = (cycles() - start, &self.rows);
        let occupied = || rows.iter().map(Row::occupied).sum::<usize>();
        if let Some(auto) = &mut self.auto {
            auto.took(batch.len(), ticks, &occupied);
        }
    }

    /// Adds a batch to the sums.
    #[inline(never)]
    fn sum(&mut self, batch: &mut Batch<K>) {
        self.holds = true;
        self.emptied = 0;
        batch.digest(&self.digester);
        let add = Add::<K, F, B, T, P> {
            rows: &mut self.rows,
            tagging: self.tagging,
            policy: &mut self.policy,
            columns: batch.columns(),
            len: batch.len(),
            plain: batch.is_plain(),
            digests: F::digests(batch, &mut self.leaving.digests),
            evicted: &mut self.leaving.evicted,
        };
        add.run();
        self.leaving.pass_on(LEAVING);
    }
}

impl<K: FlowKey, F: Flow<K>, B: Bytes> Leaving<K, F, B> {
    #[inline(never)]
    fn new(options: &Options, inner: Box<dyn Summary<K>>) -> Result<Self, BuildError> {
        options.memory.take(staged::<K, F, B>())?;
        let (evicted, sums) = (Evicted::new(), Batch::new());
        Ok(Self { inner, evicted, sums, digests: Box::new([0; BATCH_PACKETS]), time_ns: 0 })
    }

    /// Passes on the oldest evicted sums while there are at least `least`.
    fn pass_on(&mut self, least: usize) {
        while self.evicted.len() >= least {
            self.pass_on_first();
        }
    }

    #[inline(never)]
    fn pass_on_first(&mut self) {
        let sums = self.evicted.first();
        self.sums.fill_sums(sums.iter().map(Sum::row), self.time_ns);
        self.evicted.drop_first();
        self.inner.ingest(&mut self.sums);
    }
}

impl<K: FlowKey, F: Flow<K>, B: Bytes, T: Tag, P: Policy> Ingest<K> for Aggregator<K, F, B, T, P> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        let Some(time_ns) = batch.times_ns().last() else { return };
        self.leaving.time_ns = *time_ns;
        let Some(auto) = &mut self.auto else { return self.sum(batch) };
        if !self.holds && auto.passes_by() {
            self.leaving.inner.ingest(batch);
        } else {
            self.ingest_by_trial(batch);
        }
    }

    fn settle(&mut self) {
        self.empty();
        self.leaving.inner.settle();
    }

    fn reads(&self) -> Reads {
        self.leaving.inner.reads()
    }
}

impl<K: FlowKey, F: Flow<K>, B: Bytes, T: Tag, P: Policy> Summary<K> for Aggregator<K, F, B, T, P> {
    fn answers(&self) -> &dyn Answers {
        self.leaving.inner.answers()
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        self.settle();
        self.leaving.inner.merge(other)
    }

    fn save(&self, out: &mut Writer) {
        self.leaving.inner.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.leaving.inner.load(from)
    }

    fn clear(&mut self) {
        self.rows.fill(Row::zeroed());
        self.policy.clear();
        self.leaving.evicted.clear();
        self.holds = false;
        self.leaving.inner.clear();
    }

    fn next_epoch(&mut self) {
        self.settle();
        if let Some(auto) = &mut self.auto {
            auto.next_epoch();
        }
        self.policy.clear();
        self.leaving.inner.next_epoch();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        self.leaving.inner.parameters()
    }

    fn accelerators(&self) -> Vec<(&'static str, Vec<(&'static str, Setting)>)> {
        let mut own = vec![
            ("rows", Setting::Integer(self.rows.len() as u64)),
            ("policy", Setting::Word(self.policy.name())),
        ];
        own.extend(self.tagging.settings());
        own.extend(self.auto.as_ref().map(|_| (auto::NAME, Setting::Word(auto::YES))));
        let mut all = vec![(AggEvict::INFO.name, own)];
        all.extend(self.leaving.inner.accelerators());
        all
    }

    fn memory_bytes(&self) -> usize {
        let rows = self.rows.memory_bytes() + self.policy.memory_bytes();
        let auto = self.auto.as_ref().map_or(0, |_| Auto::BYTES);
        rows + auto + staged::<K, F, B>() + self.leaving.inner.memory_bytes()
    }

    fn held(&self) -> Option<&dyn Summary<K>> {
        Some(&*self.leaving.inner)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;
    use crate::key::Key8;
    use crate::summary::Describe;
    use crate::summary::table::LinearTable;

    /// Once batches pass by, a few rows are emptied with each, until nothing is held back.
    #[test]
    fn sums_leave_while_batches_pass_by() {
        let options = Options::new(1 << 20, 1).with([("rows", 64)]).digesting::<Key8>();
        let log = options.clone().with([("buckets", 4096)]);
        let table = LinearTable::build::<Key8>(&log).unwrap();
        let mut summary =
            Aggregator::<Key8, Keyed<Key8>, u64, _, RoundRobin>::new(&options, OfDigest, table)
                .unwrap();
        let mut batch = Batch::new();
        let keys: Vec<Key8> =
            (0..256_u32).filter_map(|n| Key8::from_canonical(&n.to_be_bytes())).collect();
        let kept = |summary: &Aggregator<_, _, _, _, _>| {
            let answers = summary.answers();
            (0..256).map(|flow| answers.flows().unwrap().get(flow).1.packets).sum::<u64>()
        };
        batch.fill(&keys, 60);
        summary.sum(&mut batch);
        assert!(summary.holds);
        for batches in 1..=64 / EMPTIED {
            assert!(summary.holds, "{batches}");
            batch.fill(&keys[..1], 60);
            summary.pass_by(&mut batch);
        }
        assert!(!summary.holds);
        assert_eq!(kept(&summary), 256 + (64 / EMPTIED) as u64);
        summary.settle();
        assert_eq!(kept(&summary), 256 + (64 / EMPTIED) as u64);
    }

    /// Memory is as stated.
    #[test]
    fn a_trial_takes_the_stated_memory() {
        let memory = |auto: &str| {
            let options = Options::new(1 << 20, 1).with([("auto", auto)]).digesting::<Key8>();
            let table = LinearTable::build::<Key8>(&Options::new(1 << 20, 1)).unwrap();
            let before = table.memory_bytes();
            AggEvict::build(&options, table).unwrap().memory_bytes() - before
        };
        let more = memory("yes") - memory("no");
        assert!(AggEvict::INFO.memory.ends_with(&format!("with auto, {more} more")), "{more}");
    }

    /// Sums that would overflow a pair are evicted before, or bypass the table.
    #[test]
    fn no_sum_overflows() {
        let options = Options::new(1 << 20, 1).for_keys(4);
        let table = LinearTable::build::<Key8>(&options).unwrap();
        let mut summary = AggEvict::build(&options, table).unwrap();
        let key = |n: u32| Key8::from_canonical(&n.to_be_bytes()).unwrap();
        let mut batch = Batch::new();
        let mut rows = vec![(1 << 31, 1 << 40), (1 << 31, 1 << 40), (65_535, 0), (1, 0)];
        // Enough bytes to overflow a pair.
        rows.extend([(1, u64::MAX / 4); 5]);
        for (packets, bytes) in rows {
            for flow in 0..2 {
                batch.push_sum(key(flow), packets, bytes, 0, 0);
            }
            summary.ingest(&mut batch);
            batch.clear();
        }
        summary.settle();
        let answers = summary.answers();
        let bytes = answers.size().unwrap().estimate(key(1).canonical(4)).bytes.unwrap();
        let sent = u128::from(u64::MAX / 4) * 5 + (1 << 41);
        let lost = 2 * (sent - u128::from(u64::MAX));
        assert_eq!((bytes.value as u64, u128::from(answers.saturated().bytes)), (u64::MAX, lost));
        // The table keeps the packets of each flow that fit into its counter, and reports the
        // others.
        let sent = 2 * (2 * (1u64 << 31) + 65_535 + 1 + 5);
        let kept: u64 = (0..2).map(|flow| answers.flows().unwrap().get(flow).1.packets).sum();
        assert_eq!(kept + answers.saturated().packets, sent);
    }
}
