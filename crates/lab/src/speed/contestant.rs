//! The timed structures: algorithms with their targets, and their competitors.

use std::hint::black_box;

use datasketches::countmin::CountMinSketch;
use datasketches::frequencies::FrequentItemsSketch;
use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::Key8;
use flowgauge_core::summary::instant::WorkingSet;
use flowgauge_core::summary::{Options, Parameters, Summary};
use flowgauge_core::terms::Hierarchy;
use flowgauge_kernel::Digester;

use super::by_hand;
use super::stream::Stream;
use crate::accuracy::plan;
use crate::failure::Failure;

/// The packets for an algorithm.
#[derive(Clone, Copy)]
pub(super) enum Traffic {
    /// The profile's packets.
    Ordered,
    /// The same, after a packet of each of a million flows.
    Crowded,
    /// Uniform traffic of millions of flows, after a packet of each: caches do not help a table.
    Scattered,
}

impl Traffic {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ordered => "",
            Self::Crowded => " (crowded)",
            Self::Scattered => " (scattered)",
        }
    }
}

/// An algorithm with its parameters.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) parameters: &'static [(&'static str, &'static str)],
    /// The target share of the yardstick's rate.
    pub(super) share: Option<f64>,
    pub(super) traffic: Traffic,
    /// A hand-written loop that does the same work.
    pub(super) by_hand: Option<fn(Digester) -> Box<dyn Contestant>>,
    pub(super) rival: Option<Rival>,
    /// The accelerator before it; it is compared with the algorithm alone.
    pub(super) accelerator: Option<Accelerator>,
    /// Maximum time relative to a loop that reads all keys. It processes a billion packets in
    /// prefilled, cached batches, as from a source.
    pub(super) reading: Option<f64>,
}

/// An accelerator with its parameters.
pub(super) struct Accelerator {
    pub(super) name: &'static str,
    pub(super) parameters: &'static [(&'static str, &'static str)],
    /// The target speed-up.
    pub(super) speedup: Option<f64>,
}

/// The best of 2048 to 16384 for all algorithms. Backbone traffic evicts one packet in fifty, and
/// with prefetching the rows may exceed the second-level cache.
const AGG_EVICT: &[(&str, &str)] = &[("rows", "8192")];

const fn entry(
    name: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    share: Option<f64>,
) -> Entry {
    Entry {
        name,
        parameters,
        share,
        traffic: Traffic::Ordered,
        by_hand: None,
        rival: None,
        accelerator: None,
        reading: None,
    }
}

impl Entry {
    const fn crowded(self) -> Self {
        Self { traffic: Traffic::Crowded, ..self }
    }

    const fn scattered(self) -> Self {
        Self { traffic: Traffic::Scattered, ..self }
    }

    /// What it is compared with, and the target speed-up.
    pub(super) fn rivalry(&self) -> Option<(&'static str, Option<f64>)> {
        let alone = self.accelerator.as_ref().map(|accelerator| ("alone", accelerator.speedup));
        alone.or_else(|| self.rival.as_ref().map(|rival| (rival.name, rival.speedup)))
    }

    const fn behind(
        self,
        name: &'static str,
        parameters: &'static [(&'static str, &'static str)],
        speedup: Option<f64>,
    ) -> Self {
        Self { accelerator: Some(Accelerator { name, parameters, speedup }), ..self }
    }

    /// The entry behind Agg-Evict.
    const fn aggregated(self, speedup: Option<f64>) -> Self {
        self.behind("agg-evict", AGG_EVICT, speedup)
    }

    /// The entry behind Skipper, with an error of 1 % exceeded with a probability of 0.01 %. With
    /// that, a flow's error on arrival is within 1.1 times the error without
    /// (`core/tests/suite/accelerated/skipper.rs`).
    const fn skipped(self, speedup: f64) -> Self {
        Self {
            reading: Some(1.5),
            ..self.behind("skipper", &[("epsilon", "0.01"), ("delta", "0.0001")], Some(speedup))
        }
    }

