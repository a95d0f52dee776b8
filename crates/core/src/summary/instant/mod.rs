//! InstaMeasure and RCC: a regulator before a flow table that evicts.
//!
//! Paper: Jang et al., "InstaMeasure: instant per-flow detection using large in-DRAM working set of
//! active flows" (ICDCS 2019), §3. A [`Regulator`] marks bits that flows have in common for most
//! packets and forwards few; each forwarded packet represents many of its flow. [`Regulated`] is a
//! regulator before a [`RegulatedTable`]. With the [`WorkingSet`] as its table it is InstaMeasure;
//! before another table it is an accelerator.

mod answers;
mod regulated;
pub(crate) mod regulator;
mod working_set;

pub use regulated::{Regulated, RegulatedTable};
pub use regulator::{Regulator, Word};
pub use working_set::WorkingSet;

use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::describe::form;
use crate::summary::{BuildError, Counted, Describe, Form, Info, Laws, Options, Summary};
use regulator::{DECODE, LEVELS, SKETCH, WORD};
use working_set::{ENTRIES, PROBE_LIMIT, TIMEOUT};

/// A regulator of `LAYERS` layers of words `W` before a working set.
type InstantTable<K, W, const LAYERS: usize> = Regulated<W, LAYERS, WorkingSet<K>>;

/// RCC, a regulator of one layer before a flow table, in the catalog as `rcc`.
///
/// Cost per packet: one word, mostly in the cache; 10 % of the packets update the table. Memory in
/// bytes: `sketch`, and that of the [`WorkingSet`].
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let mut summary = catalog::build::<Key8>("rcc", &Options::new(1 << 20, 1).for_keys(4)).unwrap();
/// let key = Key8::from_canonical(&[192, 0, 2, 1]).unwrap();
/// let mut batch = Batch::new();
/// (0..200).for_each(|time_ns| batch.push(key, 64, time_ns));
/// summary.ingest(&mut batch);
/// let packets = summary.answers().size().unwrap().estimate(&[192, 0, 2, 1]).packets.unwrap();
/// assert!(packets.low <= 200.0 && 200.0 <= packets.high);
/// ```
pub struct Rcc;

impl Describe for Rcc {
    const INFO: Info = Info {
        name: "rcc",
        idea: "eight shared bits for each flow, decoded into a flow table when they saturate",
        paper: "InstaMeasure (ICDCS 2019), section 3.A",
        parameters: &[SKETCH, WORD, DECODE, ENTRIES, PROBE_LIMIT, TIMEOUT],
        memory: "sketch + entries x (key + 24, rounded up to 8) + 4 x entries",
        forms: FORMS,
        laws: LAWS,
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        build::<K, 1>(options)
    }
}

/// InstaMeasure, a regulator of two layers before a flow table, in the catalog as `insta-measure`.
///
/// Cost per packet: one word, mostly in the cache; 1 % of the packets update the table. Memory in
/// bytes: `sketch`, and that of the [`WorkingSet`].
///
/// ```
/// use flowgauge_core::batch::{BATCH_PACKETS, Batch};
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut summary = catalog::build::<Key8>("insta-measure", &options).unwrap();
/// let key = Key8::from_canonical(&[192, 0, 2, 1]).unwrap();
/// let mut batch = Batch::new();
/// (0..BATCH_PACKETS).for_each(|_| batch.push(key, 64, 0));
/// (0..100).for_each(|_| summary.ingest(&mut batch));
/// let packets = summary.answers().size().unwrap().estimate(&[192, 0, 2, 1]).packets.unwrap();
/// assert!((packets.value / (100 * BATCH_PACKETS) as f64 - 1.0).abs() < 0.1);
/// ```
pub struct InstaMeasure;

impl Describe for InstaMeasure {
    const INFO: Info = Info {
        name: "insta-measure",
        idea: "two layers of shared bits that pass 1 % of the packets to a flow table",
        paper: "InstaMeasure (ICDCS 2019), section 3",
        parameters: &[SKETCH, WORD, LEVELS, DECODE, ENTRIES, PROBE_LIMIT, TIMEOUT],
        memory: "sketch + entries x (key + 24, rounded up to 8) + 4 x entries",
        forms: FORMS,
        laws: LAWS,
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        build::<K, 2>(options)
    }
}

/// The answers behind a regulator, with any table.
const FORMS: &[Form] = &[form![Size(Counted::Both), Candidates]];

/// The laws behind a regulator, with any table.
pub(crate) const LAWS: Laws = Laws { sizes: true, ..Laws::NONE };

fn build<K: FlowKey, const LAYERS: usize>(
    options: &Options,
) -> Result<Box<dyn Summary<K>>, BuildError> {
    Ok(match options.parameters.word("word", &[u32::NAME, u64::NAME])? {
        u32::NAME => Box::new(InstantTable::<K, u32, LAYERS>::from_options(options)?),
        _ => Box::new(InstantTable::<K, u64, LAYERS>::from_options(options)?),
    })
}

impl<K: FlowKey, W: Word, const LAYERS: usize> InstantTable<K, W, LAYERS> {
    fn from_options(options: &Options) -> Result<Self, BuildError> {
        let regulator = Regulator::from_options(options)?;
        let rest = options.memory_bytes.saturating_sub(regulator.memory_bytes());
        let flows = WorkingSet::from_options(options, rest)?;
        Ok(Self::new(options, regulator, flows))
    }
}

impl<K: FlowKey> RegulatedTable for WorkingSet<K> {
    type Key = K;
    const ACCELERATOR: Option<&'static str> = None;
    const BYTES: usize = 0;

    #[inline(always)]
    fn prefetch(&self, digest: u64) {
        WorkingSet::prefetch(self, digest);
    }

    #[inline(always)]
    fn take(&mut self, batch: &Batch<K>, rows: &[u8]) {
        for i in rows.iter().map(|&i| usize::from(i)) {
            let bytes = batch.bytes()[i] / u64::from(batch.packets()[i]);
            self.add(batch.keys()[i], batch.digests()[i], 1, bytes, batch.times_ns()[i]);
        }
    }

    fn summary(&self) -> &dyn Summary<K> {
        self
    }

    fn summary_mut(&mut self) -> &mut dyn Summary<K> {
        self
    }
}
