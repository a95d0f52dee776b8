//! A regulator before a flow table: its state, batches and merges.
//!
//! Paper: InstaMeasure (ICDCS 2019), §3. A packet that the [`Regulator`] forwards is counted in the
//! table and represents `UNIT` packets of its length; all other packets leave marks only. So a flow
//! enters the table as soon as it has some size, without any decoding afterwards. The residual
//! marks, about 50 packets (RCC: 5) of a flow that is alone in its words, are read when a flow of
//! the table is queried, in proportion to the fraction that is likely its own (`decode=saturation`
//! omits them, as the paper does; the bounds are the same). Marks that other flows erase are lost:
//! with 100 million packets in 128 KB this is 0.1 % of flows above 100,000 packets, and 0.6 % of
//! flows from 10,000 on.

use flowgauge_kernel::Digester;

use super::regulator::{Regulator, Word};
use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::{
    Answers, Counter, Incompatible, Ingest, Options, Setting, Summary, sum_and_largest,
};
use crate::terms::Size;

/// A flow table behind a regulator. It counts each flow separately, and its upper bounds include
/// the packets that it may have lost.
pub trait RegulatedTable: Send + 'static {
    /// The key type of the flows.
    type Key: FlowKey;
    /// The name of the regulator as an accelerator; `None` if it is a part of the algorithm.
    const ACCELERATOR: Option<&'static str>;
    /// Bytes in addition to those of the table.
    const BYTES: usize;

    /// Prefetches the likely place of a flow with this digest.
    #[inline(always)]
    fn prefetch(&self, digest: u64) {
        let _ = digest;
    }
    /// Adds one packet of each of these rows.
    fn take(&mut self, batch: &Batch<Self::Key>, rows: &[u8]);
    /// Passes buffered packets on to the table.
    fn settle(&mut self) {}
    /// Drops buffered packets.
    fn forget(&mut self) {}
    /// The table.
    fn summary(&self) -> &dyn Summary<Self::Key>;
    /// The table, to change it.
    fn summary_mut(&mut self) -> &mut dyn Summary<Self::Key>;
}

/// A regulator of `LAYERS` layers of words `W` before a flow table.
///
/// Cost per packet: one word, mostly in the cache; for forwarded packets (1 % with two layers, 10 %
/// with one), also the cost of the table. Memory in bytes: `sketch`, and that of the table.
pub struct Regulated<W, const LAYERS: usize, T> {
    pub(super) digester: Digester,
    pub(super) regulator: Regulator<W, LAYERS>,
    table: T,
    /// Size of all packets.
    pub(super) total: Size,
    /// Bytes of the longest packet.
    pub(super) longest: u64,
    /// Number of regulators whose flows the table holds: more than one after merges.
    pub(super) regulators: u64,
}

impl<W: Word, const LAYERS: usize, T: RegulatedTable> Regulated<W, LAYERS, T> {
    pub(crate) fn new(options: &Options, regulator: Regulator<W, LAYERS>, table: T) -> Self {
        let digester = options.digester_for::<T::Key>();
        Self { digester, regulator, table, total: Size::default(), longest: 0, regulators: 1 }
    }

    pub(super) fn table_answers(&self) -> &dyn Answers {
        self.table.summary().answers()
    }

    /// Clears everything except the table.
    fn forget(&mut self) {
        self.regulator.clear();
        self.table.forget();
        self.total = Size::default();
        self.longest = 0;
        self.regulators = 1;
    }
}

impl<W: Word, const LAYERS: usize, T: RegulatedTable> Ingest<T::Key> for Regulated<W, LAYERS, T> {
    /// A weighted row counts as its number of packets, all of equal length.
    fn ingest(&mut self, batch: &mut Batch<T::Key>) {
        batch.digest(&self.digester);
        let digests = batch.digests();
        let packets = (!batch.is_plain()).then(|| batch.packets());
        // All forwarded flows are prefetched before any is counted, since they lie anywhere in
        // memory.
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

impl<W: Word, const LAYERS: usize, T: RegulatedTable> Summary<T::Key> for Regulated<W, LAYERS, T> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    /// Merges the tables. The marks of `other` are dropped; the upper bounds include their packets.
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