    /// The entry behind NitroSketch, with the default of one update of a row in a hundred.
    const fn sampled(self, reading: f64) -> Self {
        Self { reading: Some(reading), ..self.behind("nitro", &[("p", "0.01")], None) }
    }

    /// The entry behind FlowRegulator, which pays if most packets miss the caches.
    const fn regulated(self) -> Self {
        self.behind("flow-regulator", &[], None)
    }

    const fn by_hand(self, build: fn(Digester) -> Box<dyn Contestant>) -> Self {
        Self { by_hand: Some(build), ..self }
    }
}

/// The levels of the Agg-Evict paper, with as many rows as the hand-written loop.
const UNIVMON: &[(&str, &str)] =
    &[("levels", "4"), ("rows", "4"), ("columns", "65536"), ("top", "128")];

/// Four rows of 65536 columns, with their heavy keys.
const SKETCH: &[(&str, &str)] = &[("rows", "4"), ("columns", "65536")];

/// Four rows of 65536 columns alone, like the yardstick and other implementations.
const ROWS: &[(&str, &str)] = &[("rows", "4"), ("columns", "65536"), ("candidates", "0")];

/// Five rows, as in the Skipper paper.
const FIVE_ROWS: &[(&str, &str)] = &[("rows", "5"), ("columns", "65536"), ("candidates", "0")];

/// InstaMeasure with a table much larger than the caches.
const INSTA_MEASURE: Entry = entry("insta-measure", &[("entries", "8388608")], None);

