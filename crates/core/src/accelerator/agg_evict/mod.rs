//! Agg-Evict: packets of a flow that come close together reach the summary as one.
//!
//! Paper: Zhou et al., "Accelerating network measurement in software" (CCR 2018), section 3. Rows of
//! 16 pairs of flow and sum; a packet's row and fingerprint are cut from its digest, and the 16
//! fingerprints of the row are compared at once. What is not there takes the place of a pair, whose
//! sum goes to the summary. The paper's row is the key modulo their number, which crafted or regular
//! keys crowd into one; here it is a part of the seeded digest. Its fingerprint of a long key, the
//! exclusive or of its words, is the same in both directions of a flow; here equal fingerprints are
//! told apart by the whole flow, which stands beside.

mod flow;
mod pairs;
mod policy;

use bytemuck::Zeroable;
use flowgauge_kernel::{Digester, Zeroed};

use self::flow::{Flow, Keyed, Spoken};
use self::pairs::{Add, Bytes, Evicted, LEAVING, MOST_ROWS, Row, Sum};
use self::policy::{LeastRecent, Policy, RoundRobin};
use super::{Accelerate, AcceleratorInfo};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::sketch::recovers;
use crate::summary::{
    Answers, BuildError, BuildErrorKind, Incompatible, Ingest, Laws, Options, Parameter,
    Parameters, Setting, Summary,
};

/// Bytes of all rows unless asked otherwise: what the paper's 2,000 rows of 4-byte keys take.
const DEFAULT_BYTES: u64 = 258 << 10;

/// Bytes of rows at most.
const MOST_BYTES: u64 = 1 << 30;

/// Sums of flows on their way to a summary.
///
/// Once it settled, what is [linear](crate::summary::Merge::Equal) holds what it would have held
/// without; other summaries keep their bounds. `settle` passes on all that is held back: until then
/// neither answers nor stored bytes have it.
///
/// Cost: one row, and the summary's cost for the share of the packets that is evicted. Memory in
/// bytes: `rows × 16 × (2 + 2 + size_of::<K>())`, 4 more for each pair where the summary reads
/// bytes and 8 where it reads elements, and 8 for each row under `policy=lru`, rounded up to cache
/// lines; and [`staged`].
struct Aggregator<K, F, B: Bytes, P> {
    digester: Digester,
    inner: Box<dyn Summary<K>>,
    rows: Zeroed<Row<F, B::Held>>,
    policy: P,
    evicted: Evicted<F, B>,
    /// What was evicted, as the summary takes it.
    sums: Batch<K>,
    /// Digests of a batch's flows, where these are more than keys.
    digests: Box<[u64; BATCH_PACKETS]>,
    /// Whether a pair may hold anything.
    holds: bool,
    /// Time of the latest packet.
    time_ns: i64,
}

/// Agg-Evict, as the catalog has it.
pub struct AggEvict;

impl Accelerate for AggEvict {
    const INFO: AcceleratorInfo = AcceleratorInfo {
        name: "agg-evict",
        idea: "sums up the packets of flows that come close together",
        paper: "Agg-Evict (CCR 2018), section 3",
        parameters: &[
            Parameter {
                name: "rows",
                help: "rows of 16 pairs, a power of two up to 65536 (default: what fits into memory)",
            },
            Parameter { name: "memory", help: "bytes of all rows (default: 264192)" },
            Parameter {
                name: "policy",
                help: "who makes room: round-robin (the default), or lru, the pair of the row whose \
                       flow was seen least recently",
            },
        ],
        memory: "rows x 16 x (4 + key), 4 more a pair where bytes are read and 8 where elements are, 8 \
                 more a row with policy=lru, in whole lines of 64; 256 x (3 x key + 60) for what leaves, \
                 and 16 x 256 more where bytes are read and where elements are",
        samples: false,
    };

