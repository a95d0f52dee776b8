//! Misra-Gries, with SketchVisor's three counters a key.
//!
//! Papers: Misra, Gries, "Finding repeated elements" (1982); Huang et al., "SketchVisor: robust
//! network measurement for software packet processing" (SIGCOMM 2017), §4. What a key without room
//! costs every key is kept account of, so that each key has its own bounds.

use std::marker::PhantomData;

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::ingest::{Basis, twin};
use super::super::{
    Answers, BuildError, Candidates, Counter, Describe, Estimate, Incompatible, Info, Ingest, Laws,
    Options, Setting, SizeEstimate, SizeQuery, Summary,
};
use super::capacity::{PARAMETERS, counters};
use super::fast_path::FastPath;
use super::monitor::{excess, size};
use super::steps::Steps;
use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::Counted;
use crate::summary::describe::form;
use crate::terms::{Measure, Size};

/// Misra-Gries of one measure, that of `C`.
pub(super) struct Decremented<K, C> {
    keys: FastPath<K>,
    measure: PhantomData<fn() -> C>,
}

/// Misra-Gries, as the catalog has it.
///
/// Cost: see its keys. Memory in bytes: `counters × ((size_of::<K>() + 16, rounded up to 8) + 8.9)`,
/// and up to 3 KiB more for fewer than 448 counters.
pub struct MisraGries;

impl Describe for MisraGries {
    const INFO: Info = Info {
        name: "misra-gries",
        idea: "a new key without room decrements every key; three counters bound each size",
        paper: "SketchVisor (SIGCOMM 2017), section 4",
        parameters: &PARAMETERS,
        memory: "counters x ((key + 16, rounded up to 8) + 8.9); up to 3 KiB more below 448 \
                 counters",
        forms: &[form![Size(Counted::Asked), Candidates]],
        laws: Laws { commutable: true, aggregatable: true, sizes: true, ..Laws::NONE },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        let most = counters(options, FastPath::<K>::bytes)?;
        let keys = FastPath::new(most, options.digester, &options.memory)?;
        Ok(match options.by {
            Measure::Packets => Box::new(Decremented::<K, u32> { keys, measure: PhantomData }),
            Measure::Bytes => Box::new(Decremented::<K, u64> { keys, measure: PhantomData }),
        })
    }
}

impl<K: FlowKey, C: Counter> Ingest<K> for Decremented<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        batch.digest(self.keys.digester());
        self.keys.add_in_steps(batch.keys(), batch.digests(), C::column(batch));
    }

    fn wants_bytes(&self) -> bool {
        C::MEASURE == Measure::Bytes
    }
}

impl<K: FlowKey, C: Counter> Summary<K> for Decremented<K, C> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(summary.keys.digester()))?;
        self.keys.merge(&other.keys);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        self.keys.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.keys.load(from)
    }

    fn clear(&mut self) {
        self.keys.clear();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("counters", Setting::Integer(self.keys.most() as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes()
    }
}

impl<K: FlowKey, C: Counter> Answers for Decremented<K, C> {
    fn untracked(&self) -> Size {
        excess::<C>(self.keys.refused())
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
}

impl<K: FlowKey, C: Counter> SizeQuery for Decremented<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let weight = K::matching(key, self.keys.digester()).map(|key| self.keys.weight(key));
        size::<C>(weight.unwrap_or(Estimate::exact(0)))
    }
}

impl<K: FlowKey, C: Counter> Candidates for Decremented<K, C> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        for (key, weight) in self.keys.iter() {
            visit(key.to_canonical(self.keys.digester()), size::<C>(weight));
        }
    }

    /// Keys that are not held weigh no more than was taken off, which is within the bounds.
    fn overflow(&self) -> u64 {
        0
    }

    fn unnamed(&self, by: Measure) -> Option<f64> {
        (by == C::MEASURE).then(|| self.keys.unheld().high)
    }
}