/// Every algorithm, at its paper's size if it has one.
pub(super) static ENTRIES: &[Entry] = &[
    entry("linear-table", &[("buckets", "2097152")], Some(0.5))
        .crowded()
        .by_hand(by_hand::large_table),
    entry("linear-table", &[("buckets", "524288")], None).by_hand(by_hand::small_table),
    entry("indirect-table", &[("buckets", "524288")], None).by_hand(by_hand::indirect_table),
    entry("cuckoo-1", &[("buckets", "524288")], None).by_hand(by_hand::cuckoo_1),
    entry("cuckoo-4", &[("buckets", "65536")], None).by_hand(by_hand::cuckoo_4),
    entry("count-array", &[("columns", "262144")], None).by_hand(by_hand::count_array),
    entry("replacing-array", &[("columns", "262144")], None).by_hand(by_hand::replacing),
    entry("mrac", &[("columns", "262144")], Some(1.0)).by_hand(by_hand::mrac),
    entry("linear-counting", &[("bits", "8388608")], Some(1.0)).by_hand(by_hand::linear_counting),
    entry("fm", &[("bitmaps", "4")], Some(1.0)).by_hand(by_hand::fm),
    entry("hyperloglog", &[], None),
    Entry { rival: Some(COUNT_MIN), ..entry("count-min", ROWS, Some(0.8)).by_hand(by_hand::rows) },
    entry("count-min", SKETCH, None).by_hand(by_hand::count_min),
    entry("conservative-count-min", SKETCH, None).by_hand(by_hand::conservative),
    entry("count-sketch", ROWS, Some(0.5)).by_hand(by_hand::signed_rows),
    entry("count-sketch", SKETCH, None).by_hand(by_hand::count_sketch),
    entry("k-ary", ROWS, Some(0.5)).by_hand(by_hand::rows),
    entry("k-ary", SKETCH, None).by_hand(by_hand::k_ary),
    entry("reversible-sketch", &[("columns", "65536")], Some(0.1)).by_hand(by_hand::reversible),
    entry("two-level", &[("columns", "65536"), ("bitmaps", "4096")], Some(0.1))
        .by_hand(by_hand::two_level),
    entry("univmon", UNIVMON, Some(0.09)).by_hand(by_hand::univmon),
    entry("flow-radar", &[("cells", "262144"), ("hashes", "4")], Some(0.27))
        .by_hand(by_hand::flow_radar),
    entry("elastic-sketch", &[("buckets", "2048"), ("light", "524288")], None)
        .by_hand(by_hand::elastic),
    entry("space-saving", &[("counters", "128")], Some(0.15)).by_hand(by_hand::space_saving),
    Entry { rival: Some(FREQUENT_ITEMS), ..entry("space-saving", &[], None) },
    entry("stream-summary", &[("counters", "128")], None).by_hand(by_hand::stream_summary),
    entry("misra-gries", &[("counters", "128")], None).by_hand(by_hand::misra_gries),
    entry(
        "sketch-visor",
        &[("rows", "4"), ("columns", "65536"), ("candidates", "8192"), ("counters", "1024")],
        None,
    )
    .by_hand(by_hand::sketch_visor),
    entry("csm", &[], None).by_hand(by_hand::csm),
    entry("netflow", &[("buckets", "32768")], None).by_hand(by_hand::netflow),
    entry("rcc", &[("entries", "16384")], None).by_hand(by_hand::rcc),
    entry("insta-measure", &[("entries", "16384")], None).by_hand(by_hand::insta_measure),
    entry("mst", &[("counters", "1400")], None).by_hand(by_hand::mst),
    entry("rhhh", &[("counters", "1400")], None).by_hand(by_hand::rhhh),
    entry("kll", &[], None),
    // FM itself costs almost nothing: this measures the accelerator alone.
    entry("fm", &[("bitmaps", "4")], Some(0.8)).aggregated(None),
    entry("linear-table", &[("buckets", "2097152")], None).crowded().aggregated(None),
    entry("mrac", &[("columns", "262144")], None).aggregated(None),
    entry("linear-counting", &[("bits", "8388608")], None).aggregated(None),
    entry("count-min", ROWS, Some(0.7)).aggregated(None),
    entry("count-sketch", ROWS, None).aggregated(None),
    entry("k-ary", ROWS, None).aggregated(None),
    entry("reversible-sketch", &[("columns", "65536")], None).aggregated(Some(3.0)),
    entry("two-level", &[("columns", "65536"), ("bitmaps", "4096")], None).aggregated(Some(3.0)),
    entry("univmon", UNIVMON, Some(0.5)).aggregated(Some(3.0)),
    entry("flow-radar", &[("cells", "262144"), ("hashes", "4")], Some(0.5)).aggregated(Some(1.5)),
    entry("space-saving", &[("counters", "128")], Some(0.5)).aggregated(Some(3.0)),
    entry("space-saving", &[("counters", "128")], None).skipped(12.0),
    entry("count-sketch", FIVE_ROWS, None).skipped(8.0),
    entry("count-min", FIVE_ROWS, None).skipped(5.0),
    entry("count-min", ROWS, None).sampled(3.0),
    entry("count-min", SKETCH, None).sampled(3.0),
    entry("count-sketch", ROWS, None).sampled(3.0),
    entry("count-sketch", SKETCH, None).sampled(3.0),
    entry("k-ary", ROWS, None).sampled(3.0),
    entry("k-ary", SKETCH, None).sampled(3.0),
    entry("univmon", UNIVMON, None).sampled(5.0),
    Entry { rival: Some(WORKING_SET), ..INSTA_MEASURE.scattered() },
    Entry { rival: Some(Rival { speedup: None, ..WORKING_SET }), ..INSTA_MEASURE.crowded() },
    entry("linear-table", &[("buckets", "8388608")], None).scattered().regulated(),
    entry("indirect-table", &[("buckets", "8388608")], None).scattered().regulated(),
    entry("cuckoo-1", &[("buckets", "16777216")], None).scattered().regulated(),
    entry("cuckoo-4", &[("buckets", "2097152")], None).scattered().regulated(),
    entry("linear-table", &[("buckets", "2097152")], None).crowded().regulated(),
];

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
        let keys = black_box(&stream.keys);
        black_box(keys.iter().fold(0_u64, |all, key| all ^ bytemuck::cast::<_, u64>(*key)));
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
        if !self.summary.reads().elements {
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
        for key in keys {
            (self.update)(sketch, bytemuck::cast(*key));
        }
    }
}

fn of<S: 'static>(
    new: impl Fn() -> Option<S> + 'static,
    update: impl Fn(&mut S, u64) + 'static,
) -> Box<dyn Contestant> {
    Box::new(Sketch { new, update, filled: None })
}
