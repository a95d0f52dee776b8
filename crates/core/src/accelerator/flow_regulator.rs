//! FlowRegulator: one packet in a hundred reaches a flow table, and represents the others.
//!
//! Paper: InstaMeasure (ICDCS 2019), §3.A. The regulator, and the answers read from the table
//! behind it, are those of [`InstaMeasure`](crate::summary::instant::InstaMeasure).

use super::{Accelerate, AcceleratorInfo};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::instant::regulator::{DECODE, LEVELS, SKETCH, WORD, sketch_bytes};
use crate::summary::instant::{LAWS, Regulated, RegulatedTable, Regulator, Word};
use crate::summary::{Ability, BuildError, Laws, Options, Parameters, Summary};

/// The FlowRegulator accelerator.
///
/// Cost: one word a packet, a second word for one packet in ten, and the table's cost for one in a
/// hundred.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog::build_accelerated;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::{Options, Parameters};
///
/// let chain = [("flow-regulator".to_owned(), Parameters::default())];
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut summary = build_accelerated::<Key8>(&chain, "linear-table", &options).unwrap();
/// let (key, mut batch) = (Key8::from_canonical(&[10, 0, 0, 1]).unwrap(), Batch::new());
/// batch.fill(&[key; 250], 60);
/// (0..400).for_each(|_| summary.ingest(&mut batch));
/// summary.settle();
/// let size = summary.answers().size().unwrap().estimate(key.canonical(4)).packets.unwrap();
/// assert!((size.value / 100_000.0 - 1.0).abs() < 0.1);
/// ```
pub struct FlowRegulator;

/// A summary, and the packets that the regulator let through but the summary has not taken yet.
struct Passed<K> {
    let_through: Batch<K>,
    summary: Box<dyn Summary<K>>,
}

impl Accelerate for FlowRegulator {
    const INFO: AcceleratorInfo = AcceleratorInfo {
        name: "flow-regulator",
        idea: "two layers of shared bits that pass 1 % of the packets, each representing about \
               95 of its flow",
        paper: "InstaMeasure (ICDCS 2019), section 3.A",
        parameters: &[SKETCH, WORD, LEVELS, DECODE],
        memory: "sketch + 256 x (key + 36)",
        samples: true,
    };

    fn fits(_: &Parameters, laws: &Laws) -> Result<(), &'static str> {
        match laws {
            Laws { flows: false, .. } => Err("it needs a flow table"),
            Laws { aggregatable: false, .. } => Err(
                "it does not accept weighted updates, and a packet passed on represents several",
            ),
            _ => Ok(()),
        }
    }

    fn laws(_: Laws) -> Laws {
        LAWS
    }

    /// Small flows may never reach the table, so it can neither list nor count all flows.
    fn answers(_: &Parameters, _: &Laws, ability: Ability) -> Option<Ability> {
        matches!(ability, Ability::Size(_) | Ability::Candidates).then_some(ability)
    }

    fn memory_bytes<K: FlowKey>(options: &Options) -> Result<usize, BuildError> {
        Ok(sketch_bytes(options)? + Passed::<K>::BYTES)
    }

    fn build<K: FlowKey>(
        options: &Options,
        inner: Box<dyn Summary<K>>,
    ) -> Result<Box<dyn Summary<K>>, BuildError> {
        Ok(match options.parameters.word("word", &[u32::NAME, u64::NAME])? {
            u32::NAME => Box::new(before::<K, u32>(options, inner)?),
            _ => Box::new(before::<K, u64>(options, inner)?),
        })
    }

    fn promise(_: &Parameters) -> Result<Option<String>, BuildError> {
        let unit = Regulator::<u32, 2>::UNIT;
        Ok(Some(format!(
            "one packet in {unit:.1} of a flow reaches the table ({:.2} % of all), and its marks give \
             the {:.0} or so after it; a size of f packets has a standard error of {:.1} √f where \
             the flow is alone in its words, and of up to {:.1} √f where they are crowded; flows of \
             fewer than about {unit:.0} packets may not be listed",
            100.0 / unit,
            unit / 2.0,
            (unit * Regulator::<u32, 2>::VARIANCE).sqrt(),
            unit.sqrt()
        )))
    }
}

fn before<K: FlowKey, W: Word>(
    options: &Options,
    summary: Box<dyn Summary<K>>,
) -> Result<Regulated<W, 2, Passed<K>>, BuildError> {
    options.memory.take(Passed::<K>::BYTES)?;
    let passed = Passed { let_through: Batch::new(), summary };
    Ok(Regulated::new(options, Regulator::from_options(options)?, passed))
}

impl<K: FlowKey> RegulatedTable for Passed<K> {
    type Key = K;
    const ACCELERATOR: Option<&'static str> = Some(FlowRegulator::INFO.name);
    const BYTES: usize = Batch::<K>::BYTES;

    /// The table takes full batches, so that its prefetches are effective.
    fn take(&mut self, batch: &Batch<K>, rows: &[u8]) {
        for i in rows.iter().map(|&i| usize::from(i)) {
            if self.let_through.len() == BATCH_PACKETS {
                self.settle();
            }
            let bytes = batch.bytes()[i] / u64::from(batch.packets()[i]);
            self.let_through.push_sum(batch.keys()[i], 1, bytes, batch.times_ns()[i], 0);
        }
    }

    fn settle(&mut self) {
        if !self.let_through.is_empty() {
            self.summary.ingest(&mut self.let_through);
            self.let_through.clear();
        }
    }

    fn forget(&mut self) {
        self.let_through.clear();
    }

    fn summary(&self) -> &dyn Summary<K> {
        &*self.summary
    }

    fn summary_mut(&mut self) -> &mut dyn Summary<K> {
        &mut *self.summary
    }
}
