//! FlowRadar: a Bloom filter that detects new flows, and an invertible table of their sums.
//!
//! Paper: Li, Miao, Kim, Yu, "FlowRadar: a better NetFlow for data centers" (NSDI 2016), §3. A flow
//! has one cell in each of several parts. Its first packet adds its key to these cells; every
//! packet adds its size. At the close of the epoch, the flows are decoded from the cells: all of
//! them if there are at least 1.295 times as many cells (with 4 hashes), and otherwise those that
//! can be decoded, with the number and size of the others. The filter's bits of a flow are in one
//! cache line. Flows are distinguished by their digests alone: two flows with one digest, which
//! takes chance or a known seed, count as one.

mod answers;
mod cells;
mod decode;

use flowgauge_kernel::Digester;

use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::describe::form;
use crate::summary::ingest::{Basis, twin};
use crate::summary::remix::remix_batch;
use crate::summary::{
    Answers, BuildError, BuildErrorKind, Counted, Describe, Incompatible, Info, Ingest, Laws,
    Memory, Merge, Options, Parameter, Reads, Setting, Summary,
};
use crate::terms::Size;
use cells::{
    BlockedBloom, Cell, Cells, FILTER_WORD, LINE_BYTES, MOST_BYTES, MOST_FLOWS, MOST_HASHES, Shape,
};
use decode::{Decoded, Lazy, Source};

/// Default size of the filter, as a divisor of the cells' memory.
const FILTER_DIVISOR: usize = 3;

/// A FlowRadar of packets and bytes.
///
/// Cost: one cache line of the filter and one per hash, prefetched; as many more for a new flow.
/// Memory in bytes: `cells × (2 × (size_of::<K>() + 12) + 5) + filter`. The second cell and the 5
/// bytes are for decoding.
///
/// ```
/// use flowgauge_core::batch::Batch;
/// use flowgauge_core::catalog;
/// use flowgauge_core::key::{FlowKey, Key8};
/// use flowgauge_core::summary::Options;
///
/// let options = Options::new(1 << 20, 1).for_keys(4);
/// let mut radar = catalog::build::<Key8>("flow-radar", &options).unwrap();
/// let mut batch = Batch::new();
/// for packet in 0..200 {
///     batch.push(Key8::from_canonical(&[10, 0, 0, packet % 50]).unwrap(), 100, 0);
/// }
/// radar.ingest(&mut batch);
/// let flows = radar.answers().flows().unwrap();
/// assert_eq!(flows.len(), 50);
/// flows.for_each(&mut |_, size| assert_eq!((size.packets, size.bytes), (4, 400)));
/// ```
pub struct FlowRadar;

impl Describe for FlowRadar {
    const INFO: Info = Info {
        name: "flow-radar",
        idea: "Bloom filter and invertible lookup table, from whose sums flows are decoded",
        paper: "FlowRadar (NSDI 2016), section 3",
        parameters: &[
            Parameter {
                name: "cells",
                help: "number of cells (default: what fits into the memory)",
            },
            Parameter {
                name: "flows",
                help: "instead of cells: the number of flows to decode completely in 99 of 100 \
                       epochs",
            },
            Parameter {
                name: "filter",
                help: "bytes of the Bloom filter (default: a third of the bytes of the cells)",
            },
            Parameter {
                name: "hashes",
                help: "cells of a flow, and bits of a flow in the filter: 3, 4 or 5 (default: 4)",
            },
        ],
        memory: "cells x (2 x (key + 12) + 5) + filter",
        forms: &[form![
            Flows,
            Size(Counted::Both),
            Candidates,
            Cardinality,
            WeightLogs(Counted::Both),
            Distribution(Counted::Packets)
        ]],
        laws: Laws {
            commutable: true,
            aggregatable: true,
            sizes: true,
            merge: Merge::Disjoint,
            ..Laws::NONE
        },
    };

