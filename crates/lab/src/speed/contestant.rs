//! The structures that are timed.

use std::hint::black_box;

use datasketches::countmin::CountMinSketch;
use datasketches::frequencies::FrequentItemsSketch;
use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::instant::WorkingSet;
use flowgauge_core::summary::{Options, Parameters, Summary};
use flowgauge_core::terms::Hierarchy;
use flowgauge_kernel::Digester;

use super::entry::Entry;
use super::stream::Stream;
use crate::accuracy::plan;
use crate::failure::Failure;

/// Bytes of every frame.
pub(super) const FRAME_BYTES: u32 = 64;

/// Packets in a long run: samplers take a decreasing share.
const LONG: usize = 1_000_000_000;

/// Something that counts packets.
pub(super) trait Contestant {
    /// Removes everything, then counts one packet of each of these flows.
    fn begin(&mut self, earlier: &[Key8]);
    /// Processes all packets, once or repeatedly; returns how many.
    fn take(&mut self, stream: &mut Stream) -> usize;
}

/// A summary from the catalog.
pub(super) struct Cataloged {
    summary: Box<dyn Summary<Key8>>,
    batch: Batch<Key8>,
    /// Whether it processes a billion packets, from prefilled batches.
    long: bool,
}

impl Cataloged {
    /// The algorithm of an entry behind its accelerator, or `alone`.
    pub(super) fn new(entry: &Entry, alone: bool, digester: Digester) -> Result<Self, Failure> {
        let accelerator = entry.accelerator.as_ref().filter(|_| !alone).map(|accelerator| {
            let parameters = accelerator.parameters.iter().copied();
            (accelerator.name.to_owned(), Parameters::new(parameters))
        });
        let long = entry.reading.is_some() && !alone;
        Ok(Self { long, ..Self::behind(accelerator, entry, digester)? })
    }

    /// The algorithm of an entry behind this accelerator.
    pub(super) fn behind(
        accelerator: Option<(String, Parameters)>,
        entry: &Entry,
        digester: Digester,
    ) -> Result<Self, Failure> {
        let memory = entry.rival.as_ref().and_then(|rival| rival.memory);
        let mut options = Options::new(memory.map_or(1 << 20, |bytes| bytes()), 1)
            .with(entry.parameters.iter().copied());
        options.digester = digester;
        options.hierarchy = Hierarchy::Pair;
        let accelerators = Vec::from_iter(accelerator);
        let failed = |error| Failure::Build {
            algorithm: entry.name,
            asked: format!("{:?}", entry.parameters),
            error,
        };
        // An accelerator has its own memory.
        options.memory_bytes +=
            catalog::accelerator_bytes::<Key8>(&accelerators, &options).map_err(failed)?;
        let summary = catalog::build_accelerated::<Key8>(&accelerators, entry.name, &options)
            .map_err(failed)?;
        Ok(Self::of(summary))
    }

    pub(super) fn of(summary: Box<dyn Summary<Key8>>) -> Self {
        Self { summary, batch: Batch::new(), long: false }
    }

    pub(super) fn parameters(&self) -> String {
        plan::parameters(&*self.summary)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.summary.memory_bytes()
    }

    fn take_long(&mut self, stream: &mut Stream) -> usize {
        let turns = LONG.div_ceil(stream.batches.len() * BATCH_PACKETS);
        for _ in 0..turns {
            for batch in &mut stream.batches {
                self.summary.ingest(batch);
            }
        }
        self.summary.settle();
        turns * stream.batches.len() * BATCH_PACKETS
    }

    fn ingest(&mut self, keys: &[Key8]) {
        for keys in keys.chunks(BATCH_PACKETS) {
            self.batch.fill(keys, FRAME_BYTES);
            self.summary.ingest(&mut self.batch);
        }
        self.summary.settle();
    }
}

/// The lower limit: a loop that only reads the keys.
pub(super) struct Reading;

impl Contestant for Reading {
    fn begin(&mut self, _: &[Key8]) {}

    fn take(&mut self, stream: &mut Stream) -> usize {
        let keys = Key8::words(black_box(&stream.keys));
        black_box(keys.iter().fold(0, |all, key| all ^ key));
        keys.len()
    }
}

