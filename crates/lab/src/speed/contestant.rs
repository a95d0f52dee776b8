//! The structures that are timed.

use std::hint::black_box;

use flowgauge_core::batch::{BATCH_PACKETS, Batch};
use flowgauge_core::catalog;
use flowgauge_core::key::{FlowKey, Key8};
use flowgauge_core::summary::{Options, Parameters, Summary};
use flowgauge_core::terms::Hierarchy;
use flowgauge_kernel::Digester;

use super::entry::Entry;
use super::stream::Stream;
use crate::failure::Failure;
use crate::subject;

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
        subject::parameters(&*self.summary)
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