    fn build<K: FlowKey>(options: &Options) -> Result<Box<dyn Summary<K>>, BuildError> {
        let parameters = &options.parameters;
        parameters.exclusive("cells", &["flows"])?;
        let hashes = parameters.integer("hashes", 3..=MOST_HASHES as u64)?.unwrap_or(4) as usize;
        let filter = parameters.integer("filter", LINE_BYTES as u64..=1 << 40)?;
        let cells = parameters.integer("cells", 2 * hashes as u64..=1 << 32)?;
        let flows = parameters.integer("flows", 1..=1 << 31)?;
        let cell = Cells::<K>::CELL_BYTES;
        let cells = match (cells, flows) {
            (Some(cells), _) => cells as usize,
            (None, Some(flows)) => cells_for(flows as usize, hashes),
            (None, None) => {
                let mut each = cell + Decoded::<K>::CELL_BYTES + options.task_bytes_per_flow;
                // A filter of default size is rounded up to lines.
                let mut rest = options.memory_bytes.saturating_sub(LINE_BYTES);
                match filter {
                    Some(filter) => rest = rest.saturating_sub(filter as usize),
                    None => each += cell.div_ceil(FILTER_DIVISOR),
                }
                if rest / each < 2 * hashes {
                    let (needed, given) = (2 * hashes * each + LINE_BYTES, options.memory_bytes);
                    return Err(BuildErrorKind::TooLittleMemory { needed, given }.into());
                }
                (rest / each).min(1 << 32)
            }
        };
        let shape = Shape { hashes, part: cells / hashes };
        let filter = filter.map_or(shape.cells() * cell / FILTER_DIVISOR, |filter| filter as usize);
        let lines = filter.div_ceil(LINE_BYTES);
        Ok(Box::new(Radar::<K>::new(shape, lines, options.digester, &options.memory)?))
    }
}

/// The cells with their filter and the flows decoded from them.
struct Radar<K> {
    digester: Digester,
    shape: Shape,
    cells: Cells<K>,
    filter: BlockedBloom,
    /// The size counted in each part of the cells.
    total: Size,
    /// The largest number of flows in a cell.
    fullest: u32,
    /// Packets of new flows that found a full cell.
    untracked: Size,
    saturated: Size,
    decoded: Lazy<Decoded<K>>,
}

/// Number of cells that decode `flows` flows completely in 99 of 100 epochs: the thresholds of
/// peeling for many flows (1.222, 1.295 and 1.425 cells per flow), and a margin that is larger for
/// few.
fn cells_for(flows: usize, hashes: usize) -> usize {
    let per_flow = [1.25, 1.33, 1.47][hashes - 3];
    let flows = flows as f64;
    (per_flow * flows + 3.0 * flows.sqrt()).ceil() as usize + 8 * hashes
}

impl<K: FlowKey> Radar<K> {
    fn new(
        shape: Shape,
        filter_lines: usize,
        digester: Digester,
        memory: &Memory,
    ) -> Result<Self, BuildError> {
        Ok(Self {
            digester,
            shape,
            cells: Cells::new(shape.cells(), memory)?,
            filter: BlockedBloom::new(filter_lines, shape.hashes, memory)?,
            total: Size::default(),
            fullest: 0,
            untracked: Size::default(),
            saturated: Size::default(),
            decoded: Lazy::new(Decoded::new(shape.cells(), memory)?),
        })
    }

    fn fullest_cell(&self) -> u32 {
        (0..self.cells.len()).map(|cell| self.cells.flows(cell) as u32).max().unwrap_or(0)
    }