impl Contestant for Cataloged {
    fn begin(&mut self, earlier: &[Key8]) {
        self.summary.clear();
        self.ingest(earlier);
    }

    fn take(&mut self, stream: &mut Stream) -> usize {
        if self.long {
            return self.take_long(stream);
        }
        if !self.summary.wants_elements() {
            self.ingest(&stream.keys);
            return stream.keys.len();
        }
        let elements = stream.elements.chunks(BATCH_PACKETS);
        for (keys, elements) in stream.keys.chunks(BATCH_PACKETS).zip(elements) {
            self.batch.fill_with_elements(keys, elements, FRAME_BYTES);
            self.summary.ingest(&mut self.batch);
        }
        self.summary.settle();
        stream.keys.len()
    }
}

/// Capacity of the table of frequent items in keys, of which three quarters are used.
pub(crate) const FREQUENT: usize = 1024;

/// Another implementation.
pub(super) struct Rival {
    pub(super) name: &'static str,
    pub(super) build: fn() -> Box<dyn Contestant>,
    /// Its memory, if the summary compared with it gets the same.
    pub(super) memory: Option<fn() -> usize>,
    /// The target speed-up.
    pub(super) speedup: Option<f64>,
}

/// Count-Min with the same number and width of counters.
pub(super) const COUNT_MIN: Rival = Rival {
    name: "datasketches CountMinSketch",
    build: || of(|| CountMinSketch::<u32>::new(4, 1 << 16).ok(), CountMinSketch::update),
    memory: None,
    speedup: Some(5.0),
};

/// Frequent items, whose error depends on memory. Space-Saving with m counters in the same memory
/// has smaller errors: at most N/m, where a table of 1024 has 3.5 N/1024, and about N/750 over
/// backbone traffic.
pub(super) const FREQUENT_ITEMS: Rival = Rival {
    name: "datasketches FrequentItemsSketch",
    build: || of(frequent, FrequentItemsSketch::update),
    memory: Some(frequent_bytes),
    speedup: Some(2.0),
};

/// InstaMeasure's flow table without the regulator, with the same number of entries.
pub(super) const WORKING_SET: Rival =
    Rival { name: "its table alone", build: working_set, memory: None, speedup: Some(3.0) };

/// # Panics
/// When the operating system refuses the memory.
fn working_set() -> Box<dyn Contestant> {
    let options = Options::new(0, 1).with([("entries", 1 << 23)]);
    let table = WorkingSet::from_options(&options, 0).expect("there is as much memory");
    Box::new(Cataloged::of(Box::new(table)))
}

fn frequent() -> Option<FrequentItemsSketch<u64>> {
    FrequentItemsSketch::new(FREQUENT).ok()
}

/// Measured bytes of the full-size table, which the library grows itself.
pub(crate) fn frequent_bytes() -> usize {
    let Some(mut sketch) = frequent() else { return 0 };
    (0..FREQUENT as u64).for_each(|key| sketch.update(key));
    sketch.estimated_size()
}

struct Sketch<S, N, U> {
    new: N,
    update: U,
    filled: Option<S>,
}

impl<S, N: Fn() -> Option<S>, U: Fn(&mut S, u64)> Contestant for Sketch<S, N, U> {
    fn begin(&mut self, earlier: &[Key8]) {
        self.filled = (self.new)();
        self.count(earlier);
    }

    fn take(&mut self, stream: &mut Stream) -> usize {
        self.count(&stream.keys);
        stream.keys.len()
    }
}

impl<S, N: Fn() -> Option<S>, U: Fn(&mut S, u64)> Sketch<S, N, U> {
    fn count(&mut self, keys: &[Key8]) {
        let Some(sketch) = &mut self.filled else { return };
        for &key in Key8::words(keys) {
            (self.update)(sketch, key);
        }
    }
}

fn of<S: 'static>(
    new: impl Fn() -> Option<S> + 'static,
    update: impl Fn(&mut S, u64) + 'static,
) -> Box<dyn Contestant> {
    Box::new(Sketch { new, update, filled: None })
}
