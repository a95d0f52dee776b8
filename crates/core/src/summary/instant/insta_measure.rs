//! InstaMeasure and RCC: a regulator before a flow table that evicts.
//!
//! Paper: Jang et al., "InstaMeasure: instant per-flow detection using large in-DRAM working set of
//! active flows" (ICDCS 2019), §3.

use super::super::{BuildError, Describe, Info, Laws, Options, Summary};
use super::regulated::{Behind, Regulated};
use super::regulator::{DECODE, LEVELS, Regulator, SKETCH, WORD};
use super::word::Word;
use super::working_set::{ENTRIES, PROBE_LIMIT, TIMEOUT, WorkingSet};
use crate::batch::Batch;
use crate::key::FlowKey;
use crate::summary::describe::form;
use crate::summary::{Counted, Form};

/// A regulator of `LAYERS` layers of words `W` before a working set.
///
/// Memory in bytes: `sketch`, and that of the [`WorkingSet`].
pub type InstantTable<K, W, const LAYERS: usize> = Regulated<W, LAYERS, WorkingSet<K>>;

/// RCC, as the catalog has it.
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

/// InstaMeasure, as the catalog has it.
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

/// What a regulator answers, whatever the table.
const FORMS: &[Form] = &[form![Size(Counted::Both), Candidates]];

/// What holds behind a regulator, whatever the table.
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

impl<K: FlowKey> Behind for WorkingSet<K> {
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