    fn source(&self) -> Source<'_, K> {
        Source {
            cells: &self.cells,
            filter: &self.filter,
            shape: self.shape,
            digester: &self.digester,
        }
    }

    fn decoded(&self) -> &Decoded<K> {
        self.decoded.get(|decoded| decoded.run(&self.source()))
    }

    /// Counts one packet of a batch. If a cell has no room for it, no cell changes, so that the
    /// cells remain a sum of flows.
    fn ingest_row(&mut self, key: &K, digest: u64, packets: u32, bytes: u64) {
        let size = Size { packets: u64::from(packets), bytes };
        let word = Shape::filter_word(digest);
        let new = !self.filter.holds(word);
        let places = self.shape.cells_of(digest);
        let room = |place| {
            let cell = self.cells.get(place);
            cell.has_room(packets, bytes) && !(new && cell.flows() == MOST_FLOWS)
        };
        if !places.clone().all(room) {
            *if new { &mut self.untracked } else { &mut self.saturated } += size;
            return;
        }
        if new {
            self.filter.insert(word);
        }
        for place in places {
            if new {
                self.fullest = self.fullest.max(self.cells.enter(place, key));
            }
            self.cells.change(place, |cell| cell.count(packets, bytes));
        }
        self.total += size;
    }

    /// Counts a batch that every cell has room for, and whose packets have fewer than 2³² bytes
    /// each.
    ///
    /// It makes several passes over the batch: one prefetches what the next but one needs. New
    /// flows cannot be predicted, so they are selected without a branch.
    fn ingest_rows<const HASHES: usize>(&mut self, batch: &Batch<K>) {
        let (keys, digests) = (batch.keys(), batch.digests());
        let (cells, filter) = (&mut self.cells, &mut self.filter);
        let mut words = [0; BATCH_PACKETS];
        let words = &mut words[..digests.len()];
        remix_batch(&self.digester, digests, FILTER_WORD, words);
        let mut lines = [0u32; BATCH_PACKETS];
        for (line, word) in lines.iter_mut().zip(&*words) {
            *line = filter.line(*word) as u32;
            filter.prefetch(*line as usize);
        }

        let shape = Shape { hashes: HASHES, ..self.shape };
        let mut places = [[0u32; BATCH_PACKETS]; HASHES];
        let mut pair = [0; BATCH_PACKETS];
        let pair = &mut pair[..digests.len()];
        for (hash, places) in places.iter_mut().enumerate() {
            if hash.is_multiple_of(2) {
                remix_batch(&self.digester, digests, hash as u64 / 2, pair);
            }
            for (place, word) in places.iter_mut().zip(&*pair) {
                *place = shape.place(*word, hash) as u32;
            }
        }
        for i in 0..digests.len().min(BATCH_PACKETS) {
            for places in &places {
                cells.prefetch_counts(places[i] as usize);
            }
        }

        let mut new = [0u8; BATCH_PACKETS];
        let mut seem_new = 0;
        for (i, (word, line)) in words.iter().zip(&lines).enumerate() {
            new[seem_new % BATCH_PACKETS] = i as u8;
            seem_new += usize::from(!filter.line_seems_to_hold::<HASHES>(*line as usize, *word));
        }
        let mut entering = 0;
        for at in 0..seem_new {
            let i = usize::from(new[at]);
            // It may be the second packet of a new flow.
            if !filter.line_seems_to_hold::<HASHES>(lines[i] as usize, words[i]) {
                filter.insert(words[i]);
                for places in &places {
                    cells.prefetch_entered(places[i] as usize);
                }
                new[entering] = new[at];
                entering += 1;
            }
        }

        cells.count(&places, batch.packets(), batch.bytes());
        let mut fullest = self.fullest;
        for i in &new[..entering] {
            let i = usize::from(*i);
            for places in &places {
                fullest = fullest.max(cells.enter(places[i] as usize, &keys[i]));
            }
        }
        self.fullest = fullest;
    }
}

impl<K: FlowKey> Ingest<K> for Radar<K> {
    fn ingest(&mut self, batch: &mut Batch<K>) {
        self.decoded.forget();
        batch.digest(&self.digester);
        let (mut size, mut bits) = (Size::default(), 0);
        for (packets, bytes) in batch.packets().iter().zip(batch.bytes()) {
            size.packets += u64::from(*packets);
            size.bytes = size.bytes.wrapping_add(*bytes);
            bits |= bytes;
        }
        let total = self.total + size;
        let flows = u64::from(self.fullest) + batch.len() as u64;
        let most = u64::from(u32::MAX);
        if bits > most || total.packets > most || total.bytes > MOST_BYTES || flows > MOST_FLOWS {
            for i in 0..batch.len() {
                let (packets, bytes) = (batch.packets()[i], batch.bytes()[i]);
                self.ingest_row(&batch.keys()[i], batch.digests()[i], packets, bytes);
            }
            return;
        }
        self.total = total;
        match self.shape.hashes {
            3 => self.ingest_rows::<3>(batch),
            4 => self.ingest_rows::<4>(batch),
            _ => self.ingest_rows::<5>(batch),
        }
    }