    fn fits(_: &Parameters, laws: &Laws) -> Result<(), &'static str> {
        match laws {
            Laws { commutable: false, .. } => Err("the order of its packets matters"),
            Laws { aggregatable: false, .. } => {
                Err("packets summed up are not the same to it as one by one")
            }
            _ => Ok(()),
        }
    }

    fn memory_bytes<K: FlowKey>(options: &Options) -> Result<usize, BuildError> {
        Ok(match asked(options)? {
            Asked::Rows(rows) => rows * (size_of::<Row<Spoken<K>, u32>>() + LeastRecent::ROW_BYTES),
            Asked::Bytes(bytes) => bytes,
        } + staged::<K, Spoken<K>, u64>())
    }

    fn build<K: FlowKey>(
        options: &Options,
        inner: Box<dyn Summary<K>>,
    ) -> Result<Box<dyn Summary<K>>, BuildError> {
        match (inner.wants_elements(), inner.wants_bytes()) {
            (false, false) => by_policy::<K, Keyed<K>, ()>(options, inner),
            (false, true) => by_policy::<K, Keyed<K>, u64>(options, inner),
            // TwoLevel alone reads elements and takes sums.
            (true, false) if const { recovers::<K>() } => {
                by_policy::<K, Spoken<K>, ()>(options, inner)
            }
            (true, true) if const { recovers::<K>() } => {
                by_policy::<K, Spoken<K>, u64>(options, inner)
            }
            (true, _) => unreachable!("nothing that reads elements of such keys takes sums"),
        }
    }
}

/// Bytes of what is on its way to the summary.
const fn staged<K: FlowKey, F, B>() -> usize {
    Batch::<K>::BYTES + Evicted::<F, B>::BYTES + BATCH_PACKETS * size_of::<u64>()
}

/// What says how many rows there are.
enum Asked {
    Rows(usize),
    Bytes(usize),
}

fn asked(options: &Options) -> Result<Asked, BuildError> {
    let parameters = &options.parameters;
    parameters.exclusive("rows", &["memory"])?;
    if let Some(rows) = parameters.integer("rows", 1..=MOST_ROWS as u64)? {
        let refused = || {
            BuildErrorKind::OutOfRange {
                name: "rows",
                value: rows.to_string(),
                range: format!("a power of two up to {MOST_ROWS}"),
            }
            .into()
        };
        return rows.is_power_of_two().then_some(Asked::Rows(rows as usize)).ok_or_else(refused);
    }
    let bytes = parameters.integer("memory", 1024..=MOST_BYTES)?;
    // A quarter of a small run's memory at most.
    let default = || DEFAULT_BYTES.min(options.memory_bytes as u64 / 4);
    Ok(Asked::Bytes(bytes.unwrap_or_else(default) as usize))
}

fn by_policy<K: FlowKey, F: Flow<K>, B: Bytes>(
    options: &Options,
    inner: Box<dyn Summary<K>>,
) -> Result<Box<dyn Summary<K>>, BuildError> {
    Ok(match options.parameters.word("policy", &[RoundRobin::NAME, LeastRecent::NAME])? {
        RoundRobin::NAME => Box::new(Aggregator::<K, F, B, RoundRobin>::new(options, inner)?),
        _ => Box::new(Aggregator::<K, F, B, LeastRecent>::new(options, inner)?),
    })
}

impl<K: FlowKey, F: Flow<K>, B: Bytes, P: Policy> Aggregator<K, F, B, P> {
    fn new(options: &Options, inner: Box<dyn Summary<K>>) -> Result<Self, BuildError> {
        let row = size_of::<Row<F, B::Held>>() + P::ROW_BYTES;
        let rows = match asked(options)? {
            Asked::Rows(rows) => rows,
            Asked::Bytes(bytes) => 1 << (bytes / row).clamp(1, MOST_ROWS).ilog2(),
        };
        options.memory.take(staged::<K, F, B>())?;
        Ok(Self {
            digester: options.digester,
            inner,
            rows: options.memory.zeroed(rows)?,
            policy: P::new(rows, &options.memory)?,
            evicted: Evicted::new(),
            sums: Batch::new(),
            digests: Box::new([0; BATCH_PACKETS]),
            holds: false,
            time_ns: 0,
        })
    }

