//! FlowRadar: a Bloom filter that tells new flows, and an invertible table that sums them up.
//!
//! Paper: Li, Miao, Kim, Yu, "FlowRadar: a better NetFlow for data centers" (NSDI 2016), §3.
//! A flow has a cell in each of several parts. Its first packet enters its key there; every packet
//! counts there. When the epoch ends, the flows are read from the cells: all of them while the
//! cells are 1.295 times as many (with 4 hashes), and beyond that those that can be told, with the
//! number and size of the others. The filter's bits of a flow lie in one cache line. Flows are told
//! apart by their digests alone: two of one digest, which only chance or a known seed gives, are one.

mod answers;
mod cells;
mod decode;

use flowgauge_kernel::Digester;

use crate::batch::{BATCH_PACKETS, Batch};
use crate::key::FlowKey;
use crate::summary::basis::{Basis, twin};
use crate::summary::codec::{DecodeError, Reader, Writer};
use crate::summary::forms::form;
use crate::summary::remix::remix_batch;
use crate::summary::{
    Answers, BuildError, BuildErrorKind, Counted, Describe, Incompatible, Info, Ingest, Laws,
    Memory, Merge, Options, Parameter, Setting, Summary,
};
use crate::terms::Size;
use cells::{
    BlockedBloom, Cell, Cells, FILTER_WORD, LINE_BYTES, MOST_BYTES, MOST_FLOWS, MOST_HASHES, Shape,
};
use decode::{Decoded, Lazy, Source};

/// Share of the cells' memory that the filter takes, unless asked otherwise.
const FILTER_SHARE: usize = 3;

/// Sizes of flows, and how to read them from the cells.
struct RadarCells<K> {
    digester: Digester,
    shape: Shape,
    cells: Cells<K>,
    filter: BlockedBloom,
    /// What was counted in the cells of each part.
    total: Size,
    /// Flows of the cell with most of them.
    fullest: u32,
    /// Of new flows whose cells were full.
    untracked: Size,
    saturated: Size,
    decoded: Lazy<Decoded<K>>,
}

/// FlowRadar, as the catalog has it.
///
/// Cost: one cache line of the filter and one for each hash, asked for ahead; as many more for a new
/// flow. Memory in bytes: `cells × (2 × (size_of::<K>() + 12) + 5) + filter`; the second cell and the
/// 5 bytes are where the flows are decoded.
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
                // A filter by default is rounded up to lines.
                let mut rest = options.memory_bytes.saturating_sub(LINE_BYTES);
                match filter {
                    Some(filter) => rest = rest.saturating_sub(filter as usize),
                    None => each += cell.div_ceil(FILTER_SHARE),
                }
                if rest / each < 2 * hashes {
                    let (needed, given) = (2 * hashes * each + LINE_BYTES, options.memory_bytes);
                    return Err(BuildErrorKind::TooLittleMemory { needed, given }.into());
                }
                (rest / each).min(1 << 32)
            }
        };
        let shape = Shape { hashes, part: cells / hashes };
        let filter = filter.map_or(shape.cells() * cell / FILTER_SHARE, |filter| filter as usize);
        let lines = filter.div_ceil(LINE_BYTES);
        Ok(Box::new(RadarCells::<K>::new(shape, lines, options.digester, &options.memory)?))
    }
}

/// Cells that decode `flows` flows but once in a hundred epochs: what suffices for many, by the
/// thresholds of peeling (1.222, 1.295 and 1.425 cells a flow), and a margin, larger for few.
fn cells_for(flows: usize, hashes: usize) -> usize {
    let per_flow = [1.25, 1.33, 1.47][hashes - 3];
    let flows = flows as f64;
    (per_flow * flows + 3.0 * flows.sqrt()).ceil() as usize + 8 * hashes
}

impl<K: FlowKey> RadarCells<K> {
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

    /// Takes one row of a batch, which may not fit: then no cell changes, so that what the cells
    /// hold stays the sum of flows.
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

    /// Takes a batch for which there is room in every cell, and whose rows have fewer than 2³² bytes.
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
            // It may be the second packet of a flow.
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

impl<K: FlowKey> Ingest<K> for RadarCells<K> {
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
}

impl<K: FlowKey> Summary<K> for RadarCells<K> {
    fn answers(&self) -> &dyn Answers {
        self
    }

    /// The cells and the filters are summed, as if one radar had seen the packets of both, one
    /// after the other. A flow of both is entered once only: for this, the flows of one of them
    /// must all be decoded. Where neither can be, flows of both would cancel out, so that is an
    /// error.
    fn merge(&mut self, other: &dyn Summary<K>) -> Result<(), Incompatible> {
        let other = twin(self, other, |summary| Basis::of(&summary.digester))?;
        let (flows, filter) = match (other.decoded().is_complete(), self.decoded().is_complete()) {
            (true, _) => (other.decoded(), &self.filter),
            // Decoded a line before.
            (_, true) => (self.decoded.get(|_| ()), &other.filter),
            _ => {
                return Err(Incompatible(
                    "both hold more flows than they can decode, and flows in both would be lost; \
                     use more cells",
                ));
            }
        };
        if self.cells.iter().zip(other.cells.iter()).any(|(cell, other)| !cell.takes(&other)) {
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
                    self.cells.change(place, |cell| cell.leave(&key));
                }
            }
        }
        self.fullest = self.fullest_cell();
        self.filter.unite(&other.filter);
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
            // That no cell has more than the total is what spares a check for each packet.
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
