//! Hierarchical heavy hitters (MST): every packet updates every node.
//!
//! Paper: Mitzenmacher, Steinke, Thaler, "Hierarchical heavy hitters with the Space Saving
//! algorithm" (ALENEX 2012), §3. A Space-Saving for each node counts its prefixes. With m counters
//! per node and total weight N, the error of each prefix is at most N/m. The weight of an
//! unreported prefix that no reported prefix covers is at most the threshold.

use super::{Lattice, fits};
use crate::batch::Batch;
use crate::key::{CanonicalKey, FlowKey};
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::counter::{Monitored, PARAMETERS};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::{
    Answers, BuildError, Candidates, Counted, Describe, Incompatible, Info, Ingest, Laws, Options,
    Prefixes, Reads, Setting, SizeEstimate, SizeQuery, Summary,
};
use crate::terms::{Measure, Size};

/// Hierarchical heavy hitters with a Space-Saving for each node, in the catalog as `mst`.
///
/// Cost and memory: those of Space-Saving times the number of nodes; a node with few possible
/// prefixes has only one counter for each.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let mut summary = catalog::build::<Key8>("mst", &Options::new(1 << 20, 1).for_keys(4)).unwrap();
/// let mut batch = Batch::new();
/// for host in 0..200 {
///     batch.push(Key8::from_canonical(&[192, 0, 2, host]).unwrap(), 64, 0);
/// }
/// summary.ingest(&mut batch);
/// let prefixes = summary.answers().prefixes().unwrap();
/// let node = prefixes.nodes().iter().position(|node| *node == (24, 0)).unwrap();
/// let estimate = prefixes.estimate(node, &[192, 0, 2, 0]);
/// assert_eq!((estimate.low, estimate.high), (200.0, 200.0));
/// ```
pub struct Mst;

impl Describe for Mst {
    const INFO: Info = Info {
        name: "mst",
        idea: "one Space-Saving summary for each prefix length; a packet updates all of them",
        paper: "MST (ALENEX 2012), section 3",
        parameters: &PARAMETERS,
        memory: "for each prefix length, as space-saving with this number of counters, or with \
                 one for each such prefix if that is fewer; and about 256 bytes",
        forms: &[form![Size(Counted::Asked), Candidates, Prefixes { sampled: false }]],
        laws: Laws { commutable: true, aggregatable: true, sizes: true, ..Laws::NONE },
    };

    fn fits(options: &Options) -> Result<(), BuildError> {
        fits(Self::INFO.name, options)
    }

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        let name = Self::INFO.name;
        Ok(match options.by {
            Measure::Packets => Box::new(AllNodes::<K, u32>(Lattice::new(name, options)?)),
            Measure::Bytes => Box::new(AllNodes::<K, u64>(Lattice::new(name, options)?)),
        })
    }
}

/// The nodes, for the measure that `C` counts.
struct AllNodes<K: FlowKey, C: Monitored>(Lattice<K, C>);

impl<K: FlowKey, C: Monitored> Ingest<K> for AllNodes<K, C> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        self.0.add_to_all(batch.keys(), C::column(batch));
    }

    fn reads(&self) -> Reads {
        Reads::sizes(C::MEASURE)
    }
}

impl<K: FlowKey, C: Monitored> Summary<K> for AllNodes<K, C> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(summary.0.digester()))?;
        self.0.matches(&other.0)?;
        self.0.merge(&other.0);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        self.0.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.0.load(from)
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![("counters", Setting::Integer(self.0.counters() as u64))]
    }

    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

impl<K: FlowKey, C: Monitored> Answers for AllNodes<K, C> {
    fn untracked(&self) -> Size {
        self.0.untracked()
    }
    fn saturated(&self) -> Size {
        self.0.saturated()
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
    fn prefixes(&self) -> Option<&dyn Prefixes> {
        Some(&self.0)
    }
}

impl<K: FlowKey, C: Monitored> SizeQuery for AllNodes<K, C> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        self.0.size(key, |weight| weight)
    }
}

impl<K: FlowKey, C: Monitored> Candidates for AllNodes<K, C> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        self.0.candidates(|weight| weight, visit);
    }

    fn overflow(&self) -> u64 {
        0
    }

    fn unnamed(&self, by: Measure) -> Option<f64> {
        (by == C::MEASURE).then(|| self.0.unnamed())
    }
}
