//! The audit: an exact table of a slice of the flows beside a summary, which measures the error of
//! the summary's sizes on the traffic itself.
//!
//! A hash of a flow's digest decides whether the flow is in the slice, independently of the
//! summary's cells. So the slice is an unbiased sample of the flows, and all hosts with the same
//! seed audit the same flows.

use std::ops::AddAssign;

use flowgauge_kernel::{Digester, Seed};

use crate::any::{AnyBatch, AnySummary, BatchMut};
use crate::batch::BATCH_PACKETS;
use crate::catalog;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::{Answers, BuildError, Incompatible, Info, Options, SizeEstimate, SizeQuery};
use crate::terms::{Measure, Size};

/// An odd factor. The upper bits of its product with a digest decide whether the flow is in the
/// slice. Given either half of the digest, they are as random as the other half.
const SLICE: u64 = 0xd6e8_feb8_6659_fd93;

/// The table's algorithm.
const EXACT: &str = "linear-table";

/// Smallest slice: one flow in this number.
pub const SMALLEST_SLICE: u32 = 1 << 20;

/// An exact table of one flow in `one_in`, for one lane.
///
/// Cost: one multiplication a packet, and an update of a linear table for each packet of the slice.
/// Memory: that of the table and of a batch.
///
/// ```
/// use flowgauge_core::any::{AnyBatch, AnySummary};
/// use flowgauge_core::audit::Audit;
/// use flowgauge_core::{key::{FlowKey, Key8}, summary::Options, terms::Measure};
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut audit = Audit::build(4, 1, options.clone()).unwrap();
/// let mut summary = AnySummary::build(4, &[], "count-min", &options).unwrap();
/// let mut batch = AnyBatch::new(4);
/// if let AnyBatch::Eight(batch) = &mut batch {
///     batch.push(Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), 60, 0);
/// }
/// audit.ingest(&mut batch.as_mut());
/// audit.settle();
/// summary.ingest(batch.as_mut());
/// assert_eq!(audit.compare(summary.answers(), Measure::Packets).violated, 0);
/// ```
pub struct Audit {
    one_in: u32,
    digester: Digester,
    options: Options,
    table: AnySummary,
    /// Packets that the table has not counted yet.
    staged: AnyBatch,
}

impl Audit {
    /// An empty audit with the memory and seed of `options`, for keys of `key_bytes` canonical
    /// bytes.
    ///
    /// # Errors
    /// When there is too little memory.
    ///
    /// # Panics
    /// When no key has this length.
    pub fn build(key_bytes: usize, one_in: u32, options: Options) -> Result<Self, BuildError> {
        let table = AnySummary::build(key_bytes, &[], EXACT, &options)?;
        Ok(Self::of(key_bytes, one_in, options, table))
    }

    fn of(key_bytes: usize, one_in: u32, options: Options, table: AnySummary) -> Self {
        let digester = options.digester.for_keys(key_bytes);
        Self { one_in, digester, options, table, staged: AnyBatch::new(key_bytes) }
    }

    /// Reads an audit that [`Self::write`] wrote beside a summary with the seed `seed`, into at
    /// most `limit` bytes of memory. Reuses the memory of `spare` as [`AnySummary::decode`] does.
    ///
    /// # Errors
    /// Those of [`AnySummary::decode`], and when it is not an exact table with this seed.
    ///
    /// # Panics
    /// When no key has this length.
    pub fn read(
        key_bytes: usize,
        one_in: u32,
        from: &mut Reader<'_>,
        limit: usize,
        seed: &Seed,
        spare: Option<Self>,
    ) -> Result<Self, DecodeError> {
        let frame = from.bytes("audit", usize::MAX)?;
        let spare = spare.map(|spare| (spare.table, exact(), spare.options));
        let (table, info, options) =
            AnySummary::decode(key_bytes, frame, limit, Some(seed), spare)?;
        if info.name != EXACT || options.digester.seed().id() != seed.id() {
            let reason = "it is not a linear-table under the seed of the summaries";
            return Err(from.invalid("audit", frame.len(), reason));
        }
        Ok(Self::of(key_bytes, one_in, options, table))
    }

    /// Appends the stored form of the table.
    pub fn write(&self, out: &mut Writer) {
        out.measured(|out| self.table.write(out, exact(), &self.options));
    }

    /// One flow in this number is in the slice.
    pub fn one_in(&self) -> u32 {
        self.one_in
    }

    /// Copies the packets of the slice out of a batch.
    ///
    /// # Panics
    /// When the batch has another key width.
    pub fn ingest(&mut self, batch: &mut BatchMut<'_>) {
        let most = u64::MAX / u64::from(self.one_in);
        let (mut rows, mut sliced) = ([0; BATCH_PACKETS], 0);
        for (row, digest) in (0..=u8::MAX).zip(batch.digests(&self.digester)) {
            rows[sliced] = row;
            sliced += usize::from(digest.wrapping_mul(SLICE) <= most);
        }
        if self.staged.as_mut().len() + sliced > BATCH_PACKETS {
            self.settle();
        }
        batch.copy_rows(&rows[..sliced], &mut self.staged);
    }