    /// Passes on what was evicted first.
    #[inline(never)]
    fn pass_on(&mut self) {
        let sums = self.evicted.first();
        self.sums.fill_sums(sums.iter().map(Sum::row), self.time_ns);
        self.evicted.drop_first();
        self.inner.ingest(&mut self.sums);
    }

    /// Passes on everything.
    #[inline(never)]
    fn empty(&mut self) {
        if !self.holds {
            return;
        }
        for number in 0..self.rows.len() {
            self.rows[number].empty(&mut self.evicted);
            while self.evicted.len() >= LEAVING {
                self.pass_on();
            }
        }
        while self.evicted.len() > 0 {
            self.pass_on();
        }
        self.holds = false;
    }
}

impl<K: FlowKey, F: Flow<K>, B: Bytes, P: Policy> Ingest<K> for Aggregator<K, F, B, P> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        let Some(time_ns) = batch.times_ns().last() else { return };
        self.time_ns = *time_ns;
        self.holds = true;
        batch.digest(&self.digester);
        let add = Add {
            rows: &mut self.rows,
            policy: &mut self.policy,
            columns: batch.columns(),
            len: batch.len(),
            plain: batch.is_plain(),
            digests: F::digests(batch, &self.digester, &mut self.digests),
            evicted: &mut self.evicted,
        };
        add.run();
        while self.evicted.len() >= LEAVING {
            self.pass_on();
        }
    }

    fn settle(&mut self) {
        self.empty();
        self.inner.settle();
    }

    fn wants_elements(&self) -> bool {
        self.inner.wants_elements()
    }

    fn wants_bytes(&self) -> bool {
        self.inner.wants_bytes()
    }
}

impl<K: FlowKey, F: Flow<K>, B: Bytes, P: Policy> Summary<K> for Aggregator<K, F, B, P> {
    fn answers(&self) -> &dyn Answers {
        self.inner.answers()
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        self.settle();
        self.inner.merge(other)
    }

    fn save(&self, out: &mut Writer) {
        self.inner.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.inner.load(from)
    }

    fn clear(&mut self) {
        self.rows.fill(Row::zeroed());
        self.policy.clear();
        self.evicted.clear();
        self.holds = false;
        self.inner.clear();
    }

    fn next_epoch(&mut self) {
        self.settle();
        self.policy.clear();
        self.inner.next_epoch();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        self.inner.parameters()
    }

    fn accelerators(&self) -> Vec<(&'static str, Vec<(&'static str, Setting)>)> {
        let own = vec![
            ("rows", Setting::Integer(self.rows.len() as u64)),
            ("policy", Setting::Word(P::NAME)),
        ];
        let mut all = vec![(AggEvict::INFO.name, own)];
        all.extend(self.inner.accelerators());
        all
    }

    fn memory_bytes(&self) -> usize {
        let rows = self.rows.memory_bytes() + self.rows.len() * P::ROW_BYTES;
        rows + staged::<K, F, B>() + self.inner.memory_bytes()
    }

    fn held(&self) -> Option<&dyn Summary<K>> {
        Some(&*self.inner)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;
    use crate::key::Key4;
    use crate::summary::Describe;
    use crate::summary::table::LinearTable;

    /// Sums that a pair could not hold leave before, or pass by.
    #[test]
    fn no_sum_overflows() {
        let options = Options::new(1 << 20, 1).digesting::<Key4>();
        let table = LinearTable::build::<Key4>(&options).unwrap();
        let mut summary = AggEvict::build(&options, table).unwrap();
        let key = |n: u32| Key4::from_canonical(&n.to_be_bytes()).unwrap();
        let mut batch = Batch::new();
        let mut rows = vec![(1 << 31, 1 << 40), (1 << 31, 1 << 40), (65_535, 0), (1, 0)];
        // So many that a pair would overflow.
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
        // Of each flow the table keeps as many as fit into its counter, and says what does not.
        let sent = 2 * (2 * (1u64 << 31) + 65_535 + 1 + 5);
        let kept: u64 = (0..2).map(|flow| answers.flows().unwrap().get(flow).1.packets).sum();
        assert_eq!(kept + answers.saturated().packets, sent);
    }
}