    fn reads(&self) -> Reads {
        Reads::BYTES
    }
}

impl<K: FlowKey> Summary<K> for Radar<K> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    /// Adds cells and filters, as if one FlowRadar had seen the packets of both, one after the
    /// other. A flow of both must be entered only once, which requires all flows of one of them to
    /// be decoded. If neither can be, flows of both would cancel out, which is an error.
    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        let (flows, filter) = match (other.decoded().is_complete(), self.decoded().is_complete()) {
            (true, _) => (other.decoded(), &self.filter),
            // Decoded by the line above.
            (_, true) => (self.decoded.get(|_| ()), &other.filter),
            _ => {
                return Err(Incompatible(
                    "both hold more flows than they can decode, and flows in both would be lost; \
                     use more cells",
                ));
            }
        };
        if self.cells.iter().zip(other.cells.iter()).any(|(cell, other)| !cell.has_room_for(&other))
        {
            return Err(Incompatible("the sum is more than the cells can count"));
        }
        for (at, other) in other.cells.iter().enumerate() {
            self.cells.change(at, |cell| cell.add(&other));
        }
        for named in flows.cells() {
            let (key, _) = flows.flow(named);
            let digest = key.digest(&self.digester);
            if filter.holds(Shape::filter_word(digest)) {
                for place in self.shape.cells_of(digest) {
                    self.cells.change(place, |cell| cell.remove_key(&key));
                }
            }
        }
        self.fullest = self.fullest_cell();
        self.filter.merge(&other.filter);
        self.total += other.total;
        self.untracked += other.untracked;
        self.saturated += other.saturated;
        self.decoded.forget();
        Ok(())
    }

    fn save(&self, out: &mut Writer) {
        out.size(self.total);
        out.size(self.untracked);
        out.size(self.saturated);
        for cell in self.cells.iter() {
            out.key(cell.key);
            out.number(cell.packets);
            out.number(cell.tally);
        }
        self.filter.save(out);
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.total = from.size("total")?;
        self.untracked = from.size("untracked")?;
        self.saturated = from.size("saturated")?;
        for at in 0..self.cells.len() {
            let key = from.key("sum of keys")?;
            let (packets, tally) = (from.number("packets")?, from.number("flows, bytes")?);
            let cell = Cell { key, packets, tally };
            // Since no cell exceeds the total, packets need no check one by one.
            if u64::from(cell.packets) > self.total.packets || cell.bytes() > self.total.bytes {
                return Err(from.invalid("packets", 12, "they exceed the total"));
            }
            self.cells.set(at, &cell);
        }
        self.fullest = self.fullest_cell();
        self.filter.load(from)
    }

    fn clear(&mut self) {
        self.cells.clear();
        self.filter.clear();
        self.total = Size::default();
        self.fullest = 0;
        self.untracked = Size::default();
        self.saturated = Size::default();
        self.decoded.forget();
    }

    fn parameters(&self) -> Vec<(&'static str, Setting)> {
        vec![
            ("cells", Setting::Integer(self.shape.cells() as u64)),
            ("filter", Setting::Integer(self.filter.memory_bytes() as u64)),
            ("hashes", Setting::Integer(self.shape.hashes as u64)),
        ]
    }

    fn memory_bytes(&self) -> usize {
        self.cells.memory_bytes()
            + self.filter.memory_bytes()
            + self.shape.cells() * Decoded::<K>::CELL_BYTES
    }
}