    /// Counts the staged packets in the table. Until then they are not compared, stored or merged.
    pub fn settle(&mut self) {
        let mut staged = self.staged.as_mut();
        if !staged.is_empty() {
            self.table.ingest(staged.reborrow());
            staged.clear();
        }
    }

    /// Forgets all flows.
    pub fn clear(&mut self) {
        self.staged.as_mut().clear();
        self.table.clear();
    }

    /// Begins another part of the same epoch, as [`AnySummary::next_part`].
    pub fn next_part(&mut self) {
        self.staged.as_mut().clear();
        self.table.next_part();
    }

    /// Adds another host's or worker's audit of the same slice.
    ///
    /// # Errors
    /// When the slices, seeds or keys differ.
    pub fn merge(&mut self, other: &Self) -> Result<(), Incompatible> {
        if self.one_in != other.one_in {
            return Err(Incompatible("the audited slices differ"));
        }
        self.table.merge(&other.table)
    }

    /// Compares the exact sizes of the slice's flows with the sizes that the lane's summary
    /// answers.
    pub fn compare(&self, answers: &dyn Answers, by: Measure) -> Observed {
        let table = self.table.answers();
        let mut observed = Observed { untracked: table.untracked(), ..Observed::default() };
        let sizes = (table.flows(), table.size(), answers.size());
        if let (Some(flows), Some(exact), Some(estimates)) = sizes {
            flows.for_each(&mut |key, size| {
                observed.compare(key, size.by(by), by, exact, estimates);
            });
        }
        observed
    }

    /// Reserved memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// Upper bound of the stored form's length in bytes.
    pub fn most_stored_bytes(&self) -> usize {
        self.table.most_stored_bytes()
    }
}

fn exact() -> &'static Info {
    match catalog::info(EXACT) {
        Ok(info) => info,
        Err(_) => unreachable!("the catalog has {EXACT}"),
    }
}

/// The observed errors of a summary's sizes, over the audited flows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// Number of flows that were compared.
    pub flows: u64,
    /// Their total size.
    pub weight: u64,
    /// Sum of their errors: estimate minus size.
    pub error: f64,
    /// Sum of their squared errors.
    pub squares: f64,
    /// Number of flows whose size is outside its bounds.
    pub violated: u64,
    /// Number of such flows that the confidence of the bounds allows on average.
    pub allowed: f64,
    /// Packets and bytes of the slice that the full table could not count.
    pub untracked: Size,
}

impl Observed {
    fn compare(
        &mut self,
        key: &[u8],
        size: u64,
        by: Measure,
        exact: &dyn SizeQuery,
        estimates: &dyn SizeQuery,
    ) {
        let of = |sizes: SizeEstimate| sizes.by(by);
        let (Some(known), Some(estimate)) = (of(exact.estimate(key)), of(estimates.estimate(key)))
        else {
            return;
        };
        // The exact size is unknown if a full table, here or on another host, lost packets of the
        // flow.
        if known.low < known.high {
            return;
        }
        let error = estimate.value - size as f64;
        self.flows += 1;
        self.weight = self.weight.saturating_add(size);
        self.error += error;
        self.squares += error * error;
        self.violated += u64::from(!(estimate.low..=estimate.high).contains(&(size as f64)));
        self.allowed += 1.0 - estimate.confidence.unwrap_or(1.0);
    }

    /// The mean error, estimate minus size; 0 without a flow.
    pub fn bias(&self) -> f64 {
        self.per_flow(self.error)
    }

    /// The root mean square error; 0 without a flow.
    pub fn rmse(&self) -> f64 {
        self.per_flow(self.squares).sqrt()
    }

    /// The share of flows whose size is outside its bounds.
    pub fn violated_share(&self) -> f64 {
        self.per_flow(self.violated as f64)
    }

    /// The share of such flows that the confidence of the bounds allows on average.
    pub fn allowed_share(&self) -> f64 {
        self.per_flow(self.allowed)
    }

    fn per_flow(&self, sum: f64) -> f64 {
        sum / self.flows.max(1) as f64
    }
}

impl AddAssign for Observed {
    fn add_assign(&mut self, other: Self) {
        let Self { flows, weight, error, squares, violated, allowed, untracked } = other;
        self.flows += flows;
        self.weight = self.weight.saturating_add(weight);
        self.error += error;
        self.squares += squares;
        self.violated += violated;
        self.allowed += allowed;
        self.untracked += untracked;
    }
}
