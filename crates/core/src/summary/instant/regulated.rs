//! A regulator before a flow table: what the table counts, and what that says of all packets.
//!
//! Paper: InstaMeasure (ICDCS 2019), §3. A packet that the [`Regulator`] lets through is counted in
//! the table and stands for `UNIT` packets of its own length; all others leave marks only. A flow is
//! thus in the table as soon as it is of some size, without any decoding afterwards. What stays
//! behind, about 50 packets (RCC: 5) of a flow that is alone in its words, is read from the marks when
//! a flow of the table is asked for, in proportion to the share of them that is likely its own
//! (`decode=saturation` leaves it out, as the paper does; the bounds are the same). What other flows' saturations erase nothing makes up for: with 100 million packets in 128 KB 0.1 % of
//! flows over 100,000 packets, and 0.6 % of those from 10,000 on.

use flowgauge_kernel::Digester;

use super::super::codec::{DecodeError, Reader, Writer};
use super::super::{
    Answers, Candidates, Counter, Estimate, Incompatible, Ingest, Options, Setting, SizeEstimate,
    SizeQuery, Summary, sum_and_largest,
};
use super::bounds::Flow;
use super::regulator::Regulator;
use super::word::Word;
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::{CanonicalKey, FlowKey};
use crate::terms::Size;

/// A flow table behind a regulator: it counts each flow by itself, and says which packets it may
/// have lost by the upper bound.
pub trait Behind: Send + 'static {
    /// The keys of its flows.
    type Key: FlowKey;
    /// The name of the regulator as an accelerator, where the table is a summary without it, too.
    const ACCELERATOR: Option<&'static str>;
    /// Bytes beside the table's.
    const BYTES: usize;

    /// Asks for the memory that a flow with this digest is likely in.
    #[inline(always)]
    fn prefetch(&self, digest: u64) {
        let _ = digest;
    }
    /// Takes one packet of each of these rows.
    fn take(&mut self, batch: &Batch<Self::Key>, rows: &[u8]);
    /// Hands over to the table what is held back.
    fn settle(&mut self) {}
    /// Forgets what is held back.
    fn forget(&mut self) {}
    /// The table.
    fn summary(&self) -> &dyn Summary<Self::Key>;
    /// The table.
    fn summary_mut(&mut self) -> &mut dyn Summary<Self::Key>;
}

/// A regulator of `LAYERS` layers of words `W` before a flow table.
///
/// Cost: one word a packet, mostly in cache; for the packets that are let through (1 % with two
/// layers, 10 % with one) what the table costs. Memory in bytes: `sketch`, and the table's.
pub struct Regulated<W, const LAYERS: usize, T> {
    digester: Digester,
    regulator: Regulator<W, LAYERS>,
    table: T,
    total: Size,
    longest: u64,
    /// Regulators whose flows the table has: more than one after merges.
    regulators: u64,
}

impl<W: Word, const LAYERS: usize, T: Behind> Regulated<W, LAYERS, T> {
    pub(crate) fn new(options: &Options, regulator: Regulator<W, LAYERS>, table: T) -> Self {
        let digester = options.digester;
        Self { digester, regulator, table, total: Size::default(), longest: 0, regulators: 1 }
    }

    /// Packets of a flow as decoded at this very packet: what was let through, and what is behind
    /// in the regulator. Costs a random access or two to each array; other flows' marks count as
    /// this one's.
    pub fn decode(&self, key: T::Key) -> f64 {
        let canonical = key.canonical(self.digester.key_bytes());
        let through = self.answers_of_table().size().map(|sizes| sizes.estimate(canonical));
        let count = through.and_then(|through| through.packets).map_or(0.0, |count| count.value);
        let residual = self.regulator.residual(key.digest(&self.digester));
        Regulator::<W, LAYERS>::UNIT * count + residual
    }

    fn answers_of_table(&self) -> &dyn Answers {
        self.table.summary().answers()
    }

    /// Forgets all packets, but for those that the table has.
    fn forget(&mut self) {
        self.regulator.clear();
        self.table.forget();
        self.total = Size::default();
        self.longest = 0;
        self.regulators = 1;
    }

    /// What `size` packets that reached the table stand for.
    fn decoded(&self, size: Size) -> Size {
        let unit = Regulator::<W, LAYERS>::UNIT;
        let all = |size: u64, total: u64| ((unit * size as f64).round() as u64).min(total);
        Size {
            packets: all(size.packets, self.total.packets),
            bytes: all(size.bytes, self.total.bytes),
        }
    }

    /// What is known of the flow with this key, and the packets and bytes of it that reached the
    /// table.
    #[inline(never)]
    fn flow(&self, key: T::Key, counted: &SizeEstimate) -> (Flow, (f64, f64)) {
        let [packets, bytes] = [counted.packets, counted.bytes]
            .map(|counted| counted.unwrap_or(Estimate::between(0.0, 0.0, f64::INFINITY)));
        let flow = Flow {
            unit: Regulator::<W, LAYERS>::UNIT,
            variance: Regulator::<W, LAYERS>::VARIANCE,
            total: self.total,
            behind: self.regulator.behind(key.digest(&self.digester)),
            marks: self.total.packets as f64 * self.regulator.vector_share(),
            regulators: self.regulators as f64,
            longest: self.longest as f64,
            lost: (packets.high - packets.value, bytes.high - bytes.value),
        };
        (flow, (packets.value, bytes.value))
    }
}

impl<W: Word, const LAYERS: usize, T: Behind> Ingest<T::Key> for Regulated<W, LAYERS, T> {
    /// A row that stands for several packets counts as so many of equal length.
    fn ingest(&mut self, batch: &mut Batch<T::Key>) {
        batch.digest(&self.digester);
        let digests = batch.digests();
        let packets = (!batch.is_plain()).then(|| batch.packets());
        // Flows lie anywhere in memory: they are asked for at once, and counted afterwards.
        let mut rows = [0; BATCH_PACKETS];
        let mut count = 0;
        let table = &mut self.table;
        self.regulator.regulate(digests, packets, &mut |i| {
            if count == BATCH_PACKETS {
                table.take(batch, &rows);
                count = 0;
            }
            table.prefetch(digests[i]);
            rows[count] = i as u8;
            count += 1;
        });
        table.take(batch, &rows[..count]);
        let (bytes, longest) = sum_and_largest(self.longest, batch.bytes());
        self.total += Size { packets: packets.map_or(digests.len() as u64, u32::sum), bytes };
        self.longest = longest;
    }

    fn settle(&mut self) {
        self.table.settle();
        self.table.summary_mut().settle();
    }
}

impl<W: Word, const LAYERS: usize, T: Behind> Summary<T::Key> for Regulated<W, LAYERS, T> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    /// The tables are united. The marks of `other` are not: what they stood for is within the
    /// upper bounds.
    fn merge(&mut self, other: &dyn Summary<T::Key>) -> Result<(), Incompatible> {
        let other = other.downcast_ref::<Self>().ok_or(Incompatible("types differ"))?;
        if self.regulator.settings() != other.regulator.settings() {
            return Err(Incompatible("parameters differ"));
        }
        self.settle();
        self.table.summary_mut().merge(other.table.summary())?;
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
        self.regulators = self.regulators.saturating_add(other.regulators);
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.size(self.total);
        out.numbers(&[self.longest, self.regulators]);
        self.regulator.save(out);
        self.table.summary().save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.size("all packets")?;
        self.longest = from.number("longest packet")?;
        self.regulators = from.number("number of regulators")?;
        self.regulator.load(from)?;
        self.table.summary_mut().load(from)
    }

    fn clear(&mut self) {
        self.forget();
        self.table.summary_mut().clear();
    }

    fn next_epoch(&mut self) {
        self.settle();
        self.forget();
        self.table.summary_mut().next_epoch();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        let mut parameters = Vec::new();
        if T::ACCELERATOR.is_none() {
            parameters = self.regulator.settings();
        }
        parameters.extend(self.table.summary().parameters());
        parameters
    }

    fn accelerators(&self) -> Vec<(&'static str, Vec<(&'static str, Setting)>)> {
        let own = T::ACCELERATOR.map(|name| (name, self.regulator.settings()));
        own.into_iter().chain(self.table.summary().accelerators()).collect()
    }

    fn memory_bytes(&self) -> usize {
        self.regulator.memory_bytes() + T::BYTES + self.table.summary().memory_bytes()
    }
}

/// Sizes, and what is heavy: small flows stay behind, so that nobody knows how many there are.
impl<W: Word, const LAYERS: usize, T: Behind> Answers for Regulated<W, LAYERS, T> {
    fn untracked(&self) -> Size {
        self.decoded(self.answers_of_table().untracked())
    }
    fn saturated(&self) -> Size {
        self.decoded(self.answers_of_table().saturated())
    }
    fn size(&self) -> Option<&dyn SizeQuery> {
        Some(self)
    }
    fn candidates(&self) -> Option<&dyn Candidates> {
        Some(self)
    }
}

impl<W: Word, const LAYERS: usize, T: Behind> SizeQuery for Regulated<W, LAYERS, T> {
    fn estimate(&self, key: &[u8]) -> SizeEstimate {
        let key_of_flow = T::Key::matching(key, &self.digester);
        let (Some(flow), Some(sizes)) = (key_of_flow, self.answers_of_table().size()) else {
            return SizeEstimate::exact(Size::default());
        };
        let (flow, through) = self.flow(flow, &sizes.estimate(key));
        flow.size(through)
    }
}

impl<W: Word, const LAYERS: usize, T: Behind> Candidates for Regulated<W, LAYERS, T> {
    fn for_each(&self, visit: &mut dyn FnMut(CanonicalKey, SizeEstimate)) {
        let Some(candidates) = self.answers_of_table().candidates() else { return };
        candidates.for_each(&mut |key, counted| {
            if let Some(flow) = T::Key::matching(key.as_bytes(), &self.digester) {
                let (flow, through) = self.flow(flow, &counted);
                visit(key, flow.listed(through));
            }
        });
    }

    fn overflow(&self) -> u64 {
        self.answers_of_table().candidates().map_or(0, Candidates::overflow)
    }
}
